"""The health of a manager, as it tells gates and the gossip pool (document 001): does it accept jobs, and does work flow to its workers.

A manager accepts no new jobs while an operator has drained it, while the state of its datacenter is at its budget, or while its engine is full. It says why,
and refuses at once: an append to a full engine is tried until there is room, and who submits would wait for that. The jobs that it has go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.errors import EngineFullError
from tenure.health.window import INTERVAL_S, EventWindow
from tenure.jobs import Decision, JobBook
from tenure.jobs.attempts import Dispatched
from tenure.jobs.budget import is_full
from tenure.jobs.queues import room
from tenure.jobs.submission import JobSubmitted
from tenure.nodes.manager.leader_parts import LeaderPart

ResultT = TypeVar("ResultT")
FULL_FOR_S = 30.0
"""An engine that refused a write counts as full for this long, unless an append succeeds before. Then jobs are accepted again: only a write can show that there is room."""
_APPENDS = frozenset({"append", "append_with"})
"""The calls that need as much room as a submission. The renewal of a term writes too, but a full PostgreSQL still has room for that on a page."""
MANAGER = "manager/"
"""`tenure drain manager/NAME` drains a manager. Without the prefix the name is a worker's: both may have the name of their host."""


class WatchedCalls:
    """The calls of a manager to its engine. It remembers when the engine last said that it is full."""

    def __init__(self, calls: Calls, clock: Clock) -> None:
        self._calls, self._clock = calls, clock
        self._full_at = float("-inf")
        self._fact = ""

    async def run(self, function: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
        try:
            result = await self._calls.run(function, *args, **options)
        except EngineFullError as error:
            self._full_at, self._fact = self._clock.monotonic(), error.fact
            raise
        if getattr(function, "__name__", "") in _APPENDS:
            self._full_at = float("-inf")
        return result

    @property
    def full(self) -> str:
        """The engine's words, while it counts as full; empty otherwise."""
        return self._fact if self._clock.monotonic() - self._full_at < FULL_FOR_S else ""


def drained_by(book: JobBook, manager: str) -> str:
    """Returns who drained this manager, and why; empty where nobody did."""
    record = book.state.drained.get(MANAGER + manager)
    if record is None:
        return ""
    return f"drained by {record.by or 'an operator'}" + (f": {record.reason}" if record.reason else "")


def why_closed(book: JobBook, manager: str, engine_full: str) -> str:
    """Returns the reason why this manager accepts no new jobs; empty while it does."""
    if said := drained_by(book, manager):
        return said
    if is_full(book):
        return "the state of its datacenter is at its budget"
    return f"its engine is full: {engine_full}" if engine_full else ""


class WorkFlow(NamedTuple):
    """Signal 3 of a manager: the jobs and attempts of the last interval."""

    accepted: int = 0
    dispatched: int = 0
    expected: float = 0.0
    """The attempts that could have been dispatched."""
    waiting: int = 0
    """The attempts that have waited for a whole interval, with room for them."""


class DispatchFlow(LeaderPart):
    """Counts the jobs accepted and the attempts dispatched in one term: those of an earlier term say nothing about this leader."""

    heeds = frozenset({JobSubmitted, Dispatched})

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._accepted, self._dispatched = EventWindow(history=0), EventWindow(history=0)
        self._waiting_since: float | None = None

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        now = self._clock.monotonic()
        for event in decision.events:
            if isinstance(event, JobSubmitted):
                self._accepted.record(now)
            elif isinstance(event, Dispatched):
                self._dispatched.record(now)

    def measure(self, book: JobBook, engine_now: float) -> WorkFlow:
        now = self._clock.monotonic()
        waiting = sum(
            min(len(keys), room(book.state.queues.get(queue), book.in_queue.get(queue, 0), engine_now))
            for (queue, _), keys in book.ready.items()
        )
        self._waiting_since = (now if self._waiting_since is None else self._waiting_since) if waiting else None
        # Waiting work counts against this leader only when some has waited for a whole interval.
        overdue = waiting if self._waiting_since is not None and now - self._waiting_since >= INTERVAL_S else 0
        dispatched = int(self._dispatched.last_interval(now))
        accepted = int(self._accepted.last_interval(now))
        return WorkFlow(accepted, dispatched, float(dispatched + overdue), overdue)
