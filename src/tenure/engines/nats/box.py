"""The messages of one mailbox as the log tells them. Pure: told the time by the log, the same in every process that folds it.

Nothing in here may depend on anything but the commands, their order and their times: two processes that differ in the order of
two messages would deliver one of them twice. So every order is explicit (`ticket`, drawn from a counter that is part of the
state), timers are not lazy, and whatever is cleaned up on the side has no effect on what comes after.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from heapq import heapify, heappop, heappush
from math import inf

import msgspec

from tenure.engines.contracts import KEY_MEMORY_S, DeadLetter, Depth, FailureCause
from tenure.engines.nats.stands import Stand, Stands
from tenure.errors import KeyRefusedError

_SLACK = 64  # dead entries that are not worth a clean-up


class State(IntEnum):
    READY = 0
    DELAYED = 1
    LEASED = 2


class Stage(IntEnum):
    """How far the delivery under lease has come; it decides whether the delivery counts."""

    CLAIMED = 0  # provisional: uncounted again when it is released or runs out
    HELD = 1  # uncounted again only when it is released
    STARTED = 2  # extended: it may have had effects, so its fence is never given out again
    HANDED = 3  # to a standing claim that has not confirmed it: as STARTED, but forgiven when it runs out
    UNSTARTED = (
        4  # provisional, by a claim that knows suspects: uncounted again when it is released, forgiven when it runs out
    )
    OFFERED = 5  # UNSTARTED once its standing claim confirms it; nobody may have had it, so it makes nothing suspect


class Record(msgspec.Struct):
    """A live message, or the one that a dead letter would bring back."""

    id: str
    body: bytes
    enqueued_at: float
    reply_to: str | None = None
    key: str | None = None
    generation: int = 0
    checkpoint: bytes | None = None
    is_failure: bool = False
    state: State = State.READY
    stage: Stage = Stage.HELD
    receipt: str = ""
    count: int = 0
    base: int = 0  # deliveries that are forgiven
    due: float = 0.0  # when a lease runs out, or a delay ends
    ticket: int = 0  # of its one valid place in `ready` or among the timers
    suspect: bool = False  # its last claim ran out, and no holder has released or nacked it since


class Key(msgspec.Struct):
    generation: int
    live: str | None = None
    revoked: bool = False
    ended_at: float = inf
    checkpoint: bytes | None = None


class Kept(msgspec.Struct, array_like=True):
    """A box as a snapshot keeps it."""

    records: list[Record]
    ready: list[str]
    timers: list[tuple[float, int, str]]
    keys: dict[str, Key]
    ended: list[tuple[float, str]]
    dead: list[tuple[Record, DeadLetter]]
    ticket: int
    front: int
    stands: list[Stand] = []


class Box:
    """State and rules of one mailbox. Callers `promote` to their time first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: dict[str, Record] = {}
        self.ready: deque[tuple[int, str]] = deque()
        self.timers: list[tuple[float, int, str]] = []
        self.counts = [0, 0, 0]  # by State
        self.keys: dict[str, Key] = {}
        self.ended: deque[tuple[float, str]] = deque()  # keys in the order of their ending
        self.dead: dict[str, tuple[Record, DeadLetter]] = {}
        self.stands = Stands()
        self.dropped: list[str] = []
        """Standing claims that were ended for their process's silence, for whoever tells them."""
        self._ticket = 0  # grows: the back of the queue
        self._front = 0  # falls: its front

    # Time

    def promote(self, now: float) -> None:
        """Make visible whose time has come, in the order in which it came."""
        timers = self.timers
        while timers and timers[0][0] <= now:
            _, ticket, name = heappop(timers)
            record = self.records.get(name)
            if record is None or record.ticket != ticket or record.state is State.READY:
                continue
            if record.state is State.LEASED:
                self._ran_out(record)
            self._queue(record)

    def _ran_out(self, record: Record) -> None:
        """A provisional claim that was not started does not count; nor does what was handed to somebody who never said so."""
        stage = record.stage
        if stage is not Stage.HANDED and stage is not Stage.OFFERED:
            record.suspect = True
        if stage is Stage.HELD or stage is Stage.STARTED:
            return
        if stage is Stage.CLAIMED:
            record.count -= 1
        else:
            record.base += 1
        self.dropped += self.stands.drop_process(record.receipt.rpartition(".")[0])

    def next_due(self) -> float:
        """When something becomes visible next. Dropping dead timers changes nothing."""
        timers = self.timers
        while timers:
            due, ticket, name = timers[0]
            record = self.records.get(name)
            if record is not None and record.ticket == ticket and record.state is not State.READY:
                return due
            heappop(timers)
        return inf

    # Coming in

    def add(self, record: Record, now: float, delay: float = 0.0) -> None:
        """A new message, or one that comes back from the dead."""
        self.records[record.id] = record
        self.counts[record.state] += 1
        if delay:
            self._time(record, State.DELAYED, now + delay)
        else:
            self._queue(record)

    def admit(self, record: Record, now: float) -> None:
        """Let a keyed message in, replacing a lower generation. Raises `KeyRefusedError`, and then nothing has changed."""
        assert record.key is not None
        self._prune(now)
        key = self.keys.get(record.key)
        if key is None:
            key = self.keys[record.key] = Key(record.generation)
        elif key.revoked or record.generation <= key.generation:
            raise KeyRefusedError(record.key, record.generation, key.generation, revoked=key.revoked)
        if key.live is not None:
            record.checkpoint = self.records[key.live].checkpoint
            self._drop(self.records[key.live])
        else:
            record.checkpoint = key.checkpoint
        key.generation, key.live, key.ended_at, key.checkpoint = record.generation, record.id, inf, None

    # Going out

    def next_is_suspect(self) -> bool:
        """Dropping dead places changes nothing."""
        ready = self.ready
        while ready and not self._is_valid(ready[0][1], ready[0][0], ready=True):
            ready.popleft()
        return bool(ready) and self.records[ready[0][1]].suspect

    def claim(self, now: float, lease: float, receipt: str, stage: Stage, *, apart: bool) -> Record | None:
        """Lease the next one that is ready. With `apart` a suspect one counts from here on, or from when it is confirmed."""
        ready = self.ready
        while ready:
            ticket, name = ready.popleft()
            record = self.records.get(name)
            if record is None or record.ticket != ticket or record.state is not State.READY:
                continue
            if apart and record.suspect:
                stage = Stage.HANDED if stage in (Stage.HANDED, Stage.OFFERED) else Stage.HELD
            record.stage, record.receipt = stage, receipt
            record.count += 1
            self._time(record, State.LEASED, now + lease)
            return record
        return None

    def held(self, message: str, receipt: str) -> Record | None:
        """The record, if this delivery of it is under way. A lease that ran out was promoted away before."""
        record = self.records.get(message)
        return record if record is not None and record.state is State.LEASED and record.receipt == receipt else None

    def confirm(self, record: Record, due: float) -> None:
        if record.stage is Stage.HANDED:
            record.stage = Stage.HELD
        elif record.stage is Stage.OFFERED:
            record.stage = Stage.UNSTARTED
        if due > record.due:
            self._time(record, State.LEASED, due)

    def end(self, record: Record, now: float) -> None:
        self._drop(record)
        self._end_key(record, now)

    def give_back(self, record: Record, now: float, delay: float) -> None:
        if delay:
            self._time(record, State.DELAYED, now + delay)
        else:
            self._queue(record)

    def release(self, record: Record) -> None:
        """Back to the front. A number that was used is forgiven, not given out again."""
        record.suspect = False
        if record.stage is Stage.STARTED:
            record.base += 1
        else:
            record.count -= 1
        self._front -= 1
        self._move(record, State.READY, self._front)
        self.ready.appendleft((self._front, record.id))

    def extend(self, record: Record, due: float, checkpoint: bytes | None) -> None:
        record.stage = Stage.STARTED
        if checkpoint is not None:
            record.checkpoint = checkpoint
        if due > record.due:
            self._time(record, State.LEASED, due)

    # Dead letters

    def bury(self, record: Record, cause: FailureCause, reason: str, now: float) -> DeadLetter:
        self.end(record, now)
        letter = DeadLetter(
            id=record.id,
            body=record.body,
            cause=cause,
            reason=reason,
            died_at=now,
            enqueued_at=record.enqueued_at,
            delivery_count=record.count,
            key=record.key,
            generation=record.generation,
            reply_to=record.reply_to,
            checkpoint=record.checkpoint,
        )
        self.dead[record.id] = (record, letter)
        return letter

    def replay(self, message: str, now: float) -> bool:
        if message not in self.dead:
            return False
        record, _ = self.dead[message]
        if record.key is not None:
            self._prune(now)
            key = self.keys.setdefault(record.key, Key(record.generation))
            if key.revoked or key.generation > record.generation or key.live is not None:
                raise KeyRefusedError(record.key, record.generation, key.generation, revoked=key.revoked)
            key.live, key.ended_at = record.id, inf
        del self.dead[message]
        record.base, record.suspect = record.count, False
        self.add(record, now)
        return True

    # Taking away

    def revoke(self, name: str, now: float) -> bool:
        self._prune(now)
        key = self.keys.setdefault(name, Key(-1))
        hit = key.live
        if hit is not None:
            self._drop(self.records[hit])
        key.live, key.checkpoint, key.revoked, key.ended_at = None, None, True, now
        self.ended.append((now, name))
        return hit is not None

    def purge(self, now: float) -> int:
        live = list(self.records.values())
        for record in live:
            self.end(record, now)
        self.ready.clear()
        self.timers.clear()
        return len(live)

    def depth(self, now: float) -> Depth:
        """As of `now`, which may be later than the last command: this only looks."""
        ready, delayed, leased = self.counts
        if self.next_due() <= now:
            late = [r.state for r in self.records.values() if r.state is not State.READY and r.due <= now]
            past = sum(state is State.DELAYED for state in late)
            ready, delayed, leased = ready + len(late), delayed - past, leased - (len(late) - past)
        return Depth(ready, delayed, leased)

    # Places

    def _queue(self, record: Record) -> None:
        self._ticket += 1
        self._move(record, State.READY, self._ticket)
        self.ready.append((self._ticket, record.id))
        if len(self.ready) > _SLACK and len(self.ready) > 2 * self.counts[State.READY]:
            self.ready = deque(place for place in self.ready if self._is_valid(place[1], place[0], ready=True))

    def _time(self, record: Record, state: State, due: float) -> None:
        self._ticket += 1
        record.due = due
        self._move(record, state, self._ticket)
        timers = self.timers
        heappush(timers, (due, self._ticket, record.id))
        if len(timers) > _SLACK and len(timers) > 2 * (self.counts[State.DELAYED] + self.counts[State.LEASED]):
            timers[:] = [timer for timer in timers if self._is_valid(timer[2], timer[1], ready=False)]
            heapify(timers)

    def _is_valid(self, name: str, ticket: int, *, ready: bool) -> bool:
        record = self.records.get(name)
        return record is not None and record.ticket == ticket and (record.state is State.READY) is ready

    def _move(self, record: Record, state: State, ticket: int) -> None:
        self.counts[record.state] -= 1
        self.counts[state] += 1
        record.state, record.ticket = state, ticket

    def _drop(self, record: Record) -> None:
        del self.records[record.id]
        self.counts[record.state] -= 1
        record.state, record.receipt = State.READY, ""

    # Keys

    def _end_key(self, record: Record, now: float) -> None:
        """Its message is gone: remember the key from now on. The checkpoint waits for a next generation."""
        key = self.keys.get(record.key) if record.key is not None else None
        if key is not None and record.key is not None and key.live == record.id:
            key.live, key.checkpoint, key.ended_at = None, record.checkpoint, now
            self.ended.append((now, record.key))

    def _prune(self, now: float) -> None:
        while self.ended and self.ended[0][0] + KEY_MEMORY_S <= now:
            ended_at, name = self.ended.popleft()
            key = self.keys.get(name)
            # A key that lives again, or ended again later, has a newer entry further back.
            if key is not None and key.live is None and key.ended_at == ended_at:
                del self.keys[name]

    # Snapshots

    def keep(self, now: float) -> Kept:
        return Kept(
            records=list(self.records.values()),
            ready=[name for ticket, name in self.ready if self._is_valid(name, ticket, ready=True)],
            timers=sorted(timer for timer in self.timers if self._is_valid(timer[2], timer[1], ready=False)),
            keys=self.keys,
            ended=list(self.ended),
            dead=list(self.dead.values()),
            ticket=self._ticket,
            front=self._front,
            stands=self.stands.keep(now),
        )

    @classmethod
    def restored(cls, name: str, kept: Kept) -> Box:
        box = cls(name)
        box.records = {record.id: record for record in kept.records}
        box.ready = deque((box.records[each].ticket, each) for each in kept.ready)
        box.timers, box.keys, box.ended = kept.timers, kept.keys, deque(kept.ended)
        box.dead = {record.id: (record, letter) for record, letter in kept.dead}
        for record in kept.records:
            box.counts[record.state] += 1
        box._ticket, box._front = kept.ticket, kept.front
        box.stands = Stands(kept.stands)
        return box
