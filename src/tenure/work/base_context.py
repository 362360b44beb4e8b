"""The context of a workflow, `ctx`: beats, progress, checkpoints, declared silence, cancellation.

A beat writes two words of shared memory and looks for a cancellation at most twenty times a second. It never talks to the engine: the
supervisor extends leases from what the board shows. A checkpoint does talk to the engine, and returns when it is durable.
"""

from __future__ import annotations

import itertools
import logging
from _thread import get_ident
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tenure.attempt_data import Signal
from tenure.beat.record import Brake
from tenure.clock import Clock
from tenure.engines.contracts import Fence
from tenure.errors import Cancelled, LimitError, SerializationError, WorkError
from tenure.work.attempt_handle import AttemptHandle
from tenure.work.declared_spells import DeclaredSilence, NamedWait, Tracked
from tenure.work.delivery import CANCEL_REASONS, CancelCode, mark_of
from tenure.work.finished_results import FinishedResults
from tenure.work.wait_calls import IN_SLOT_S, MOST_WAIT_S, PLAIN_IN_SLOT_S, Waits, span

if TYPE_CHECKING:
    from tenure.jobs.model import JobSubmission
    from tenure.work.context import AsyncContext, Context
    from tenure.work.job_submission import Children, JobCourier

ItemT = TypeVar("ItemT")
T = TypeVar("T")

LOOK_EVERY_S = 0.05
"""A beating workflow checks at this interval for a cancellation and a lost lease."""


_current: ContextVar[BaseContext | None] = ContextVar("tenure_context", default=None)


