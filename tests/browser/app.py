"""Workflows for the tests of the dashboard. Served by real worker processes."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import time
from os import _exit
from typing import Any, Literal, NotRequired, TypedDict

from tenure import Secret, workflow
from tenure.errors import ProviderUnavailableError


@workflow(stall=120)
def beat_until(ctx: Any, told: str) -> str:
    """Beats until the file is there."""
    beats = 0
    while not os.path.exists(told):
        beats += 1
        ctx.beat(progress=min(0.9, beats / 400))
        time.sleep(0.05)
    return "done"


@workflow(stall=120)
def silent_until(ctx: Any, told: str) -> str:
    """One beat, and then none: its time only runs out."""
    ctx.beat()
    while not os.path.exists(told):
        time.sleep(0.05)
    return "done"


@workflow(stall=120)
def noting_until(ctx: Any, told: str, text: str) -> None:
    """Says the text of itself for as long as it runs."""
    while not os.path.exists(told):
        ctx.beat(note=text)
        time.sleep(0.05)


@workflow
def echo(ctx: Any, text: str, fails: bool = False) -> dict[str, str]:
    """Says the text wherever a workflow can say something."""
    logging.getLogger("echo").warning(text)
    if fails:
        raise RuntimeError(text)
    return {"said": text}


@workflow(stall=1)
def hold_the_gil(ctx: Any) -> str:
    """Hangs inside of C code, with the interpreter's lock held."""
    ctx.beat(note="matching")
    logging.getLogger("app").warning("matching 40 characters")
    re.match(r"(a|a)*b", "a" * 40)
    return "never"


@workflow(stall=30)
def crash_in_c(ctx: Any) -> str:
    ctx.beat(note="about to read address 0")
    ctypes.string_at(0)
    return "never"


@workflow(stall=30)
def ask_a_dead_provider(ctx: Any) -> str:
    logging.getLogger("app").warning("the provider does not answer")
    raise ProviderUnavailableError("the provider is out of reach: connection refused")


@workflow(stall=30)
def eat_memory(ctx: Any) -> int:
    kept = [bytearray(1 << 20) for _ in range(4_096)]
    return len(kept)


@workflow(stall=30)
def leave(ctx: Any) -> str:
    _exit(17)


@workflow
def resize(
    ctx: Any,
    path: str,
    width: int,
    format: Literal["png", "webp"] = "png",
    sharp: bool | None = None,
    tags: list[str] | None = None,
    card: Secret[str] | None = None,
) -> str:
    """Resizes a picture."""
    return f"{path} {width} {format} {sharp} {tags or []} {card}"


class Approval(TypedDict):
    by: str
    amount: NotRequired[int]


@workflow(signals={"approved": Approval, "sure": bool})
def asks_a_person(ctx: Any) -> str:
    """Waits for two signals, one after the other."""
    approval = ctx.wait_event("approved")
    return f"{approval['by']} {approval['amount']} {ctx.wait_event('sure')} {ctx.wait_event('anything')}"
