"""`tenure dev`: a datacenter beside an editor, or several and a gate. Follows what is decided, and begins anew with each change of the code."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from tenure.client.client import Client
from tenure.clock import Clock
from tenure.control.port_security import page_url
from tenure.errors import TenureError
from tenure.jobs.event_text import words_of
from tenure.jobs.why import utc
from tenure.local.site import Gateway, Site
from tenure.local.sources import FoundWorkflow, Sources

ResultT = TypeVar("ResultT")
LOOK_EVERY_S = 0.3
SETTLES_S = 0.15
"""Editors write in several steps: a change is taken once nothing more changes."""
ROUTINE = {
    *("Dispatched", "WorkerJudged", "ProgressRecorded", "LeaderElected", "JobCleaned", "JobArchived"),
    *("GateAcknowledged", "GateEpochSeen", "GateElected", "GateJobArchived", "DatacenterReported", "WorkerForgotten"),
}
ASIDE = re.compile(
    r"audit \{|serves |leads with epoch|draining: |cannot report: nobody leads now|the verdict of epoch \d+ is route"
    r"|the verdict of epoch \d+ is drain: answers, does not accept work|.* was refused: receipt handle expired"
)
"""Log lines of nodes about each start, stop, request and cancelled job: useful in a log, noise beside an editor."""
STYLES = {
    "JobEnded": "bold",
    "AttemptFailed": "red",
    "JobSubmitted": "cyan",
    "WorkflowCompleted": "green",
    "GateJobAccepted": "cyan",
    "GateJobEnded": "bold",
    "GlobalDecisionMade": "yellow",
}


class Dev:
    """Run it in the main thread; Ctrl-C ends it, and everything that it started."""

    def __init__(
        self,
        sites: Sequence[Site],
        sources: Sources,
        workflows: Callable[[], list[FoundWorkflow]],
        *,
        gate: Gateway | None = None,
        clock: Clock,
    ) -> None:
        """`gate`: where there are several sites."""
        self._sites, self._gate = sites, gate
        self._sources, self._workflows, self._clock = sources, workflows, clock
        self._console = Console(highlight=False)
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until interrupted. Whatever happens, nothing is left running."""
        try:
            self._each(Site.open)
            if self._gate is not None:
                self._gate.open(self._sites)
            for place in self._places:
                threading.Thread(target=self._follow, args=(place,), name="tenure-follow", daemon=True).start()
            if all(self._each(Site.work_begins)):
                self._greet()
            while all(place.alive for place in self._places):
                self._reload_if_changed()
                self._stopped.wait(LOOK_EVERY_S)
        finally:
            self._stopped.set()
            self.say("dev", "stopping: what runs is handed over, and goes on when you start again")
            self._close()

    @property
    def _places(self) -> list[Site | Gateway]:
        return [*self._sites, *([self._gate] if self._gate is not None else [])]

    def _each(self, do: Callable[[Site], ResultT]) -> list[ResultT]:
        """Side by side: three datacenters take as long as one."""
        with ThreadPoolExecutor(len(self._sites)) as pool:
            return list(pool.map(do, self._sites))

    def _close(self) -> None:
        try:
            if self._gate is not None:
                self._gate.close()
        finally:
            self._each(Site.close)

    def heard(self, who: str, text: str) -> None:
        """A line of a node."""
        if not ASIDE.match(text):
            self.say(who, text, "dim")

    def say(self, who: str, text: str, style: str = "") -> None:
        clock = utc(self._clock.wall())[11:19]
        self._console.print(Text.assemble((f"{clock}  ", "dim"), (f"{who:<8} ", "dim"), (text, style)))

    def _greet(self) -> None:
        found = self._workflows()
        address = self._places[-1].address
        self.say("dev", f"ready at {address}; your files are watched, Ctrl-C ends it. In another terminal:", "green")
        self._console.print(f"    dashboard: {page_url(address)}", style="green")
        prefix = "" if address.endswith(":8470") else f"TENURE_ADDRESS={address} "
        commands = [one.command for one in found[:5]]
        if self._gate is not None and found:
            everywhere = " ".join(f"--datacenter {site.name}" for site in self._sites)
            commands.append(f"{found[0].command} {everywhere}")
        for command in (*commands, "tenure ps", "tenure why JOB", "tenure top"):
            self._console.print(f"    {prefix}{command}", soft_wrap=True)

    def _reload_if_changed(self) -> None:
        changed = self._sources.changed()
        if not changed:
            return
        while self._sources.changed():
            self._clock.sleep(SETTLES_S)
        names = ", ".join(path.name for path in changed[:3]) + (" and more" if len(changed) > 3 else "")
        whose = "the worker starts anew" if len(self._sites) == 1 else "the workers start anew"
        self.say("dev", f"{names} changed: {whose}", "yellow")
        if all(self._each(Site.reload)):
            self.say("dev", "the new code serves", "green")
        else:
            self.say("dev", "waiting for a change that can be served", "red")

    def _follow(self, place: Site | Gateway) -> None:
        """Prints each decision as it is made."""
        with Client([place.address], patience_s=5.0) as client:
            after: str | None = None
            while not self._stopped.is_set():
                try:
                    page = client.events("", after, wait_s=5.0)
                except TenureError:
                    self._stopped.wait(1.0)
                    continue
                after = page.cursor
                for line in page.events:
                    self._tell(place, line.event)

    def _tell(self, place: Site | Gateway, event: dict[str, object]) -> None:
        kind, job_id = str(event.get("type", "")), str(event.get("job_id", ""))
        if kind in ROUTINE:
            return
        who = place.name if self._gate is not None else "job" if job_id else "dc"
        self.say(who, f"{job_id}  {words_of(event)}".strip(), STYLES.get(kind, ""))


def module_folder(module: str) -> Path:
    """Where the sources of what is served are: the folder of a file, else this one."""
    path = Path(module)
    return path.resolve().parent if path.suffix == ".py" else Path.cwd()
