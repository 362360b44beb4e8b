"""The messages of one mailbox: told the time, and called under the engine's lock.

There is no reaper. Whatever time changes (a lease that runs out, a delay that ends) stands in a heap of timers, and every
call looks at its top first: so a receipt is dead and its message visible from the very moment, and idle mailboxes cost
nothing. Timers are lazy: an extension only moves `Record.due`; the timer finds out when it fires.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Protocol

import msgspec

from tenure.engines.contracts import DeadLetter, Depth, Failure, FailureCause, why_given_up
from tenure.engines.memory.records import (
    CLAIMED,
    DELAYED,
    ENDED,
    HELD,
    LEASED,
    READY,
    STARTED,
    KeyMemory,
    Record,
    Stage,
)

_SLACK = 64  # dead entries that are not worth a clean-up

encode_failure = msgspec.json.Encoder().encode


class Home(Protocol):
    """The part of the engine that a box needs."""

    epoch: float
    """Engine time (Unix) is this plus the boot time, which everything in a box is told."""

    def post(self, answered: Record, encoded: bytes, is_failure: bool) -> None:
        """Send bytes to where a record's replies go."""


class Waiter:
    """A long poll under way. `until` is when it wakes by itself."""

    __slots__ = ("ring", "until")

    def __init__(self, ring: Callable[[], object]) -> None:
        self.ring = ring
        self.until = inf


