"""Talking to the engine on behalf of slots: extensions while they live, settlements once they died."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from tenure.beat.board import Occupant, Reading
from tenure.clock import Clock
from tenure.engines.contracts import Engine, Fence, Mailbox, Message, Ticket
from tenure.errors import TenureError
from tenure.work.envelope import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.retry import Retry
from tenure.work.slots.keeping_logs import keep_log, log_key
from tenure.work.slots.settling import Settler


class Held(NamedTuple):
    """What a record held when its slot died."""

    record: int
    occupant: Occupant
    steps: int

    @classmethod
    def of(cls, index: int, reading: Reading) -> Held | None:
        return None if reading.occupant is None else cls(index, reading.occupant, reading.steps)


class Aftermath:
    """Safe to use from several threads. What the engine refuses is said, and ends nobody."""

    def __init__(
        self,
        engine: Engine,
        worker: str,
        folder: Path,
        *,
        clock: Clock,
        random: Random,
        say: Callable[[str], None],
    ) -> None:
        self._engine, self._worker, self._folder, self._clock, self._say = engine, worker, folder, clock, say
        self._mailboxes: dict[str, Mailbox[WorkItem, WorkResult]] = {}
        self._settler = Settler(engine, clock=clock, random=random, say=say)
        self._logs = engine.store("logs")

    def extend(self, occupant: Occupant, seconds: float) -> float:
        """Boot time until which the lease is ours now, counted from before we asked."""
        asked = self._clock.boottime()
        self._adopt(occupant.queue, occupant.ticket).extend_visibility(seconds)
        return asked + seconds

    def give_back(self, held: Held) -> None:
        """Work that its slot never started, or that did nothing wrong: back at once, uncounted."""
        occupant = held.occupant
        try:
            self._keep_log(held)
            self._adopt(occupant.queue, occupant.ticket).release()
        except TenureError as error:
            self._say(f"could not give {occupant.workflow} back: {error}")

    def fail(self, held: Held, failure: WorkFailure) -> None:
        """Settle an attempt whose slot died."""
        occupant = held.occupant
        try:
            self._keep_log(held)
            word = self._settler.settle(
                self._adopt(occupant.queue, occupant.ticket),
                self._result(held, failure),
                managed=occupant.managed,
                max_attempts=occupant.max_attempts,
                retry=Retry(*occupant.retry),
            )
        except TenureError as error:
            self._say(f"the failure of {occupant.workflow} could not be settled: {error}")
        else:
            self._say(f"{occupant.workflow} ({occupant.job}), attempt {occupant.attempt}: {failure.cause}: {word}")

    def _adopt(self, queue: str, ticket: Ticket) -> Message[WorkItem, WorkResult]:
        mailbox = self._mailboxes.get(queue)
        if mailbox is None:
            mailbox = self._mailboxes[queue] = self._engine.mailbox(queue, WorkItem, WorkResult)
        return mailbox.adopt(ticket)

    def _result(self, held: Held, failure: WorkFailure) -> WorkResult:
        occupant, ticket = held.occupant, held.occupant.ticket
        return WorkResult(
            job_id=occupant.job,
            workflow_id=occupant.workflow_id,
            workflow=occupant.workflow,
            attempt=occupant.attempt,
            fence=Fence(ticket.generation, ticket.delivery_count),
            worker=self._worker,
            failure=failure,
            beats=held.steps,
            seconds=max(0.0, self._clock.boottime() - occupant.started_at) if occupant.started_at else 0.0,
        )

    def _keep_log(self, held: Held) -> None:
        occupant = held.occupant
        key = log_key(occupant.job, occupant.workflow_id or occupant.workflow, occupant.attempt)
        fence = Fence(occupant.ticket.generation, occupant.ticket.delivery_count)
        keep_log(self._logs, self._folder, held.record, key=key, fence=fence)


def cause_of_exit(found: tuple[Cause, str, dict[str, str]]) -> WorkFailure:
    return WorkFailure(cause=found[0], reason=found[1], evidence=found[2])
