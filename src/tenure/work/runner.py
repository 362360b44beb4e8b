"""Runs attempts where their engine is at hand: threads and tasks of this process, and the simulator's scripted slots.

`AttemptRunner` begins an attempt, collects its log and settles its outcome. A slot process has no engine and hands the outcome to its
supervisor instead. `WatchedAttempt` has the part of a supervisor. Slot processes and their supervisor meet on the beat board; elsewhere one object
holds both parts. Neither waits: they describe engine calls and pauses as steps (`attempt_steps`).
"""

from __future__ import annotations

from functools import partial

from tenure.beat.record import BeatRecord, Phase
from tenure.clock import Clock
from tenure.engines.contracts import Engine
from tenure.errors import TenureError
from tenure.logs import NodeLog
from tenure.randomness import Random
from tenure.work.attempt import Attempt
from tenure.work.attempt_failures import describe_error, failure_of_tenure, unstarted_result
from tenure.work.attempt_logs import AttemptLogHandler
from tenure.work.attempt_steps import Steps
from tenure.work.delivery import EngineDelivery, WorkResult
from tenure.work.log_lines import fence_of, keep_log, key_of
from tenure.work.registry import Registry
from tenure.work.result_signatures import signer_for
from tenure.work.settler import ONCE, Settler
from tenure.work.slots.settings import SlotSettings


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
