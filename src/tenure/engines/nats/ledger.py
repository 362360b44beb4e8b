"""The fold of the log: all mailboxes, elections and the names of stored values. Pure, and alike in every process.

`apply(command, seq, now)` gives what the asker is to be told; `seq` and `now` are the message's place and time in the stream. What
refuses raises, and has changed nothing. The rules of mailboxes are in `box`; here is what concerns two of them, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tenure.engines.mailbox_records import CLAIMED, HANDED, HELD, OFFERED, UNSTARTED, DeliveryStage, MessageRecord
from tenure.engines.nats import commands as c
from tenure.engines.nats.ledger_records import Awaited, Delivery, Handed, Heard, Seat, Value, Values
from tenure.engines.nats.logged_mailbox import HAND_OVER_S, LoggedMailbox, MailboxSnapshot, StandingClaim
from tenure.errors import KeyRefusedError, ReceiptHandleExpiredError, TermLostError

FORMAT = 3
_READABLE = (1, 2, FORMAT)
"""Format 1 had no standing claims, format 2 no suspect messages."""
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


_decode_kept = msgspec.msgpack.Decoder(KeptLedger).decode
_encode_kept = msgspec.msgpack.Encoder().encode


class Ledger:
    """`stirred` collects the mailboxes in which something may have become visible, for whoever wakes waiters."""

    def __init__(self) -> None:
        self.seq = 0
        self.now = 0.0
        self.boxes: dict[str, LoggedMailbox] = {}
        self.seats: dict[str, Seat] = {}
        self.values = Values()
        self.bytes_since = 0
        """How much of the log was written since the last snapshot."""
        self.kept_bytes = 0
        """How large that snapshot was."""
        self.heard: dict[str, Heard] = {}
        self.stirred: set[str] = set()
        self.handed: list[Handed] = []
        """The deliveries that this command gave to standing claims; the log hands them over."""
        self.dropped: list[str] = []
        """Standing claims that it ended."""
        self._posts = 0  # by this command
        self._touched: dict[str, None] = {}  # by this command, in an order that is the same everywhere
        self._rules: dict[type, Callable[[Any], Any]] = {
            c.Send: self._send,
            c.Claim: self._claim,
            c.Await: self._await,
            c.ClaimApart: self._claim,
            c.AwaitApart: self._await,
            c.Confirm: self._confirm,
            c.Withdraw: self._withdraw,
            c.Look: self._look,
            c.End: self._end,
            c.Nack: self._nack,
            c.Release: self._release,
            c.Extend: self._extend,
            c.SettleWithReply: self._reply,
            c.Bury: self._bury,
            c.Revoke: self._revoke,
            c.Purge: self._purge,
            c.Replay: self._replay,
            c.Forget: self._forget,
            c.Campaign: self._campaign,
            c.Renew: self._renew,
            c.Resign: self._resign,
            c.Put: lambda command: self.values.put(command, self.now),
            c.Remove: lambda command: self.values.remove(command, self.now),
            c.Compacted: self._compacted,
        }

    def apply(self, command: c.AnyCommand, seq: int, at: float, size: int = 0) -> Any:
        """Returns the result of the command. Raises the error that the caller of the command gets."""
        self.seq = seq
        self.now = max(self.now, at)  # another server may lead the stream now, and its clock be behind
        self.bytes_since += size
        self._posts = 0
        self.handed, self.dropped = [], []
        if not self._is_new(command.id):
            return DUPLICATE
        try:
            return self._rules[type(command)](command)
        finally:
            if self._touched:  # also by what was refused: time has passed
                self._hand_over()

    def _is_new(self, name: str) -> bool:
        process, _, number = name.rpartition(".")
        heard = self.heard.get(process)
        if heard is None:
            for gone in [each for each, other in self.heard.items() if other.at + _FORGET_S < self.now]:
                del self.heard[gone]
            heard = self.heard[process] = Heard()
        return heard.is_new(int(number), self.now)

    def box(self, name: str) -> LoggedMailbox:
        box = self.boxes.get(name)
        if box is None:
            box = self.boxes[name] = LoggedMailbox(name, self._post)
        return box

    # Mailboxes

    def _at_now(self, name: str) -> LoggedMailbox:
        box = self.box(name)
        box.promote(self.now)
        self.stirred.add(name)
        self._touched[name] = None
        return box

    def _hand_over(self) -> None:
        """Gives ready messages to standing claims. Afterwards there are ready messages or standing claims, but never both."""
        while self._touched:
            box = self.boxes[next(iter(self._touched))]
            while box.ready_count and (stand := box.stands.take_newest(self.now)) is not None:
                stage = HANDED
                if stand.provisional:
                    stage = OFFERED if stand.apart else CLAIMED
                lease = min(stand.lease, HAND_OVER_S)
                if found := self._deliver(box, stand.receipt, stand.most, lease, stand.limit, stage, stand.apart):
                    self.handed.append(Handed(stand.receipt, box.name, stand.lease, self.now, found))
                else:
                    box.stands.put_back(stand)
            self.dropped += box.dropped
            box.dropped.clear()
            del self._touched[box.name]

    def _held(self, command: c.Nack | c.Extend | c.SettleWithReply | c.Bury) -> tuple[LoggedMailbox, MessageRecord]:
        box = self._at_now(command.box)
        record = box.held(command.message, command.receipt)
        if record is None:
            raise ReceiptHandleExpiredError(command.message, "its lease ran out")
        return box, record

    def _send(self, command: c.Send) -> list[tuple[str, KeyRefusedError | None]]:
        box = self._at_now(command.box)
        sent: list[tuple[str, KeyRefusedError | None]] = []
        for number, item in enumerate(command.items):
            record = MessageRecord(
                f"{self.seq}-{number}", item.body, self.now, item.reply_to, item.key, item.generation
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
        box = self._at_now(command.box)
        return self._claim_now(box, command, apart=isinstance(command, c.ClaimApart))

    def _claim_now(self, box: LoggedMailbox, command: c.Claim | c.Await, *, apart: bool) -> list[Delivery]:
        stage = HELD
        if command.provisional:
            stage = UNSTARTED if apart else CLAIMED
        return self._deliver(box, command.id, command.most, command.lease, command.limit, stage, apart)

    def _await(self, command: c.Await) -> Awaited:
        box, apart = self._at_now(command.box), isinstance(command, c.AwaitApart)
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
        box = self._at_now(command.box)
        kept = [record for message, receipt in command.held if (record := box.held(message, receipt)) is not None]
        for record in kept:
            box.confirm(record, self.now + command.lease)
        return [record.id for record in kept]

    def _withdraw(self, command: c.Withdraw) -> bool:
        return self._at_now(command.box).stands.drop(command.receipt)

    def _look(self, command: c.Look) -> None:
        self._at_now(command.box)

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
            found.append(Delivery.of(record))
            if apart and record.suspect:
                break
        return found

    def _end(self, command: c.End) -> list[str]:
        """The ids of those that were no longer held; a single one that was not is an error."""
        box = self._at_now(command.box)
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
                self._post(record, command.reply, False)
        return lost

    def _nack(self, command: c.Nack) -> None:
        box, record = self._held(command)
        box.nack(record, self.now, command.delay, command.limit)

    def _release(self, command: c.Release) -> None:
        box = self._at_now(command.box)
        for message, receipt in reversed(command.held):
            record = box.held(message, receipt)
            if record is not None:
                box.release(record)
            elif len(command.held) == 1:
                raise ReceiptHandleExpiredError(message, "its lease ran out")

    def _extend(self, command: c.Extend) -> None:
        box, record = self._held(command)
        box.extend(record, self.now + command.seconds, command.checkpoint)

    def _reply(self, command: c.SettleWithReply) -> None:
        _, record = self._held(command)
        self._post(record, command.body, False)

    def _bury(self, command: c.Bury) -> None:
        box, record = self._held(command)
        box.bury(record, command.cause, command.reason, self.now)

    def _post(self, answered: MessageRecord, body: bytes, is_failure: bool) -> None:
        if answered.reply_to is not None:
            self._posts += 1
            record = MessageRecord(f"{self.seq}-r{self._posts}", body, self.now, is_failure=is_failure)
            self._at_now(answered.reply_to).add(record, self.now)

    def _revoke(self, command: c.Revoke) -> bool:
        return self._at_now(command.box).revoke(command.key, self.now)

    def _purge(self, command: c.Purge) -> int:
        return self._at_now(command.box).purge(self.now)

    def _replay(self, command: c.Replay) -> bool:
        return self._at_now(command.box).replay(command.message, self.now)

    def _forget(self, command: c.Forget) -> int:
        return self.box(command.box).forget(command.message)

    # Elections

    def _campaign(self, command: c.Campaign) -> int | None:
        """The new epoch, or None when somebody else leads."""
        seat = self.seats.setdefault(command.election, Seat())
        if seat.taken(self.now) and seat.candidate != command.candidate:
            return None
        seat.epoch = max(seat.epoch, command.above) + 1
        seat.candidate, seat.expires = command.candidate, self.now + command.ttl
        return seat.epoch

    def _renew(self, command: c.Renew) -> None:
        seat = self.seats.setdefault(command.election, Seat())
        if seat.epoch != command.epoch or not seat.taken(self.now):
            raise TermLostError(command.election, command.epoch, seat.epoch)
        seat.expires = self.now + command.ttl

    def _resign(self, command: c.Resign) -> None:
        seat = self.seats.setdefault(command.election, Seat())
        if seat.epoch == command.epoch:
            seat.candidate = ""

    # Snapshots

    def _compacted(self, command: c.Compacted) -> None:
        self.values.sweep(self.now)
        self.bytes_since, self.kept_bytes = 0, command.size

    def keep(self) -> bytes:
        boxes = {name: box.keep(self.now) for name, box in self.boxes.items()}
        return _encode_kept(
            KeptLedger(
                FORMAT,
                self.seq,
                self.now,
                boxes,
                self.seats,
                self.values.stores,
                self.bytes_since,
                self.kept_bytes,
                self.heard,
            )
        )

    @classmethod
    def restored(cls, data: bytes) -> Ledger:
        """Raises `msgspec.MsgspecError` for what this version cannot read."""
        kept = _decode_kept(data)
        if kept.format not in _READABLE:
            raise msgspec.ValidationError(f"the snapshot has format {kept.format}, and this Tenure reads {FORMAT}")
        ledger = cls()
        ledger.seq, ledger.now = kept.seq, kept.now
        ledger.bytes_since, ledger.kept_bytes = kept.bytes_since, kept.kept_bytes
        ledger.boxes = {name: LoggedMailbox.restored(name, ledger._post, box) for name, box in kept.boxes.items()}
        ledger.seats, ledger.values, ledger.heard = kept.seats, Values(kept.stores), kept.heard
        return ledger
