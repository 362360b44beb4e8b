"""Standing claims in the fold: what comes is handed to those who wait, for a short while, until they confirm."""

from __future__ import annotations

from typing import Any

import pytest
from tests.memory import kept_bytes

from tenure.engines.contracts import FailureCause
from tenure.engines.nats import commands as c
from tenure.engines.nats.ledger import Ledger
from tenure.engines.nats.ledger_records import HAND_OVER_S, Delivery
from tenure.errors import ReceiptHandleExpiredError

LEASE = 60.0


class Story:
    """A ledger that is told one command after the other."""

    def __init__(self) -> None:
        self.ledger, self.at, self.number = Ledger(), 1_000.0, 0

    def name(self, process: str) -> str:
        self.number += 1
        return f"{process}.{self.number}"

    def stand(
        self,
        process: str,
        *,
        most: int = 1,
        limit: int | None = None,
        provisional: bool = False,
        kind: type[c.Await] = c.AwaitApart,
    ) -> str:
        name = self.name(process)
        at, deliveries = self.apply(kind(name, "a", most, LEASE, limit, provisional, 30.0))
        assert (at, deliveries) == (self.at, [])
        return name

    def claim(self, process: str, *, most: int = 1, limit: int | None = None, provisional: bool = False) -> Any:
        return self.apply(c.ClaimApart(self.name(process), "a", most, LEASE, limit, provisional))

    def send(self, *bodies: bytes, reply_to: str | None = None) -> None:
        self.apply(c.Send(self.name("sender"), "a", [c.Item(body, reply_to=reply_to) for body in bodies]))

    def look(self, after: float) -> None:
        self.at += after
        self.apply(c.Look(self.name("clock"), "a"))

    def apply(self, command: c.AnyCommand) -> Any:
        return self.ledger.apply(command, self.ledger.seq + 1, self.at)

    @property
    def handed(self) -> dict[str, list[bytes]]:
        """What the last command gave to whom."""
        return {one.receipt: [delivery.body for delivery in one.deliveries] for one in self.ledger.handed}

    def only(self) -> tuple[Delivery, str]:
        ((delivery,), receipt) = next((one.deliveries, one.receipt) for one in self.ledger.handed)
        return delivery, receipt

    def confirm(self, delivery: Delivery, receipt: str) -> Any:
        return self.apply(c.Confirm(self.name("p"), "a", [(delivery.id, receipt)], LEASE))

    def end(self, delivery: Delivery, receipt: str) -> None:
        self.apply(c.End(self.name("p"), "a", [(delivery.id, receipt)]))


def test_a_message_goes_to_the_newest_who_waits_and_then_to_the_next() -> None:
    story = Story()
    first, second = story.stand("p"), story.stand("q")
    story.send(b"1", b"2", b"3")
    assert story.handed == {second: [b"1"], first: [b"2"]}
    assert story.ledger.box("a").depth(story.at) == (1, 0, 2)


def test_a_claim_that_finds_something_does_not_stand() -> None:
    story = Story()
    story.send(b"1")
    _, deliveries = story.apply(c.Await("p.1", "a", 1, LEASE, None, False, 30.0))
    assert [delivery.body for delivery in deliveries] == [b"1"]
    story.send(b"2")
    assert story.handed == {}


def test_one_who_waits_for_several_gets_what_comes_at_once() -> None:
    story = Story()
    receipt = story.stand("p", most=10)
    story.send(b"1", b"2")
    assert story.handed == {receipt: [b"1", b"2"]}


def test_what_is_confirmed_is_held_for_the_whole_lease() -> None:
    story = Story()
    story.stand("p")
    story.send(b"1")
    mine = story.only()
    story.at += HAND_OVER_S - 0.1
    assert story.confirm(*mine) == [mine[0].id]
    story.look(LEASE - 0.1)
    story.end(*mine)


def test_what_nobody_confirms_comes_back_soon_with_another_fence_and_is_forgiven() -> None:
    story = Story()
    story.stand("p", limit=1)
    story.send(b"1")
    lost = story.only()
    story.look(HAND_OVER_S)
    assert story.confirm(*lost) == []
    with pytest.raises(ReceiptHandleExpiredError):
        story.end(*lost)
    (again,) = story.claim("q", limit=1)
    assert (again.delivery_count, again.forgiven, again.suspect) == (2, 1, False)


def test_a_provisional_claim_that_nobody_confirms_is_forgiven_and_says_nothing_of_the_message() -> None:
    """Whoever died while it waited has not had it."""
    story = Story()
    story.stand("p", most=2, provisional=True)
    story.send(b"1", b"2")
    story.look(HAND_OVER_S)
    found = story.claim("q", most=2)
    assert [(one.delivery_count, one.forgiven, one.suspect) for one in found] == [(2, 1, False), (2, 1, False)]


