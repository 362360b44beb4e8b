"""One attempt of a scripted workflow: the things that its script does, and the things that observers ask of it.

The attempt, its record on a beat board, its watch and its settlement are those of a worker; only the function is a script. So leases are
extended for proof of work and nothing else, and a stall, a lost lease and a kill take the course that they take in a worker.
"""

from __future__ import annotations

import asyncio

import msgspec

from tenure.beat.record import Occupant, Phase
from tenure.clock import Clock
from tenure.control.messages.workers import AttemptReport
from tenure.engines.contracts import Ticket
from tenure.errors import Cancelled
from tenure.nodes.slot_runner import attempt_report
from tenure.nodes.worker.inline_slots import SeatedAttempt
from tenure.work.attempt import Attempt
from tenure.work.attempt_watch import AttemptWatch
from tenure.work.context import AsyncContext
from tenure.work.delivery import Cause, WorkItem, WorkResult
from tenure.work.watched_attempt import WatchedAttempt


class Died(Exception):
    """The slot's process is gone."""


class Stage(SeatedAttempt):
    """Offers to a script beats, silences and naps, as `Context` offers them to a function, and ways to misbehave."""

    def __init__(self, attempt: Attempt, watched: WatchedAttempt, incarnation: str, clock: Clock) -> None:
        super().__init__(attempt, watched)
        self.clock, self.incarnation = clock, incarnation
        self.context: AsyncContext | None = None
        """The context of the function; None before it began."""
        self.cooperates = True
        """False for a script that does not end when it is asked to: it has to be killed."""
        self.killed = False
        self.death: Cause | None = None
        """Set by a script whose process dies."""

    @property
    def item(self) -> WorkItem:
        return self.attempt.item

    @property
    def ticket(self) -> Ticket:
        return self.attempt.delivery.ticket

    @property
    def occupant(self) -> Occupant:
        return self.attempt.occupant

    @property
    def watch(self) -> AttemptWatch:
        return self.watched.watch

    # Called by scripts

    def beat(self, progress: float | None = None) -> None:
        assert self.context is not None
        try:
            self.context.beat()
        except Cancelled:
            if self.cooperates or self.killed:
                raise
        if progress is not None:
            self.attempt.record.set_progress(progress)  # not by the context: it refuses a number that cannot be

    def take_back(self, steps: int) -> None:
        """Lets the counter of steps fall, which no context would."""
        _, ints = self.attempt.record.beat_ports()
        ints[1] = max(0, ints[1] - steps)

    def declare_silence(self, seconds: float) -> None:
        self.attempt.record.set_silence(self.clock.monotonic() + seconds)

    async def work(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            try:
                await self.clock.async_sleep(left)
            except asyncio.CancelledError:
                if self.cooperates or self.killed:
                    raise

    def die(self, cause: Cause) -> None:
        self.death = cause
        raise Died

    # Called by the slots and by observers

    def kill(self) -> None:
        """Ends the script as a SIGKILL does: it is not asked."""
        self.killed = True
        for end in self.attempt.handle.on_cancel:
            end()

    @property
    def running(self) -> bool:
        return self.attempt.record.read().phase is Phase.RUNNING

    def report(self) -> AttemptReport | None:
        record = self.attempt.record
        left = self.watch.lease_until - self.clock.boottime()
        return attempt_report(record.read(), self.clock.monotonic(), left)

    def made_by(self, attempts_ago: int = 0) -> dict[str, object]:
        """Returns the value of the script. It names the delivery that made it, so that an observer knows whose it was."""
        attempt = self.item.attempt - attempts_ago
        return {"made_by": [attempt, self.ticket.delivery_count, self.incarnation]}

    def result(self, attempts_ago: int = 0) -> WorkResult:
        value = msgspec.json.encode(self.made_by(attempts_ago))
        result = self.attempt.result(value=value)
        return msgspec.structs.replace(result, attempt=result.attempt - attempts_ago)
