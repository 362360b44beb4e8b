"""Waits of a workflow that give its slot back: for a time, a signal, or children. Each is a step that records how it ended.

A wait that is not over ends the attempt with `WorkSuspended`. The leader dispatches the work again when it is over; the workflow runs again from its
beginning, past its recorded steps, to the same wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.attempt_data import MOST_JOBS, Signal, WaitsFor
from tenure.codec import about_signal, opened_value
from tenure.errors import JobFailed, LimitError, NoResultError, WaitTimeoutError, WorkError
from tenure.work.schemas import as_declared
from tenure.work.step_log import StepId, StepRecord

if TYPE_CHECKING:
    from tenure.work.base_context import BaseContext
    from tenure.work.context import AsyncContext
    from tenure.work.job_submission import ChildView, _Child

IN_SLOT_S = 5.0
"""A shorter wait stays in the slot: to suspend costs two messages and an append."""
PLAIN_IN_SLOT_S = 900.0
"""`ctx.sleep(seconds)` of work that was not written to run again stays in the slot up to this."""
MOST_WAIT_S = 10 * 366 * 86_400.0
KEPT_WITH_STEP_BYTES = 16_384
"""A child's result up to this is recorded with the wait for it. A larger one is asked for again: its job keeps it until the parent has ended."""


class WorkSuspended(BaseException):
    """Ends an attempt whose work waits. It is no `Exception`, so that `except Exception` around a wait lets it through."""

    def __init__(self, waits: WaitsFor) -> None:
        self.waits = waits
        super().__init__(f"it waits: {waits.step}")


def suspension_in(error: BaseException) -> WaitsFor | None:
    """Returns the wait that ended an attempt, also where a task group has wrapped it; None for any other error."""
    if isinstance(error, WorkSuspended):
        return error.waits
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := suspension_in(one)) is not None), None)
    return None


class WaitOutcome(msgspec.Struct, frozen=True, array_like=True):
    """How a wait ended, as its step records it."""

    timed_out: bool = False
    value: Any = None
    completed: bool = True
    state: str = ""
    reason: str = ""
    why: str = ""
    at_child: bool = False
    """True where the value is too large for the record, and is read from the child."""


