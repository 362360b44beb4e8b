"""The fold of the log: all mailboxes, elections and the names of stored values. Pure, and alike in every process.

`apply(command, seq, now)` gives what the asker is to be told; `seq` and `now` are the message's place and time in the stream. What
refuses raises, and has changed nothing. The rules of one mailbox are in `mailbox_state`; here is what concerns two of them, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tenure.engines.mailbox_records import CLAIMED, HANDED, HELD, OFFERED, UNSTARTED, DeliveryStage, MessageRecord
from tenure.engines.nats import commands as c
from tenure.engines.nats import consumers
from tenure.engines.nats.consumers import Consumers, ConsumerStand, CoveredMailboxes
from tenure.engines.nats.ledger_records import (
    HAND_OVER_S,
    Awaited,
    Delivery,
    Handed,
    Heard,
    LoggedMailbox,
    MailboxSnapshot,
    Seat,
    StandingClaim,
    Value,
    Values,
    restored_mailboxes,
    sweep_keys,
)
from tenure.errors import KeyRefusedError, ReceiptHandleExpiredError

FORMAT = 6
"""Format 1 had no standing claims, 2 no suspect messages, 3 no consumers, 4 no messages of a journal's entries, 5 no packed keys."""
DUPLICATE = object()
"""The result of `apply` for a command that came before: its answer was lost, and it was sent again."""
_FORGET_S = 3_600.0  # a process that was silent for so long repeats nothing any more


class KeptLedger(msgspec.Struct, array_like=True):
    """Everything, as a snapshot keeps it."""

    format: int
    seq: int
    now: float
    boxes: dict[str, MailboxSnapshot]
    seats: dict[str, Seat]
    stores: dict[str, dict[str, Value]]
    bytes_since: int
    kept_bytes: int
    heard: dict[str, Heard]
    covers: dict[str, CoveredMailboxes] = {}
    stands: list[ConsumerStand] = []
    delivered: dict[str, int] = {}


_decode_kept = msgspec.msgpack.Decoder(KeptLedger).decode
_encode_kept = msgspec.msgpack.Encoder().encode


