"""Three consumers in three processes on one SQLite file; one is killed while it holds a message.

Nothing else is started: the file is the queue. The killed consumer's message comes back when its lease has run out, and somebody
else does it; nothing is lost, and nothing is done twice.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tenure.clock import SystemClock
from tenure.demo.consumer import Frame, Step
from tenure.engines import Engine, Mailbox, Outgoing

FRAMES = 12
WORK_S = 0.35
LEASE_S = 2.5
NAMES = ("anna", "ben", "cleo")
VICTIM = "ben"
VICTIM_DIES_AT = 2
"""Killed while it works on its so-and-so-manieth frame."""
PATIENCE_S = 60.0


@dataclass
class Story:
    """What the consumers told, and when, in seconds since the start."""

    deliveries: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    done_by: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    done_at: dict[int, float] = field(default_factory=dict)
    killed_at: float | None = None
    lost_by_victim: set[int] = field(default_factory=set)

    def hear(self, step: Step, at: float) -> None:
        if step.done:
            self.done_by[step.frame].append(step.who)
            self.done_at[step.frame] = at
        else:
            self.deliveries[step.frame].append(step.who)

    @property
    def complete(self) -> bool:
        return all(self.done_by[number] for number in range(1, FRAMES + 1))

    def held_by(self, who: str) -> set[int]:
        return {frame for frame, given in self.deliveries.items() if given[-1] == who and not self.done_by[frame]}

    def came_true(self) -> bool:
        """Each frame was done once; what the killed one held was delivered again, and to somebody else."""
        once = all(len(self.done_by[number]) == 1 for number in range(1, FRAMES + 1))
        again = all(len(self.deliveries[number]) > 1 for number in self.lost_by_victim)
        others = all(self.done_by[number] != [VICTIM] for number in self.lost_by_victim)
        return once and again and others and bool(self.lost_by_victim)


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder:
        url = f"sqlite:///{folder}/demo.db"
        console.print(f"[bold]{FRAMES} messages, {len(NAMES)} consumers in {len(NAMES)} processes, one file:[/] {url}")
        console.print(f"A lease is {LEASE_S} s; [bold]{VICTIM}[/] will be killed (SIGKILL) in the midst of its work.\n")
        consumers = {name: _start(url, name) for name in NAMES}
        try:
            with Engine.open(url) as engine:
                story = _watch(console, engine, consumers)
        finally:
            for process in consumers.values():
                process.kill()
                process.wait()
    console.print(_table(story))
    _summary(console, story)
    return 0 if story.came_true() else 1


def _start(url: str, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tenure.demo.consumer", url, name, str(WORK_S), str(LEASE_S)]
    return subprocess.Popen(command)  # noqa: S603  our own interpreter and module


def _watch(console: Console, engine: Engine, consumers: dict[str, subprocess.Popen[bytes]]) -> Story:
    clock, story = SystemClock(), Story()
    frames: Mailbox[Frame, Step] = engine.mailbox("frames", Frame, Step)
    steps: Mailbox[Step, None] = engine.mailbox("steps", Step)
    frames.send_many([Outgoing(Frame(number), reply_to="steps") for number in range(1, FRAMES + 1)])
    begun = clock.monotonic()
    while not story.complete and clock.monotonic() - begun < PATIENCE_S:
        for message in steps.receive(100, 60, wait_time_seconds=1):
            at, step = clock.monotonic() - begun, message.body
            story.hear(step, at)
            message.acknowledge()
            said = "done" if step.done else f"delivery {step.delivery}"
            console.print(f"{at:6.2f} s  {step.who:<5} frame {step.frame:>2}  {said}", highlight=False)
        given = sum(who == VICTIM for whos in story.deliveries.values() for who in whos)
        if story.killed_at is None and given >= VICTIM_DIES_AT and story.held_by(VICTIM):
            consumers[VICTIM].kill()
            consumers[VICTIM].wait()
            story.killed_at = clock.monotonic() - begun
            console.print(f"{story.killed_at:6.2f} s  [bold red]{VICTIM:<5} killed[/]", highlight=False)
            # What it settled in its last moment is on its way to us: then it did not lose that.
            for message in steps.receive(100, 60):
                story.hear(message.body, clock.monotonic() - begun)
                message.acknowledge()
            story.lost_by_victim = story.held_by(VICTIM)
    return story


def _table(story: Story) -> Table:
    table = Table(title="each message, who got it and how often")
    table.add_column("message", justify="right")
    table.add_column("delivered to")
    table.add_column("times", justify="right")
    table.add_column("done by")
    for number in range(1, FRAMES + 1):
        given = story.deliveries[number]
        lost = number in story.lost_by_victim
        shown = ", ".join(f"[red]{who} (killed)[/]" if lost and who == VICTIM else who for who in given)
        table.add_row(f"frame {number}", shown, str(len(given)), ", ".join(story.done_by[number]) or "[red]nobody[/]")
    return table


def _summary(console: Console, story: Story) -> None:
    done = Counter(who for whos in story.done_by.values() for who in whos)
    shares = ", ".join(f"{name} {done[name]}" for name in NAMES)
    lost = [number for number in range(1, FRAMES + 1) if not story.done_by[number]]
    twice = [number for number, whos in story.done_by.items() if len(whos) > 1]
    console.print(f"done: {FRAMES - len(lost)} of {FRAMES} ({shares}); lost: {len(lost)}; done twice: {len(twice)}")
    for number in sorted(story.lost_by_victim):
        if number in story.done_at and story.killed_at is not None:
            waited = story.done_at[number] - story.killed_at
            console.print(
                f"frame {number} was held by {VICTIM}, came back with its lease, and was done {waited:.1f} s after the kill"
            )
    if not story.came_true():
        console.print("[bold red]This did not come out as promised.[/]")
