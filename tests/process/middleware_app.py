"""A resource that a slot holds, which notes in a file when it is made and cleaned up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from tenure import hook, resource, workflow

NOTES = Path(os.environ.get("MIDDLEWARE_NOTES", os.devnull))


def note(text: str) -> None:
    with NOTES.open("a") as file:
        file.write(f"{text}\n")


@resource(per="slot")
def model() -> Iterator[str]:
    note("made")
    yield f"model of {os.getpid()}"
    note("cleaned up")


@hook("slot_end")
def told() -> None:
    note("slot ended")


@workflow
def predict(ctx: Any, value: int, by: Annotated[str, model]) -> str:
    return f"{value} by {by}"
