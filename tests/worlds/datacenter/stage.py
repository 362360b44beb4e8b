"""One attempt of a scripted workflow: what its script does, what its supervisor sees, and what becomes of it.

The supervisor's judgement is the real one (`AttemptWatch`); only the process is missing. So leases are extended for proof of work and
nothing else, and a stall, a lost lease and a kill take the course that they take in a worker.
"""

from __future__ import annotations

import asyncio

import msgspec

from tenure.beat.board import BeatReading, Occupant, Phase
from tenure.clock import Clock
from tenure.control.messages.workers import AttemptReport
from tenure.engines.contracts import Message
from tenure.work.attempt_handle import CancelCode
from tenure.work.envelope import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.slots.attempt import CAUSES
from tenure.work.slots.attempt_watch import AttemptWatch
from tests.worlds.datacenter.times import SLOTS


class Died(Exception):
    """The slot's process is gone, and its supervisor says why."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause


class Stage:
    """What a script acts on: beats, silences and naps, as `Context` offers them."""

    def __init__(
        self, message: Message[WorkItem, WorkResult], worker: str, incarnation: str, clock: Clock, serial: int
    ) -> None:
        self.message, self.item, self.clock, self.serial = message, message.body, clock, serial
        self.worker, self.incarnation = worker, incarnation
        self.phase = Phase.RUNNING
        self.beat_at = self.began_at = clock.monotonic()
        self.steps = 0
        self.fraction = -1.0
        self.silent_until = 0.0
        self.cooperates = True
        """Whether the script ends when it is asked to; one that does not has to be killed."""
        self.extending = False
        self.task: asyncio.Task[None] | None = None
        self.occupant = Occupant(
            ticket=message.ticket,
            job=self.item.job_id,
            workflow=self.item.workflow,
            attempt=self.item.attempt,
            queue=SLOTS.queue,
            stall_s=self.item.args.get("stall", SLOTS.stall_s),
            started_at=clock.boottime(),
            workflow_id=self.item.workflow_id,
            managed=True,
        )
        self.watch = AttemptWatch(self.occupant, SLOTS.extend_every_s, SLOTS.grace_s, lease_until=message.lease_until)

    # What a script does

    def beat(self, fraction: float | None = None) -> None:
        self.steps += 1
        self.beat_at = self.clock.monotonic()
        if fraction is not None:
            self.fraction = fraction

    def declare_silence(self, seconds: float) -> None:
        self.silent_until = self.clock.monotonic() + seconds

    async def work(self, seconds: float) -> None:
        await self.clock.async_sleep(seconds)

    # What its supervisor sees

    def reading(self) -> BeatReading:
        return BeatReading(
            self.phase, self.beat_at, self.steps, self.fraction, self.silent_until, 1, True, self.serial, self.occupant
        )

    @property
    def believes(self) -> bool:
        """Whether the lease is this slot's by its own clock."""
        return self.clock.boottime() < self.watch.lease_until

    def report(self) -> AttemptReport:
        now = self.clock.monotonic()
        return AttemptReport(
            job_id=self.item.job_id,
            workflow=self.item.workflow_id,
            attempt=self.item.attempt,
            delivery=self.message.delivery_count,
            steps=self.steps,
            fraction=self.fraction if 0 <= self.fraction <= 1 else None,
            silent_s=0.0 if now < self.silent_until else max(0.0, now - self.beat_at),
            stall_s=self.occupant.stall_s,
            lease_s=max(0.0, self.watch.lease_until - self.clock.boottime()),
        )

    # What becomes of it

    def failure_of_cancel(self) -> WorkFailure:
        code = self.watch.code if self.watch.code is not CancelCode.NONE else CancelCode.CANCEL
        return WorkFailure(cause=CAUSES[code], reason=self.watch.reason)

    def result(self, failure: WorkFailure | None, attempts_ago: int = 0) -> WorkResult:
        """The value names the delivery that made it, so that an observer knows whose it was."""
        attempt = self.item.attempt - attempts_ago
        value = {"made_by": [attempt, self.message.delivery_count, self.incarnation]}
        return WorkResult(
            job_id=self.item.job_id,
            workflow_id=self.item.workflow_id,
            workflow=self.item.workflow,
            attempt=attempt,
            fence=self.message.fence,
            worker=self.worker,
            result=msgspec.Raw(msgspec.json.encode(value) if failure is None else b"null"),
            failure=failure,
            beats=self.steps,
            seconds=self.clock.monotonic() - self.began_at,
        )
