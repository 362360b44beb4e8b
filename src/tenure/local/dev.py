"""`tenure dev`: a datacenter beside an editor, or several and a gate. Follows what is decided, and begins anew with each change of the code.

It runs datacenters, each a manager that stays and a worker that restarts with each change, and a gate before them. It finds the workflows
of a file without running it.
"""

from __future__ import annotations

import ast
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.console import Console
from rich.text import Text

from tenure.client.client import Client
from tenure.clock import Clock
from tenure.control.port_security import page_url
from tenure.errors import TenureError, WorkError
from tenure.jobs.event_text import words_of
from tenure.jobs.why_answer import utc
from tenure.local.embedded import engine_url
from tenure.local.host_process import Begin, HostProcess

MOST_FILES = 5_000
Stamp = tuple[int, int]


class Sources:
    """Watches the files that are served, and those that they import, by their times and sizes. Other files of the folder do not matter.

    Imports are read from the source, also those inside of functions. What is imported by a name that the program computes is not seen.
    """

    def __init__(self, folder: Path, roots: Iterable[Path]) -> None:
        self._folder, self._roots = folder, [path.resolve() for path in roots]
        self._imports: dict[Path, tuple[Stamp, list[Path]]] = {}
        """Maps a file to the files that it would import, by the state in which it was last read as Python."""
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """Returns the files that were written, added or removed since the last call."""
        now = self._look()
        before, self._seen = self._seen, now
        return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))

    def _look(self) -> dict[Path, Stamp]:
        found: dict[Path, Stamp] = {}
        waiting = list(self._roots)
        while waiting and len(found) < MOST_FILES:
            path = waiting.pop()
            if path in found:
                continue
            try:
                stat = path.stat()
            except OSError:
                continue  # nobody wrote it, or it was removed
            found[path] = (stat.st_mtime_ns, stat.st_size)
            waiting += self._imported(path, found[path])
        return found

    def _imported(self, path: Path, stamp: Stamp) -> list[Path]:
        known = self._imports.get(path)
        if known is None or known[0] != stamp:
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (OSError, SyntaxError, ValueError):
                return known[1] if known else []  # half written: what it imported before is still of interest
            known = self._imports[path] = (stamp, list(self._places(path, tree)))
        return known[1]

    def _places(self, path: Path, tree: ast.Module) -> Iterator[Path]:
        """Yields the files that the imports of a module may mean: below the folder, and beside the module. Most of them do not exist."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [(0, one.name) for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                names = [(node.level, base), *((node.level, f"{base}.{one.name}".strip(".")) for one in node.names)]
            else:
                continue
            for level, name in names:
                starts = [path.parents[level - 1]] if level else {self._folder, path.parent}
                for start in starts:
                    yield from _files_of(start, name)


def _files_of(start: Path, name: str) -> Iterator[Path]:
    """Yields the files that importing a dotted name runs: each package above it, and the module."""
    place = start
    for part in name.split(".") if name else []:
        place = place / part
        yield place / "__init__.py"
    yield place.with_suffix(".py") if name else place / "__init__.py"


class FoundWorkflow(NamedTuple):
    """A workflow as its source shows it."""

    name: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        """How to try it from a shell."""
        return " ".join(["tenure run", self.name, *(f"{argument}=..." for argument in self.arguments)])


def workflows_in(path: Path) -> list[FoundWorkflow]:
    """Returns the functions marked @workflow; empty where the file cannot be read as Python."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    found = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            marks = [mark for mark in node.decorator_list if _last_name(mark) == "workflow"]
            if marks:
                found.append(FoundWorkflow(_given_name(marks[0]) or node.name, tuple(_required(node))))
    return found


def _last_name(mark: ast.expr) -> str:
    target = mark.func if isinstance(mark, ast.Call) else mark
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def _given_name(mark: ast.expr) -> str:
    for word in mark.keywords if isinstance(mark, ast.Call) else ():
        if word.arg == "name" and isinstance(word.value, ast.Constant):
            return str(word.value.value)
    return ""


