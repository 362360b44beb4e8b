"""Three datacenters and two gates on one machine: a link is cut, a gate is killed, a deadline passes everywhere at once.

Every node is a real `tenure` process, the death a `kill -9`, the cut a link that swallows every byte. Nothing is told that the gates did not
answer.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.demo.bars import Bars, job_bars
from examples.demo.cluster import Cluster, Tempo
from examples.demo.datacenter import StoryError
from examples.demo.world_app import STEP_S
from tenure.client.client import Client
from tenure.clock import SystemClock
from tenure.control.messages.jobs import JobView
from tenure.errors import TenureError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import JobState

EVERYWHERE, BEST, ENDLESS = "everywhere", "wherever", "endless"
FACTOR = 0.05
LIMIT_S = 180.0
"""It takes a quarter of a minute, and on a busy machine whatever it takes."""
ENDLESS_S = 12.0
EXPECTED = {EVERYWHERE: JobState.COMPLETED, BEST: JobState.COMPLETED, ENDLESS: JobState.TIMED_OUT}


class Story:
    """Plays the faults, and tells what the gates answered."""

    def __init__(self, console: Console, cluster: Cluster) -> None:
        self._console, self._cluster, self._clock = console, cluster, SystemClock()
        self._views: dict[str, JobView] = {}
        self._seen: dict[tuple[str, str], str] = {}
        self._begun = self._clock.monotonic()

    def run(self) -> None:
        """Raises `StoryError` when it went another way."""
        with self._cluster.client(patience_s=20) as client, job_bars(self._console) as bars:
            self._play(client, bars)
            self._until(client, bars, lambda: all(view.ended for view in self._views.values()), "every job ends")
            self._console.print(self._table())
            self._console.print(client.why(ENDLESS).text, highlight=False, soft_wrap=True)
            self._check()

    def _play(self, client: Client, bars: Bars) -> None:
        self._submit(client, EVERYWHERE, "render", {"frames": 80}, ("a", "b", "c"))
        self._submit(client, BEST, "render", {"frames": 40}, ())
        self._until(client, bars, lambda: self._running(EVERYWHERE) == 3, "it runs in three datacenters")
        # Not before: on a machine where everything takes long to start, its time would be over before anything happens.
        self._submit(client, ENDLESS, "endless", {}, ("a", "b", "c"), ENDLESS_S)
        self._until(client, bars, lambda: self._arrived(ENDLESS), "every datacenter has it")
        self._say("the link to datacenter c is cut: it works on, and no word passes")
        self._cluster.cut("c")
        self._pause(client, bars, 1.5)
        number = self._cluster.leading_gate()
        if number < 0:
            raise StoryError("no gate says that it leads")
        self._say(f"kill -9 for gate-{number + 1}, which leads")
        self._cluster.gates[number].kill()
        self._until(client, bars, lambda: self._decided(ENDLESS), "the global timeout is declared")
        self._until(client, bars, lambda: self._ended_in(ENDLESS, "a", "b"), "it ended where the gate can be heard")
        self._pause(client, bars, 1.0)
        self._say("the link to datacenter c is mended")
        self._cluster.mend("c")

    def _submit(
        self,
        client: Client,
        name: str,
        function: str,
        arguments: dict[str, int],
        targets: tuple[str, ...],
        timeout_s: float = 120.0,
    ) -> None:
        spec = WorkflowSpec(name=function, arguments=arguments)
        client.submit_job(
            JobSubmission(
                job_id=name,
                workflows=(spec,),
                timeout_seconds=timeout_s,
                grace=0.0,  # a wall: it earns no time past it
                stuck_threshold=timeout_s - 2,
                target_datacenters=targets,
            )
        )
        where = f"in {', '.join(targets)}" if targets else "in the best datacenter"
        long = f"{arguments['frames'] * STEP_S:.0f} s of work" if arguments else f"endless, {timeout_s:g} s allowed"
        self._say(f"{name}: submitted to run {where}, {long}")
        self._views[name] = client.job(name)

    # Watching

    def _until(self, client: Client, bars: Bars, true: Callable[[], bool], what: str) -> None:
        while not true():
            self._look(client, bars)
            if self._elapsed() > LIMIT_S:
                raise StoryError(f"after {LIMIT_S:g} s it had not happened that {what}")
            self._clock.sleep(0.2)

    def _pause(self, client: Client, bars: Bars, seconds: float) -> None:
        until = self._elapsed() + seconds
        self._until(client, bars, lambda: self._elapsed() > until, "time passes")

    def _look(self, client: Client, bars: Bars) -> None:
        for name, before in list(self._views.items()):
            if before.ended:
                continue
            view = self._views[name] = client.job(name)
            for place in view.datacenters:
                said = str(place.state) if place.answers or place.state.terminal else f"{place.state}, out of reach"
                if self._seen.get((name, place.name), "running") != said:
                    self._say(f"{name}: {place.name} is {said}")
                self._seen[name, place.name] = said
            fractions = [one.fraction or 0.0 for one in view.workflows]
            bars.show(name, sum(fractions) / max(1, len(view.datacenters)), view.state)
            if view.ended:
                self._say(f"{name}: {view.state}" + (f" ({view.reason})" if view.reason else ""))

    def _running(self, name: str) -> int:
        return sum(one.started_at > 0 for one in self._views[name].workflows)

    def _arrived(self, name: str) -> bool:
        return all(place.heard for place in self._views[name].datacenters)

    def _decided(self, name: str) -> bool:
        return "timeout" in self._views[name].reason

    def _ended_in(self, name: str, *datacenters: str) -> bool:
        return all(place.state.terminal for place in self._views[name].datacenters if place.name in datacenters)

    def _say(self, line: str) -> None:
        self._console.print(f"{self._elapsed():5.1f} s  {line}", highlight=False, soft_wrap=True)

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._begun

    # The end

    def _table(self) -> Table:
        table = Table("job", "state", "in each datacenter", "took", "why")
        for name, view in self._views.items():
            where = ", ".join(f"{place.name} {place.state}" for place in view.datacenters)
            table.add_row(name, view.state, where, f"{view.ended_at - view.submitted_at:.1f} s", view.reason)
        return table

    def _check(self) -> None:
        states = {name: view.state for name, view in self._views.items()}
        if states != EXPECTED:
            raise StoryError(f"the jobs ended as {states}")
        results = [one.result for one in self._views[EVERYWHERE].workflows]
        if results != [80, 80, 80]:
            raise StoryError(f"the results of {EVERYWHERE!r} are {results}")
        if not all(place.state is JobState.TIMED_OUT for place in self._views[ENDLESS].datacenters):
            raise StoryError(f"{ENDLESS!r} ended as {self._views[ENDLESS].datacenters}")


def main() -> int:
    """Tell the story; 1 when it went another way."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(prefix="tenure-world-") as folder:
        try:
            console.print("starting three datacenters (a manager, a worker and a SQLite file each) and two gates …")
            with Cluster(Path(folder), "examples.demo.world_app", tempo=Tempo(FACTOR, gate_stuck_s=1_200)) as cluster:
                Story(console, cluster).run()
        except KeyboardInterrupt:
            return 130
        except (StoryError, TenureError) as error:
            console.print(f"It went another way: {error}", highlight=False, soft_wrap=True)
            return 1
    console.print("Three datacenters, a cut link and a dead gate: each job ended once, everywhere, and as it should.")
    return 0
