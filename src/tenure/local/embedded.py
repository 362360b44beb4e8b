"""A datacenter inside a program: manager and worker on SQLite in a folder, gone when the program is, and all work kept.

    with embedded(workflows=[encode]) as t:
        print(t.submit(encode, path="a.mov").wait())

It is a `Client` that brings its managers along. Open the folder again, and what was cut off goes on from its checkpoint.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Literal, Self

import msgspec

from tenure.client.client import Client
from tenure.codec import Codec
from tenure.control.messages.jobs import Done
from tenure.errors import ConfigurationError, LimitError
from tenure.jobs.model import JobSubmission
from tenure.local.host_process import PRIORITIES, Begin, HostProcess
from tenure.logs import log_to
from tenure.randomness import new_id
from tenure.work.job_submission import name_of
from tenure.work.registry import Registry, Workflow
from tenure.work.served_modules import end_of_definitions

FOLDER = ".tenure"
DATABASE = "tenure.db"
LOG_BYTES = 1 << 20

Mode = Literal["auto", "processes", "threads"]


def engine_url(folder: Path) -> str:
    return f"sqlite:///{folder / DATABASE}"


def embedded(
    path: str | os.PathLike[str] | None = None,
    workflows: Sequence[Workflow[..., Any]] = (),
    *,
    slots: int = 2,
    mode: Mode = "auto",
    codec: Codec | None = None,
    **slot_settings: Any,
) -> Embedded:
    """Runs a datacenter in the folder `path` (`.tenure` by default) that serves these workflows while the `with` block lasts.

    `slots` processes run one workflow each. Workflows that other processes cannot import, because they were typed into a prompt or a
    notebook or defined inside a function, run in threads of this process; there a hung one is abandoned, not killed. More settings are
    those of `SlotSettings`: lease_s, stall_s, grace_s. A `codec` encodes what lies in the folder; processes find it at the top level of
    the workflows' module.
    """
    end_of_definitions()
    return Embedded(path, workflows, slots=slots, mode=mode, codec=codec, slot_settings=slot_settings)


class Embedded(Client):
    """A datacenter in a folder, as `embedded()` returns it. Use it in a `with` block, or `close()` it."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        workflows: Sequence[Workflow[..., Any]],
        *,
        slots: int,
        mode: Mode,
        codec: Codec | None = None,
        slot_settings: dict[str, Any],
    ) -> None:
        for one in workflows:
            name_of(one)
        self.folder = Path(path or FOLDER).resolve()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # arguments and results lie in it
        self.workflows, self._codec = tuple(workflows), codec
        modules = self._modules(mode)
        self.default_queue = queue_of(workflows)
        settings = {"slots": slots, "wait_s": 5.0, **slot_settings}
        begin = Begin(
            engine_url=engine_url(self.folder),
            name=f"embedded-{os.getpid()}-{new_id()[:6]}",
            modules=modules or [],
            queue=self.default_queue,
            settings=settings,
        )
        self._log = HostLog(self.folder / "embedded.log")
        self._closed = False
        self.host = HostProcess(begin, self._log.write)
        """The process that leads. Other clients reach it at `host.address`."""
        atexit.register(self.close)
        try:
            self._threads = None if modules is not None else self._start_threads(settings)
            self.host.until_up()
            super().__init__([self.host.address], codec=codec)
        except BaseException:
            self.close()
            raise

    @property
    def engine_url(self) -> str:
        """For `tenure ps --engine`, and for workers of your own."""
        return engine_url(self.folder)

    def _modules(self, mode: Mode) -> list[str] | None:
        """Returns the modules that the slots serve; None where threads run the work."""
        if mode == "threads":
            return None
        found = modules_of(self.workflows, self._codec)
        if not isinstance(found, str):
            return found
        if mode == "processes":
            raise ConfigurationError(found, remedy="Move it to the top of a module, or leave mode out")
        if self.workflows:
            print(
                f"tenure: {found}; workflows run in threads of this process: one that hangs is abandoned, not killed",
                file=sys.stderr,
            )
        return None

    def _start_threads(self, settings: dict[str, Any]) -> Any:
        from tenure.local.host import ThreadWorker

        worker = ThreadWorker(
            self.engine_url,
            Registry(self.workflows, self._codec),
            self.default_queue,
            settings,
            log_to(self._log.write, "worker"),
        )
        worker.start()
        return worker

    def submit_job(self, submission: JobSubmission) -> Done:
        if not submission.queue:
            submission = msgspec.structs.replace(submission, queue=self.default_queue)
        if {spec.called for spec in submission.workflows} <= {one.name for one in self.workflows}:
            submission = msgspec.structs.replace(submission, park=True)  # our worker serves it, once it has started
        if submission.queue == self.default_queue and submission.priority not in (None, *PRIORITIES):
            allowed = ", ".join(map(str, sorted(PRIORITIES)))
            raise LimitError(
                "priority",
                submission.priority,
                f"one of {allowed} in an embedded datacenter",
                remedy="Nobody would serve it; a `tenure worker --priority` on the same engine would",
            )
        return super().submit_job(submission)

    def close(self) -> None:
        """Hand over what runs, and leave no process behind. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            threads = getattr(self, "_threads", None)
            if threads is not None:
                threads.stop()
        finally:
            self.host.close()
            self._log.close()
            if hasattr(self, "_caller"):
                super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def queue_of(workflows: Sequence[Workflow[..., Any]]) -> str:
    """Programs that share a folder and serve the same workflows share their work; others do not get work that they cannot do."""
    names = sorted({f"{one.function.__module__.rpartition('.')[2]}.{one.name}" for one in workflows})
    return f"embedded-{hashlib.blake2b(' '.join(names).encode(), digest_size=4).hexdigest()}"


class HostLog:
    """Writes the host's output to one file, which begins anew when it has grown."""

    def __init__(self, path: Path) -> None:
        grown = path.exists() and path.stat().st_size > LOG_BYTES
        self._file = path.open("w" if grown else "a", encoding="utf-8")

    def write(self, text: str) -> None:
        if not self._file.closed:
            self._file.write(text + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def modules_of(workflows: Iterable[Workflow[..., Any]], codec: Codec | None = None) -> list[str] | str:
    """Returns the modules that slots must import to serve these workflows, or a text that says why they cannot."""
    found: dict[str, None] = {}
    for one in workflows:
        place = _place(one)
        if place is None:
            return f"{one.name} is defined where other processes cannot import it"
        found[place] = None
        top = vars(sys.modules[one.function.__module__]).values()
        if codec is not None and not any(value is codec for value in top):
            return f"the codec is not at the top level of the module of {one.name}, where other processes would find it"
    return list(found)


def _place(one: Workflow[..., Any]) -> str | None:
    name = getattr(one.function, "__module__", None) or ""
    module = sys.modules.get(name)
    # A slot finds what stands at the top of a module, under whatever name.
    if module is None or not any(value is one for value in vars(module).values()):
        return None
    spec_name = _importable(module)
    if spec_name is not None:
        return spec_name
    file = getattr(module, "__file__", None)
    if not file or not file.endswith(".py") or not Path(file).is_file():
        return None  # typed into a prompt, a notebook or `python -c`
    return str(Path(file).resolve())


def _importable(module: ModuleType) -> str | None:
    """Returns the dotted name under which anybody with our path imports this very file."""
    spec = getattr(module, "__spec__", None)
    name: str | None = spec.name if spec is not None else None
    if name is None or name == "__main__":
        return None
    name = name.removesuffix(".__main__") + ".__main__" if name.endswith(".__main__") else name
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    origin = getattr(module, "__file__", None)
    return name if found is not None and found.origin and found.origin == origin else None