def _required(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    plain = node.args.args[1 : len(node.args.args) - len(node.args.defaults)]
    named = [one for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default is None]
    return [one.arg for one in (*plain, *named)]


Say = Callable[[str, str], None]
"""The name of the node that printed the line, and the line."""


class Site:
    """`open`, `reload` as often as the code changes, `close`."""

    def __init__(
        self, folder: Path, modules: list[str], port: int, settings: dict[str, Any], say: Say, *, name: str = "local"
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.name, self.engine_url = name, engine_url(folder.resolve())
        self._modules, self._settings, self._say = modules, settings, say
        self._begin = Begin(engine_url=self.engine_url, name=f"dev-{os.getpid()}", port=port, datacenter=name)
        self._manager: HostProcess | None = None
        self._worker: HostProcess | None = None

    @property
    def address(self) -> str:
        return self._manager.address if self._manager is not None else ""

    def open(self) -> None:
        """Both start at once; raises `WorkError` where the manager cannot."""
        said = lambda text: self._say("manager", text.removeprefix("manager: "))  # noqa: E731
        manager = self._manager = HostProcess(self._begin, said)
        self._begin_work()
        manager.until_up()

    def work_begins(self) -> bool:
        """Wait for the worker; False, and said, when its modules cannot be served."""
        assert self._worker is not None
        try:
            self._worker.until_up()
        except WorkError as error:
            self._say("worker", str(error))
            return False
        return True

    def reload(self) -> bool:
        """Hand over what runs to a worker with the new code: it goes on from its checkpoint."""
        if self._worker is not None:
            self._worker.close()
        self._begin_work()
        return self.work_begins()

    @property
    def alive(self) -> bool:
        return self._manager is not None and self._manager.alive

    def close(self) -> None:
        try:
            if self._worker is not None:
                self._worker.close()
        finally:
            if self._manager is not None:
                self._manager.close()

    def _begin_work(self) -> None:
        begin = Begin(
            engine_url=self.engine_url,
            name=f"dev-worker-{os.getpid()}",
            manager=False,
            modules=self._modules,
            settings=self._settings,
        )
        self._worker = HostProcess(begin, lambda text: self._say("worker", text))


class Gateway:
    """The gate before several sites, once they listen."""

    name = "gate"

    def __init__(self, folder: Path, port: int, say: Say) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._engine_url, self._port, self._say = engine_url(folder.resolve()), port, say
        self._process: HostProcess | None = None

    @property
    def address(self) -> str:
        return self._process.address if self._process is not None else ""

    def open(self, sites: Iterable[Site]) -> None:
        """Raises `WorkError` where it cannot start."""
        begin = Begin(
            engine_url=self._engine_url,
            name=f"dev-gate-{os.getpid()}",
            port=self._port,
            datacenters={site.name: [site.address] for site in sites},
        )
        self._process = HostProcess(begin, lambda text: self._say("gate", text.removeprefix("gate: ")))
        self._process.until_up()

    @property
    def alive(self) -> bool:
        return self._process is None or self._process.alive

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


ResultT = TypeVar("ResultT")
LOOK_EVERY_S = 0.3
SETTLES_S = 0.15
"""Editors write in several steps: a change is taken once nothing more changes."""
ROUTINE = {
    *("Dispatched", "WorkerJudged", "ProgressRecorded", "LeaderElected", "JobCleaned", "JobArchived"),
    *("GateAcknowledged", "GateEpochSeen", "GateElected", "GateJobArchived", "DatacenterReported", "WorkerForgotten"),
    *("FormatRaised", "WorkflowsRegistered"),
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
        """Runs until it is interrupted. Whatever happens, it leaves nothing running."""
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
        """Takes a line of a node."""
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
    """Returns the folder with the sources of what is served: that of a file, else this one."""
    path = Path(module)
    return path.resolve().parent if path.suffix == ".py" else Path.cwd()


def module_files(modules: Iterable[str]) -> list[Path]:
    """Returns the files of what is served, as far as they are below this folder."""
    found: list[Path] = []
    for module in modules:
        found += [Path(module).resolve()] if module.endswith(".py") else _files_of(Path.cwd(), module)
    return found
