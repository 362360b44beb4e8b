"""Runs attempts, for slots of every kind: slot processes, threads and tasks of this process, and the simulator's scripted slots.

`AttemptRunner` has the part of the process in which the work runs: begin an attempt, collect its log, settle its outcome. `WatchedAttempt`
has the part of the supervisor: extend the lease for beats, ask the attempt to end. In a slot process the two parts are two processes, which
meet on the beat board; elsewhere one object holds both. Neither waits: they describe engine calls and pauses as steps.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Self

from tenure.beat.board import BeatReading, BeatRecord, Occupant, Phase
from tenure.clock import Clock
from tenure.engines.contracts import Engine
from tenure.errors import ReceiptHandleExpiredError, TenureError
from tenure.randomness import Random
from tenure.work.attempt_handle import CancelCode
from tenure.work.delivery import WorkDelivery
from tenure.work.envelope import WorkResult
from tenure.work.registry import Registry
from tenure.work.slots.attempt import Attempt, describe_error, failure_of_tenure, unstarted_result
from tenure.work.slots.attempt_logs import AttemptLogHandler, keep_log
from tenure.work.slots.attempt_watch import AttemptWatch
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.settler import ONCE, Settler
from tenure.work.steps import Steps

Say = Callable[[str], None]


class AttemptRunner:
    """Begins and concludes attempts; safe to use from several threads. An error on one attempt ends that attempt, and nothing else."""

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        settings: SlotSettings,
        log: AttemptLogHandler,
        *,
        worker: str,
        clock: Clock,
        random: Random,
        say: Say,
    ) -> None:
        self._registry, self._settings, self._log, self._clock, self._say = registry, settings, log, clock, say
        self.worker = worker
        """The worker's name. The leader knows the worker under it and excludes it by it, so every result carries it."""
        self._logs = engine.store("logs")
        self.settler = Settler(engine, clock=clock, random=random, say=say)

    def begin(self, delivery: WorkDelivery, record: BeatRecord) -> Attempt:
        """Occupies the record for a delivery. Raises for one that no slot can take; `fail_alone` settles it then."""
        attempt = Attempt(
            delivery,
            record,
            registry=self._registry,
            clock=self._clock,
            stall_s=self._settings.stall_s,
            worker=self.worker,
        )
        self._log.begin(attempt.handle)
        return attempt

    def conclude(self, attempt: Attempt, result: WorkResult) -> Steps[None]:
        """Keeps the log and settles the outcome. The record stays occupied until then, so that a supervisor sees a kill in between."""
        record, occupant = attempt.record, attempt.occupant
        record.set_phase(Phase.SETTLING)
        try:
            self._log.end(attempt.handle)
            if self._log.lines.holds(record.index):
                yield partial(keep_log, self._logs, self._log.lines, record.index, occupant)
        except TenureError as error:
            self._say(f"the log of {occupant.workflow} was not kept: {error}")
        retry = attempt.workflow.retry if attempt.workflow else ONCE
        # The supervisor extends the lease meanwhile, so it is read anew before each try.
        settle = partial(attempt.delivery.settle, retry=retry)
        try:
            yield from self.settler.until_settled(settle, result, lambda: record.lease_until)
        except TenureError as error:
            self._say(f"the outcome of {occupant.workflow} could not be settled: {error}")
        finally:
            record.count_end(ok=result.ok)

    def fail_alone(self, delivery: WorkDelivery, error: Exception) -> Steps[None]:
        """Fails one delivery on which Tenure itself raised an error. Call it while handling the error."""
        item, failure = delivery.item, failure_of_tenure(error)
        trace = failure.evidence.get("traceback", "")
        self._say(f"failed on {item.workflow[:200]!r}: {failure.reason}\n{trace[-4_000:]}")
        known = self._registry.knows(item.workflow, item.version)
        retry = self._registry.find(item.workflow, item.version).retry if known else ONCE
        result = unstarted_result(delivery, self.worker, failure)
        settle = partial(delivery.settle, retry=retry)
        try:
            yield from self.settler.until_settled(settle, result, lambda: delivery.lease_until)
        except Exception as again:  # then the lease runs out, and the engine counts it
            self._say(f"and could not settle it: {describe_error(again)}")

    def give_back(self, delivery: WorkDelivery) -> Steps[None]:
        """Releases work that was claimed and has not started, so that it is not counted."""
        try:
            yield delivery.release
        except TenureError as error:
            self._say(f"could not give {delivery.item.workflow} back: {error}")


class Extension(StrEnum):
    """The answer to one request for a longer lease."""

    GRANTED = "granted"
    FAILED = "failed"  # the engine did not answer: the beat is still proof, and the next try comes soon
    LOST = "lost"  # the engine says that the lease is over


class WatchedAttempt:
    """One attempt as its supervisor sees it: its record on the board, and the watch that judges it."""

    def __init__(self, record: BeatRecord, watch: AttemptWatch, serial: int) -> None:
        self.record, self.watch = record, watch
        self.serial = serial
        """The serial of the record when the attempt took it. Another serial is another attempt."""
        self.extending = False
        """True while an extension is in flight: there is never a second one."""
        self.lost_because = ""
        """The engine's words, after `Extension.LOST`."""

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
        self, extend: Callable[[], float], reading: BeatReading, lease_s: float, clock: Clock, say: Say
    ) -> Steps[Extension]:
        """Extends the lease by a call of `extend`, which returns the boot time until which the lease is ours."""
        self.extending = True
        self.watch.extending(reading, clock.monotonic())
        try:
            until: float = yield extend
        except ReceiptHandleExpiredError as error:
            self.lost_because = str(error)
            return Extension.LOST
        except Exception as error:
            text = str(error) if isinstance(error, TenureError) else repr(error)
            say(f"cannot extend the lease of {self.watch.occupant.workflow} yet: {text}")
            self.watch.extension_failed(clock.monotonic(), retry_in_s=min(1.0, lease_s / 20))
            return Extension.FAILED
        else:
            self.watch.extended(until)
            # The answer may come after the attempt ended. The serial keeps it from the attempt that took the record since.
            self.record.set_lease_until(self.watch.lease_until, self.serial)
            return Extension.GRANTED
        finally:
            self.extending = False

    def judge(self, code: CancelCode, reason: str, clock: Clock, say: Say) -> None:
        """Decides that the attempt has to end, and says so. The first verdict stays: from it the grace is counted."""
        watch, occupant = self.watch, self.watch.occupant
        if watch.code is CancelCode.NONE:
            watch.cancel(code, reason, clock.monotonic())
        say(f"{occupant.workflow} ({occupant.job}), attempt {occupant.attempt}: {watch.reason}")

    def ask_to_end(self, code: CancelCode) -> None:
        """Writes the cancel to the board, where the attempt finds it."""
        self.record.request_cancel(code, self.serial)
