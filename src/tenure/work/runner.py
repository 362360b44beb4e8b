"""Runs attempts, for slots of every kind: slot processes, threads and tasks of this process, and the simulator's scripted slots.

`AttemptRunner` runs an attempt where its engine is at hand: begin it, collect its log, settle its outcome. A slot process has no engine and
hands the outcome to its supervisor instead. `WatchedAttempt` has the part of a supervisor: extend the lease for beats, ask the attempt to end.
Slot processes and their supervisor meet on the beat board; elsewhere one object holds both parts.

Neither waits. They describe engine calls and pauses as steps: a generator yields a call to make, or the seconds to pause, and receives the
call's answer or its exception. The code in between is written once; the drivers of the steps differ only in how they wait.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, TypeVar, cast

from tenure.beat.lease import ExtensionOutcome
from tenure.beat.record import BeatReading, BeatRecord, Occupant, Phase
from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import EngineWentBackError, ReceiptHandleExpiredError, TenureError
from tenure.logs import NodeLog
from tenure.randomness import Random
from tenure.work.attempt import Attempt
from tenure.work.attempt_failures import describe_error, failure_of_tenure, unstarted_result
from tenure.work.attempt_logs import AttemptLogHandler, fence_of, keep_log, key_of
from tenure.work.attempt_watch import AttemptWatch
from tenure.work.delivery import CancelCode, EngineDelivery, WorkResult
from tenure.work.registry import Registry
from tenure.work.result_signatures import signer_for
from tenure.work.settler import ONCE as ONCE
from tenure.work.settler import Settler as Settler
from tenure.work.slots.settings import SlotSettings

T = TypeVar("T")
Step = Callable[[], Any] | Coroutine[Any, Any, Any] | float
"""A call to the engine, an async workflow to await, or the seconds of a pause."""
Steps = Generator[Step, Any, T]


def run_steps(steps: Steps[T], clock: Clock, run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run) -> T:
    """Takes the steps in this thread, and returns what they return. `run` runs the coroutines among them."""
    advance, answer = steps.send, None
    while True:
        try:
            step = advance(answer)
        except StopIteration as end:
            return cast("T", end.value)
        try:
            if isinstance(step, float):
                answer = None
                clock.sleep(step)
            else:
                answer = run(step) if isinstance(step, Coroutine) else step()
            advance = steps.send
        except Exception as error:
            answer, advance = error, steps.throw


async def await_steps(steps: Steps[T], calls: Calls, clock: Clock) -> T:
    """Takes the steps from an event loop. A cancellation ends them where they are."""
    advance, answer = steps.send, None
    while True:
        try:
            step = advance(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned
        try:
            if isinstance(step, float):
                answer = None
                await clock.async_sleep(step)
            else:
                answer = await (step if isinstance(step, Coroutine) else calls.run(step))
            advance = steps.send
        except Exception as error:
            answer, advance = error, steps.throw


def hand_over_steps(
    steps: Steps[None],
    submit: Callable[[Callable[[], None]], object],
    later: Callable[[Callable[[], None]], None],
) -> None:
    """Makes the calls in another thread with `submit`. Everything between two calls runs in the thread to which `later` brings it.

    The first part runs here. The steps must not pause: nothing waits here.
    """

    def go_on(advance: Callable[[Any], Step], answer: Any) -> None:
        try:
            step = advance(answer)
        except StopIteration:
            return
        assert not isinstance(step, float | Coroutine), "steps that are handed over cannot pause"

        def call() -> None:
            try:
                answer = step()
            except Exception as error:
                failed = error  # the name `error` ends with this block
                later(lambda: go_on(steps.throw, failed))
            else:
                later(lambda: go_on(steps.send, answer))

        submit(call)

    go_on(steps.send, None)


class AttemptRunner:
    """Begins and concludes attempts; safe to use from several threads. An error on one attempt ends that attempt, and nothing else."""

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        settings: SlotSettings,
        attempt_log: AttemptLogHandler,
        *,
        worker: str,
        clock: Clock,
        random: Random,
        log: NodeLog,
    ) -> None:
        self._registry, self._settings, self._attempt_log = registry, settings, attempt_log
        self._clock, self._log = clock, log
        self.worker = worker
        """The worker's name. The leader knows the worker under it and excludes it by it, so every result carries it."""
        self._logs = engine.store("logs")
        signer = signer_for(settings.result_keys, worker)
        self.settler = Settler(engine, clock=clock, random=random, log=log, signer=signer)

    def begin(self, delivery: EngineDelivery, record: BeatRecord) -> Attempt:
        """Occupies the record for a delivery. Raises for one that no slot can take; `fail_alone` settles it then."""
        attempt = Attempt(
            delivery,
            record,
            registry=self._registry,
            clock=self._clock,
            stall_s=self._settings.stall_s,
            worker=self.worker,
        )
        self._attempt_log.begin(attempt.handle)
        return attempt

    def conclude(self, attempt: Attempt, result: WorkResult) -> Steps[None]:
        """Keeps the log and settles the outcome. The record stays occupied until then, so that a supervisor sees a kill in between."""
        record, occupant = attempt.record, attempt.occupant
        record.set_phase(Phase.SETTLING)
        try:
            if self._attempt_log.end(attempt.handle):
                kept = (attempt.handle.log_place, key_of(occupant), fence_of(occupant))
                yield partial(keep_log, self._logs, self._attempt_log.lines, *kept)
        except TenureError as error:
            self._log.error(f"the log of {occupant.workflow} was not kept: {error}")
            self._attempt_log.lines.clear(attempt.handle.log_place)
        retry = attempt.workflow.retry if attempt.workflow else ONCE
        # The supervisor extends the lease meanwhile, so it is read anew before each try.
        delivery = attempt.delivery
        assert isinstance(delivery, EngineDelivery), "`begin` made the attempt from one"
        settle = partial(delivery.settle, retry=retry)
        try:
            yield from self.settler.until_settled(settle, result, lambda: record.lease_until)
        except TenureError as error:
            self._log.error(f"the outcome of {occupant.workflow} could not be settled: {error}")
        finally:
            record.count_end(ok=result.failure is None)

    def fail_alone(self, delivery: EngineDelivery, error: Exception) -> Steps[None]:
        """Fails one delivery on which Tenure itself raised an error. Call it while handling the error."""
        item, failure = delivery.item, failure_of_tenure(error)
        trace = failure.evidence.get("traceback", "")
        self._log.error(f"failed on {item.workflow[:200]!r}: {failure.reason}\n{trace[-4_000:]}")
        known = self._registry.knows(item.workflow, item.version)
        retry = self._registry.find(item.workflow, item.version).retry if known else ONCE
        result = unstarted_result(item, delivery.ticket, self.worker, failure)
        settle = partial(delivery.settle, retry=retry)
        try:
            yield from self.settler.until_settled(settle, result, lambda: delivery.lease_until)
        except Exception as again:  # then the lease runs out, and the engine counts it
            self._log.error(f"and could not settle it: {describe_error(again)}")

    def give_back(self, delivery: EngineDelivery) -> Steps[None]:
        """Releases work that was claimed and has not started, so that it is not counted."""
        try:
            yield delivery.release
        except TenureError as error:
            self._log.warning(f"could not give {delivery.item.workflow} back: {error}")