class Waits:
    """The waits of one attempt. Its methods wait for the engine, so async workflows call them in a thread."""

    def __init__(self, context: BaseContext) -> None:
        self._handle = context._handle
        self._counts: dict[tuple[str, str], int] = {}

    @property
    def can_suspend(self) -> bool:
        return self._handle.delivery.item.managed

    def step_for(self, kind: str, name: str, key: str) -> StepId:
        """Returns the identity of a wait: by its key, or by its number among those of its kind and name."""
        if not self.can_suspend:
            raise WorkError(
                f"work without a leader cannot wait for {kind} {name!r}",
                remedy="Submit it as a job: tenure submit, Client.submit or embedded()",
            )
        count = self._counts.get((kind, name), 0)
        if not key:
            self._counts[(kind, name)] = count = count + 1
        return StepId(kind, name, key or f"#{count}")

    def sleep(self, step: StepId, after_s: float) -> None:
        """Returns when the time is over; suspends before."""
        if not 0 <= after_s <= MOST_WAIT_S:
            raise LimitError(str(step), f"{after_s:g} s", f"0 to {MOST_WAIT_S:,.0f} s")
        if self._handle.begin_step(step) is None:
            if not self._is_woken(step):
                raise WorkSuspended(WaitsFor(step=_named(step), after_s=after_s))
            self._record(step, WaitOutcome())

    def event(self, step: StepId, timeout: float | None) -> Any:
        """Returns the payload of the next signal; suspends until there is one. Raises `WaitTimeoutError`."""
        if timeout is not None and not 0 <= timeout <= MOST_WAIT_S:
            raise LimitError(f"timeout of {step}", timeout, f"0 to {MOST_WAIT_S:,.0f} s, or None")
        outcome = self._found(step)
        if outcome is None:
            signals = [one for one in self._handle.events.known if one.name == step.name]
            waited = self._handle.step_log.of("event", step.name)
            # A signal that another job took, from whose step this one began again, is none of this job's signals.
            taken = sum(not self._decode(one).timed_out for one in waited if not one.made_by)
            if len(signals) > taken:
                outcome = WaitOutcome(value=self.opened(signals[taken]).payload)
            elif self._is_woken(step):
                outcome = WaitOutcome(timed_out=True)
            else:
                raise WorkSuspended(WaitsFor(step=_named(step), event=step.name, seen=taken, after_s=timeout))
            self._record(step, outcome)
        if outcome.timed_out:
            raise WaitTimeoutError(step.name, timeout or 0.0)
        return as_declared(self._handle.signal_types, step.name, outcome.value)

    def jobs(self, children: Sequence[_Child[Any]]) -> list[Any]:
        """Returns the results of children, in their order; suspends until all have ended. Raises `JobFailed` for the first that failed."""
        if len(children) > MOST_JOBS:
            raise LimitError("children", f"{len(children):,}", f"at most {MOST_JOBS:,} at once")
        ended: list[tuple[_Child[Any], WaitOutcome]] = []
        still: list[str] = []
        for child in children:
            step = StepId("job", child.id[-200:], "")
            outcome = self._found(step)
            if outcome is None:
                view: ChildView = child._courier.look(child.id, 0.0)
                if not view.ended:
                    still.append(child.id)
                    continue
                why = "" if view.completed else child._courier.why(child.id)
                outcome = WaitOutcome(False, view.result, view.completed, view.state, view.reason, why)
                self._record(step, _fitted(outcome))
            elif outcome.at_child:
                outcome = self._read_again(child, outcome)
            ended.append((child, outcome))
        if still:
            raise WorkSuspended(WaitsFor(step=f"job {still[0]}"[:200], jobs=tuple(still)))
        for child, one in ended:
            if not one.completed:
                raise JobFailed(child.id, one.state, one.reason, one.why)
        return [child._decoded(one.value) for child, one in ended]

    def _read_again(self, child: _Child[Any], outcome: WaitOutcome) -> WaitOutcome:
        value = child._courier.look(child.id, 0.0).result
        if value is None:
            raise NoResultError(
                child.id,
                "it was kept for as long as its own result_ttl said",
                remedy="Submit the child without a result_ttl: then its result is kept until its parent has ended",
            )
        return msgspec.structs.replace(outcome, value=value)

    def opened(self, signal: Signal) -> Signal:
        """Returns a signal with its payload as its sender gave it. Raises `CodecError` where this worker has a codec and the sender had none."""
        about = about_signal(self._handle.occupant.job, signal.name, signal.id)
        return msgspec.structs.replace(signal, payload=opened_value(self._handle.codec, signal.payload, about))

    def _found(self, step: StepId) -> WaitOutcome | None:
        record = self._handle.begin_step(step)
        return None if record is None else self._decode(record)

    def _decode(self, record: StepRecord) -> WaitOutcome:
        return msgspec.json.decode(self._handle.result_of(record), type=WaitOutcome)

    def _record(self, step: StepId, outcome: WaitOutcome) -> None:
        # With the codec, as every step: the outcome holds the payload of a signal, or what a child returned or failed of.
        self._handle.record_step(step, msgspec.json.encode(outcome))

    def _is_woken(self, step: StepId) -> bool:
        """Returns True when the leader dispatched this work because the time of this very wait is over."""
        return self._handle.delivery.item.woken == _named(step)


def _fitted(outcome: WaitOutcome) -> WaitOutcome:
    """Returns the outcome of a wait for a child as its step can hold it."""
    if len(msgspec.json.encode(outcome.value)) <= KEPT_WITH_STEP_BYTES:
        return outcome
    return msgspec.structs.replace(outcome, value=None, at_child=True)


def _named(step: StepId) -> str:
    return f"{step.kind} {step.name} {step.key}"[:200]


def span(seconds: float, days: float, hours: float, minutes: float) -> float:
    return seconds + days * 86_400 + hours * 3_600 + minutes * 60


def seconds_until(when: datetime | float, wall: float) -> float:
    """Returns the seconds until a time, which is Unix time or has a zone."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise LimitError(
                "wait_until", when.isoformat(), "a time with a zone", remedy="Write datetime.now(UTC) + ..."
            )
        when = when.timestamp()
    return max(0.0, when - wall)


async def awaited(context: AsyncContext, call: Callable[[], Any]) -> Any:
    """Awaits a wait. `WorkSuspended` is carried over the thread as a value: an executor would keep a `BaseException` to itself."""

    def guarded() -> tuple[Any, WorkSuspended | None]:
        try:
            return call(), None
        except WorkSuspended as error:
            return None, error

    value, suspended = await context.in_thread(guarded)
    if suspended is not None:
        raise suspended
    return value
