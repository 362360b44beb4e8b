"""A datacenter on SQLite: two managers, three workers; a long job, a hung one, a killed worker, a killed leader, a cancelled job.

Every process is a real `tenure` command, and every death a `kill -9`. Nothing is told that the managers did not answer.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.demo.bars import Bars, job_bars
from examples.demo.datacenter_app import STEP_S
from tenure.backoff import Retry
from tenure.client.client import Client
from tenure.clock import SystemClock
from tenure.control.messages.jobs import JobView
from tenure.errors import TenureError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import JobState

LONG, HUNG, ORPHAN, UNWANTED = "long", "hung", "orphan", "unwanted"
TERM_S = 3.0
LEASE_S = 4.0
LIMIT_S = 50.0
EXPECTED = {
    LONG: JobState.COMPLETED,
    HUNG: JobState.COMPLETED,
    ORPHAN: JobState.COMPLETED,
    UNWANTED: JobState.CANCELLED,
}


class StoryError(Exception):
    """It went another way than it should."""


class Process:
    """One `tenure` command, and what it said."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.name, self._log = name, folder / f"{name}.log"
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "tenure", *arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def said(self, pattern: str) -> str:
        """The first group of the first match; empty while there is none."""
        found = re.search(pattern, self._log.read_text(errors="replace"))
        return found[1] if found else ""

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()


