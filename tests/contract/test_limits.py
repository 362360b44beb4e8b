"""Numbers and sizes outside of what is allowed: refused with the field and the bound, and nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from tenure.engines import Engine, Outgoing
from tenure.engines.contracts import (
    MAX_APPEND_BYTES,
    MAX_BODY_BYTES,
    MAX_KEY_CHARS,
    MAX_MESSAGES,
    MAX_STORE_BYTES,
    MAX_VISIBILITY_S,
    Fence,
)
from tenure.errors import LimitError

OUTSIDE = (-1, -0.001, MAX_VISIBILITY_S + 0.001, nan, float("inf"))
LARGE = "x" * MAX_BODY_BYTES  # two more bytes for its quotes


def refused(call: Callable[[], object]) -> LimitError:
    with pytest.raises(LimitError) as caught:
        call()
    return caught.value


def test_times_are_between_none_and_twelve_hours(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    for seconds in OUTSIDE:
        assert refused(lambda s=seconds: mailbox.receive(1, s)).field == "visibility_timeout"
        assert refused(lambda s=seconds: mailbox.receive(1, 10, s)).field == "wait_time_seconds"
        assert refused(lambda s=seconds: mailbox.send("y", delay=s)).field == "delay"
        assert refused(lambda s=seconds: mailbox.send_many([Outgoing("a"), Outgoing("b", delay=s)])).field == "delay"
    assert mailbox.depth() == (1, 0, 0)
    (message,) = mailbox.receive(1, MAX_VISIBILITY_S)
    for seconds in OUTSIDE:
        refused(lambda s=seconds: message.nack(s))
        refused(lambda s=seconds: message.extend_visibility(s))
    message.extend_visibility(MAX_VISIBILITY_S)
    message.nack(MAX_VISIBILITY_S)
    mailbox.send("y", delay=MAX_VISIBILITY_S)
    assert mailbox.depth() == (0, 2, 0)


def test_a_receive_asks_for_one_to_a_thousand_messages(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    for number in (0, -1, MAX_MESSAGES + 1):
        assert refused(lambda n=number: mailbox.receive(n)).field == "max_messages"
    mailbox.send_many([Outgoing(n) for n in range(MAX_MESSAGES)])
    assert len(mailbox.receive(MAX_MESSAGES)) == MAX_MESSAGES


def test_a_batch_has_at_most_a_thousand_messages(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    error = refused(lambda: mailbox.send_many([Outgoing(n) for n in range(MAX_MESSAGES + 1)]))
    assert "1,001 messages" in str(error)
    assert mailbox.approximate_count() == 0


def test_bodies_and_checkpoints_have_a_size(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    for call in (lambda: mailbox.send(LARGE), lambda: mailbox.send_many([Outgoing("small"), Outgoing(LARGE)])):
        error = refused(call)
        assert error.field == "body"
        assert "524,288 bytes" in str(error)
        assert "store" in error.remedy
    assert mailbox.approximate_count() == 0
    largest = LARGE[:-2]
    mailbox.send(largest)
    (message,) = mailbox.receive()
    assert message.body == largest
    assert refused(lambda: message.extend_visibility(60, b"x" * (MAX_BODY_BYTES + 1))).field == "checkpoint"
    message.extend_visibility(60, b"x" * MAX_BODY_BYTES)
    message.nack()
    assert mailbox.receive()[0].checkpoint == b"x" * MAX_BODY_BYTES


def test_keys_and_generations_are_bounded(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    for key in ("", "k" * (MAX_KEY_CHARS + 1), "a\0b"):
        assert refused(lambda k=key: mailbox.send("x", key=k)).field == "key"
        assert refused(lambda k=key: mailbox.send_many([Outgoing("x", key=k)])).field == "key"
        assert refused(lambda k=key: mailbox.revoke(k)).field == "key"
    for generation in (-1, 2**53):
        assert refused(lambda g=generation: mailbox.send("x", key="k", generation=g)).field == "generation"
    assert mailbox.approximate_count() == 0
    mailbox.send("x", key="k", generation=2**53 - 1)
    assert mailbox.receive()[0].generation == 2**53 - 1


@pytest.mark.parametrize("name", ["", "a b", "-a", "/a", "ü", "a" * 129, "a\n", "a*"])
def test_names_are_plain(engine: Engine, name: str) -> None:
    for open_part in (engine.mailbox, engine.journal, engine.election, engine.store):
        refused(lambda part=open_part: part(name))
    refused(lambda: engine.mailbox("work").send("x", reply_to=name))
    assert engine.mailbox("work").approximate_count() == 0


def test_the_longest_name_is_accepted_everywhere(engine: Engine) -> None:
    name = "n" * 128
    engine.mailbox(name).send("x", reply_to=name)
    assert engine.journal(name).append([b"e"], epoch=1, expect=0, append_id="1") == 1
    assert engine.election(name).campaign("c", 10) is not None
    engine.store(name).put("k", b"v")
    assert [message.body for message in engine.mailbox(name).receive()] == ["x"]


def test_an_append_has_events_and_a_size(engine: Engine) -> None:
    journal = engine.journal("log")

    def append(events: list[bytes], **options: Any) -> Callable[[], object]:
        return lambda: journal.append(events, **{"epoch": 1, "expect": 0, "append_id": "a", **options})

    half = b"x" * (MAX_APPEND_BYTES // 2)
    refused(append([]))
    refused(append([half, half, b"x"]))
    refused(append([b"e"], epoch=-1))
    refused(append([b"e"], expect=-1))
    refused(append([b"e"], append_id=""))
    assert journal.head() == (0, 0)
    append([half, half])()
    assert journal.read()[0].events == (half, half)
    refused(lambda: journal.read(limit=0))
    refused(lambda: journal.follow(1, -1))


def test_stored_values_have_a_size_and_terms_a_length(engine: Engine) -> None:
    store = engine.store("results")
    error = refused(lambda: store.put("k", b"x" * (MAX_STORE_BYTES + 1)))
    assert error.field == "value"
    assert store.get("k") is None
    store.put("k", b"x" * MAX_STORE_BYTES, fence=Fence(2**53 - 1, 1))
    assert store.get("k") == b"x" * MAX_STORE_BYTES
    for ttl in (0, -1, 31_622_401, nan):
        refused(lambda t=ttl: store.put("k", b"v", ttl=t))
        refused(lambda t=ttl: engine.election("chief").campaign("a", t))
    for key in ("", "k" * 513, "a\0b"):
        refused(lambda k=key: store.put(k, b"v"))
    refused(lambda: engine.election("chief").campaign("", 10))
    assert engine.election("chief").current() is None
