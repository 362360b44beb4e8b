"""The messages of one mailbox and every rule about them: a pure state machine, which the memory and the NATS engine fold.

It is told the time and does no I/O. The NATS engine folds its log with it in every process, so nothing in here may depend on anything
but the calls, their order and their times: two processes that differ in the order of two messages would deliver one of them twice.
So every order is explicit (`ticket`, drawn from a counter that is part of the state), timers are not lazy, and whatever is cleaned
up on the side has no effect on what comes after. Its meaning must not change: logs of older versions are folded with it (decision 0057).

Callers `promote` to their time before anything else. It does not know who waits for a message, nor how replies travel: `post` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf

import msgspec

from tenure.engines.contracts import DeadLetter, Depth, FailureCause, Withdrawal, why_given_up
from tenure.engines.mailbox_keys import MailboxKeys
from tenure.engines.mailbox_records import (
    CLAIMED,
    DELAYED,
    HANDED,
    HELD,
    LEASED,
    NOT_TAKEN,
    OFFERED,
    READY,
    STARTED,
    UNSTARTED,
    DeliveryStage,
    KeyRecord,
    MessageRecord,
)
from tenure.errors import KeyRefusedError

_SLACK = 64  # dead entries that are not worth a clean-up
_encode_failure = msgspec.json.Encoder().encode


Post = Callable[[MessageRecord, bytes, bool], None]
"""Sends bytes to where a record's replies go; with True they are the news that it is a dead letter."""


