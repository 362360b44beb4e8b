"""What is given up is kept, can be replayed, and nobody waits for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.contract.acts import assert_every_act_is_refused
from tests.contract.case import EngineCase

from tenure.engines import Engine, Mailbox, Outgoing
from tenure.engines.contracts import Failure, Message
from tenure.errors import KeyRefusedError, LimitError


def take(mailbox: Mailbox[Any, Any], lease: float = 60, **options: Any) -> Message[Any, Any]:
    (message,) = mailbox.receive(1, lease, **options)
    return message


def the_failure(mailbox: Mailbox[Any, Any]) -> Failure:
    news = take(mailbox)
    assert news.body is None
    assert news.failure is not None
    news.acknowledge()
    return news.failure


def test_a_message_nacked_as_often_as_allowed_becomes_a_dead_letter_at_once(engine: Engine) -> None:
    """Interleaving 13: whoever waits for the answer learns of it at once."""
    mailbox, replies = engine.mailbox("work", max_delivery_count=2), engine.mailbox("replies")
    sent = mailbox.send("x", key="job/1", generation=4, reply_to=replies)
    take(mailbox).nack()
    assert replies.approximate_count() == 0
    take(mailbox).nack(1_000)
    assert mailbox.depth() == (0, 0, 0)
    failure = the_failure(replies)
    assert (failure.message_id, failure.mailbox, failure.cause) == (sent, "work", "deliveries")
    assert (failure.key, failure.generation, failure.delivery_count) == ("job/1", 4, 2)
    assert "2 times" in failure.reason
    (letter,) = mailbox.dead_letters.list()
    assert (letter.id, letter.cause, letter.delivery_count, letter.reply_to) == (sent, "deliveries", 2, "replies")
    assert (letter.key, letter.generation) == ("job/1", 4)
    assert letter.enqueued_at <= letter.died_at <= engine.now() + 0.001
    assert json.loads(letter.body) == "x"


def test_a_message_whose_leases_ran_out_as_often_as_allowed_becomes_a_dead_letter(
    case: EngineCase, engine: Engine
) -> None:
    mailbox, replies = engine.mailbox("work", max_delivery_count=2), engine.mailbox("replies")
    mailbox.send("x", reply_to=replies)
    mailbox.send("y", delay=case.s(10))
    for count in (1, 2):
        assert take(mailbox, case.s(5)).delivery_count == count
        case.pass_time(5)
    assert take(mailbox).body == "y"  # the consumer gets the next one in its place
    assert mailbox.receive() == []
    assert the_failure(replies).cause == "deliveries"
    assert [letter.delivery_count for letter in mailbox.dead_letters.list()] == [2]


def test_what_does_not_count_as_a_delivery_does_not_count_here(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work", max_delivery_count=1)
    mailbox.send("x")
    for _ in range(2):
        take(mailbox).release()
        take(mailbox, case.s(2), provisional=True)
        case.pass_time(2)
    take(mailbox).nack()
    assert mailbox.receive() == []
    assert mailbox.dead_letters.count() == 1


def test_without_a_limit_a_message_is_delivered_for_ever(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    for count in range(1, 21):
        message = take(mailbox)
        assert message.delivery_count == count
        message.nack()
    assert mailbox.dead_letters.count() == 0


def test_a_limit_of_no_deliveries_is_refused(engine: Engine) -> None:
    with pytest.raises(LimitError, match="max_delivery_count is 0"):
        engine.mailbox("work", max_delivery_count=0)


def test_a_consumer_may_give_up_on_a_message_as_one_step(engine: Engine) -> None:
    mailbox, replies = engine.mailbox("work"), engine.mailbox("replies")
    sent = mailbox.send("x", reply_to=replies)
    message = take(mailbox)
    message.extend_visibility(60, b"state")
    message.dead_letter("the file is gone")
    assert_every_act_is_refused(message)
    assert mailbox.depth() == (0, 0, 0)
    failure = the_failure(replies)
    assert (failure.message_id, failure.cause, failure.reason) == (sent, "rejected", "the file is gone")
    (letter,) = mailbox.dead_letters.list()
    assert (letter.cause, letter.reason, letter.checkpoint) == ("rejected", "the file is gone", b"state")


def test_a_body_that_cannot_be_decoded_becomes_a_dead_letter_and_the_consumer_goes_on(engine: Engine) -> None:
    raw, numbers, replies = engine.mailbox("work"), engine.mailbox("work", int), engine.mailbox("replies")
    bad = raw.send({"not": "a number"}, reply_to=replies)
    raw.send_many([Outgoing("nor this"), Outgoing(7), Outgoing([]), Outgoing(8)])
    assert take(numbers).body == 7  # the very receive that met the bad ones brings the good one
    assert [message.body for message in numbers.receive(10)] == [8]
    assert numbers.receive() == []
    assert raw.receive() == []
    letters = numbers.dead_letters.list()
    assert [json.loads(letter.body) for letter in letters] == [{"not": "a number"}, "nor this", []]
    assert {letter.cause for letter in letters} == {"undecodable"}
    assert letters[0].id == bad
    failure = the_failure(replies)
    assert (failure.message_id, failure.cause) == (bad, "undecodable")
    assert "int" in failure.reason


def test_a_dead_letter_without_reply_to_tells_nobody_and_is_kept(engine: Engine) -> None:
    mailbox = engine.mailbox("work", max_delivery_count=1)
    mailbox.send("x")
    take(mailbox).nack()
    assert mailbox.dead_letters.count() == 1


def test_a_replayed_message_goes_on_counting_and_gets_its_attempts_anew(engine: Engine) -> None:
    mailbox = engine.mailbox("work", max_delivery_count=2)
    sent = mailbox.send("x", reply_to="replies")
    message = take(mailbox)
    message.extend_visibility(60, b"half")
    message.nack()
    take(mailbox).nack()
    assert mailbox.dead_letters.replay(sent)
    assert mailbox.dead_letters.count() == 0
    assert not mailbox.dead_letters.replay(sent)
    message = take(mailbox)
    assert (message.id, message.body, message.delivery_count, message.checkpoint) == (sent, "x", 3, b"half")
    assert message.reply_to == "replies"
    message.nack()
    take(mailbox).nack()
    assert mailbox.receive() == []
    (letter,) = mailbox.dead_letters.list()
    assert (letter.id, letter.delivery_count) == (sent, 4)


def test_a_replayed_message_is_the_live_one_of_its_key_again(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    sent = mailbox.send("x", key="job/1", generation=1)
    take(mailbox).dead_letter("no")
    assert mailbox.dead_letters.replay(sent)
    with pytest.raises(KeyRefusedError):
        mailbox.send("y", key="job/1", generation=1)
    mailbox.send("z", key="job/1", generation=2)
    assert [message.body for message in mailbox.receive(10)] == ["z"]


def test_a_dead_letter_of_an_older_generation_or_a_revoked_key_is_not_replayed(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    old = mailbox.send("x", key="job/1")
    take(mailbox).dead_letter("no")
    mailbox.send("newer", key="job/1", generation=1)
    revoked = mailbox.send("y", key="job/2", delay=1_000)
    mailbox.revoke("job/2")
    gone = mailbox.send("z", key="job/3")
    for message in mailbox.receive(10):
        if message.body == "z":
            message.dead_letter("no")
    mailbox.revoke("job/3")
    for dead in (old, gone):
        with pytest.raises(KeyRefusedError):
            mailbox.dead_letters.replay(dead)
    assert not mailbox.dead_letters.replay(revoked)  # it was never a dead letter
    assert {letter.id for letter in mailbox.dead_letters.list()} == {old, gone}
    assert mailbox.depth() == (0, 0, 1)


def test_dead_letters_are_listed_oldest_first_in_pages(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    ids = [sent.id for sent in mailbox.send_many([Outgoing(n) for n in range(7)])]
    for message in mailbox.receive(10):
        message.dead_letter("no")
    letters = mailbox.dead_letters
    assert letters.count() == 7
    first = letters.list(limit=3)
    second = letters.list(limit=3, after=first[-1].id)
    third = letters.list(limit=3, after=second[-1].id)
    assert [letter.id for letter in first + second + third] == ids
    assert letters.list(after=ids[-1]) == []
    assert letters.delete(ids[2])
    assert [letter.id for letter in letters.list(after=ids[2])] == ids[:2] + ids[3:]  # that one is gone: from the start


def test_dead_letters_can_be_deleted_and_purged(engine: Engine) -> None:
    mailbox, other = engine.mailbox("work"), engine.mailbox("other")
    for box in (mailbox, other):
        box.send_many([Outgoing(n) for n in range(3)])
        for message in box.receive(3):
            message.dead_letter("no")
    first = mailbox.dead_letters.list()[0].id
    assert mailbox.dead_letters.delete(first)
    assert not mailbox.dead_letters.delete(first)
    assert not mailbox.dead_letters.delete("unknown")
    assert not mailbox.dead_letters.replay("unknown")
    assert mailbox.purge() == 0  # purging messages leaves the dead letters
    assert mailbox.dead_letters.purge() == 2
    assert mailbox.dead_letters.count() == 0
    assert other.dead_letters.count() == 3


def test_the_news_of_a_failure_is_a_message_like_any_other(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    replies = engine.mailbox("replies", int, max_delivery_count=2)  # its type does not concern failures
    mailbox.send("x", reply_to=replies)
    take(mailbox).dead_letter("no")
    news = take(replies, case.s(5))
    assert news.failure is not None
    case.pass_time(5)
    assert_every_act_is_refused(news)
    again = take(replies)
    assert (again.failure, again.delivery_count) == (news.failure, 2)
    again.nack()
    (letter,) = replies.dead_letters.list()
    assert replies.dead_letters.replay(letter.id)
    assert take(replies).failure == news.failure