class BaseContext:
    """The part of the context that sync and async workflows share."""

    def __init__(self, handle: AttemptHandle) -> None:
        self._handle = handle
        self._thread = get_ident()
        """The thread that the work runs in, or that its event loop runs in. Its beats are proof."""
        self._helpers: set[int] = set()
        """Threads that the work registered with `thread()`. Their beats are proof, too."""
        self._silence_steps = -1
        """The steps at the end of the last declared silence: the next one needs another step before it."""
        self._monotonic = handle.clock.monotonic
        self._floats, self._ints = handle.record.beat_ports()
        self._steps = itertools.count(1)
        self._look_at = 0.0
        self._note = ""
        self._children: Children | None = None
        self._results: FinishedResults | None = None
        self._waits = Waits(self)
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Writes to the log of this attempt, with the names of its job and workflow."""
        if self._log is None:  # made when it is first used: most short work logs nothing
            occupant = self._handle.occupant
            named = {"job": occupant.job, "workflow": occupant.workflow, "attempt": occupant.attempt}
            logger = logging.getLogger("tenure.workflow")
            self._log = logging.LoggerAdapter(logger, {**named, "trace": self._handle.trace})
        return self._log

    def beat(
        self,
        progress: float | None = None,
        note: str | None = None,
        completed_items: int | None = None,
        total_items: int | None = None,
    ) -> None:
        """Prove that the work advances. Raises `Cancelled` when its time is over.

        A beat of another thread than the work's own says only that this thread lives, unless it was registered with `thread()`.
        """
        now = self._monotonic()
        if now >= self._look_at and not self._look(now):
            return
        self._floats[0] = now
        self._ints[1] = next(self._steps)
        if progress is not None or note is not None or completed_items is not None:
            self._tell(progress, note, completed_items, total_items)

    def _look(self, now: float) -> bool:
        """Looks for a cancellation, and at the thread that beats: returns False for one that is not the work's own.

        Asking for the thread at each beat would cost a fifth of it. So a beat of the work's own thread vouches for all beats of the next
        `LOOK_EVERY_S`; then each beat is looked at until one of its own comes. Work that hangs is found by that much later.
        """
        self._look_at = 0.0
        self.raise_if_cancelled()
        if not self._is_own_thread():
            self._handle.record.count_other()
            return False
        self._look_at = now + LOOK_EVERY_S
        return True

    def _is_own_thread(self) -> bool:
        thread = get_ident()
        return thread == self._thread or thread in self._helpers

    def raise_if_cancelled(self) -> None:
        """Look now, without proving anything: raises `Cancelled` when the time of this attempt is over."""
        self._handle.look()
        if self._handle.cancel_code is not CancelCode.NONE:
            raise Cancelled(CANCEL_REASONS[self._handle.cancel_code])

    def _tell(self, progress: float | None, note: str | None, completed: int | None, total: int | None) -> None:
        record, mark, news = self._handle.record, self._handle.mark, False
        if completed is not None:
            if completed < 0 or (total is not None and total < 0):
                raise LimitError("completed_items, total_items", (completed, total), "0 or more")
            news = mark.items(completed, total or 0)
            record.set_items(completed, total or 0)
            if total:  # absolute counters win over the fraction
                record.set_progress(min(1.0, completed / total))
                progress = None
        if progress is not None:
            if not 0.0 <= progress <= 1.0:  # also refuses NaN
                raise LimitError("progress", progress, "between 0.0 and 1.0")
            news = mark.fraction(progress) or news
            record.set_progress(progress)
        if news and self._is_own_thread():
            record.set_mark(mark.word)
        if note is not None and note != self._note:
            self._note = note
            occupant = msgspec.structs.replace(self._handle.occupant, note=note[:500])
            self._handle.occupant = occupant
            self._handle.record.describe(occupant)

    def expose(self, name: str, value: Any) -> None:
        """Show a small value on the job, for people and programs that look at it: `ctx.expose("status", "asking the bank")`. None takes it away.

        Nothing is sealed by a codec. All values of an attempt have 2 KB together. They stay when the work is suspended or ends.
        """
        self._handle.expose(name, value)

    def track(self, items: Iterable[ItemT] | AsyncIterable[ItemT], total: int | None = None) -> Tracked[ItemT]:
        """Go through items with one beat after each; works in `for` and in `async for`."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        return Tracked(self, items, total)

    def silence(self, max_s: float, why: str, on: str = "") -> DeclaredSilence:
        """Declare a bounded quiet spell, such as a model call: the lease is kept and the stall clock stands still, once.

        `on` names what is waited for, as `depends` does.
        """
        return DeclaredSilence(self, max_s, why, on)

    def depends(self, name: str, *, errors: bool = True) -> NamedWait:
        """Name what the block waits for: `with ctx.depends("s3"):`. When it is down for most that wait for it, no clock of theirs runs.

        An error that leaves the block is a failure of what it names, unless `errors` is False: then only silence tells.
        """
        return NamedWait(self, name, errors=errors)

    def call_failed(self) -> None:
        """Count a failure of what the block of `depends` around this names, for work that tries it again by itself."""
        self._handle.record.call_failed(True)

    @property
    def brake(self) -> Brake:
        """`Brake.NONE`, or whether this attempt may try what it waits for, which is down for most."""
        return self._handle.record.brake

    def _wait_on(self, name: str) -> None:
        occupant = msgspec.structs.replace(self._handle.occupant, waits_on=name)
        self._handle.occupant = occupant
        self._handle.record.describe(occupant)

    @contextmanager
    def thread(self) -> Iterator[None]:
        """Register the thread that calls this as one of the work's own, for as long as the block lasts: its beats count."""
        helper = get_ident()
        self._helpers.add(helper)
        try:
            yield
        finally:
            self._helpers.discard(helper)

    def beat_with_news(self, progress: float | None = None, note: str | None = None) -> None:
        """Beat for code that judges by itself what is new, such as an agent. It may call from a thread that it watches."""
        with self.thread():
            self.beat(progress, note)
        self._handle.show(binds=True)

    @property
    def cancelled(self) -> bool:
        """True when this attempt should end; `beat` raises `Cancelled` then."""
        self._handle.look()
        return self._handle.cancel_code is not CancelCode.NONE

    @property
    def lease_lost(self) -> bool:
        """True when another worker may run this: the engine will refuse its result."""
        self._handle.look()
        return self._handle.cancel_code is CancelCode.LEASE_LOST

    def _span(self, seconds: float, days: float, hours: float, minutes: float) -> tuple[float, bool]:
        """Returns the seconds of a sleep, and whether it was given in seconds alone."""
        after_s = span(seconds, days, hours, minutes)
        if not 0 <= after_s <= MOST_WAIT_S:  # also refuses NaN
            raise LimitError("sleep", f"{after_s:g} s", f"0 to {MOST_WAIT_S:,.0f} s")
        return after_s, not (days or hours or minutes)

    def _stays(self, after_s: float, plain: bool) -> bool:
        """Returns True for a sleep that stays in the slot."""
        return after_s <= (PLAIN_IN_SLOT_S if plain else IN_SLOT_S) or not self._waits.can_suspend

    @property
    def events(self) -> tuple[Signal, ...]:
        """The signals that the job had when this attempt was dispatched, or when `poll_events` asked last, oldest first."""
        return tuple(self._waits.opened(one) for one in self._handle.events.known)

    @property
    def resume(self) -> Any:
        """The value that the last attempt saved with `checkpoint`, or None on the first."""
        self._handle.take_up_checkpoint()
        saved = self._handle.resumed_from
        self._handle.output.resumed_from(mark_of(saved))
        return None if saved is None else msgspec.json.decode(saved)

    @property
    def saved(self) -> Any:
        """The value that was saved last, by this attempt or by the one before it."""
        saved = self._handle.saved
        return None if saved is None else msgspec.json.decode(saved)

    def save(self, data: Any) -> None:
        """Save where the work is, without a beat: for what says nothing about progress. It waits until that is durable.

        Workflows call `checkpoint`; this is for code below them that runs in a thread.
        """
        self._handle.keep(self._encode_checkpoint(data))

    @property
    def results(self) -> FinishedResults:
        """The results of the workflows that this one comes `after`, by name or by function: `ctx.results["fetch"]`."""
        if self._results is None:
            self._results = FinishedResults(self._handle)
        return self._results

    @property
    def clock(self) -> Clock:
        """The clock of this attempt."""
        return self._handle.clock

    @property
    def job(self) -> str:
        return self._handle.occupant.job

    @property
    def workflow(self) -> str:
        """The name of the workflow that runs."""
        return self._handle.occupant.workflow

    @property
    def attempt(self) -> int:
        return self._handle.occupant.attempt

    @property
    def deadline(self) -> float | None:
        """Seconds that are left to this attempt, or None when it has no timeout."""
        until = self._handle.occupant.deadline
        return None if until is None else max(0.0, until - self._handle.clock.boottime())

    @property
    def fence(self) -> Fence:
        """Orders the attempts at this work: give it to whatever you write to, and let it refuse lower ones."""
        self._handle.confirm_start()
        return self._handle.delivery.fence

    def _child(
        self, target: Any, values: tuple[Any, ...], key: str, given: dict[str, Any]
    ) -> tuple[JobCourier, JobSubmission, Any]:
        """Returns the submission that `submit` of both contexts sends, and the courier that sends it."""
        # Imported here: most workflows submit nothing, and a slot shall start quickly.
        from tenure.work.job_submission import Children
        from tenure.work.registry import Workflow

        courier = self._handle.delivery.courier()
        if self._children is None:
            self._children = Children(self)
        submission = self._children.prepare(target, values, given, key)
        return courier, submission, target if isinstance(target, Workflow) else None

    def _encode_checkpoint(self, data: Any) -> bytes:
        try:
            return msgspec.json.encode(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"a checkpoint of type {type(data).__name__} cannot be written as JSON: {error}",
                remedy="Save plain JSON types, a dataclass or a msgspec.Struct",
            ) from error


def current() -> BaseContext:
    """Returns the context of the workflow that runs here, for code that was not handed one."""
    found = _current.get()
    if found is None:
        raise WorkError(
            "no workflow runs here",
            remedy="Call tenure.current() inside a workflow; in threads of your own, pass ctx on or copy the context",
        )
    return found


def run_with_context(context: Context, call: Callable[[], T]) -> T:
    """Call, with `context` as the current one."""
    token = _current.set(context)
    try:
        return call()
    finally:
        _current.reset(token)


async def await_with_context(context: AsyncContext, awaitable: Callable[[], Awaitable[T]]) -> T:
    """Await, with `context` as the current one."""
    token = _current.set(context)
    try:
        return await awaitable()
    finally:
        _current.reset(token)


def current_or_none() -> BaseContext | None:
    return _current.get()