def test_a_provisional_claim_that_was_confirmed_and_runs_out_makes_its_message_suspect() -> None:
    story = Story()
    story.stand("p", provisional=True)
    story.send(b"1")
    story.confirm(*story.only())
    story.look(LEASE)
    story.send(b"2")
    (again,) = story.claim("q", most=5, provisional=True)
    assert (again.delivery_count, again.forgiven, again.suspect) == (2, 1, True)
    story.look(LEASE)
    (again,) = story.claim("q", most=5, provisional=True)
    assert again.body == b"2"
    (again,) = story.claim("q", most=5, provisional=True)
    assert (again.delivery_count, again.forgiven, again.suspect) == (3, 1, True)


def test_suspect_messages_are_handed_over_one_to_each_who_waits() -> None:
    story = Story()
    story.send(b"1", b"2", b"3")
    story.claim("dead", most=2)
    assert [one.body for one in story.claim("alive")] == [b"3"]
    story.look(LEASE - 10)
    first, second = story.stand("p", most=9), story.stand("q", most=9)
    story.look(10)
    assert sorted(story.handed[first] + story.handed[second]) == [b"1", b"2"]


def test_a_suspect_message_handed_to_one_who_died_waiting_is_forgiven_and_stays_suspect() -> None:
    story = Story()
    story.send(b"1")
    story.claim("dead")
    story.look(LEASE - 5)
    gone = [story.stand(f"gone{number}", limit=2, provisional=True) for number in range(3)]
    story.look(5)
    for receipt in reversed(gone):
        assert story.handed == {receipt: [b"1"]}
        story.look(HAND_OVER_S)
    (again,) = story.claim("alive", most=5, limit=2, provisional=True)
    assert (again.delivery_count, again.forgiven, again.suspect) == (5, 3, True)


def test_a_suspect_message_that_its_new_holder_confirmed_counts() -> None:
    story = Story()
    story.send(b"1")
    story.claim("dead")
    story.look(LEASE - 10)
    story.stand("p", provisional=True)
    story.look(10)
    delivery, receipt = story.only()
    assert delivery.suspect
    story.confirm(delivery, receipt)
    story.look(LEASE)
    (again,) = story.claim("q")
    assert (again.delivery_count, again.forgiven) == (3, 0)


def test_claims_of_the_releases_before_are_folded_as_they_were() -> None:
    """They are in the log, and each process that reads it must come to what the first one told."""
    story = Story()
    story.stand("p", provisional=True, kind=c.Await)
    story.send(b"1", b"2")
    story.look(HAND_OVER_S)
    found = story.apply(c.Claim(story.name("q"), "a", 2, LEASE, None, True))
    assert [(one.delivery_count, one.forgiven) for one in found] == [(1, 0), (1, 0)]
    story.look(LEASE)
    found = story.apply(c.Claim(story.name("q"), "a", 2, LEASE, None, False))
    assert [(one.delivery_count, one.forgiven) for one in found] == [(1, 0), (1, 0)]


def test_a_process_that_did_not_confirm_is_handed_nothing_until_it_asks_again() -> None:
    story = Story()
    alive = story.stand("alive")
    dead = [story.stand("dead") for _ in range(3)]
    story.send(b"1")
    assert story.handed == {dead[2]: [b"1"]}
    story.look(HAND_OVER_S)
    assert sorted(story.ledger.dropped) == dead[:2]
    assert story.handed == {alive: [b"1"]}


def test_a_claim_stands_no_longer_than_it_said_nor_after_it_was_withdrawn() -> None:
    story = Story()
    receipt = story.stand("p")
    assert story.apply(c.Withdraw(story.name("p"), "a", receipt)) is True
    assert story.apply(c.Withdraw(story.name("p"), "a", receipt)) is False
    story.stand("p")
    story.look(30.0)
    story.send(b"1")
    assert story.handed == {}


def test_a_message_past_its_limit_becomes_a_dead_letter_and_who_waits_goes_on_waiting() -> None:
    story = Story()
    story.send(b"1", reply_to="replies")
    (first,) = story.apply(c.Claim("p.1000", "a", 1, 10.0, 1, False))
    receipt = story.stand("q", limit=1)
    story.look(10.0)
    assert story.handed == {}
    _, letter = story.ledger.box("a").dead[first.id]
    assert letter.cause is FailureCause.DELIVERIES
    assert story.ledger.box("replies").depth(story.at) == (1, 0, 0)
    story.send(b"2")
    assert story.handed == {receipt: [b"2"]}


def test_standing_claims_survive_a_snapshot_in_their_order() -> None:
    story = Story()
    first, second = story.stand("p"), story.stand("q")
    story.ledger = Ledger.restored(story.ledger.keep())
    story.send(b"1")
    assert story.handed == {second: [b"1"]}
    story.send(b"2")
    assert story.handed == {first: [b"2"]}


def test_claims_that_lapsed_do_not_pile_up() -> None:
    story = Story()

    def stand_often() -> None:
        for _ in range(1_000):
            story.stand("p")
            story.at += 1.0

    stand_often()
    assert kept_bytes(stand_often) < 100_000
