"""A message whose claim ran out may have killed its holder: it comes alone, counts from the claim on, and its neighbours do not pay."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.case import EngineCase

from tenure.engines import Engine, Mailbox, Outgoing
from tenure.engines.contracts import Message

Box = Mailbox[Any, Any]


def bodies(mailbox: Box, most: int, lease: float = 60, *, provisional: bool = False) -> list[Any]:
    return [message.body for message in mailbox.receive(most, lease, provisional=provisional)]


def take(mailbox: Box, lease: float = 60, *, provisional: bool = False) -> Message[Any, Any]:
    (message,) = mailbox.receive(1, lease, provisional=provisional)
    return message


def left_behind(case: EngineCase, mailbox: Box, count: int, *, provisional: bool, extended: bool = False) -> None:
    """Claim so many as a holder does that dies with them."""
    claimed = mailbox.receive(count, case.s(3), provisional=provisional)
    assert len(claimed) == count
    assert not any(message.suspect for message in claimed)
    if extended:
        for message in claimed:
            message.extend_visibility(case.s(3))
    case.pass_time(3)


@pytest.mark.parametrize("how", ["provisional", "held", "started"])
def test_a_message_whose_claim_ran_out_comes_alone(case: EngineCase, engine: Engine, how: str) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send_many([Outgoing(1), Outgoing(2)])
    left_behind(case, mailbox, 2, provisional=how == "provisional", extended=how == "started")
    mailbox.send_many([Outgoing(3), Outgoing(4)])
    alone = [mailbox.receive(10) for _ in range(2)]
    assert sorted(message.body for batch in alone for message in batch) == [1, 2]
    assert all(message.suspect for batch in alone for message in batch)
    rest = mailbox.receive(10)
    assert [message.body for message in rest] == [3, 4]
    assert not any(message.suspect for message in rest)


def test_a_batch_ends_before_the_first_suspect_one(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("suspect")
    assert bodies(mailbox, 1, case.s(6)) == ["suspect"]
    mailbox.send_many([Outgoing("a"), Outgoing("b")])
    case.pass_time(6)
    mailbox.send_many([Outgoing("c"), Outgoing("d")])
    # Redelivered messages queue up by the time at which they became visible.
    assert bodies(mailbox, 10) == ["a", "b"]
    assert bodies(mailbox, 10) == ["suspect"]
    assert bodies(mailbox, 10) == ["c", "d"]


def test_no_fence_is_given_out_twice_where_provisional_claims_run_out(case: EngineCase, engine: Engine) -> None:
    """The first holder is only slow, and says afterwards which fence it ran under."""
    mailbox = engine.mailbox("work", max_delivery_count=9)
    mailbox.send("x")
    fences = []
    for _ in range(3):
        message = take(mailbox, case.s(2), provisional=True)
        fences.append(message.fence)
        case.pass_time(2)
    fences.append(take(mailbox).fence)
    assert fences == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_the_first_claim_that_never_started_is_forgiven_and_the_next_one_counts(
    case: EngineCase, engine: Engine
) -> None:
    mailbox = engine.mailbox("work", max_delivery_count=3)
    mailbox.send("x")
    seen = []
    for _ in range(4):
        message = take(mailbox, case.s(2), provisional=True)
        seen.append((message.delivery_count, message.forgiven, message.attempt, message.suspect))
        case.pass_time(2)
    assert seen == [(1, 0, 1, False), (2, 1, 1, True), (3, 1, 2, True), (4, 1, 3, True)]
    assert mailbox.receive() == []
    (letter,) = mailbox.dead_letters.list()
    assert (letter.cause, letter.delivery_count) == ("deliveries", 4)
    assert letter.reason == "delivered 3 times without being settled: the last claim ended by the expiry of its lease"


def test_poison_that_kills_its_holder_before_it_starts_is_given_up_and_its_neighbours_are_not(
    case: EngineCase, engine: Engine
) -> None:
    """A supervisor that claims ahead dies each time with all that it holds; only one of them is to blame."""
    mailbox, replies = engine.mailbox("work", max_delivery_count=2), engine.mailbox("replies")
    mailbox.send_many([Outgoing(body, reply_to="replies") for body in ("a", "poison", "b", "c")])
    done, deaths = [], 0
    while mailbox.approximate_count():
        batch = mailbox.receive(4, case.s(3), provisional=True)
        if any(message.body == "poison" for message in batch):
            deaths += 1
            case.pass_time(3)
            continue
        for message in batch:
            message.settle("done")
            done.append((message.body, message.attempt))
    assert sorted(done) == [("a", 1), ("b", 1), ("c", 1)]
    assert deaths == 3  # once with its neighbours, forgiven, and twice alone
    assert [letter.delivery_count for letter in mailbox.dead_letters.list()] == [3]
    news = [message.failure for message in replies.receive(10) if message.failure is not None]
    assert ["expiry" in failure.reason for failure in news] == [True]


@pytest.mark.parametrize("act", ["release", "nack", "nack with a delay"])
def test_what_a_holder_gave_back_is_not_suspect_any_more(case: EngineCase, engine: Engine, act: str) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    left_behind(case, mailbox, 1, provisional=True)
    message = take(mailbox, provisional=True)
    assert message.suspect
    if act == "release":
        message.release()
    else:
        message.nack(case.s(2) if "delay" in act else 0)
        case.pass_time(2)
    mailbox.send("y")
    again, neighbour = mailbox.receive(10)
    assert (again.body, neighbour.body) == ("x", "y")
    assert not again.suspect
    # A number that was never used is given out again; one that was nacked is not.
    assert again.fence == ((0, 2) if act == "release" else (0, 3))


def test_a_suspect_message_that_is_extended_and_runs_out_again_stays_suspect(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    left_behind(case, mailbox, 1, provisional=False, extended=True)
    message = take(mailbox, case.s(3), provisional=True)
    message.extend_visibility(case.s(3), b"half")
    case.pass_time(3)
    mailbox.send("y")
    (again,) = mailbox.receive(10)
    assert (again.suspect, again.fence, again.attempt, again.checkpoint) == (True, (0, 3), 3, b"half")


def test_a_replayed_dead_letter_is_not_suspect(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work", max_delivery_count=1)
    sent = mailbox.send("x")
    left_behind(case, mailbox, 1, provisional=False)
    assert mailbox.receive() == []
    assert mailbox.dead_letters.replay(sent)
    mailbox.send("y")
    assert [(message.body, message.suspect) for message in mailbox.receive(10)] == [("x", False), ("y", False)]


def test_a_newer_generation_is_not_suspect_for_the_older_one(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("old", key="k")
    left_behind(case, mailbox, 1, provisional=True)
    mailbox.send("new", key="k", generation=1)
    message = take(mailbox, provisional=True)
    assert (message.body, message.suspect, message.fence) == ("new", False, (1, 1))


def test_a_long_poll_gets_a_suspect_message_alone_and_counted(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work", max_delivery_count=1)
    mailbox.send_many([Outgoing("x"), Outgoing("y")])
    left_behind(case, mailbox, 2, provisional=True)
    found = [mailbox.receive(10, case.s(3), 5, provisional=True) for _ in range(2)]
    assert [len(batch) for batch in found] == [1, 1]
    case.pass_time(3)
    assert mailbox.receive(10) == []
    assert mailbox.dead_letters.count() == 2