class Ledger:
    """`stirred` collects the mailboxes in which something may have become visible, for whoever wakes waiters."""

    def __init__(self) -> None:
        self.seq = 0
        self.now = 0.0
        self._place = ""
        """The place in the log of the command that is folded. It names what the command sends, so it is unique."""
        self.boxes: dict[str, LoggedMailbox] = {}
        self.seats: dict[str, Seat] = {}
        self.values = Values()
        self.bytes_since = 0
        """How much of the log was written since the last snapshot."""
        self.kept_bytes = 0
        """How large that snapshot was."""
        self.heard: dict[str, Heard] = {}
        self.consumers = Consumers()
        self.delivered: dict[str, int] = {}
        """By journal: the entry up to which all messages that entries bring are sent."""
        self.stirred: set[str] = set()
        self.handed: list[Handed] = []
        """The deliveries that this command gave to standing claims; the log hands them over."""
        self.dropped: list[str] = []
        """Standing claims that it ended."""
        self.posts = 0  # by this command
        self._touched: dict[str, None] = {}  # by this command, in an order that is the same everywhere

    def apply(self, command: c.AnyCommand, seq: int, at: float, size: int = 0, place: int = 0) -> Any:
        """Returns the result of the command. Raises the error that the caller of the command gets.

        `place` is that of the command among those that share the message, whose `size` the first one has.
        """
        self.seq = seq
        self._place = f"{seq}.{place}" if place else str(seq)
        self.now = max(self.now, at)  # another server may lead the stream now, and its clock be behind
        self.bytes_since += size
        self.posts, self.handed, self.dropped = 0, [], []
        if not self._is_new(command.id):
            return DUPLICATE
        try:
            return _RULES[type(command)](self, command)
        finally:
            if self._touched:  # also by what was refused: time has passed
                self._hand_over()

    def _is_new(self, name: str) -> bool:
        process, _, number = name.rpartition(".")
        heard = self.heard.get(process)
        if heard is None:
            for gone in [each for each, other in self.heard.items() if other.at + _FORGET_S < self.now]:
                del self.heard[gone]
                self.consumers.forget(gone)
            heard = self.heard[process] = Heard()
        return heard.is_new(int(number), self.now)

    def box(self, name: str) -> LoggedMailbox:
        box = self.boxes.get(name)
        if box is None:
            box = self.boxes[name] = LoggedMailbox(name, self.post)
        return box

    # Mailboxes

    def at_now(self, name: str) -> LoggedMailbox:
        box = self.box(name)
        box.promote(self.now)
        self.stirred.add(name)
        self._touched[name] = None
        return box

    def _hand_over(self) -> None:
        """Gives ready messages to standing claims. Afterwards there are ready messages or standing claims, but never both."""
        while self._touched:
            box = self.boxes[next(iter(self._touched))]
            self.drop_silent(box)
            while box.ready_count and (stand := box.stands.take_newest(self.now)) is not None:
                if not self._hand(box, stand):
                    box.stands.put_back(stand)
            while box.ready_count and (other := self.consumers.take_for(box.name, self.now)) is not None:
                if not self._hand(box, other.claim):
                    self.consumers.put_back(other)
            self.dropped += box.dropped
            box.dropped.clear()
            del self._touched[box.name]

    def drop_silent(self, box: LoggedMailbox) -> None:
        """Ends the standing claims of processes that did not confirm what this mailbox handed them."""
        for process in box.silent:
            self.dropped += self.consumers.drop_process(process, self.now)
        box.silent.clear()

    def _hand(self, box: LoggedMailbox, stand: StandingClaim) -> bool:
        stage = HANDED
        if stand.provisional:
            stage = OFFERED if stand.apart else CLAIMED
        lease = min(stand.lease, HAND_OVER_S)
        found = self._deliver(box, stand.receipt, stand.most, lease, stand.limit, stage, stand.apart)
        if found:
            self.handed.append(Handed(stand.receipt, stand.lease, self.now, found))
        return bool(found)

    def _held(
        self, command: c.Nack | c.Extend | c.AppendStep | c.SettleWithReply | c.Bury
    ) -> tuple[LoggedMailbox, MessageRecord]:
        box = self.at_now(command.box)
        record = box.held(command.message, command.receipt)
        if record is None:
            raise ReceiptHandleExpiredError(command.message, "its lease ran out")
        return box, record

    def not_held(self, deliveries: list[tuple[str, str, str]]) -> list[int]:
        """Returns the places of those, each (mailbox, message, receipt), that are not under way as of the last command."""
        boxes = [self.boxes.get(name) for name, _, _ in deliveries]
        return [
            place
            for place, (box, (_, message, receipt)) in enumerate(zip(boxes, deliveries, strict=True))
            if box is None or box.held(message, receipt) is None
        ]

    def _send(self, command: c.Send) -> list[tuple[str, KeyRefusedError | None]]:
        return self.queue(command.box, [(number, self.now, item) for number, item in enumerate(command.items)])

    def queue(self, name: str, numbered: list[tuple[int, float, c.Item]]) -> list[tuple[str, KeyRefusedError | None]]:
        """Queues messages of one mailbox, each with its number in the command and the time since which it is there."""
        box = self.at_now(name)
        sent: list[tuple[str, KeyRefusedError | None]] = []
        for number, since, item in numbered:
            record = MessageRecord(
                f"{self._place}-{number}", item.body, since, item.reply_to, item.key, item.generation
            )
            try:
                if item.key is not None:
                    box.admit(record, self.now)
            except KeyRefusedError as refused:
                sent.append((record.id, refused))
            else:
                box.add(record, self.now, item.delay)
                sent.append((record.id, None))
        return sent

    def _claim(self, command: c.Claim) -> list[Delivery]:
        box = self.at_now(command.box)
        return self._claim_now(box, command, apart=isinstance(command, c.ClaimApart))

    def _claim_now(self, box: LoggedMailbox, command: c.Claim | c.Await, *, apart: bool) -> list[Delivery]:
        stage = HELD
        if command.provisional:
            stage = UNSTARTED if apart else CLAIMED
        return self._deliver(box, command.id, command.most, command.lease, command.limit, stage, apart)

    def _await(self, command: c.Await) -> Awaited:
        box, apart = self.at_now(command.box), isinstance(command, c.AwaitApart)
        found = self._claim_now(box, command, apart=apart)
        if not found:
            until = self.now + command.seconds
            stand = StandingClaim(
                command.id, command.most, command.lease, command.limit, command.provisional, until, apart
            )
            box.stands.add(stand, self.now)
        return Awaited(self.now, found)

    def _confirm(self, command: c.Confirm) -> list[str]:
        """The ids of those that were confirmed in time."""
        box = self.at_now(command.box)
        kept = [record for message, receipt in command.held if (record := box.held(message, receipt)) is not None]
        for record in kept:
            box.confirm(record, self.now + command.lease)
        return [record.id for record in kept]

    def _withdraw(self, command: c.Withdraw) -> bool:
        if not command.box:
            return self.consumers.drop(command.receipt)
        return self.at_now(command.box).stands.drop(command.receipt)

    def _look(self, command: c.Look) -> None:
        self.at_now(command.box)

    def _deliver(
        self,
        box: LoggedMailbox,
        receipt: str,
        most: int,
        lease: float,
        limit: int | None,
        stage: DeliveryStage,
        apart: bool,
    ) -> list[Delivery]:
        """Leases up to `most`. With `apart` a batch ends before the first suspect one, which comes alone."""
        found: list[Delivery] = []
        while len(found) < most:
            record = box.claim(self.now, lease, receipt, stage, limit, apart=apart, first=not found)
            if record is None:
                break
            found.append(Delivery.of(record, box.name))
            if apart and record.suspect:
                break
        return found

    def _end(self, command: c.End) -> list[str]:
        """The ids of those that were no longer held; a single one that was not is an error."""
        box = self.at_now(command.box)
        lost = []
        for message, receipt in command.held:
            record = box.held(message, receipt)
            if record is None:
                if len(command.held) == 1:
                    raise ReceiptHandleExpiredError(message, "its lease ran out")
                lost.append(message)
                continue
            box.end(record, self.now)
            if command.reply is not None:
                self.post(record, command.reply, False)
        return lost

    def _nack(self, command: c.Nack) -> None:
        box, record = self._held(command)
        box.nack(record, self.now, command.delay, command.limit)

    def _release(self, command: c.Release) -> None:
        box = self.at_now(command.box)
        for message, receipt in reversed(command.held):
            record = box.held(message, receipt)
            if record is not None:
                box.release(record)
            elif len(command.held) == 1:
                raise ReceiptHandleExpiredError(message, "its lease ran out")

    def _extend(self, command: c.Extend) -> None:
        box, record = self._held(command)
        box.extend(record, self.now + command.seconds, command.checkpoint)

    def _append_step(self, command: c.AppendStep) -> None:
        box, record = self._held(command)
        if record.key is not None:
            box.append_step(record, self.now + command.seconds, command.record)

    def _reply(self, command: c.SettleWithReply) -> None:
        _, record = self._held(command)
        self.post(record, command.body, False)

    def _bury(self, command: c.Bury) -> None:
        box, record = self._held(command)
        box.bury(record, command.cause, command.reason, self.now)

    def post(self, answered: MessageRecord, body: bytes, is_failure: bool) -> None:
        if answered.reply_to is not None:
            self.posts += 1
            record = MessageRecord(f"{self._place}-r{self.posts}", body, self.now, is_failure=is_failure)
            self.at_now(answered.reply_to).add(record, self.now)

    def _revoke(self, command: c.Revoke) -> bool:
        return self.at_now(command.box).revoke(command.key, self.now)

    def _purge(self, command: c.Purge) -> int:
        return self.at_now(command.box).purge(self.now)

    def _replay(self, command: c.Replay) -> bool:
        return self.at_now(command.box).replay(command.message, self.now)

    def _forget(self, command: c.Forget) -> int:
        return self.box(command.box).forget(command.message)

    def seat(self, election: str) -> Seat:
        return self.seats.setdefault(election, Seat())

    # Snapshots

    def _compacted(self, command: c.Compacted) -> None:
        self.values.sweep(self.now)
        sweep_keys(self.boxes.values(), self.now)
        self.bytes_since, self.kept_bytes = 0, command.size

    def keep(self) -> bytes:
        return _encode_kept(
            KeptLedger(
                FORMAT,
                self.seq,
                self.now,
                {name: box.keep(self.now) for name, box in self.boxes.items()},
                self.seats,
                self.values.stores,
                self.bytes_since,
                self.kept_bytes,
                self.heard,
                self.consumers.covers,
                self.consumers.keep(self.now),
                self.delivered,
            )
        )

    @classmethod
    def restored(cls, data: bytes) -> Ledger:
        """Raises `msgspec.MsgspecError` for what this version cannot read."""
        kept = _decode_kept(data)
        if not 1 <= kept.format <= FORMAT:
            raise msgspec.ValidationError(f"the snapshot has format {kept.format}, and this Tenure reads {FORMAT}")
        ledger = cls()
        ledger.seq, ledger.now = kept.seq, kept.now
        ledger.boxes = restored_mailboxes(kept.boxes, ledger.post)
        ledger.seats, ledger.values, ledger.heard = kept.seats, Values(kept.stores), kept.heard
        ledger.consumers, ledger.delivered = Consumers(kept.covers, kept.stands), kept.delivered
        ledger.bytes_since, ledger.kept_bytes = kept.bytes_since, kept.kept_bytes
        return ledger


