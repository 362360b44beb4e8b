"""The side of a peer's own environment: runs a case as the peer's job, and reads the settings of the run. Standard library only.

`peer_NAME.py` has `submit(names)`, and `worker()`, which runs one worker process until it is killed; it may have `failed(names)`, where only
the peer's own records show that it gave a job up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from corpus.case import SCALE, STALL_S, all_cases
from corpus.job import Job, Witness, perform, perform_async

URL = os.environ.get("CORPUS_URL", "")
FOLDER = Path(os.environ.get("CORPUS_RUN", "."))
MODE = os.environ.get("CORPUS_MODE", "defaults")
PLACES = int(os.environ.get("CORPUS_PLACES", "8"))
LIMIT_S = float(os.environ.get("CORPUS_LIMIT", "0"))
"""The time limit for a job, in the modes that have one; 0 for the defaults."""
CASES = all_cases()

__all__ = [
    "CASES",
    "FOLDER",
    "LIMIT_S",
    "MODE",
    "PLACES",
    "SCALE",
    "STALL_S",
    "URL",
    "attempt",
    "attempt_async",
    "serve",
]


def attempt(name: str, job: Job | None = None) -> str:
    """The body of a sync job."""
    return perform(CASES[name], job or Job(), FOLDER)


async def attempt_async(name: str, job: Job | None = None) -> str:
    """The body of an async job: a sync case runs in a thread, as these peers advise. Notes when the peer gives it up."""
    case = CASES[name]
    try:
        if case.is_async:
            return await perform_async(case, job or Job(), FOLDER)
        return await asyncio.to_thread(perform, case, job or Job(), FOLDER)
    except BaseException:
        Witness(FOLDER, name).say("given up", trace=traceback.format_exc()[-4000:])
        raise


def serve(module: Any) -> None:
    """Does what the command line says."""
    order, *names = sys.argv[1:]
    if order == "worker":
        module.worker()
    elif order == "submit":
        module.submit(names)
    else:
        print(json.dumps(module.failed(names)))


def program(*command: str) -> None:
    """Replaces this process by a program of its environment."""
    path = Path(sys.executable).with_name(command[0])
    os.execv(path, [str(path), *command[1:]])


def forever() -> None:
    while True:
        time.sleep(3600)
