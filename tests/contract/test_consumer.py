"""A consumer: claims over many mailboxes, settlements in groups, and both again after a lost answer."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.case import Background, EngineCase
from tests.patience import wait_until
from tests.process.stillness import Stillness

from tenure.engines import Engine, Mailbox, Outgoing
from tenure.engines.contracts import Consumer, Exchanged, FailureCause, Message, Settlement
from tenure.errors import LimitError, MailboxClosedError, ReceiptHandleExpiredError, ReplyNotAvailableError

LONG = 60.0
SOON = 45.0
Any_ = Consumer[Any, Any]


def consumer(engine: Engine, *ranks: list[str], **options: Any) -> Any_:
    made = engine.consumer(**options)
    made.cover(ranks)
    return made


def claim(made: Any_, most: int = 1, **options: Any) -> list[Message[Any, Any]]:
    return made.exchange(max_messages=most, **{"visibility_timeout": 60, **options}).messages


def bodies(found: list[Message[Any, Any]]) -> list[Any]:
    return [message.body for message in found]


def send(engine: Engine, **bodies: list[Any]) -> None:
    for name, each in bodies.items():
        engine.mailbox(name).send_many([Outgoing(body) for body in each])


def spread(case: EngineCase, engine: Engine, plan: str) -> None:
    """Sends one message after the other to the mailboxes that the letters name: their bodies count."""
    for number, name in enumerate(plan):
        engine.mailbox(name).send(number)
        case.pass_time(0.01)


# The order of claims


def test_the_first_rank_comes_first_and_the_oldest_within_a_rank(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"], ["c", "d"])
    spread(case, engine, "dcbabacd")
    assert bodies(claim(made, 10)) == [2, 3, 4, 5, 0, 1, 6, 7]


def test_one_at_a_time_has_the_same_order(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"], ["c"])
    spread(case, engine, "cabba")
    assert [bodies(claim(made)) for _ in range(6)] == [[1], [2], [3], [4], [0], []]


def test_a_fair_exchange_takes_the_ranks_from_the_last(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a"], ["b"], ["c"])
    spread(case, engine, "abc")
    assert bodies(claim(made, 2, fair=True)) == [2, 1]
    assert bodies(claim(made, 2)) == [0]


def test_what_became_visible_later_comes_later(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    engine.mailbox("a").send("delayed", delay=case.s(8))
    case.pass_time(1)
    engine.mailbox("b").send("first")
    case.pass_time(8)
    engine.mailbox("b").send("last")
    assert bodies(claim(made, 5)) == ["first", "delayed", "last"]


def test_a_released_message_has_its_old_place_among_all(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    spread(case, engine, "abab")
    first, second = claim(made, 2)
    second.release()
    first.release()
    assert bodies(claim(made, 4)) == [0, 1, 2, 3]


def test_a_message_says_which_mailbox_it_came_from_and_is_adopted_there(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    spread(case, engine, "ba")
    found = claim(made, 2)
    assert [message.mailbox for message in found] == ["b", "a"]
    ticket = found[0].ticket
    assert ticket.mailbox == "b"
    case.again().mailbox(ticket.mailbox).adopt(ticket).acknowledge()
    assert engine.mailbox("b").depth() == (0, 0, 0)
    assert engine.mailbox("a").receive() == []


def test_cover_replaces_the_mailboxes_and_a_name_counts_in_its_first_rank(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a"])
    spread(case, engine, "cab")
    made.cover([["b"], [], ["c", "b"]])
    assert bodies(claim(made, 5)) == [2, 0]
    made.cover([])
    assert claim(made, 5) == []
    made.cover([["a"]])
    assert bodies(claim(made, 5)) == [1]


def test_bad_arguments_are_refused_before_anything_is_done(engine: Engine) -> None:
    made = consumer(engine, ["a"])
    send(engine, a=[1])
    (held,) = claim(made)
    for bad in ({"max_messages": -1}, {"max_messages": 1_001}, {"visibility_timeout": -1}, {"wait_time_seconds": -1}):
        with pytest.raises(LimitError):
            made.exchange([Settlement(held)], **bad)
    with pytest.raises(LimitError):
        made.exchange([Settlement(held)], claim_id="c" * 513)
    with pytest.raises(LimitError):
        made.cover([["no name"]])
    with pytest.raises(LimitError):
        made.cover([[f"m{number}" for number in range(2_001)]])
    held.acknowledge()


# Suspects, poison, limits


def test_a_suspect_message_comes_alone_whatever_mailbox_the_others_are_in(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    send(engine, a=["killer"])
    claim(made, 1, visibility_timeout=case.s(2), provisional=True)
    case.pass_time(2)
    case.pass_time(0.1)
    send(engine, b=[1, 2])
    (killer,) = claim(made, 10, provisional=True)
    assert (killer.body, killer.suspect, killer.delivery_count, killer.attempt) == ("killer", True, 2, 1)
    assert bodies(claim(made, 10)) == [1, 2]


def test_a_batch_ends_before_a_suspect_message_of_a_lower_rank(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"], ["c"])
    send(engine, c=["killer"])
    claim(made, 1, visibility_timeout=case.s(2))
    case.pass_time(2)
    send(engine, a=[1])
    case.pass_time(0.01)
    send(engine, b=[2])
    assert bodies(claim(made, 10)) == [1, 2]
    assert bodies(claim(made, 10)) == ["killer"]


def test_a_poison_body_becomes_a_dead_letter_and_the_next_one_comes(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"], body=int)
    replies = engine.mailbox("replies")
    engine.mailbox("a").send("poison", reply_to=replies)
    case.pass_time(0.01)
    assert claim(made) == []
    engine.mailbox("a").send("poison again")
    case.pass_time(0.01)
    engine.mailbox("b").send(7)
    assert bodies(claim(made, 1)) == [7]
    assert engine.mailbox("a").dead_letters.count() == 2
    (news,) = replies.receive()
    assert news.failure is not None
    assert (news.failure.cause, news.failure.mailbox) == (FailureCause.UNDECODABLE, "a")


def test_a_message_that_used_up_its_deliveries_is_given_up(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"], max_delivery_count=1)
    spread(case, engine, "aab")
    claim(made, 1, visibility_timeout=case.s(2))
    case.pass_time(2)
    case.pass_time(0.01)
    found = list(itertools.chain.from_iterable(claim(made, 5) for _ in range(2)))
    assert bodies(found) == [1, 2]
    assert engine.mailbox("a").dead_letters.count() == 1


# Settlements


def three(engine: Engine, made: Any_) -> list[Message[Any, Any]]:
    for number in range(3):
        engine.mailbox("ab"[number % 2]).send(number, reply_to="replies", key=f"k{number}")
    return sorted(claim(made, 3), key=lambda message: int(message.body))


def test_a_group_is_settled_with_its_replies_and_the_next_claims_come_in_the_same_call(engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    first, second, third = three(engine, made)
    send(engine, a=["next"])
    done = made.exchange([Settlement(first, "one"), Settlement(second), Settlement(third, "three")], max_messages=5)
    assert (bodies(done.messages), done.lost, list(done.refused)) == (["next"], [], [])
    assert sorted(bodies(engine.mailbox("replies").receive(5))) == ["one", "three"]
    assert [engine.mailbox(name).depth().leased for name in "ab"] == [1, 0]


def test_with_no_messages_asked_for_it_only_settles(engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    first, *_ = three(engine, made)
    send(engine, a=["next"])
    assert made.exchange([Settlement(first, "one")], max_messages=0, wait_time_seconds=LONG) == Exchanged([], [], [])
    assert engine.mailbox("a").depth() == (1, 0, 1)
    assert made.exchange(max_messages=0).messages == []


def test_one_dead_receipt_does_not_stop_the_others(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    send(engine, a=["short"])
    (short,) = claim(made, 1, visibility_timeout=case.s(1))
    first, second, third = three(engine, made)
    engine.mailbox("b").revoke("k1")
    case.pass_time(1)
    group = [Settlement(message, message.body) for message in (first, second, third)]
    done = made.exchange([Settlement(short), *group], max_messages=0)
    assert {message.id for message in done.lost} == {short.id, second.id}
    assert sorted(bodies(engine.mailbox("replies").receive(5))) == [0, 2]


def test_a_reply_that_cannot_be_sent_is_told_and_the_others_are_settled(engine: Engine) -> None:
    made = consumer(engine, ["a", "b"], reply=int)
    send(engine, a=["without"])
    (without,) = claim(made)
    first, second, third = three(engine, made)
    group = [Settlement(without, 1), Settlement(first, "no number"), Settlement(second, 2), Settlement(third, 2**20)]
    done = made.exchange(group, max_messages=0)
    assert [message for message, _ in done.refused] == [without, first]
    assert isinstance(done.refused[0][1], ReplyNotAvailableError)
    assert done.lost == []
    assert sorted(bodies(engine.mailbox("replies").receive(5))) == [2, 2**20]
    for message in (without, first):
        message.acknowledge()


def test_a_delivery_of_a_mailbox_and_an_adopted_one_are_settled_too(engine: Engine) -> None:
    made = consumer(engine, ["a"])
    send(engine, a=[1, 2])
    first, second = engine.mailbox("a").receive(2)
    adopted = engine.mailbox("a").adopt(second.ticket)
    assert made.exchange([Settlement(first), Settlement(adopted)], max_messages=0).lost == []
    assert engine.mailbox("a").depth() == (0, 0, 0)


def test_a_settlement_that_was_done_is_not_lost_when_it_is_repeated(engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    first, second, _ = three(engine, made)
    for _ in range(2):
        done = made.exchange([Settlement(first, "one"), Settlement(second), Settlement(first, "one")], max_messages=0)
        assert done.lost == []
    assert bodies(engine.mailbox("replies").receive(5)) == ["one"]
    with pytest.raises(ReceiptHandleExpiredError):
        first.acknowledge()


def test_a_settlement_that_another_one_did_is_lost(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a"])
    send(engine, a=[1])
    (mine,) = claim(made, 1, visibility_timeout=case.s(1))
    case.pass_time(1)
    (theirs,) = engine.mailbox("a").receive()
    assert made.exchange([Settlement(mine)], max_messages=0).lost == [mine]
    theirs.acknowledge()
    assert made.exchange([Settlement(mine)], max_messages=0).lost == [mine]


def test_the_checkpoint_of_a_settled_message_waits_for_the_next_generation(engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    engine.mailbox("a").send(1, key="k", generation=1)
    (first,) = claim(made)
    first.extend_visibility(60, b"saved")
    made.exchange([Settlement(first)], max_messages=0)
    engine.mailbox("a").send(2, key="k", generation=2)
    assert claim(made)[0].checkpoint == b"saved"


# Repeated claims


def same(one: list[Message[Any, Any]], other: list[Message[Any, Any]]) -> bool:
    return sorted((m.id, m.receipt_handle, m.fence) for m in one) == sorted(
        (m.id, m.receipt_handle, m.fence) for m in other
    )


def test_a_repeated_claim_id_returns_the_same_claims_while_they_are_held(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    spread(case, engine, "abab")
    found = claim(made, 2, claim_id="c1", visibility_timeout=case.s(4))
    assert same(claim(made, 2, claim_id="c1"), found)
    found[0].acknowledge()
    assert same(claim(made, 2, claim_id="c1"), found[1:])
    assert bodies(claim(made, 1, claim_id="c2")) == [2]
    case.pass_time(4)
    fresh = claim(made, 1, claim_id="c1")
    assert not same(fresh, found[1:])


def test_settlements_of_a_repeated_claim_are_applied(engine: Engine) -> None:
    made = consumer(engine, ["a"])
    send(engine, a=[1, 2, 3])
    (first,) = claim(made)
    found = made.exchange([Settlement(first)], visibility_timeout=60, claim_id="c").messages
    again = made.exchange([Settlement(first)], visibility_timeout=60, claim_id="c")
    assert again.lost == []
    assert same(again.messages, found)
    assert engine.mailbox("a").depth() == (1, 0, 1)


def test_a_claim_that_is_repeated_after_all_was_settled_claims_anew_with_another_receipt(engine: Engine) -> None:
    made = consumer(engine, ["a"])
    send(engine, a=[1])
    (first,) = claim(made, claim_id="c")
    first.release()
    (second,) = claim(made, claim_id="c")
    assert second.id == first.id
    with pytest.raises(ReceiptHandleExpiredError):
        first.extend_visibility(60)
    second.acknowledge()


def test_a_consumer_keeps_few_of_the_deliveries_that_were_settled(engine: Engine) -> None:
    """A supervisor on SQLite kept those of its last 256 claims, with their bodies: some 30,000 under load."""
    made = consumer(engine, ["a"])
    before = deliveries_in_memory()
    for number in range(30):
        send(engine, a=list(range(50)))
        found = made.exchange(max_messages=50, visibility_timeout=60, claim_id=f"c{number}").messages
        made.exchange([Settlement(message) for message in found], max_messages=0)
    assert len(found) == 50
    assert deliveries_in_memory() - before <= 600


def deliveries_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, Message) for each in gc.get_objects())


# Extending


def test_many_leases_are_extended_at_once_and_those_that_are_lost_are_told(case: EngineCase, engine: Engine) -> None:
    made = consumer(engine, ["a", "b"])
    spread(case, engine, "abab")
    found = claim(made, 4, visibility_timeout=case.s(3), provisional=True)
    found[1].acknowledge()
    before = [message.lease_until for message in found]
    assert made.extend(found, case.s(9)) == [found[1]]
    assert found[0].lease_until > before[0]
    assert found[1].lease_until == before[1]
    case.pass_time(4)
    assert claim(made, 4) == []
    assert made.exchange([Settlement(message) for message in found[2:]], max_messages=0).lost == []
    found[0].release()
    (again,) = claim(made, 4)
    assert (again.delivery_count, again.attempt) == (2, 1)  # it had started
    assert made.extend([], 5) == []


# Waiting


def waiting(made: Any_, *settlements: Settlement[Any, Any], **options: Any) -> Background[Exchanged[Any, Any]]:
    """An exchange that waits in another thread, and time for it to begin."""
    options = {"wait_time_seconds": LONG, "visibility_timeout": 60, **options}
    poll = Background(lambda: made.exchange(settlements, **options))
    time.sleep(0.1)
    return poll


def woken_by(poll: Background[Exchanged[Any, Any]], mailbox: Mailbox[Any, Any]) -> bool:
    """Sends a message. Returns True when it ends the exchange at once, as far as this machine can tell what that is."""
    with Stillness() as machine:
        sent_at = time.monotonic()
        mailbox.send("x")
        assert bodies(poll.result(SOON).messages) == ["x"]
    return poll.ended_at - sent_at < 2 or machine.excuses(0.2)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_message_of_any_covered_mailbox_wakes_the_exchange(case: EngineCase, live: Engine, name: str) -> None:
    poll = waiting(consumer(live, ["a", "b"], ["c"]))
    assert woken_by(poll, case.live().mailbox(name))


def delayed(engine: Engine, made: Any_) -> Callable[[], object]:
    engine.mailbox("b").send("x", delay=0.3)
    return lambda: None


def run_out(engine: Engine, made: Any_) -> Callable[[], object]:
    engine.mailbox("b").send("x")
    engine.mailbox("b").receive(1, 0.3)
    return lambda: None


def released(engine: Engine, made: Any_) -> Callable[[], object]:
    engine.mailbox("b").send("x")
    return claim(made)[0].release


def replied(engine: Engine, made: Any_) -> Callable[[], object]:
    engine.mailbox("other").send("question", reply_to="b")
    (asked,) = engine.mailbox("other").receive()
    return lambda: made.exchange([Settlement(asked, "x")], max_messages=0)


@pytest.mark.parametrize("how", [delayed, run_out, released, replied])
def test_whatever_makes_a_message_visible_wakes_the_exchange(live: Engine, how: Any) -> None:
    made = consumer(live, ["a", "b"], ["c"])
    act = how(live, made)
    poll = waiting(made)
    act()
    assert bodies(poll.result(SOON).messages) == ["x"]


def test_a_newly_covered_mailbox_is_looked_at_at_once_and_wakes_from_then_on(case: EngineCase, live: Engine) -> None:
    made = consumer(live, ["a"])
    live.mailbox("b").send("was there")
    poll = waiting(made)
    assert poll.running
    made.cover([["a"], ["b"]])
    assert bodies(poll.result(SOON).messages) == ["was there"]
    poll = waiting(made)
    made.cover([["c"]])
    time.sleep(0.1)
    case.live().mailbox("a").send("no longer")
    time.sleep(0.2)
    assert poll.running
    case.live().mailbox("c").send("x")
    assert bodies(poll.result(SOON).messages) == ["x"]


def test_a_consumer_that_covers_nothing_waits_for_its_first_mailbox(live: Engine) -> None:
    made = live.consumer()
    poll = waiting(made)
    assert poll.running
    live.mailbox("a").send("x")
    made.cover([["a"]])
    assert bodies(poll.result(SOON).messages) == ["x"]


def test_settlements_do_not_wait_for_the_long_poll(live: Engine) -> None:
    made = consumer(live, ["a"])
    live.mailbox("a").send("x", reply_to="replies")
    (held,) = claim(made)
    poll = waiting(made, Settlement(held, "done"))
    assert bodies(live.mailbox("replies").receive(1, 60, SOON)) == ["done"]
    assert poll.running
    wait_until(lambda: live.mailbox("a").depth() == (0, 0, 0))
    live.mailbox("a").send("y", reply_to="replies")
    ended = poll.result(SOON)
    assert (bodies(ended.messages), ended.lost) == (["y"], [])
    other = waiting(made)
    begun = time.monotonic()
    assert made.exchange([Settlement(ended.messages[0], "more")], max_messages=0).lost == []
    assert time.monotonic() - begun < SOON
    assert other.running
    made.close()
    assert other.result(SOON).messages == []


@pytest.mark.threads
def test_wake_ends_the_exchanges_that_wait_or_the_next_one(live: Engine) -> None:
    made = consumer(live, ["a", "b"])
    polls = [waiting(made), waiting(made)]
    made.wake()
    assert [poll.result(SOON).messages for poll in polls] == [[], []]
    made.wake()
    begun = time.monotonic()
    assert claim(made, wait_time_seconds=LONG) == []
    assert time.monotonic() - begun < SOON
    assert waiting(made).running
    made.wake()


@pytest.mark.threads
def test_close_ends_the_exchanges_that_wait_and_its_deliveries_stay_valid(live: Engine) -> None:
    made = consumer(live, ["a"])
    live.mailbox("a").send(1)
    (held,) = claim(made)
    poll = waiting(made)
    made.close()
    assert poll.result(SOON).messages == []
    assert made.closed
    for call in (made.exchange, lambda: made.cover([]), lambda: made.extend([held], 5), made.wake):
        with pytest.raises(MailboxClosedError):
            call()
    made.close()
    held.acknowledge()


def test_the_end_of_the_engine_ends_the_exchanges_that_wait(live: Engine) -> None:
    poll = waiting(consumer(live, ["a"]))
    live.close()
    assert poll.result(SOON).messages == []


# Many mailboxes


def test_five_hundred_mailboxes_are_covered_in_one_exchange(case: EngineCase, engine: Engine) -> None:
    names = [f"work/{number}" for number in range(500)]
    made = consumer(engine, names[:250], names[250:])
    for number in (499, 3, 250, 249):
        engine.mailbox(names[number]).send(number)
        case.pass_time(0.01)
    assert bodies(claim(made, 3)) == [3, 249, 499]
    assert bodies(claim(made, 3)) == [250]


def test_one_message_in_five_hundred_mailboxes_wakes_the_exchange(case: EngineCase, live: Engine) -> None:
    made = consumer(live, [f"work/{number}" for number in range(500)])
    poll = waiting(made)
    time.sleep(0.5)
    assert woken_by(poll, case.live().mailbox("work/321"))
