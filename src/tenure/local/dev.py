"""`tenure dev`: a datacenter beside an editor. Follows what is decided, and begins anew with each change of the code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tenure.clock import Clock
from tenure.errors import TenureError
from tenure.jobs.why import utc
from tenure.local.site import Site
from tenure.local.sources import Found, Sources
from tenure.nodes.client.client import Client
from tenure.web.telling import words_of

LOOK_EVERY_S = 0.3
SETTLES_S = 0.15
"""Editors write in several steps: a change is taken once nothing more changes."""
ROUTINE = {"Dispatched", "WorkerJudged", "ProgressRecorded", "LeaderElected", "JobCleaned", "JobArchived"}
STYLES = {"JobEnded": "bold", "AttemptFailed": "red", "JobSubmitted": "cyan", "WorkflowCompleted": "green"}


class Dev:
    """Run it in the main thread; Ctrl-C ends it, and everything that it started."""

    def __init__(self, site: Site, sources: Sources, workflows: Callable[[], list[Found]], *, clock: Clock) -> None:
        # One datacenter today; several, with gates before them, are more sites.
        self._sites = [site]
        self._sources, self._workflows, self._clock = sources, workflows, clock
        self._console = Console(highlight=False)
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until interrupted. Whatever happens, nothing is left running."""
        try:
            for site in self._sites:
                site.open()
                threading.Thread(target=self._follow, args=(site,), name="tenure-follow", daemon=True).start()
            serving = [site.work_begins() for site in self._sites]
            if all(serving):
                self._greet()
            while all(site.alive for site in self._sites):
                self._reload_if_changed()
                self._stopped.wait(LOOK_EVERY_S)
        finally:
            self._stopped.set()
            self.say("dev", "stopping: what runs is handed over, and goes on when you start again")
            for site in self._sites:
                site.close()

    def say(self, who: str, text: str, style: str = "") -> None:
        clock = utc(self._clock.wall())[11:19]
        self._console.print(Text.assemble((f"{clock}  ", "dim"), (f"{who:<8} ", "dim"), (text, style)))

    def _greet(self) -> None:
        found = self._workflows()
        address = self._sites[0].address
        self.say("dev", f"ready at {address}; your files are watched, Ctrl-C ends it. In another terminal:", "green")
        prefix = "" if address.endswith(":8470") else f"TENURE_ADDRESS={address} "
        for one in found[:5]:
            self._console.print(f"    {prefix}{one.command}")
        for command in ("tenure ps", "tenure why JOB", "tenure top"):
            self._console.print(f"    {prefix}{command}")

    def _reload_if_changed(self) -> None:
        changed = self._sources.changed()
        if not changed:
            return
        while self._sources.changed():
            self._clock.sleep(SETTLES_S)
        names = ", ".join(path.name for path in changed[:3]) + (" and more" if len(changed) > 3 else "")
        self.say("dev", f"{names} changed: the worker starts anew", "yellow")
        for site in self._sites:
            if site.reload():
                self.say("dev", "the new code serves", "green")
            else:
                self.say("dev", "waiting for a change that can be served", "red")

    def _follow(self, site: Site) -> None:
        """What is decided, as it is decided."""
        with Client([site.address], patience_s=5.0) as client:
            after: str | None = None
            while not self._stopped.is_set():
                try:
                    page = client.events("", after, wait_s=5.0)
                except TenureError:
                    self._stopped.wait(1.0)
                    continue
                after = page.cursor
                for line in page.events:
                    self._tell(line.event)

    def _tell(self, event: dict[str, object]) -> None:
        kind, job_id = str(event.get("type", "")), str(event.get("job_id", ""))
        if kind in ROUTINE:
            return
        self.say("job" if job_id else "dc", f"{job_id}  {words_of(event)}".strip(), STYLES.get(kind, ""))


def module_folder(module: str) -> Path:
    """Where the sources of what is served are: the folder of a file, else this one."""
    path = Path(module)
    return path.resolve().parent if path.suffix == ".py" else Path.cwd()
