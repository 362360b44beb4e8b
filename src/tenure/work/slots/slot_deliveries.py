"""The supervisor's calls to the engine about the deliveries that its slots hold.

While a slot lives, the supervisor extends its leases. After a slot or a worker died, the supervisor gives back or settles what it held.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from tenure.beat.board import BeatReading, BeatRecord, Occupant, Phase
from tenure.clock import Clock
from tenure.engines.contracts import Engine, Mailbox, Message
from tenure.errors import BoardError, TenureError
from tenure.work.delivery import extend_message
from tenure.work.envelope import WorkFailure, WorkItem, WorkResult
from tenure.work.slots.attempt_logs import FileLines, fence_of, keep_log
from tenure.work.slots.settler import Settler
from tenure.work.steps import run_steps


class HeldDelivery(NamedTuple):
    """One delivery that a record of the board held when its slot or its worker died."""

    record: int
    occupant: Occupant
    steps: int
    phase: Phase
    lease_until: float
    """Boot time at which the lease is lost, as it was last extended: the ticket only knows the lease of the claim."""

    @classmethod
    def on(cls, record: BeatRecord) -> HeldDelivery | None:
        """Returns the delivery that the record holds; None when the record is empty or cannot be read."""
        try:
            reading = record.read()
        except BoardError:
            return None
        return cls.of(record, reading)

    @classmethod
    def of(cls, record: BeatRecord, reading: BeatReading, occupant: Occupant | None = None) -> HeldDelivery | None:
        """Builds it from a reading. `occupant` is the one that was seen earlier: a kill may have cut the write of the cold part short."""
        occupant = reading.occupant or occupant
        if occupant is None or reading.phase is Phase.EMPTY:
            return None
        lease_until = record.lease_of(reading.serial)
        return cls(record.index, occupant, reading.steps, reading.phase, lease_until)


class SlotDeliveries:
    """Extends, gives back and settles deliveries by their tickets. Safe to use from several threads.

    It logs an engine's refusal and raises nothing for it, except from `extend`. `lines` has the logs of the attempts; None where they are lost.
    """

    def __init__(
        self,
        engine: Engine,
        worker: str,
        lines: FileLines | None,
        *,
        clock: Clock,
        random: Random,
        say: Callable[[str], None],
    ) -> None:
        self._engine, self._worker, self._lines, self._clock, self._say = engine, worker, lines, clock, say
        self._mailboxes: dict[str, Mailbox[WorkItem, WorkResult]] = {}
        self._settler = Settler(engine, clock=clock, random=random, say=say)
        self._logs = engine.store("logs")

    def extend(self, occupant: Occupant, seconds: float) -> float:
        """Extends the lease and returns the boot time until which it is ours."""
        return extend_message(self._mailbox(occupant.queue).adopt(occupant.ticket), seconds, self._clock)

    def give_back(self, held: HeldDelivery) -> None:
        """Releases work that its slot never started, or that did nothing wrong. The engine does not count this delivery."""
        occupant = held.occupant
        try:
            self._keep_log(held)
            self._adopt(held).release()
        except TenureError as error:
            self._say(f"could not give {occupant.workflow} back: {error}")

    def fail(self, held: HeldDelivery, failure: WorkFailure) -> None:
        """Settles an attempt whose slot died, by the policy that the board recorded for it."""
        occupant = held.occupant
        try:
            self._keep_log(held)
            message = self._adopt(held)
            settle = partial(self._settler.settle, message, managed=occupant.managed, retry=occupant.retry)
            steps = self._settler.until_settled(settle, self._result(held, failure), lambda: message.lease_until)
            word = run_steps(steps, self._clock)
        except TenureError as error:
            self._say(f"the failure of {occupant.workflow} could not be settled: {error}")
        else:
            self._say(f"{occupant.workflow} ({occupant.job}), attempt {occupant.attempt}: {failure.cause}: {word}")

    def _adopt(self, held: HeldDelivery) -> Message[WorkItem, WorkResult]:
        message = self._mailbox(held.occupant.queue).adopt(held.occupant.ticket)
        # The ticket knows the lease of the claim only. With the extended one the settler keeps trying while an engine is away for a moment.
        message.lease_until = max(message.lease_until, held.lease_until)
        return message

    def _mailbox(self, queue: str) -> Mailbox[WorkItem, WorkResult]:
        mailbox = self._mailboxes.get(queue)
        if mailbox is None:
            mailbox = self._mailboxes[queue] = self._engine.mailbox(queue, WorkItem, WorkResult)
        return mailbox

    def _result(self, held: HeldDelivery, failure: WorkFailure) -> WorkResult:
        occupant = held.occupant
        return WorkResult(
            job_id=occupant.job,
            workflow_id=occupant.workflow_id,
            workflow=occupant.workflow,
            attempt=occupant.attempt,
            fence=fence_of(occupant),
            worker=self._worker,
            failure=failure,
            beats=held.steps,
            seconds=max(0.0, self._clock.boottime() - occupant.started_at) if occupant.started_at else 0.0,
        )

    def _keep_log(self, held: HeldDelivery) -> None:
        if self._lines is not None:
            keep_log(self._logs, self._lines, held.record, held.occupant)
