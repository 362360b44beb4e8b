"""A key has at most one live message: resending is safe, reissuing fences, cancelled work is not claimed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.acts import assert_every_act_is_refused
from tests.contract.case import EngineCase

from tenure.engines import Engine, Mailbox, Outgoing
from tenure.engines.contracts import KEY_MEMORY_S, Message
from tenure.errors import KeyRefusedError


def take(mailbox: Mailbox[Any, Any], lease: float = 60) -> Message[Any, Any]:
    (message,) = mailbox.receive(1, lease)
    return message


def assert_refused(mailbox: Mailbox[Any, Any], generation: int, *, revoked: bool = False, key: str = "job/1") -> None:
    with pytest.raises(KeyRefusedError) as refused:
        mailbox.send("again", key=key, generation=generation)
    assert (refused.value.key, refused.value.generation, refused.value.revoked) == (key, generation, revoked)


def test_an_equal_or_lower_generation_is_refused_while_the_message_lives(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="job/1", generation=2)
    for generation in (2, 1, 0):
        assert_refused(mailbox, generation)
    message = take(mailbox)
    for generation in (2, 1, 0):
        assert_refused(case.again().mailbox("work"), generation)
    assert mailbox.depth() == (0, 0, 1)
    message.extend_visibility(60)  # a refused send does not touch it
    assert (message.key, message.generation, message.body) == ("job/1", 2, "x")


@pytest.mark.parametrize("end", ["acknowledge", "settle", "dead_letter", "purge"])
def test_a_key_is_remembered_after_its_message_ended(case: EngineCase, engine: Engine, end: str) -> None:
    """Interleaving 4: a deposed leader wakes and sends attempt 1 again, also a day later."""
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="job/1", generation=1, reply_to="replies")
    message = take(mailbox)
    {
        "acknowledge": message.acknowledge,
        "settle": lambda: message.settle("done"),
        "dead_letter": lambda: message.dead_letter("broken"),
        "purge": mailbox.purge,
    }[end]()
    assert_refused(mailbox, 1)
    assert_refused(mailbox, 0)
    if case.exact:
        case.pass_time(KEY_MEMORY_S - 1)
        assert_refused(case.again().mailbox("work"), 1)
    mailbox.send("y", key="job/1", generation=2)
    assert take(mailbox).body == "y"


def test_a_higher_generation_replaces_a_queued_message(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("old", key="job/1")
    mailbox.send("other", key="job/2")
    mailbox.send("new", key="job/1", generation=1)
    assert mailbox.depth() == (2, 0, 0)
    assert sorted(message.body for message in mailbox.receive(10)) == ["new", "other"]


def test_a_higher_generation_replaces_a_delayed_message(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("old", key="job/1", delay=case.s(5))
    mailbox.send("new", key="job/1", generation=1)
    assert take(mailbox).body == "new"
    case.pass_time(6)
    assert mailbox.receive() == []


def test_a_higher_generation_replaces_a_held_message_and_kills_its_receipt(case: EngineCase, engine: Engine) -> None:
    """Interleaving 2: cut off from the managers, a worker goes on with attempt 1 while attempt 2 was issued."""
    mailbox = engine.mailbox("work")
    mailbox.send("old", key="job/1", generation=1, reply_to="replies")
    old = take(mailbox)
    case.again().mailbox("work").send("new", key="job/1", generation=2, reply_to="replies")
    assert_every_act_is_refused(old)
    new = take(mailbox)
    assert (new.body, new.fence) == ("new", (2, 1))
    assert new.fence > old.fence
    assert_every_act_is_refused(old)
    assert mailbox.depth() == (0, 0, 1)
    new.settle("done")
    assert [reply.body for reply in engine.mailbox("replies").receive(10)] == ["done"]
    assert mailbox.dead_letters.count() == 0


def test_a_generation_inherits_the_checkpoint_of_the_one_it_replaces(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("1", key="job/1", generation=1)
    take(mailbox).extend_visibility(60, b"held")
    mailbox.send("2", key="job/1", generation=2)  # replaces a held one
    message = take(mailbox)
    assert message.checkpoint == b"held"
    message.nack()
    mailbox.send("3", key="job/1", generation=3)  # replaces a queued one, which had inherited it
    message = take(mailbox)
    assert message.checkpoint == b"held"
    message.extend_visibility(case.s(5), b"ran out")
    mailbox.send("4", key="job/1", generation=4)
    assert take(mailbox).checkpoint == b"ran out"


@pytest.mark.parametrize("end", ["acknowledge", "settle", "dead_letter", "purge"])
def test_a_generation_inherits_the_checkpoint_of_one_that_has_ended(engine: Engine, end: str) -> None:
    """A leader reissues work after the failed attempt was settled: the next one starts from where that was."""
    mailbox = engine.mailbox("work")
    mailbox.send("1", key="job/1", generation=1, reply_to="replies")
    message = take(mailbox)
    message.extend_visibility(60, b"half")
    {
        "acknowledge": message.acknowledge,
        "settle": lambda: message.settle("failed"),
        "dead_letter": lambda: message.dead_letter("broken"),
        "purge": mailbox.purge,
    }[end]()
    mailbox.send("2", key="job/1", generation=2)
    assert take(mailbox).checkpoint == b"half"


def test_the_fence_of_a_key_only_grows(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    fences = []
    for generation in (0, 1, 5):
        mailbox.send("x", key="job/1", generation=generation)
        for _ in range(2):
            message = take(mailbox)
            fences.append(message.fence)
            message.nack()
    message = take(mailbox, case.s(5))
    fences.append(message.fence)
    case.pass_time(5)
    fences.append(take(mailbox).fence)
    assert fences == sorted(set(fences))


def test_revoked_work_that_was_queued_is_never_claimed(case: EngineCase, engine: Engine) -> None:
    """Interleaving 3."""
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="job/1")
    mailbox.send("late", key="job/2", delay=case.s(5))
    mailbox.send("y", key="job/3")
    other = case.again().mailbox("work")
    assert other.revoke("job/1")
    assert other.revoke("job/2")
    assert [message.body for message in mailbox.receive(10)] == ["y"]
    case.pass_time(6)
    assert mailbox.receive(10) == []
    assert mailbox.depth() == (0, 0, 1)


def test_revoking_held_work_kills_its_receipt(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="job/1", reply_to="replies")
    message = take(mailbox)
    assert mailbox.revoke("job/1")
    assert_every_act_is_refused(message)
    assert mailbox.depth() == (0, 0, 0)
    assert engine.mailbox("replies").depth() == (0, 0, 0)


def test_a_revoked_key_accepts_no_generation_again(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="sent")
    mailbox.revoke("sent")
    mailbox.send("y", key="ended")
    take(mailbox).acknowledge()
    assert not mailbox.revoke("ended")
    assert not mailbox.revoke("never sent")  # a cancel may overtake its submission
    assert not mailbox.revoke("never sent")
    for key in ("sent", "ended", "never sent"):
        for generation in (0, 1, 1_000_000):
            assert_refused(mailbox, generation, revoked=True, key=key)
    if case.exact:
        case.pass_time(KEY_MEMORY_S - 1)
        assert_refused(case.again().mailbox("work"), 2_000_000, revoked=True, key="never sent")
    assert mailbox.approximate_count() == 0


def test_a_batch_tells_which_keys_were_refused_and_queues_the_rest(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("first", key="a", generation=1)
    mailbox.revoke("gone")
    sent = mailbox.send_many(
        [
            Outgoing("1"),
            Outgoing("2", key="a", generation=1),
            Outgoing("3", key="a", generation=2),
            Outgoing("4", key="gone"),
            Outgoing("5", key="b"),
            Outgoing("6", key="b", generation=0),
            Outgoing("7", key="b", generation=1),
        ]
    )
    assert [answer.refused is None for answer in sent] == [True, False, True, False, True, False, True]
    assert "generation 1 was sent already" in (sent[1].refused or "")
    assert "revoked" in (sent[3].refused or "")
    got = mailbox.receive(10)
    assert [message.body for message in got] == ["1", "3", "7"]
    assert [message.id for message in got] == [sent[0].id, sent[2].id, sent[6].id]


def test_keys_belong_to_one_mailbox_and_messages_without_one_are_never_refused(engine: Engine) -> None:
    one, two = engine.mailbox("one"), engine.mailbox("two")
    one.send("x", key="k")
    two.send("x", key="k")
    one.revoke("k")
    assert [message.body for message in two.receive(10)] == ["x"]
    for _ in range(3):
        one.send("plain")
    assert len(one.receive(10)) == 3


def test_keys_may_be_any_text(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    keys = ["job/1", "a b", "*", ">", "ü", "\U0001f600", "k" * 512, "a.b", "%", "'; --"]
    for key in keys:
        mailbox.send(key, key=key)
        assert_refused(mailbox, 0, key=key)
    assert [message.key for message in mailbox.receive(100)] == keys


def test_a_released_or_nacked_message_still_holds_its_key(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="job/1")
    take(mailbox).release()
    assert_refused(mailbox, 0)
    take(mailbox).nack(case.s(5))
    assert_refused(mailbox, 0)
    case.pass_time(5)
    take(mailbox, case.s(5))
    case.pass_time(5)
    assert_refused(mailbox, 0)
    mailbox.send("y", key="job/1", generation=1)
    assert [message.body for message in mailbox.receive(10)] == ["y"]
