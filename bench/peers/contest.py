"""Measures one contender from outside, in the same way whoever it is.

A round: fill its queue with no-ops while no worker runs, start one worker, and count how many jobs it ends per second from the first to
the last (so that its start does not count). Then, with that worker and ours idle and waiting, single jobs are submitted to the two in turn, ten
at a time, and the time until each begins is taken: whatever else the machine does then, it does to both.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FIRST_JOB_S = 60.0
DRAIN_S = 8.0
"""How long a drain is watched at the most: slow ones are rated by what they did until then."""
PICKUP_S = 8.0
"""How long single jobs are submitted to one contender at the most."""
SAMPLES, AT_A_TIME = 100, 10


class Broken(Exception):
    """A contender that did not do what it was told, and why."""


@dataclass
class Pickups:
    """Milliseconds of one round, of a peer and of us beside it."""

    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)


@dataclass
class Contender:
    """One library on one server, with its driver and, during a round, one worker."""

    name: str
    module: str
    python: Path
    url: str
    folder: Path
    config: str = ""
    jobs: int = 2_000
    sooner: str = ""
    settings: str = ""
    drains: list[float] = field(default_factory=list)
    """Jobs per second, of each round."""
    starts: list[float] = field(default_factory=list)
    """Seconds from the start of the worker's process to the end of its first job, of each round."""
    pickups: list[Pickups] = field(default_factory=list)
    _driver: subprocess.Popen[str] | None = None
    _worker: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        self._driver = subprocess.Popen(
            [str(self.python), f"{self.module}.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "driver.log").open("w"),
            text=True,
            **self._place(),
        )
        self.settings = self._ask("settings")

    def drain(self) -> float:
        """Jobs per second of one worker. One that has nothing left to do is then left running."""
        self.rest()
        self._ask("fill", self.jobs)
        (self.folder / "count").unlink(missing_ok=True)
        worker = self._start_worker()
        self.drains.append(self._watch_drain(worker))
        if self._count() < self.jobs:  # the rest is taken from it, and not every worker survives that
            self.rest()
            self._ask("reset")
            self._start_worker()
        time.sleep(0.5)
        return self.drains[-1]

    def _start_worker(self) -> subprocess.Popen[Any]:
        self._worker = subprocess.Popen(
            self._ask("worker"),
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "worker.log").open("a"),
            stderr=subprocess.STDOUT,
            **self._place(),
        )
        return self._worker

    def pick_up_beside(self, ours: Contender) -> Pickups:
        """Single jobs for this one and for us, in turn. Both have an idle worker."""
        for one in (ours, self):
            one._ask("pickups", AT_A_TIME, PICKUP_S / 4)  # the first ones open connections
        taken, begun = Pickups(), time.monotonic()
        while not taken.theirs or (len(taken.theirs) < SAMPLES and time.monotonic() - begun < 2 * PICKUP_S):
            taken.ours += ours._ask("pickups", AT_A_TIME, PICKUP_S)
            taken.theirs += self._ask("pickups", AT_A_TIME, PICKUP_S)
        self.pickups.append(taken)
        return taken

    def results(self, samples: int) -> list[float]:
        """Milliseconds from submission to result of single jobs. Its worker is idle."""
        found: list[float] = self._ask("results", samples)
        return found

    def measure(self, what: str, *values: Any) -> Any:
        """Returns what its driver measures itself."""
        return self._ask("measure", what, *values)

    def serve(self) -> None:
        """Start a worker for what is submitted from now on."""
        self.rest()
        self._ask("reset")
        self._start_worker()

    def tree(self) -> list[psutil.Process]:
        """Returns its worker and every process below it."""
        assert self._worker is not None
        root = psutil.Process(self._worker.pid)
        return [root, *root.children(recursive=True)]

    def processes(self) -> list[int]:
        """Returns the ids of everything that runs for it: its worker, and what its driver started."""
        assert self._driver is not None
        beside = psutil.Process(self._driver.pid).children(recursive=True)
        return [process.pid for process in (*self.tree(), *beside)]

    def rest(self) -> None:
        """End its worker."""
        if self._worker is not None:
            end(self._worker)
            self._worker = None

    def close(self) -> None:
        self.rest()
        if self._driver is not None:
            assert self._driver.stdin is not None
            assert self._driver.stdout is not None
            self._driver.stdin.close()
            end(self._driver)
            self._driver.stdout.close()

    def _place(self) -> dict[str, Any]:
        path = [str(HERE)]
        if self.module.startswith("peer_tenure"):
            path += [str(ROOT / "src"), str(ROOT)]
        own = {"PEERS_RUN": str(self.folder), "PEERS_URL": self.url, "PEERS_CONFIG": self.config}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        env = {**kept, **own, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
        return {"env": env, "cwd": HERE, "start_new_session": True}

    def _ask(self, order: str, *values: Any, within: float = 120.0) -> Any:
        assert self._driver is not None
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        try:
            self._driver.stdin.write(json.dumps([order, *values]) + "\n")
            self._driver.stdin.flush()
        except BrokenPipeError:
            raise Broken(f"its driver ended: {self._last_words('driver')}") from None
        if not select.select([self._driver.stdout], [], [], within)[0]:
            raise Broken(f"{order}: no answer within {within:g} s: {self._last_words('worker')}")
        line = self._driver.stdout.readline()
        if not line:
            raise Broken(f"its driver ended: {self._last_words('driver')}")
        answer = json.loads(line)
        if "error" in answer:
            raise Broken(f"{answer['error']}; its worker said: {self._last_words('worker')}")
        return answer["answer"]

    def _last_words(self, whose: str) -> str:
        log = self.folder / f"{whose}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        said = [line.strip() for line in lines if any(letter.isalnum() for letter in line)]  # not the frames around it
        return " / ".join(said[-2:])[:400] or "nothing"

    def _count(self) -> int:
        try:
            return (self.folder / "count").stat().st_size
        except FileNotFoundError:
            return 0

    def _watch_drain(self, worker: subprocess.Popen[Any]) -> float:
        started, seen, seen_first = time.perf_counter(), 0, 0
        first = last = 0.0
        while seen < self.jobs:
            now, count = time.perf_counter(), self._count()
            if count and not first:
                first, seen_first = now, count
                self.starts.append(now - started)
            if count != seen:
                seen, last = count, now
            if first and now - first > DRAIN_S:
                break
            if worker.poll() is not None:
                raise Broken(f"its worker ended: {self._last_words('worker')}")
            if not first and now - started > FIRST_JOB_S:
                raise Broken(f"no job began within {FIRST_JOB_S:g} s: {self._last_words('worker')}")
            time.sleep(0.001)
        if last == first:
            raise Broken(f"{seen} jobs ended at once: give it more")
        return (seen - seen_first) / (last - first)


def end(process: subprocess.Popen[Any]) -> None:
    """In order, and after a while with everything that it started: it has a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            if number is signal.SIGTERM:
                process.send_signal(number)
            else:
                os.killpg(process.pid, number)
            process.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