class Box:
    """State and rules of one mailbox. Nothing in here waits, locks or asks for the time."""

    def __init__(self, name: str, home: Home) -> None:
        self.name = name
        self.home = home
        self.ready: deque[Record] = deque()
        self.holes = 0  # records in `ready` that were withdrawn
        self.timers: list[tuple[float, int, Record]] = []
        self.delayed = 0
        self.leased: dict[str, Record] = {}  # by id
        self.keys = KeyMemory()
        self.dead: dict[str, tuple[Record, DeadLetter]] = {}
        self.waiters: dict[Waiter, None] = {}
        self._tickets = count()

    # Coming in

    def add(self, record: Record, now: float, delay: float = 0.0) -> None:
        timers = self.timers
        if timers and timers[0][0] <= now:
            self.promote(now)
        if delay:
            record.state, record.due = DELAYED, now + delay
            self.delayed += 1
            self._arm(record)
        else:
            record.state = READY
            self.ready.append(record)
        if self.waiters:
            self.alert()

    def add_keyed(self, record: Record, name: str, generation: int, now: float, delay: float) -> None:
        """Raises `KeyRefusedError`. A live message of a lower generation is replaced, its checkpoint inherited."""
        key = self.keys.admit(name, generation, now)
        if key.live is not None:
            record.checkpoint = key.live.checkpoint
            self._withdraw(key.live, f"generation {generation} of its key replaced it")
        else:
            record.checkpoint = key.checkpoint
        record.key, record.generation = name, generation
        key.generation, key.live, key.ended_at, key.checkpoint = generation, record, inf, None
        self.add(record, now, delay)

    # Going out

    def claim(self, now: float, lease: float, limit: int | None, stage: Stage, *, first: bool = True) -> Record | None:
        """Lease the next record that is ready. Callers promote first. A suspect one is leased only as the first of its batch."""
        ready = self.ready
        while ready:
            record = ready.popleft()
            if record.state is not READY:
                self.holes -= 1
                continue
            if limit is not None and record.count - record.base >= limit:
                self._exhausted(record, now)
                continue
            if record.suspect:
                if not first:
                    ready.appendleft(record)
                    return None
                stage = HELD  # counted from here on: it may end its holder before the first extension
            record.state = LEASED
            record.stage = stage
            record.receipt += 1
            record.count += 1
            record.due = due = now + lease
            self.leased[record.id] = record
            if due < record.armed:
                record.armed = due
                heappush(self.timers, (due, next(self._tickets), record))
            return record
        return None

    def promote(self, now: float) -> None:
        """Make everything visible whose time has come, in the order in which it came."""
        timers = self.timers
        while timers and timers[0][0] <= now:
            at, _, record = heappop(timers)
            if record.armed != at:
                continue
            record.armed = inf
            state = record.state
            if state is not LEASED and state is not DELAYED:
                continue
            if record.due > at:
                self._arm(record)
                continue
            if state is LEASED:
                del self.leased[record.id]
                record.suspect = True
                if record.stage is CLAIMED:
                    record.base += 1  # its number may be known to somebody who is only slow: it is not given out again
            else:
                self.delayed -= 1
            record.state = READY
            self.ready.append(record)

    def next_due(self) -> float:
        """When something may become visible next; the top timer may turn out to be stale, never late."""
        timers = self.timers
        while timers and (timers[0][2].armed != timers[0][0] or timers[0][2].state in (READY, ENDED)):
            at, _, record = heappop(timers)
            if record.armed == at:
                record.armed = inf
        return timers[0][0] if timers else inf

    # What becomes of a lease. The caller has checked the receipt.

    def end(self, record: Record, now: float) -> None:
        """Acknowledged: it is gone."""
        record.state = ENDED
        del self.leased[record.id]
        if record.key is not None:
            self.keys.end(record, now)
        timers = self.timers
        if timers[0][2] is record:
            heappop(timers)
        elif len(timers) > _SLACK and len(timers) > 2 * (len(self.leased) + self.delayed):
            self._compact_timers()

    def give_back(self, record: Record, now: float, delay: float, limit: int | None) -> None:
        """Nacked. The last allowed delivery does not come back, it becomes a dead letter at once."""
        del self.leased[record.id]
        record.suspect = False
        if limit is not None and record.count - record.base >= limit:
            self._exhausted(record, now)
            return
        self.add(record, now, delay)

    def release(self, record: Record) -> None:
        """Back to the front, where it came from. A number that was used is forgiven, not given out again."""
        del self.leased[record.id]
        if record.stage is STARTED:
            record.base += 1
        else:
            record.count -= 1
        record.state, record.suspect = READY, False
        self.ready.appendleft(record)
        if self.waiters:
            self.alert()

    def extend(self, record: Record, due: float, checkpoint: bytes | None) -> None:
        if due > record.due:
            record.due = due
        record.stage = STARTED
        if checkpoint is not None:
            record.checkpoint = checkpoint

    def expire(self, record: Record, now: float) -> None:
        """Let a lease run out before its time: fakes do that."""
        record.due = now
        self._arm(record)
        self.promote(now)
        self.alert()

    # Dead letters

    def bury(self, record: Record, cause: FailureCause, reason: str, now: float) -> None:
        """Keep it as a dead letter and tell whoever waits for the reply. It is in no queue any more."""
        record.state, record.armed = ENDED, inf
        if record.key is not None:
            self.keys.end(record, now)
        letter = DeadLetter(
            id=record.id,
            body=record.body,
            cause=cause,
            reason=reason,
            died_at=self.home.epoch + now,
            enqueued_at=record.enqueued_at,
            delivery_count=record.count,
            key=record.key,
            generation=record.generation,
            reply_to=record.reply_to,
            checkpoint=record.checkpoint,
        )
        self.dead[record.id] = (record, letter)
        if record.reply_to is not None:
            news = Failure(
                message_id=record.id,
                mailbox=self.name,
                cause=cause,
                reason=reason,
                key=record.key,
                generation=record.generation,
                delivery_count=record.count,
            )
            self.home.post(record, encode_failure(news), True)

    def _exhausted(self, record: Record, now: float) -> None:
        reason = why_given_up(record.count - record.base, expired=record.suspect)
        self.bury(record, FailureCause.DELIVERIES, reason, now)

    def replay(self, message_id: str, now: float) -> bool:
        if message_id not in self.dead:
            return False
        record, _ = self.dead[message_id]
        self.keys.readmit(record, now)
        del self.dead[message_id]
        record.base, record.ended, record.suspect = record.count, "", False
        self.add(record, now)
        return True

    # Taking away

    def revoke(self, name: str, now: float) -> bool:
        hit = self.keys.revoke(name, now)
        if hit is not None:
            self._withdraw(hit, "its key was revoked")
        return hit is not None

    def purge(self, now: float) -> int:
        live = [record for record in self.ready if record.state is READY]
        live += [r for at, _, r in self.timers if r.armed == at and r.state in (LEASED, DELAYED)]
        for record in live:
            record.state, record.ended = ENDED, "the mailbox was purged"
            self.keys.end(record, now)
        self.ready.clear()
        self.timers.clear()
        self.leased.clear()
        self.holes = self.delayed = 0
        return len(live)

    def depth(self, now: float) -> Depth:
        self.promote(now)
        return Depth(len(self.ready) - self.holes, self.delayed, len(self.leased))

    def _withdraw(self, record: Record, why: str) -> None:
        """End a live message that may be ready, delayed or leased."""
        if record.state is READY:
            self.holes += 1
        elif record.state is LEASED:
            del self.leased[record.id]
        elif record.state is DELAYED:
            self.delayed -= 1
        record.state, record.ended = ENDED, why
        if self.holes > _SLACK and self.holes > len(self.ready) // 2:
            self.ready = deque(r for r in self.ready if r.state is READY)
            self.holes = 0
        if len(self.timers) > _SLACK and len(self.timers) > 2 * (len(self.leased) + self.delayed):
            self._compact_timers()

    # Timers and waiters

    def _arm(self, record: Record) -> None:
        """See to it that a timer fires no later than `record.due`."""
        due = record.due
        if due < record.armed:
            record.armed = due
            heappush(self.timers, (due, next(self._tickets), record))

    def _compact_timers(self) -> None:
        """Settled messages leave their timers behind; without this, fast traffic under long leases would pile them up."""
        kept = []
        for timer in self.timers:
            at, _, record = timer
            if record.armed == at:
                if record.state is LEASED or record.state is DELAYED:
                    kept.append(timer)
                else:
                    record.armed = inf
        heapify(kept)
        self.timers[:] = kept

    def alert(self) -> None:
        """One waiter for a ready message, the newest; and the oldest keeps watch over the timers for all.

        A waiter that was rung leaves `waiters`. When it goes away it calls this again, so that what it did not take
        wakes the next one: no message is missed, and a thousand idle consumers do not all get up for one message.
        """
        waiters = self.waiters
        if len(self.ready) > self.holes and waiters:
            waiters.popitem()[0].ring()
        if waiters:
            watch = next(iter(waiters))
            due = self.next_due()
            if due < watch.until:
                watch.until = due
                watch.ring()
