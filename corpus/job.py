"""The side of a runtime that a case sees, and the witness that writes down what really happened, whatever a runtime says. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from corpus.case import Case

STEPS_BEFORE = 6
"""The steps of a job that counts, before it hangs; after `SAVED` of them it saves a checkpoint. The next attempt finishes the rest."""
SAVED = 4
STEPS = 10


class Job:
    """A runtime that knows nothing of progress. Others override what they can tell their runtime."""

    def beat(
        self, done: int | None = None, total: int | None = None, fraction: float | None = None, note: str | None = None
    ) -> None:
        """The job has advanced; `done` of `total` items, or `fraction` of the whole, is where it stands."""

    def checkpoint(self, state: Any) -> None:
        """Saves where the job is, for the next attempt."""

    @property
    def resume(self) -> Any:
        """The state that an earlier attempt saved, or None."""
        return None

    def silence(self, max_s: float, why: str) -> Any:
        """Declares a quiet spell."""
        return contextlib.nullcontext()

    def thread(self) -> Any:
        """Declares that this thread does part of the work."""
        return contextlib.nullcontext()

    def log(self, text: str) -> None:
        print(text, flush=True)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def track(self, items: Iterable[Any], total: int | None = None) -> Iterator[Any]:
        for done, item in enumerate(items, 1):
            yield item
            self.beat(done, total)

    def polling(self, every_s: float, most_s: float, why: str) -> Iterator[None]:
        until = time.monotonic() + most_s
        while time.monotonic() < until:
            yield
            time.sleep(every_s)

    def program(self, *command: str) -> None:
        """Runs a program; each line of its output is a beat."""
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
            for _ in started.stdout or ():
                self.beat()


class Witness:
    """Appends what one case does to a file of its own: who began when, each step, how it ended. The file outlives any process."""

    def __init__(self, folder: Path, case: str) -> None:
        self.path, self.case = folder / f"{case}.jsonl", case

    def say(self, what: str, **facts: Any) -> None:
        line = json.dumps({"what": what, "at": time.time(), **facts}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def lines(self) -> list[dict[str, Any]]:
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def begin(self) -> int:
        """Notes the begin of an attempt, with the earlier ones that could still act; returns its number."""
        lines = self.lines()
        ended = {line["attempt"] for line in lines if line["what"] in ("end", "error")}
        begun = [line for line in lines if line["what"] == "begin"]
        beside = [one["attempt"] for one in begun if one["attempt"] not in ended and _lives(one["pid"], one["started"])]
        number = len(begun) + 1
        self.say("begin", attempt=number, pid=os.getpid(), started=_started(os.getpid()), beside=beside)
        return number


def _started(pid: int) -> str:
    """The start time of a process, which tells it from a later one with its number; empty when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _lives(pid: int, started: str) -> bool:
    return bool(started) and _started(pid) == started


def perform(case: Case, job: Job, folder: Path) -> str:
    """Runs one attempt of a sync case, or of an async one where the runtime has no event loop."""
    return _attempt(case, job, folder, lambda: asyncio.run(case.run(job)) if case.is_async else case.run(job))


async def perform_async(case: Case, job: Job, folder: Path) -> str:
    """Runs one attempt of an async case on the runtime's own event loop. The checkpoint before the hang is the caller's to await."""
    witness = Witness(folder, case.name)
    number = witness.begin()
    with _ending(witness, number):
        if case.kind == "hang" and not _before(case, job, witness, number):
            return "recovered"
        await asyncio.sleep(
            0.1
        )  # what the runtime has to send, a checkpoint say, leaves before the case may block the loop
        await case.run(job)
    return "done"


def _attempt(case: Case, job: Job, folder: Path, run: Any) -> str:
    witness = Witness(folder, case.name)
    number = witness.begin()
    with _ending(witness, number):
        if case.kind == "hang" and not _before(case, job, witness, number):
            return "recovered"
        run()
    return "done"


@contextlib.contextmanager
def _ending(witness: Witness, number: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        witness.say("error", attempt=number, error=f"{type(error).__name__}: {error}"[:300])
        raise
    witness.say("end", attempt=number)


def _before(case: Case, job: Job, witness: Witness, number: int) -> bool:
    """Does the work before the hang; returns False when this attempt goes on to the end, because an earlier one hung already."""
    done = int(job.resume or 0)
    last = STEPS_BEFORE if number == 1 else STEPS
    for step in range(done, last if case.counts else 0):
        witness.say("step", attempt=number, step=step)
        time.sleep(0.02)
        job.beat(step + 1, STEPS)
        if step + 1 == SAVED:
            job.checkpoint(SAVED)
    if number == 1:
        witness.say("hang", attempt=number)
    return number == 1