class WatchedAttempt:
    """One attempt as its supervisor sees it: its record on the board, and the watch that judges it."""

    def __init__(self, record: BeatRecord, watch: AttemptWatch, serial: int) -> None:
        self.record, self.watch = record, watch
        self.serial = serial
        """The serial of the record when the attempt took it. Another serial is another attempt."""
        self.extending = False
        """True while an extension is in flight: there is never a second one."""
        self.lost_because = ""
        """The engine's words, after `ExtensionOutcome.EXPIRED`."""

    @classmethod
    def of(cls, record: BeatRecord, occupant: Occupant, serial: int, settings: SlotSettings) -> Self:
        """Begins to watch an attempt, under the lease that its claim gave it."""
        watch = AttemptWatch(
            occupant,
            settings.extend_every_s,
            settings.grace_s,
            lease_until=occupant.ticket.lease_until,
            settle_s=settings.settle_within_s,
        )
        return cls(record, watch, serial)

    def extend(
        self, extend: Callable[[], float], reading: BeatReading, lease_s: float, clock: Clock, log: NodeLog
    ) -> Steps[ExtensionOutcome]:
        """Extends the lease by a call of `extend`, which returns the boot time until which the lease is ours."""
        self.extending = True
        self.watch.extending(reading, clock.monotonic())
        try:
            until: float = yield extend
        except (ReceiptHandleExpiredError, EngineWentBackError) as error:
            # An engine that lost what it had acknowledged may have given this work to another worker: nothing here may settle it.
            self.lost_because = str(error)
            return ExtensionOutcome.EXPIRED
        except Exception as error:
            text = str(error) if isinstance(error, TenureError) else repr(error)
            log.warning(f"cannot extend the lease of {self.watch.occupant.workflow} yet: {text}")
            self.watch.extension_failed(clock.monotonic(), retry_in_s=min(1.0, lease_s / 20))
            return ExtensionOutcome.FAILED
        else:
            self.watch.extended(until)
            # The answer may come after the attempt ended. The serial keeps it from the attempt that took the record since.
            self.record.set_lease_until(self.watch.lease_until, self.serial)
            return ExtensionOutcome.GRANTED
        finally:
            self.extending = False

    def judge(self, code: CancelCode, reason: str, clock: Clock, log: NodeLog) -> None:
        """Decides that the attempt has to end, and says so. The first verdict stays: from it the grace is counted."""
        watch, occupant = self.watch, self.watch.occupant
        if watch.code is CancelCode.NONE:
            watch.cancel(code, reason, clock.monotonic())
        log.warning(f"{occupant.workflow} ({occupant.job}), attempt {occupant.attempt}: {watch.reason}")

    def ask_to_end(self, code: CancelCode) -> None:
        """Writes the cancel to the board, where the attempt finds it."""
        self.record.request_cancel(code, self.serial, self.watch.reason)


_REMEMBERED, _TRACE_CHARS = 1_000, 4_000


class IsolatedErrors:
    """Counts errors of Tenure itself by the thing that they concern. Safe to use from several threads."""

    def __init__(self, log: NodeLog) -> None:
        self._log = log
        self._times: dict[str, int] = {}
        self._lock = threading.Lock()
        self.count = 0
        """All errors, including those that were not logged."""

    @contextmanager
    def isolate(self, what: str) -> Iterator[None]:
        """Swallows an exception of the block, and logs it. `what` names the one thing that the block handles."""
        try:
            yield
        except Exception as error:
            times = self._note(what)
            # A thing that fails at every look would fill the log, so only its 1st, 2nd, 4th, 8th ... failure is logged.
            if times & (times - 1) == 0:
                trace = traceback.format_exc()[-_TRACE_CHARS:]
                self._log.error(f"{what} failed, time {times}, and everything else goes on: {error!r}\n{trace}")

    def _note(self, what: str) -> int:
        with self._lock:
            self.count += 1
            if len(self._times) >= _REMEMBERED:
                self._times.clear()
            times = self._times[what] = self._times.get(what, 0) + 1
            return times