_RULES: dict[type, Callable[[Ledger, Any], Any]] = {
    c.Send: Ledger._send,
    c.SendAcross: consumers.fold_send_across,
    c.Deliver: consumers.fold_deliver,
    c.Claim: Ledger._claim,
    c.Await: Ledger._await,
    c.ClaimApart: Ledger._claim,
    c.AwaitApart: Ledger._await,
    c.Cover: consumers.fold_cover,
    c.ConsumerExchange: consumers.fold_exchange,
    c.ExtendMany: consumers.fold_extend_many,
    c.Confirm: Ledger._confirm,
    c.Withdraw: Ledger._withdraw,
    c.Look: Ledger._look,
    c.End: Ledger._end,
    c.Nack: Ledger._nack,
    c.Release: Ledger._release,
    c.Extend: Ledger._extend,
    c.AppendStep: Ledger._append_step,
    c.SettleWithReply: Ledger._reply,
    c.Bury: Ledger._bury,
    c.Revoke: Ledger._revoke,
    c.WithdrawKey: lambda ledger, wanted: ledger.at_now(wanted.box).withdraw(wanted.key, wanted.generation, ledger.now),
    c.Purge: Ledger._purge,
    c.Replay: Ledger._replay,
    c.Forget: Ledger._forget,
    c.Campaign: lambda ledger, command: ledger.seat(command.election).campaign(command, ledger.now),
    c.Renew: lambda ledger, command: ledger.seat(command.election).renew(command, ledger.now),
    c.Resign: lambda ledger, command: ledger.seat(command.election).resign(command),
    c.Put: lambda ledger, command: ledger.values.put(command, ledger.now),
    c.Remove: lambda ledger, command: ledger.values.remove(command, ledger.now),
    c.Compacted: Ledger._compacted,
}
