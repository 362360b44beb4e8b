"""A mailbox as the log folds it: the shared state machine, the claims that stand in it, and its snapshot. Pure."""

from __future__ import annotations

from collections import deque

import msgspec

from tenure.engines.contracts import DeadLetter
from tenure.engines.mailbox_records import DELAYED, HELD, STARTED, KeyRecord, MessageRecord
from tenure.engines.mailbox_state import MailboxState, Post
from tenure.engines.nats.stands import Stand, Stands


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
    stands: list[Stand] = []


class LoggedMailbox(MailboxState):
    """One mailbox of the fold."""

    def __init__(self, name: str, post: Post) -> None:
        super().__init__(name, post)
        self.stands = Stands()
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
        box.stands = Stands(kept.stands)
        return box
