"""Makes calls of the nodes' own functions raise, as a bug of ours would: any function, any call of it, any type.

A blow falls once, before or after the function did its work; or it sticks to one job: then the function raises whenever it is called for that job,
on every node, as it would for a record that is poison to our code.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tenure.nodes.fleet
import tenure.nodes.gate
import tenure.nodes.manager
import tenure.nodes.worker
from tenure.errors import LimitError, TenureError
from tenure.jobs.decisions import Event, Rule
from tenure.jobs.endings import FailJob
from tenure.jobs.gate_jobs import GateFailJob
from tenure.jobs.topics import DECIDE, DECIDE_GATE, FOLD
from tenure.randomness import Random
from tenure.sim.loop import SimLoop
from tenure.sim.world import World

PACKAGES = (tenure.nodes.manager, tenure.nodes.gate, tenure.nodes.worker, tenure.nodes.fleet)
MODULES = (
    *("tenure.nodes.ledger", "tenure.nodes.node_journal", "tenure.nodes.leadership", "tenure.nodes.node_journal"),
    *(
        "tenure.nodes.term_leader",
        "tenure.nodes.outbox_lane",
        "tenure.nodes.job_handlers",
        "tenure.control.async_caller",
    ),
    *("tenure.nodes.job_handlers", "tenure.nodes.job_listing", "tenure.nodes.job_views"),
    *("tenure.jobs.outbox", "tenure.jobs.gate_exchange", "tenure.jobs.gate_outbox", "tenure.jobs.book"),
    *("tenure.jobs.gate_tracker", "tenure.jobs.deadlines", "tenure.timers"),
)
TABLES: Mapping[str, Any] = {"decide": DECIDE, "fold": FOLD, "decide_gate": DECIDE_GATE}


def methods(owner: str, names: str) -> list[str]:
    """The labels of some methods of a class."""
    return [f"{owner}.{name}" for name in names.split()]


EXEMPT = frozenset(
    {
        # The port's own entry: what it raises is answered by the HTTP server, which is not in these worlds.
        *methods("Manager", "answer"),
        *methods("Gate", "answer _measure"),
        # Called by the event loop itself, which logs what they raise.
        *("_nobody_may_wait", "_bell", "_pass_on"),
        *methods("SeatedAttempt", "end"),
        *methods("InlineSlots", "_alone"),  # the guard itself: what it awaits is struck
        *methods("NodeLedger", "_stopped_writing"),
        *methods("WatchedCalls", "run"),  # the engine's side of every call: what it raises is an engine's error
        *methods("GateReporting", "_ended"),
        *methods("OutboxLane", "_ended"),
        # What they raise on is an entry or a snapshot that is there and cannot be read: another story, which `tests/journal` tells.
        *("fold_entry", "cannot_apply", "kind_of", "unknown_kind", "restore", "load_book", "_load", "_with_hint"),
        # The scripted slots and hands call it, as a supervisor does; they are no code of a node.
        *methods("RecordedSlots", "listen"),
    }
)
ISOLATING = frozenset(
    {
        # What keeps one bad thing from the others must itself not raise each time: it is small, and has tests of its own.
        *methods("JobStrikes", "strike attempt commit_all _commit"),
        *methods("GateLeader", "_refresh _hear_each cannot_say"),
        *methods("Gate", "_cannot_say"),
        *methods("OutboxLane", "_send_each"),
        *methods("GateReporting", "_attempt"),
        *methods("GateHandlers", "_commit_each"),
        *methods("Manager", "takes"),
        "drained_by",
        *methods("DatacenterLeader", "_arm_job _send_each"),
        *methods("ResultIntake", "_record_opened _record _record_alone _bury"),
        *methods("NodeLedger", "commit commit_all _write_batch _make_durable append _append_or_refuse"),
        *methods("SureAppend", "append"),
        *methods("WaitingCommand", "settle"),
        *methods("CommandGroup", "settle settle_rest"),
        *("concerns_all", "batches", "attempt_of", "decided"),
    }
)
"""Struck once, and never so that the blow sticks."""
ARMED_AT_S = 0.05
"""By then every node has been made; a process whose parts cannot be made does not start, and says so."""


class UnicodeBlow(UnicodeError):
    """`UnicodeError` with one argument."""


KINDS: tuple[Callable[[str], Exception], ...] = (
    *(KeyError, ValueError, OverflowError, UnicodeBlow, RuntimeError, RecursionError, MemoryError, TypeError),
    *(AttributeError, AssertionError, ZeroDivisionError, OSError, TenureError),
    lambda text: LimitError("struck", text, "nothing that a bug would name"),
)


class Target(NamedTuple):
    """One function that can be struck: where it lives, and under which name."""

    label: str
    owner: Any
    name: Any
    function: Callable[..., Any]


def targets() -> dict[str, Target]:
    """Every function of the node modules and every entry of the decision and fold tables, by its label, in a fixed order."""
    found: dict[str, Target] = {}
    for module in _modules():
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            if isinstance(value, types.FunctionType):
                _add(found, value.__qualname__, module, name, value)
            elif isinstance(value, type):
                for attribute, method in vars(value).items():
                    if isinstance(method, types.FunctionType) and not attribute.startswith("__"):
                        _add(found, method.__qualname__, value, attribute, method)
    for title, table in TABLES.items():
        for kind, function in table.items():
            _add(found, f"{title} {kind.__name__}", table, kind, function)
    return found


def _modules() -> Iterator[types.ModuleType]:
    names = [*MODULES]
    for package in PACKAGES:
        names += [f"{package.__name__}.{one.name}" for one in pkgutil.iter_modules(package.__path__)]
    return map(importlib.import_module, names)


def _add(found: dict[str, Target], label: str, owner: Any, name: Any, function: Callable[..., Any]) -> None:
    generates = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if label not in EXEMPT and not generates and not getattr(function, "__isabstractmethod__", False):
        found.setdefault(label, Target(label, owner, name, function))


@dataclass
class Blow:
    """What befalls one function: at which of its calls, how, and what came of it."""

    label: str
    at_call: int
    kind: Callable[[str], Exception]
    late: bool = False
    """The function does its work first, and then raises."""
    sticks: bool = False
    """From then on it raises whenever it is called for the same job."""
    calls: int = 0
    struck: int = 0
    job_id: str = ""
    seen: set[str] = field(default_factory=set, repr=False)

    def raises(self, args: Sequence[Any]) -> bool:
        self.calls += 1
        if not self.sticks:
            return self.calls == self.at_call
        if ends_a_struck_job(args):
            return False
        jobs = jobs_in(args)
        # One for which it was not called before: what it did for a job may be in the journal, and an entry that is there and
        # cannot be folded is another story (decision 0195).
        if not self.job_id and self.calls >= self.at_call and len(jobs) == 1 and jobs[0] not in self.seen:
            self.job_id = jobs[0]
        self.seen.update(jobs)
        return bool(self.job_id) and self.job_id in jobs

    def error(self) -> Exception:
        self.struck += 1
        return self.kind(f"a blow at {self.label}")


class Striker:
    """Strikes while it is installed: nodes, and neither the observer nor the clients, who use some of the same code."""

    def __init__(self, blows: Sequence[Blow], world: World, clients: Sequence[str]) -> None:
        self.blows, self._world, self._clients = list(blows), world, tuple(f"{name}#" for name in clients)
        self.looking = False
        """The observer looks."""
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        known = targets()
        for blow in self.blows:
            target = known[blow.label]
            _replace(target, self._struck(target.function, blow), self._undo)

    def _armed(self) -> bool:
        if self.looking or self._world.now < ARMED_AT_S:
            return False
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        return isinstance(loop, SimLoop) and not loop.name.startswith(self._clients)

    def _strikes(self, blow: Blow, args: Sequence[Any]) -> bool:
        if self._armed():
            return blow.raises(args)
        if blow.sticks:
            blow.seen.update(jobs_in(args))
        return False

    def remove(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _struck(self, function: Callable[..., Any], blow: Blow) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            async def awaited(*args: Any, **options: Any) -> Any:
                if not self._strikes(blow, (*args, *options.values())):
                    return await function(*args, **options)
                if blow.late and not blow.sticks:
                    await function(*args, **options)
                raise blow.error()

            return awaited

        def called(*args: Any, **options: Any) -> Any:
            if not self._strikes(blow, (*args, *options.values())):
                return function(*args, **options)
            if blow.late and not blow.sticks:
                function(*args, **options)
            raise blow.error()

        return called


def _replace(target: Target, function: Callable[..., Any], undo: list[Callable[[], None]]) -> None:
    if isinstance(target.owner, dict):
        target.owner[target.name] = function
        undo.append(lambda: target.owner.__setitem__(target.name, target.function))
        return
    owners = [target.owner]
    if isinstance(target.owner, types.ModuleType):  # whoever imported it by its name has it under that name
        owners += [one for one in _modules() if vars(one).get(target.name) is target.function and one is not owners[0]]
    for owner in owners:
        setattr(owner, target.name, function)
        undo.append(lambda owner=owner: setattr(owner, target.name, target.function))  # type: ignore[misc]


def jobs_in(args: Sequence[Any]) -> list[str]:
    """The jobs that a call is about: ids, and whatever carries one, also in a list of them."""
    found: dict[str, None] = {}
    for arg in args:
        for one in arg if isinstance(arg, (list, tuple)) and not hasattr(arg, "_fields") else (arg,):
            for job_id in _of(one):
                if isinstance(job_id, str) and JOB_ID.fullmatch(name := job_id.partition("/")[0]):
                    found[name] = None
    return list(found)


JOB_ID = re.compile(r"x#1-\d+|j\d+")
"""Every id that a client of these worlds gives."""


def _of(one: Any) -> Iterator[Any]:
    yield one
    for name in ("job_id", "id", "key"):
        yield getattr(one, name, None)
    for name in ("submission", "body", "command", "message", "report", "transfer", "correction"):
        yield getattr(getattr(one, name, None), "job_id", None)


def ends_a_struck_job(args: Sequence[Any]) -> bool:
    """Failing a job is what a blow that sticks leaves to do: without it, nothing could be said of the job."""
    for arg in args:
        for one in arg if isinstance(arg, (list, tuple)) and not hasattr(arg, "_fields") else (arg,):
            command = getattr(one, "command", one)
            if isinstance(command, (FailJob, GateFailJob)):
                return True
            if isinstance(one, Event) and one.rule is Rule.PRODUCT_FAILED:
                return True
            if isinstance(one, bytes) and b'"rule":"product_failed"' in one:
                return True
    return False


def whose_turn(counts: Mapping[str, int], turns: Iterable[int]) -> set[str]:
    """The functions that `plan` strikes by turn in these runs."""
    labels = list(counts)
    return {labels[turn % len(labels)] for turn in turns}


def plan(random: Random, counts: Mapping[str, int], turn: int) -> list[Blow]:
    """What befalls one run: one function whose turn it is, and one more. `counts`: how often each is called in a run without blows."""
    labels = list(counts)
    blows = []
    for label in dict.fromkeys((labels[turn % len(labels)], random.choice(labels))):
        # Early calls as often as late ones: what is called a thousand times is mostly called alike.
        at_call = int(counts[label] ** random.random() + 0.5)
        sticks = random.random() < 0.35 and label not in ISOLATING
        blows.append(Blow(label, at_call, random.choice(KINDS), late=random.random() < 0.4, sticks=sticks))
    return blows
