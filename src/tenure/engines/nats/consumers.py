"""The consumers of the fold: which mailboxes each covers, their standing claims, and the commands that concern several mailboxes. Pure.

A consumer leaves its mailboxes in the log once (`Cover`), so that an exchange need not name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.engines.mailbox_records import HANDED, HELD, OFFERED, UNSTARTED, DeliveryStage, MessageRecord, claim_ranked
from tenure.engines.nats import commands as c
from tenure.engines.nats.ledger_records import HAND_OVER_S, Delivery, Handed, LoggedMailbox, StandingClaim
from tenure.errors import KeyRefusedError

if TYPE_CHECKING:
    from tenure.engines.nats.ledger import Ledger


class ExchangedFold(NamedTuple):
    """The result of an `Exchange`: deliveries, or a claim that stands from `at` on; and the settlements that were not held, by place.

    `lost` says True where the message is gone.
    """

    at: float
    deliveries: list[Delivery]
    lost: dict[int, bool]


class CoveredMailboxes(msgspec.Struct):
    """The mailboxes of one consumer."""

    version: int
    ranks: list[list[str]]


class ConsumerStand(msgspec.Struct):
    """The standing claim of a consumer. It is in no mailbox: what comes into one of those that the consumer covers is for it."""

    consumer: str
    claim: StandingClaim


class Consumers:
    """The consumers of the fold, and their standing claims: the newest is served first."""

    def __init__(
        self, covers: dict[str, CoveredMailboxes] | None = None, stands: list[ConsumerStand] | None = None
    ) -> None:
        self.covers: dict[str, CoveredMailboxes] = covers or {}
        self._line: dict[str, ConsumerStand] = {stand.claim.receipt: stand for stand in stands or ()}
        self._names: dict[str, frozenset[str]] = {
            name: frozenset(box for rank in cover.ranks for box in rank) for name, cover in self.covers.items()
        }

    def cover(self, consumer: str, version: int, ranks: list[list[str]]) -> frozenset[str]:
        """Returns the mailboxes that are new."""
        before = self._names.get(consumer, frozenset())
        self.covers[consumer] = CoveredMailboxes(version, ranks)
        self._names[consumer] = names = frozenset(box for rank in ranks for box in rank)
        return names - before

    def forget(self, process: str) -> None:
        for consumer in [each for each in self.covers if each.rpartition(".")[0] == process]:
            del self.covers[consumer], self._names[consumer]

    def stand(self, consumer: str, claim: StandingClaim, now: float) -> None:
        self._line = {receipt: each for receipt, each in self._line.items() if each.claim.until > now}
        self._line[claim.receipt] = ConsumerStand(consumer, claim)

    def take_for(self, box: str, now: float) -> ConsumerStand | None:
        """Removes and returns the claim that what is in this mailbox goes to."""
        for receipt, stand in reversed(self._line.items()):
            if stand.claim.until > now and box in self._names.get(stand.consumer, ()):
                return self._line.pop(receipt)
        return None

    def put_back(self, stand: ConsumerStand) -> None:
        self._line[stand.claim.receipt] = stand

    def drop(self, receipt: str) -> bool:
        return self._line.pop(receipt, None) is not None

    def drop_process(self, process: str, now: float) -> list[str]:
        """As `StandingLine.drop_process`."""
        gone = [stand.claim for receipt, stand in self._line.items() if receipt.rpartition(".")[0] == process]
        for claim in gone:
            del self._line[claim.receipt]
        return [claim.receipt for claim in gone if claim.until > now]

    def keep(self, now: float) -> list[ConsumerStand]:
        return [stand for stand in self._line.values() if stand.claim.until > now]


APART_S = 1e-6
"""Messages of one command count as sent this long after one another: a claim over several mailboxes takes what is oldest."""


class DeliveredParts(NamedTuple):
    """The result of a `Deliver`: for each message its id, and why its key was refused; and the acknowledged deliveries that were not held, by place."""

    sent: list[tuple[str, KeyRefusedError | None]]
    lost: list[int]


def fold_deliver(ledger: Ledger, command: c.Deliver) -> DeliveredParts | None:
    """None where the parts of this entry are done already: then nothing happened."""
    if command.seq <= ledger.delivered.get(command.journal, 0):
        return None
    ledger.delivered[command.journal] = command.seq
    lost = []
    for place, (name, message, receipt) in enumerate(command.ended):
        box = ledger.at_now(name)
        if (record := box.held(message, receipt)) is None:
            lost.append(place)
        else:
            box.end(record, ledger.now)
    return DeliveredParts(fold_send_across(ledger, command), lost)


def fold_send_across(ledger: Ledger, command: c.SendAcross | c.Deliver) -> list[tuple[str, KeyRefusedError | None]]:
    """Queues everything, and only then gives it to standing claims: else each would get one message and ask for the rest again."""
    sent: list[tuple[str, KeyRefusedError | None]] = []
    for name, items in command.runs:
        begun = len(sent)
        sent += ledger.queue(
            name, [(place, ledger.now + place * APART_S, item) for place, item in enumerate(items, begun)]
        )
    boxes = [ledger.boxes[name] for name in dict.fromkeys(name for name, _ in command.runs)]
    for box in boxes:
        ledger.drop_silent(box)
    for box in boxes:
        _hand_in_order(ledger, box)
    return sent


def _hand_in_order(ledger: Ledger, box: LoggedMailbox) -> None:
    """Gives what came to standing claims of consumers: to each the oldest of all its mailboxes. Claims on one mailbox come first, as ever."""
    consumers = ledger.consumers
    while box.ready_count and not box.stands.keep(ledger.now):
        stand = consumers.take_for(box.name, ledger.now)
        if stand is None:
            return
        claim = stand.claim
        short = msgspec.structs.replace(claim, lease=min(claim.lease, HAND_OVER_S))
        found = _claim_ranked(
            ledger, short, OFFERED if claim.provisional else HANDED, consumers.covers[stand.consumer].ranks
        )
        if not found:
            consumers.put_back(stand)
            return
        ledger.handed.append(Handed(claim.receipt, claim.lease, ledger.now, found))


def fold_cover(ledger: Ledger, command: c.Cover) -> None:
    for name in sorted(ledger.consumers.cover(command.consumer, command.version, command.ranks)):
        if name in ledger.boxes:
            ledger.at_now(name)


def fold_exchange(ledger: Ledger, command: c.ConsumerExchange) -> ExchangedFold | None:
    """None where the mailboxes of the consumer are not known as it means them: then nothing was done."""
    cover = ledger.consumers.covers.get(command.consumer)
    if (cover.version if cover is not None else 0) != command.version:
        return None
    lost = {}
    for place, (name, message, receipt, reply) in enumerate(command.settled):
        box = ledger.at_now(name)
        if (record := box.held(message, receipt)) is None:
            lost[place] = message not in box.records
            continue
        box.end(record, ledger.now)
        if reply is not None:
            ledger.post(record, reply, False)
    found: list[Delivery] = []
    if command.most:
        until, limits = ledger.now + command.seconds, (command.most, command.lease, command.limit)
        claim = StandingClaim(command.id, *limits, command.provisional, until, True)
        ranks = cover.ranks if cover is not None else []
        found = _claim_ranked(
            ledger, claim, UNSTARTED if command.provisional else HELD, ranks[::-1] if command.fair else ranks
        )
        if not found and command.seconds:
            ledger.consumers.stand(command.consumer, claim, ledger.now)
    return ExchangedFold(ledger.now, found, lost)


def _claim_ranked(ledger: Ledger, claim: StandingClaim, stage: DeliveryStage, ranks: list[list[str]]) -> list[Delivery]:
    found: list[Delivery] = []

    def lease(box: LoggedMailbox, first: bool) -> MessageRecord | None:
        return box.claim(ledger.now, claim.lease, claim.receipt, stage, claim.limit, True, first)

    def take(box: LoggedMailbox, record: MessageRecord) -> bool:
        found.append(Delivery.of(record, box.name))
        return True

    boxes = [[box for name in rank if (box := _active(ledger, name)) is not None] for rank in ranks]
    claim_ranked(boxes, claim.most, lease, take)
    return found


def _active(ledger: Ledger, name: str) -> LoggedMailbox | None:
    """Returns a mailbox in which something is visible now. The others are left as they are."""
    box = ledger.boxes.get(name)
    if box is None or not (box.ready_count or box.next_due() <= ledger.now):
        return None
    return ledger.at_now(name)


def fold_extend_many(ledger: Ledger, command: c.ExtendMany) -> list[int]:
    """The places of those that were not held."""
    lost = []
    for place, (name, message, receipt) in enumerate(command.held):
        box = ledger.at_now(name)
        if (record := box.held(message, receipt)) is None:
            lost.append(place)
        else:
            box.extend(record, ledger.now + command.seconds, None)
    return lost
