"""The side of a peer's own environment: runs a case as the peer's job, and reads the settings of the run. Standard library only.

`peer_NAME.py` has `submit(names)`, and `worker()`, which runs one worker process until it is killed. It may have `failed(names)`, where only
the peer's own records show that it gave a job up, and `tend()`: a process that an expert would run beside the workers, to start stalled work again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus.case import SCALE, STALL_S, all_cases
from corpus.job import Job, Witness, perform, perform_async

URL = os.environ.get("CORPUS_URL", "")
FOLDER = Path(os.environ.get("CORPUS_RUN", "."))
MODE = os.environ.get("CORPUS_MODE", "defaults")
BEST = MODE == "best"
PLACES = int(os.environ.get("CORPUS_PLACES", "8"))
LIMIT_S = float(os.environ.get("CORPUS_LIMIT", "0"))
"""The time limit for a job at the best settings; 0 for the defaults."""
TELL_S = 0.5
"""A job's beats reach its runtime at most this often."""
CASES = all_cases()

__all__ = [
    "BEST",
    "CASES",
    "FOLDER",
    "LIMIT_S",
    "MODE",
    "PLACES",
    "SCALE",
    "STALL_S",
    "URL",
    "Beating",
    "attempt",
    "attempt_async",
    "serve",
]


class Beating(Job):
    """A job of a peer that has heartbeats: `tell()` sends one. A declared silence is a helper that sends them, for no longer than was declared."""

    def __init__(self) -> None:
        self._told = 0.0

    def tell(self, done: int | None = None) -> None:
        """Sends one heartbeat to the peer, from whichever thread calls it."""
        raise NotImplementedError

    def beat(
        self, done: int | None = None, total: int | None = None, fraction: float | None = None, note: str | None = None
    ) -> None:
        if time.monotonic() - self._told > TELL_S:
            self._told = time.monotonic()
            self.tell(done)

    def helped(self) -> None:
        """Sends one heartbeat from the helper of a declared silence."""
        self.tell()

    def silence(self, max_s: float, why: str) -> Any:
        return _Helper(self.helped, max_s)

    def sleep(self, seconds: float) -> None:
        with _Helper(self.helped, seconds):
            time.sleep(seconds)

    def polling(self, every_s: float, most_s: float, why: str) -> Iterator[None]:
        for turn in super().polling(every_s, most_s, why):
            self.beat()
            yield turn


class _Helper:
    """Beats from a thread until its block ends, or `max_s` are over. It is a block of both kinds of code."""

    def __init__(self, tell: Any, max_s: float) -> None:
        self._tell, self._max_s, self._over = tell, max_s, threading.Event()

    def _run(self) -> None:
        until = time.monotonic() + self._max_s
        while not self._over.wait(TELL_S) and time.monotonic() < until:
            self._tell()

    def __enter__(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self._over.set()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()


def attempt(name: str, job: Job | None = None) -> str:
    """The body of a sync job. Notes the stack with which the peer ended it, whether or not the peer logs it."""
    try:
        return perform(CASES[name], job or Job(), FOLDER)
    except BaseException:
        _given_up(name)
        raise


async def attempt_async(name: str, job: Job | None = None) -> str:
    """The body of an async job: a sync case runs in a thread, as these peers advise."""
    case = CASES[name]
    try:
        if case.is_async:
            return await perform_async(case, job or Job(), FOLDER)
        return await asyncio.to_thread(perform, case, job or Job(), FOLDER)
    except BaseException:
        _given_up(name)
        raise


def _given_up(name: str) -> None:
    Witness(FOLDER, name).say("given up", trace=traceback.format_exc()[-4000:])


def serve(module: Any) -> None:
    """Does what the command line says."""
    order, *names = sys.argv[1:]
    if order == "worker":
        module.worker()
    elif order == "tend":
        module.tend()
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
