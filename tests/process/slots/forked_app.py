"""Workflows that tell about the slot that runs them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from tenure import workflow

IMPORTED_IN = os.getpid()
print(f"imported in {IMPORTED_IN}.")  # without a flush: a fork must not write it twice

if os.environ.get("TENURE_TEST_LEAVES") == "thread":
    threading.Thread(target=threading.Event().wait, name="pump", daemon=True).start()
if os.environ.get("TENURE_TEST_LEAVES") == "generator":
    DICE = random.Random()
if os.environ.get("TENURE_TEST_LEAVES") == "file":
    OPEN = Path(__file__).open()  # noqa: SIM115  it stays open on purpose
if os.environ.get("TENURE_TEST_LEAVES") == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)


@workflow
def tell(ctx: Any) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "imported_in": IMPORTED_IN,
        "session": os.getsid(0),
        "drawn": random.random(),
    }


@workflow
def hold(ctx: Any, log: str, told: str) -> int:
    with Path(log).open("a") as out:
        out.write(f"start {os.getpid()}\n")
    while not Path(told).exists():
        ctx.beat()
        time.sleep(0.02)
    return os.getpid()