class Demo:
    """Starts the processes, plays the faults, and tells what the managers answered."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console, self._folder, self._clock = console, folder, SystemClock()
        self._url = f"sqlite:///{folder / 'demo.db'}"
        self._managers: list[Process] = []
        self._workers: list[Process] = []
        self._events: dict[str, list[str]] = {name: [] for name in EXPECTED}
        self._views: dict[str, JobView] = {}
        self._begun = self._clock.monotonic()

    def run(self) -> None:
        """Raises `StoryError` when it went another way."""
        try:
            addresses = self._start()
            self._begun = self._clock.monotonic()
            with Client(addresses, patience_s=20) as client, job_bars(self._console) as bars:
                self._play(client, bars)
                self._until(client, bars, lambda: all(view.ended for view in self._views.values()), "every job ends")
                self._console.print(self._table(client))
                self._console.print(client.why(HUNG).text, highlight=False, soft_wrap=True)
                self._check(client)
        finally:
            for process in (*self._workers, *self._managers):
                process.end()

    def _start(self) -> list[str]:
        for number in (1, 2):
            standing = ("--engine", self._url, "--name", f"manager-{number}", "--port", "0", "--term", f"{TERM_S:g}")
            self._managers.append(Process(self._folder, f"manager-{number}", "manager", *standing))
        for number in (1, 2, 3):
            name, module = f"worker-{number}", "examples.demo.datacenter_app"
            options = ("--engine", self._url, "--managed", "--name", name, "--slots", "1", "--grace", "0.5")
            lease = ("--lease", f"{LEASE_S:g}")
            self._workers.append(Process(self._folder, name, "worker", module, *options, *lease))
        self._wait(lambda: all(one.said(r"listens on (\S+)") for one in self._managers), "the managers listen")
        self._wait(lambda: any(one.said(r"(leads) with") for one in self._managers), "somebody leads")
        self._wait(lambda: all(one.said(r"incarnation (\w+):") for one in self._workers), "the workers are there")
        self._say(f"two managers (a term of {TERM_S:g} s), three workers (a lease of {LEASE_S:g} s), one SQLite file")
        return [one.said(r"listens on (\S+)") for one in self._managers]

    def _play(self, client: Client, bars: Bars) -> None:
        for name, function, frames in ((LONG, "render", 180), (ORPHAN, "render", 60), (HUNG, "flaky", 25)):
            self._submit(client, name, function, frames)
        self._until(client, bars, lambda: self._fraction(ORPHAN) > 0.3, "the orphan-to-be runs")
        self._kill_worker()
        self._until(client, bars, lambda: self._attempt(HUNG) > 1, "the hung job is tried again")
        self._tell(HUNG, "no beat for 3 s: its slot was killed, and a second attempt issued")
        self._kill_leader(client)
        self._until(client, bars, lambda: self._fraction(UNWANTED) > 0.02, "the unwanted job runs")
        client.cancel(UNWANTED, "nobody wants it any more", by="the demo")
        self._tell(UNWANTED, "cancelled while it ran")

    def _submit(self, client: Client, name: str, function: str, frames: int) -> None:
        retry = Retry(max_attempts=3, delay=0.5)
        spec = WorkflowSpec(name=function, arguments={"frames": frames}, retry=retry)
        client.submit_job(JobSubmission(job_id=name, workflows=(spec,), timeout_seconds=300))
        self._say(f"{name}: submitted, {frames * STEP_S:.0f} s of work")
        self._views[name] = client.job(name)

    def _kill_worker(self) -> None:
        name = self._views[ORPHAN].workflows[0].worker
        victim = next((one for one in self._workers if one.name == name), None)
        if victim is None:
            raise StoryError(f"no worker is called {name!r}")
        victim.kill()
        self._tell(ORPHAN, f"kill -9 of {victim.name}; its lease ran out, another worker has it")

    def _kill_leader(self, client: Client) -> None:
        name = client.leader().leader.partition("@")[0]
        next(one for one in self._managers if one.name == name).kill()
        killed = self._clock.monotonic()
        self._tell(LONG, f"kept running while {name}, which led, was killed with -9")
        self._submit(client, UNWANTED, "render", 600)
        took = self._clock.monotonic() - killed
        self._say(f"the next submission was accepted {took:.1f} s after the leader's death ({took / TERM_S:.1f} terms)")
        if took >= 2 * TERM_S:
            raise StoryError(f"the failover took {took:.1f} s, two terms are {2 * TERM_S:g} s")

    # Following

    def _until(self, client: Client, bars: Bars, true: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            for name in self._views:
                if not self._views[name].ended:
                    self._views[name] = view = client.job(name)
                    bars.show(name, self._fraction(name), view.state)
                    if view.ended:
                        self._say(f"{name}: {view.state}")
            return true()

        self._wait(look, what)

    def _wait(self, true: Callable[[], bool], what: str) -> None:
        while not true():
            if self._elapsed() > LIMIT_S:
                raise StoryError(f"after {LIMIT_S:g} s it had not happened that {what}")
            self._clock.sleep(0.1)

    def _fraction(self, name: str) -> float:
        return self._views[name].workflows[0].fraction or 0.0

    def _attempt(self, name: str) -> int:
        return self._views[name].workflows[0].attempt

    def _tell(self, name: str, text: str) -> None:
        self._events[name].append(text)
        self._say(f"{name}: {text}")

    def _say(self, line: str) -> None:
        self._console.print(f"{self._elapsed():5.1f} s  {line}", highlight=False, soft_wrap=True)

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._begun

    # The end

    def _table(self, client: Client) -> Table:
        table = Table("job", "state", "attempts", "deliveries", "took", "what happened")
        for name, view in self._views.items():
            took = f"{view.ended_at - view.submitted_at:.1f} s"
            deliveries = str(self._deliveries(client, name))
            events = "; ".join(self._events[name])
            table.add_row(name, view.state, str(self._attempt(name)), deliveries, took, events)
        return table

    def _deliveries(self, client: Client, name: str) -> int:
        return sum(link.kind == "WorkflowStarted" for link in client.why(name).why.links)

    def _check(self, client: Client) -> None:
        states = {name: view.state for name, view in self._views.items()}
        if states != EXPECTED:
            raise StoryError(f"the jobs ended as {states}")
        counts = {name: (self._attempt(name), self._deliveries(client, name)) for name in (LONG, HUNG, ORPHAN)}
        if counts != {LONG: (1, 1), HUNG: (2, 2), ORPHAN: (1, 2)}:
            raise StoryError(f"attempts and deliveries were {counts}")


def main() -> int:
    """Tell the story; 1 when it went another way."""
    # Without a terminal there is no width to fit: a log or a pipe gets each row on one line.
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder:
        try:
            Demo(console, Path(folder)).run()
        except KeyboardInterrupt:
            return 130
        except (StoryError, TenureError) as error:
            console.print(f"It went another way: {error}", highlight=False, soft_wrap=True)
            return 1
    console.print("Four jobs, a dead worker and a dead leader: each job ended once, and as it should.")
    return 0
