"""A mailbox as the log folds it: the shared state machine, the claims that stand in it, and its snapshot. Pure.

A waiting consumer leaves its claim in the log. The fold, which is the same in every process, gives it what becomes visible, so that nobody has to be
woken and then to ask: the message that wakes the waiter is its delivery. What it is handed it holds for a short while only, until it
confirms (`HAND_OVER_S`): one that died, or was cut off, while it waited delays a message by that much, and not by a whole lease.
"""

from __future__ import annotations

from collections import deque

import msgspec

from tenure.engines.contracts import DeadLetter
from tenure.engines.mailbox_records import DELAYED, HELD, STARTED, KeyRecord, MessageRecord
from tenure.engines.mailbox_state import MailboxState, Post

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


class LoggedMailbox(MailboxState):
    """One mailbox of the fold."""

    def __init__(self, name: str, post: Post) -> None:
        super().__init__(name, post)
        self.stands = StandingLine()
        self.dropped: list[str] = []
        """Standing claims that were ended for their process's silence, for whoever tells them."""

    def run_out(self, record: MessageRecord, now: float) -> None:
        super().run_out(record, now)
        if record.stage is not HELD and record.stage is not STARTED:
            # Its process did not start what it claimed, or did not confirm what it was handed: it gets nothing more until it asks again.
            self.dropped += self.stands.drop_process(record.receipt.rpartition(".")[0], now)

    def keep(self, now: float) -> MailboxSnapshot:
        return MailboxSnapshot(
            records=list(self.records.values()),
            ready=[record.id for record in self.ready if record.ticket],
            timers=sorted((due, ticket, record.id) for due, ticket, record in self.timers if record.ticket == ticket),
            keys=self.keys,
            ended=list(self.ended),
            dead=list(self.dead.values()),
            ticket=self.last_ticket,
            front=self.front_ticket,
            stands=self.stands.keep(now),
        )

    @classmethod
    def restored(cls, name: str, post: Post, kept: MailboxSnapshot) -> LoggedMailbox:
        box = cls(name, post)
        box.records = records = {record.id: record for record in kept.records}
        box.ready = deque(records[each] for each in kept.ready)
        box.timers = [(due, ticket, records[each]) for due, ticket, each in kept.timers]
        box.keys, box.ended = kept.keys, deque(kept.ended)
        box.dead = {record.id: (record, letter) for record, letter in kept.dead}
        box.delayed_count = sum(record.state is DELAYED for record in kept.records)
        box.last_ticket, box.front_ticket = kept.ticket, kept.front
        box.stands = StandingLine(kept.stands)
        return box
