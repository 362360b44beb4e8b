"""The records of the fold: terms, stored values, commands that have come already, deliveries as claims get them, and mailboxes. Pure.

A mailbox is the shared state machine and the claims that stand in it. A waiting consumer leaves its claim in the log. The fold, which is the same in
every process, gives it what becomes visible, so that nobody has to be woken and then to ask: the message that wakes the waiter is its delivery. What it
is handed it holds for a short while only, until it confirms (`HAND_OVER_S`): a consumer that died, or was cut off, while it waited delays a message
by that much, and not by a whole lease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, Self

import msgspec

from tenure.engines.contracts import KEY_MEMORY_S, DeadLetter, Fence
from tenure.engines.ended_keys import EndedKeys
from tenure.engines.mailbox_keys import MailboxKeys
from tenure.engines.mailbox_records import DELAYED, HELD, STARTED, KeyRecord, MessageRecord
from tenure.engines.mailbox_state import MailboxState, Post
from tenure.engines.nats import commands as c
from tenure.errors import StaleFenceError, TermLostError

_MISSING = 256  # commands of one process that are under way at once, at most


class Seat(msgspec.Struct):
    epoch: int = 0
    candidate: str = ""
    expires: float = 0.0

    def taken(self, now: float) -> bool:
        return self.candidate != "" and now < self.expires

    def campaign(self, command: c.Campaign, now: float) -> int | None:
        """Returns the new epoch, or None when somebody else leads."""
        if self.taken(now) and self.candidate != command.candidate:
            return None
        self.epoch = max(self.epoch, command.above) + 1
        self.candidate, self.expires = command.candidate, now + command.ttl
        return self.epoch

    def renew(self, command: c.Renew, now: float) -> None:
        if self.epoch != command.epoch or not self.taken(now):
            raise TermLostError(command.election, command.epoch, self.epoch)
        self.expires = now + command.ttl

    def resign(self, command: c.Resign) -> None:
        if self.epoch == command.epoch:
            self.candidate = ""


class Value(msgspec.Struct):
    """A stored value's place; after it went, its fence for another while."""

    blob: str = ""  # empty: there is none
    chunks: int = 0
    fence: tuple[int, int] | None = None
    expires: float = inf

    def there(self, now: float) -> bool:
        return self.blob != "" and now < self.expires


class Heard(msgspec.Struct):
    """Which commands of one process have come: all up to `top`, but for those `missing`."""

    top: int = 0
    missing: list[int] = []
    at: float = 0.0

    def is_new(self, number: int, now: float) -> bool:
        self.at = now
        if number > self.top:
            self.missing += range(max(self.top + 1, number - _MISSING), number)
            if len(self.missing) > _MISSING:
                del self.missing[:-_MISSING]
            self.top = number
            return True
        if number in self.missing:
            self.missing.remove(number)
            return True
        return False


class Delivery(NamedTuple):
    """A record as it was when it was claimed: it may change before the claimer looks at it."""

    id: str
    body: bytes
    delivery_count: int
    forgiven: int
    enqueued_at: float
    reply_to: str | None
    checkpoint: bytes | None
    key: str | None
    generation: int
    is_failure: bool
    suspect: bool
    box: str

    @classmethod
    def of(cls, record: MessageRecord, box: str) -> Self:
        return cls(
            record.id,
            record.body,
            record.count,
            record.base,
            record.enqueued_at,
            record.reply_to,
            record.checkpoint,
            record.key,
            record.generation,
            record.is_failure,
            record.suspect,
            box,
        )


class Awaited(NamedTuple):
    """The result of an `Await`: deliveries, or a claim that stands from `at` on."""

    at: float
    deliveries: list[Delivery]


class Handed(NamedTuple):
    """The deliveries of a standing claim, and their time."""

    receipt: str
    lease: float
    at: float
    deliveries: list[Delivery]
    """Those of a consumer's claim may be of several mailboxes."""


def held_by_mailbox(receipt: str, deliveries: list[Delivery]) -> dict[str, list[tuple[str, str]]]:
    """Returns what commands about deliveries of one receipt name: for each mailbox its (message, receipt), in their order."""
    held: dict[str, list[tuple[str, str]]] = {}
    for delivery in deliveries:
        held.setdefault(delivery.box, []).append((delivery.id, receipt))
    return held