class MailboxState:
    """State and rules of one mailbox. A record that a caller passes in came from this state, or is new."""

    def __init__(self, name: str, post: Post, epoch: float = 0.0) -> None:
        self.name = name
        self._post = post
        self.epoch = epoch  # Unix time is this plus the time that callers tell
        self.records: dict[str, MessageRecord] = {}  # the live ones
        # In the order of delivery. A live record that is ready stands here once; one without a ticket was withdrawn meanwhile.
        self.ready: deque[MessageRecord] = deque()
        self.timers: list[tuple[float, int, MessageRecord]] = []  # a heap; valid while the record has this ticket
        self._most_timers = _SLACK  # more than these are cleaned up
        self._withdrawn = 0  # records in `ready` without a ticket
        self.delayed_count = 0
        self.keys = MailboxKeys()
        self.dead: dict[str, tuple[MessageRecord, DeadLetter]] = {}
        self.last_ticket = 0  # grows: the back of the queue
        self.front_ticket = 0  # falls: its front

    # Time

    def promote(self, now: float) -> None:
        """Makes every message visible whose delay or lease has ended, in the order of those ends."""
        timers = self.timers
        while timers and timers[0][0] <= now:
            _, ticket, record = heappop(timers)
            if record.ticket != ticket:
                continue
            if record.state is LEASED:
                self.run_out(record, now)
            else:
                self.delayed_count -= 1
            self._queue(record)

    def run_out(self, record: MessageRecord, now: float) -> None:
        """Counts a delivery whose lease has ended. One that was not started, or that nobody took, does not count."""
        stage = record.stage
        if stage not in NOT_TAKEN:
            record.suspect = True
        if stage is CLAIMED:
            record.count -= 1
        elif stage is UNSTARTED or stage in NOT_TAKEN:
            record.base += 1  # its number may be known to somebody who is only slow: it is not given out again

    def next_due(self) -> float:
        """Returns when something becomes visible next. Dropping dead timers changes nothing."""
        timers = self.timers
        while timers and timers[0][2].ticket != timers[0][1]:
            heappop(timers)
        return timers[0][0] if timers else inf

    # Coming in

    def add(self, record: MessageRecord, now: float, delay: float = 0.0) -> None:
        """Takes in a new message, or one that comes back from the dead."""
        self.records[record.id] = record
        if delay:
            self._delay(record, now + delay)
        else:  # as `_queue`, in fewer words: most messages come this way
            self.last_ticket = record.ticket = self.last_ticket + 1
            self.ready.append(record)

    def admit(self, record: MessageRecord, now: float) -> None:
        """Lets a keyed message in, to be added next, and replaces a lower generation, whose checkpoint it inherits.

        Raises `KeyRefusedError`, and then nothing has changed.
        """
        assert record.key is not None
        key = self.keys.find(record.key, now)
        if key is None:
            key = KeyRecord(record.generation)
        elif key.revoked or record.generation <= key.generation:
            raise KeyRefusedError(record.key, record.generation, key.generation, revoked=key.revoked)
        if key.live is not None:
            replaced = self.records[key.live]
            record.checkpoint = replaced.checkpoint
            self._withdraw(replaced, f"generation {record.generation} of its key replaced it")
        else:
            record.checkpoint = key.checkpoint
        key.generation, key.live, key.ended_at, key.checkpoint = record.generation, record.id, inf, None
        self.keys.hold(record.key, key)

    # Going out

    def claim(
        self,
        now: float,
        lease: float,
        receipt: str,
        stage: DeliveryStage,
        limit: int | None,
        apart: bool = True,
        first: bool = True,
    ) -> MessageRecord | None:
        """Leases the next message that is ready. One that has used up its deliveries is buried on the way.

        With `apart`, a suspect message comes alone: unless it is the `first` of its batch the answer is None, and the batch is over. It
        counts from the claim on, or from when it is confirmed: it may end its holder before the first extension.
        """
        ready = self.ready
        while ready:
            record = ready.popleft()
            if not record.ticket:
                self._withdrawn -= 1
                continue
            suspect = apart and record.suspect
            if suspect and not first:
                ready.appendleft(record)
                return None
            record.state = LEASED  # also if it is buried: it stands in the queue no more
            if limit is not None and record.count - record.base >= limit:
                self._give_up(record, now)
                continue
            if suspect:
                stage = HANDED if stage in NOT_TAKEN else HELD
            self.last_ticket = record.ticket = ticket = self.last_ticket + 1  # from here on as `_hold`
            record.stage, record.receipt, record.count = stage, receipt, record.count + 1
            record.due = due = now + lease
            heappush(self.timers, (due, ticket, record))
            if len(self.timers) > self._most_timers:
                self._clean_timers()
            return record
        return None

    def next_ready(self) -> MessageRecord | None:
        """Returns the message that the next claim gets. Dropping those that were withdrawn changes nothing."""
        while self.ready and not self.ready[0].ticket:
            self.ready.popleft()
            self._withdrawn -= 1
        return self.ready[0] if self.ready else None

    def held(self, message: str, receipt: str) -> MessageRecord | None:
        """Returns the record if this delivery of it is under way. A lease that ran out was promoted away before."""
        record = self.records.get(message)
        return record if record is not None and record.state is LEASED and record.receipt == receipt else None

    def confirm(self, record: MessageRecord, due: float) -> None:
        """Notes that the holder that a delivery was handed to has it, and holds it until `due`."""
        if record.stage is HANDED:
            record.stage = HELD
        elif record.stage is OFFERED:
            record.stage = UNSTARTED
        self._hold_longer(record, due)

    def extend(self, record: MessageRecord, due: float, checkpoint: bytes | None) -> None:
        record.stage = STARTED
        if checkpoint is not None:
            record.checkpoint = checkpoint
        self._hold_longer(record, due)

    def append_step(self, record: MessageRecord, due: float, step: bytes) -> None:
        """Appends a record to the steps of the message's key, and holds the message."""
        assert record.key is not None  # and a message that is held is its key's live one
        self.keys.records[record.key].steps.append(step)
        self.extend(record, due, None)

    def expire(self, record: MessageRecord, now: float) -> None:
        """Ends a lease before its time. The fake mailbox does that for tests; no engine does."""
        self._hold(record, now)
        self.promote(now)

    def end(self, record: MessageRecord, now: float, why: str = "") -> None:
        """Removes a message that is leased: it was settled, or becomes a dead letter."""
        timers = self.timers
        if timers and timers[0][1] == record.ticket:
            heappop(timers)  # the oldest lease is usually the first to be settled
        del self.records[record.id]
        record.ticket = 0
        if why:
            record.ended = why
        if record.key is not None:
            self._end_key(record, now)

    def nack(self, record: MessageRecord, now: float, delay: float, limit: int | None) -> None:
        """Gives it back. The last allowed delivery does not come back: it becomes a dead letter at once."""
        record.suspect = False  # its holder lives, and has said so
        if limit is not None and record.count - record.base >= limit:
            self._give_up(record, now)
        elif delay:
            self._delay(record, now + delay)
        else:
            record.due = now
            self._queue(record)

    def release(self, record: MessageRecord) -> None:
        """Puts it back to the front. A number that was used is forgiven, not given out again."""
        record.suspect = False
        if record.stage is STARTED:
            record.base += 1
        else:
            record.count -= 1
        self.front_ticket -= 1
        record.state, record.ticket, record.due = READY, self.front_ticket, 0.0
        self.ready.appendleft(record)

    # Dead letters

    def bury(self, record: MessageRecord, cause: FailureCause, reason: str, now: float) -> None:
        """Keeps a leased message as a dead letter, and posts that news to whoever waits for the reply."""
        self.end(record, now)
        record.state, record.receipt = READY, ""  # as a replay finds it
        self.dead[record.id] = (record, record.dead_letter(cause, reason, self.epoch + now))
        if record.reply_to is not None:
            news = record.failure(self.name, cause, reason)
            self._post(record, _encode_failure(news), True)

    def _give_up(self, record: MessageRecord, now: float) -> None:
        reason = why_given_up(record.count - record.base, expired=record.suspect)
        self.bury(record, FailureCause.DELIVERIES, reason, now)

    def replay(self, message: str, now: float) -> bool:
        """Brings a dead letter back. Returns False when there is none of this id; raises `KeyRefusedError`."""
        if message not in self.dead:
            return False
        record, _ = self.dead[message]
        if record.key is not None:
            key = self.keys.find(record.key, now) or KeyRecord(record.generation)
            if key.revoked or key.generation > record.generation or key.live is not None:
                raise KeyRefusedError(record.key, record.generation, key.generation, revoked=key.revoked)
            key.live, key.ended_at = record.id, inf
            self.keys.hold(record.key, key)
        del self.dead[message]
        record.base, record.suspect, record.ended, record.due = record.count, False, msgspec.UNSET, now
        self.add(record, now)
        return True

    def forget(self, message: str | None) -> int:
        """Deletes one dead letter, or with None all of them. Returns how many."""
        if message is not None:
            return int(self.dead.pop(message, None) is not None)
        gone, self.dead = len(self.dead), {}
        return gone

    def dead_letters(self, limit: int, after: str | None) -> list[DeadLetter]:
        """Returns a page of dead letters, oldest first. An `after` that is gone means from the beginning."""
        start = [*self.dead].index(after) + 1 if after in self.dead else 0
        return [letter for _, letter in self.dead.values()][start : start + limit]

    # Taking away

    def revoke(self, name: str, now: float) -> bool:
        """Leaves a tombstone for the key. Returns True when that hit a live message."""
        key = self.keys.find(name, now) or KeyRecord(-1)
        hit = key.live
        if hit is not None:
            self._withdraw(self.records[hit], "its key was revoked")
        key.checkpoint, key.steps, key.revoked = None, [], True
        self.keys.hold(name, key)
        self.keys.end(name, key, now)
        return hit is not None

    def withdraw(self, name: str, generation: int, now: float) -> Withdrawal:
        """Takes the message of a key back, up to this generation, unless it is leased. The key is as after an end."""
        key = self.keys.find(name, now)
        record = self.records[key.live] if key is not None and key.live is not None else None
        if record is None or record.generation > generation:
            return Withdrawal.ABSENT
        if record.state is LEASED:
            return Withdrawal.LEASED
        self._withdraw(record, "it was withdrawn")
        self._end_key(record, now)
        return Withdrawal.WITHDRAWN

    def purge(self, now: float) -> int:
        """Removes every live message, and returns their number."""
        live = list(self.records.values())
        for gone in (self.records, self.ready, self.timers):
            gone.clear()
        self._withdrawn = self.delayed_count = 0
        for record in live:
            record.ticket, record.ended = 0, "the mailbox was purged"
            self._end_key(record, now)
        return len(live)

    def _withdraw(self, record: MessageRecord, why: str) -> None:
        """Takes a live message out, be it ready, delayed or leased. Its place in `ready` or `timers` is dead: it has no ticket."""
        del self.records[record.id]
        if record.state is READY:
            self._withdrawn += 1
        elif record.state is DELAYED:
            self.delayed_count -= 1
        record.ticket, record.ended = 0, why
        ready = self.ready
        if self._withdrawn > _SLACK and self._withdrawn > len(ready) // 2:
            live = [each for each in ready if each.ticket]
            ready.clear()  # in place, as with timers: a claim may be looking at it
            ready.extend(live)
            self._withdrawn = 0

    # Looking

    @property
    def ready_count(self) -> int:
        return len(self.ready) - self._withdrawn

    def depth(self, now: float) -> Depth:
        """Counts as of `now`, which may be later than the last command: this only looks."""
        ready, delayed = self.ready_count, self.delayed_count
        if self.next_due() <= now:
            late = [r.state for r in self.records.values() if r.state is not READY and r.due <= now]
            ready += len(late)
            delayed -= sum(state is DELAYED for state in late)
        return Depth(ready, delayed, len(self.records) - ready - delayed)

    # Places

    def _queue(self, record: MessageRecord) -> None:
        """Puts it at the back of the queue. It is in no other place."""
        self.last_ticket += 1
        record.state, record.ticket = READY, self.last_ticket
        self.ready.append(record)

    def _delay(self, record: MessageRecord, due: float) -> None:
        self.delayed_count += 1
        record.state = DELAYED
        self._hold(record, due)

    def _hold(self, record: MessageRecord, due: float) -> None:
        """Lets it wait until `due`, delayed or leased. A timer that it had is dead from here on: it has another ticket."""
        self.last_ticket = ticket = self.last_ticket + 1
        record.due, record.ticket = due, ticket
        timers = self.timers
        heappush(timers, (due, ticket, record))
        if len(timers) > self._most_timers:
            self._clean_timers()

    def _clean_timers(self) -> None:
        """Settled and extended messages leave their timers behind: fast traffic under long leases would pile them up."""
        timers = self.timers
        timers[:] = [timer for timer in timers if timer[2].ticket == timer[1]]
        heapify(timers)
        self._most_timers = max(_SLACK, 2 * len(timers))

    def _hold_longer(self, record: MessageRecord, due: float) -> None:
        if due > record.due:  # a lease is never shortened
            self._hold(record, due)

    # Keys

    def _end_key(self, record: MessageRecord, now: float) -> None:
        """Remembers the key of a message that is gone from now on. The checkpoint waits for a next generation."""
        key = self.keys.records.get(record.key) if record.key is not None else None
        if key is not None and record.key is not None and key.live == record.id:
            key.checkpoint = record.checkpoint
            self.keys.end(record.key, key, now)
