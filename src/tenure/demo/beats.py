"""Three jobs on SQLite, each with a lease of three seconds: one lasts five leases, one hangs, one is killed with SIGKILL.

The first is delivered once, because its beats renew the lease. The others are delivered again and finished by another worker.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tenure.clock import SystemClock
from tenure.demo.beats_worker import LEASE_S, STALL_S, Job, Step
from tenure.engines.contracts import Engine, Mailbox

STEADY, HUNG, KILLED = "steady", "hung", "killed"
JOBS = (
    Job(STEADY, steps=round(5 * LEASE_S / 0.1)),
    Job(HUNG, steps=25, hang_at=10),
    Job(KILLED, steps=25),
)
KILL_AT = 12
WORKERS = 4
LIMIT_S = 28.0


@dataclass
class Story:
    """What is known about one job."""

    job: Job
    begun_s: float | None = None
    ended_s: float | None = None
    delivery: int = 0
    workers: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.ended_s is not None


class Worker:
    """One worker process, and what it wrote to standard error."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.name = name
        self._errors = folder / f"{name}.stderr"
        with self._errors.open("wb") as errors:
            command = [sys.executable, "-m", "tenure.demo.beats_worker", url, name]
            self.process = subprocess.Popen(command, stderr=errors)  # noqa: S603  our own module

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def last_words(self) -> str:
        """What its watchdog said, in a line."""
        lines = [line.strip() for line in self._errors.read_text(errors="replace").splitlines()]
        return next((line for line in lines if " stalled: " in line), "")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Demo:
    """Starts the workers, follows their reports, kills one of them, and tells what it saw."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self._clock = SystemClock()
        self._url = f"sqlite:///{folder / 'demo.db'}"
        self._folder = folder
        self._stories = {job.name: Story(job) for job in JOBS}
        self._workers: dict[str, Worker] = {}
        self._mourned: set[str] = set()
        self._begun = self._clock.monotonic()

    def run(self) -> bool:
        """True when everything happened as it should."""
        self._console.print(
            f"Three jobs in a SQLite file, {WORKERS} worker processes, a lease of {LEASE_S:g} s, a watchdog of {STALL_S:g} s.",
            soft_wrap=True,
            highlight=False,
        )
        with Engine.open(self._url) as engine:
            jobs: Mailbox[Job, Any] = engine.mailbox("jobs", body=Job)
            for job in JOBS:
                jobs.send(job)
            for number in range(1, WORKERS + 1):
                self._workers[f"worker-{number}"] = Worker(self._url, f"worker-{number}", self._folder)
            try:
                with self._bars() as bars:
                    self._follow(engine, bars)
            finally:
                for worker in self._workers.values():
                    worker.end()
            left = jobs.approximate_count()
        self._console.print(self._table())
        return left == 0 and self._as_promised()

    def _follow(self, engine: Engine, bars: dict[str, tuple[Progress, TaskID]]) -> None:
        steps: Mailbox[Step, Any] = engine.mailbox("steps", body=Step)
        while not all(story.finished for story in self._stories.values()) and self._elapsed() < LIMIT_S:
            for message in steps.receive(100, wait_time_seconds=0.1):
                self._note(message.body)
                progress, task = bars[message.body.job]
                story = self._stories[message.body.job]
                progress.update(task, completed=message.body.done, deliveries=story.delivery)
                message.acknowledge()
            self._mourn()

    def _note(self, step: Step) -> None:
        story = self._stories[step.job]
        if step.delivery > story.delivery:
            story.delivery = step.delivery
            story.workers.append(step.worker)
            again = "again " if step.delivery > 1 else ""
            self._say(f"{step.job}: delivered {again}to {step.worker} (delivery {step.delivery})")
            story.begun_s = story.begun_s or self._elapsed()
        if step.job == KILLED and step.delivery == 1 and step.done == KILL_AT:
            self._workers[step.worker].kill()
            story.events.append(f"kill -9 of {step.worker}")
            self._say(f"{step.job}: kill -9 {step.pid}")
        if step.done == step.steps:
            story.ended_s = self._elapsed()
            self._say(f"{step.job}: finished by {step.worker}")

    def _mourn(self) -> None:
        """Tell of workers that ended by themselves: only a watchdog does that here."""
        for name, worker in self._workers.items():
            if name in self._mourned or worker.process.poll() is None:
                continue
            self._mourned.add(name)
            if words := worker.last_words():
                # Its job may have been delivered again before we looked.
                held = [story for story in self._stories.values() if name in story.workers]
                for story in held[-1:]:
                    story.events.append(f"hung; the watchdog ended {name}")
                what = held[-1].job.name if held else "nothing in hand"
                self._say(f"{what}: {words.split('; ')[0]}; its watchdog ended the process")

    def _say(self, line: str) -> None:
        self._console.print(f"{self._elapsed():5.1f} s  {line}", highlight=False, soft_wrap=True)

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._begun

    @contextmanager
    def _bars(self) -> Iterator[dict[str, tuple[Progress, TaskID]]]:
        """A bar per job on a terminal; elsewhere only the lines are printed."""
        progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=40),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("delivery {task.fields[deliveries]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        with progress:
            yield {job.name: (progress, progress.add_task(job.name, total=job.steps, deliveries=0)) for job in JOBS}

    def _table(self) -> Table:
        table = Table("job", "deliveries", "workers", "what happened", "took", title=None)
        for story in self._stories.values():
            took = "not finished" if story.ended_s is None else f"{story.ended_s - (story.begun_s or 0):.1f} s"
            what = (
                "; ".join(story.events)
                or f"{story.job.steps * story.job.step_s / LEASE_S:.0f} leases long, kept by its beats"
            )
            table.add_row(story.job.name, str(story.delivery), " → ".join(story.workers), what, took)
        return table

    def _as_promised(self) -> bool:
        deliveries = {name: story.delivery for name, story in self._stories.items()}
        return deliveries == {STEADY: 1, HUNG: 2, KILLED: 2} and all(s.finished for s in self._stories.values())


def main() -> int:
    """Tell the story; 1 when it went another way."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder:
        try:
            went_well = Demo(console, Path(folder)).run()
        except KeyboardInterrupt:
            return 130
        if went_well:
            console.print("One delivery of the steady job, two of the others, nothing left in the queue.")
            return 0
    console.print("This is not what should have happened.", style="bold red")
    return 1