class Values:
    """All stores; keys in each."""

    def __init__(self, stores: dict[str, dict[str, Value]] | None = None) -> None:
        self.stores: dict[str, dict[str, Value]] = stores or {}
        self.unnamed: list[Value] = []
        """Blobs that lost their name: whoever asked for that deletes them."""
        self._timers: list[tuple[float, str, str]] = []
        for store, values in self.stores.items():
            for key, value in values.items():
                if value.expires < inf:
                    heappush(self._timers, (value.expires, store, key))

    def put(self, command: c.Put, now: float) -> None:
        self.sweep(now)
        values = self.stores.setdefault(command.store, {})
        value = values.get(command.key) or Value()
        if command.fence is not None:
            if value.fence is not None and command.fence < value.fence:
                raise StaleFenceError(command.key, Fence(*command.fence), Fence(*value.fence))
            value.fence = command.fence
        values[command.key] = value
        self._unname(value)
        value.blob, value.chunks = command.blob, command.chunks
        self._expire(command.store, command.key, value, inf if command.ttl is None else now + command.ttl)

    def remove(self, command: c.Remove, now: float) -> bool:
        self.sweep(now)
        value = self.stores.get(command.store, {}).get(command.key)
        if value is None or not value.blob:
            return False
        self._bare(command.store, command.key, value, now)
        return True

    def sweep(self, now: float) -> None:
        """Removes the values that are past their time."""
        while self._timers and self._timers[0][0] <= now:
            at, store, key = heappop(self._timers)
            value = self.stores.get(store, {}).get(key)
            if value is None or value.expires != at:
                continue  # it was written again since
            if value.blob:
                self._bare(store, key, value, at)
            else:
                del self.stores[store][key]

    def _bare(self, store: str, key: str, value: Value, at: float) -> None:
        """The value is gone; a fence stays for a day."""
        self._unname(value)
        if value.fence is None:
            del self.stores[store][key]
        else:
            self._expire(store, key, value, at + KEY_MEMORY_S)

    def _unname(self, value: Value) -> None:
        if value.blob:
            self.unnamed.append(Value(value.blob, value.chunks))
        value.blob, value.chunks = "", 0

    def _expire(self, store: str, key: str, value: Value, at: float) -> None:
        value.expires = at
        if at < inf:
            heappush(self._timers, (at, store, key))


HAND_OVER_S = 5.0
"""The seconds that a handed-over message waits for its new holder to confirm. Part of the fold: it must not change its meaning."""
_SLACK = 64  # lapsed ones that are not worth a clean-up


class StandingClaim(msgspec.Struct):
    """A claim that waits. Its receipt is the id of the command that left it there."""

    receipt: str
    most: int
    lease: float
    limit: int | None
    provisional: bool
    until: float
    apart: bool = False  # it was left by an `AwaitApart`


class StandingLine:
    """The newest is served first: of two waiters it is the one whose process was alive last."""

    def __init__(self, kept: list[StandingClaim] | None = None) -> None:
        self._line: dict[str, StandingClaim] = {stand.receipt: stand for stand in kept or ()}
        self._sweep_at = _SLACK

    def add(self, stand: StandingClaim, now: float) -> None:
        self._line[stand.receipt] = stand
        if len(self._line) > self._sweep_at:
            self._line = {receipt: each for receipt, each in self._line.items() if each.until > now}
            self._sweep_at = max(_SLACK, 2 * len(self._line))

    def take_newest(self, now: float) -> StandingClaim | None:
        """Removes and returns the claim that is served next. Lapsed claims before it are removed too."""
        while self._line:
            _, stand = self._line.popitem()
            if stand.until > now:
                return stand
        return None

    def put_back(self, stand: StandingClaim) -> None:
        """It was the newest, and there was nothing for it after all."""
        self._line[stand.receipt] = stand

    def drop(self, receipt: str) -> bool:
        return self._line.pop(receipt, None) is not None

    def drop_process(self, process: str, now: float) -> list[str]:
        """Ends the claims of a process that did not confirm what it was handed, and returns those that still stood."""
        gone = [stand for receipt, stand in self._line.items() if receipt.rpartition(".")[0] == process]
        for stand in gone:
            del self._line[stand.receipt]
        # Not the lapsed ones: a fold that began with a snapshot does not have them, and all folds say the same.
        return [stand.receipt for stand in gone if stand.until > now]

    def keep(self, now: float) -> list[StandingClaim]:
        return [stand for stand in self._line.values() if stand.until > now]


class PackedKeys(msgspec.Struct, array_like=True):
    """The ended keys that are packed, as `EndedKeys.keep` returns them."""

    shelves: list[bytes]
    swept: int
    came: int


class MailboxSnapshot(msgspec.Struct, array_like=True):
    """A mailbox as a snapshot keeps it. The order of the fields is a format."""

    records: list[MessageRecord]
    ready: list[str]
    timers: list[tuple[float, int, str]]
    keys: dict[str, KeyRecord]
    ended: list[tuple[float, str]]
    dead: list[tuple[MessageRecord, DeadLetter]]
    ticket: int
    front: int
    stands: list[StandingClaim] = []
    marked: list[tuple[float, str]] = []
    packed: PackedKeys | None = None


class LoggedMailbox(MailboxState):
    """One mailbox of the fold."""

    def __init__(self, name: str, post: Post) -> None:
        super().__init__(name, post)
        self.stands = StandingLine()
        self.dropped: list[str] = []
        """Standing claims that were ended for their process's silence, for whoever tells them."""
        self.silent: list[str] = []
        """Those processes, for whoever ends the standing claims of their consumers."""

    def run_out(self, record: MessageRecord, now: float) -> None:
        super().run_out(record, now)
        if record.stage is not HELD and record.stage is not STARTED:
            # Its process did not start what it claimed, or did not confirm what it was handed: it gets nothing more until it asks again.
            process = record.receipt.rpartition(".")[0]
            self.dropped += self.stands.drop_process(process, now)
            self.silent.append(process)

    def keep(self, now: float) -> MailboxSnapshot:
        return MailboxSnapshot(
            records=list(self.records.values()),
            ready=[record.id for record in self.ready if record.ticket],
            timers=sorted((due, ticket, record.id) for due, ticket, record in self.timers if record.ticket == ticket),
            keys=self.keys.records,
            ended=list(self.keys.ended),
            dead=list(self.dead.values()),
            ticket=self.last_ticket,
            front=self.front_ticket,
            stands=self.stands.keep(now),
            marked=list(self.keys.marked),
            packed=PackedKeys(*self.keys.packed.keep()),
        )

    @classmethod
    def restored(cls, name: str, post: Post, kept: MailboxSnapshot) -> LoggedMailbox:
        box = cls(name, post)
        box.records = records = {record.id: record for record in kept.records}
        box.ready = deque(records[each] for each in kept.ready)
        box.timers = [(due, ticket, records[each]) for due, ticket, each in kept.timers]
        packed = EndedKeys(kept.packed.shelves, kept.packed.swept, kept.packed.came) if kept.packed else EndedKeys()
        box.keys = MailboxKeys.restored(kept.keys, kept.ended, deque(kept.marked), packed)
        box.dead = {record.id: (record, letter) for record, letter in kept.dead}
        box.delayed_count = sum(record.state is DELAYED for record in kept.records)
        box.last_ticket, box.front_ticket = kept.ticket, kept.front
        box.stands = StandingLine(kept.stands)
        return box


def restored_mailboxes(kept: dict[str, MailboxSnapshot], post: Post) -> dict[str, LoggedMailbox]:
    """Raises `msgspec.ValidationError` for packed keys that are damaged."""
    try:
        return {name: LoggedMailbox.restored(name, post, box) for name, box in kept.items()}
    except ValueError as error:
        raise msgspec.ValidationError(f"the snapshot cannot be read: {error}") from error


def sweep_keys(boxes: Iterable[LoggedMailbox], now: float) -> None:
    for box in boxes:
        box.keys.sweep(now)
