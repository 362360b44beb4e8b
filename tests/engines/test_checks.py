from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, nan
from typing import Any

import msgspec
import pytest

from tenure.clock import ManualClock
from tenure.engines import InMemoryMailbox, MemoryEngine, Outgoing, checks
from tenure.engines.checks import BodyCodec
from tenure.errors import ConfigurationError, LimitError, SerializationError


@pytest.mark.parametrize("name", ["a", "A9", "a/b.c_d-e", "x" * 128])
def test_plain_names_are_accepted(name: str) -> None:
    assert checks.check_name(name) == name


@pytest.mark.parametrize("name", ["", " a", "a ", "é", ".a", "_a", "a\n", "x" * 129])
def test_other_names_are_refused_and_quoted(name: str) -> None:
    with pytest.raises(LimitError) as refused:
        checks.check_name(name, "mailbox name")
    assert refused.value.field == "mailbox name"
    assert repr(name) in str(refused.value)


def test_seconds_are_bounded_at_both_ends_and_nan_is_outside() -> None:
    assert checks.check_seconds("delay", 0) == 0
    assert checks.check_seconds("delay", 43_200) == 43_200
    for value in (-1e-9, 43_200.1, nan, inf, -inf):
        with pytest.raises(LimitError, match="between 0 and 43,200 s"):
            checks.check_seconds("delay", value)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: checks.check_max_messages(0), "max_messages"),
        (lambda: checks.check_max_messages(1_001), "max_messages"),
        (lambda: checks.check_batch([None] * 1_001), "send_many"),
        (lambda: checks.check_body(b"x" * 524_289), "body"),
        (lambda: checks.check_checkpoint(b"x" * 524_289), "checkpoint"),
        (lambda: checks.check_key(""), "key"),
        (lambda: checks.check_key("\0"), "key"),
        (lambda: checks.check_key("x" * 513, "candidate"), "candidate"),
        (lambda: checks.check_generation(-1), "generation"),
        (lambda: checks.check_generation(2**53), "generation"),
        (lambda: checks.check_reply_to("no such name"), "reply_to"),
        (lambda: checks.check_delivery_limit(0), "max_delivery_count"),
        (lambda: checks.check_append([], 0, 0, "a"), "events"),
        (lambda: checks.check_append([b"x" * 524_289], 0, 0, "a"), "events"),
        (lambda: checks.check_append([b"x"], -1, 0, "a"), "epoch, expect"),
        (lambda: checks.check_append([b"x"], 0, 0, ""), "append_id"),
        (lambda: checks.check_snapshot(bytes(67_108_865)), "snapshot"),
        (lambda: checks.check_store_value(bytes(8_388_609)), "value"),
        (lambda: checks.check_ttl(0), "ttl"),
        (lambda: checks.check_ttl(nan), "ttl"),
    ],
)
def test_what_is_outside_of_a_limit_is_refused_by_its_field(call: Any, field: str) -> None:
    with pytest.raises(LimitError) as refused:
        call()
    assert refused.value.field == field


def test_what_is_just_inside_is_accepted() -> None:
    checks.check_max_messages(1_000)
    checks.check_batch([None] * 1_000)
    checks.check_body(b"x" * 524_288)
    checks.check_checkpoint(None)
    checks.check_key("x" * 512)
    checks.check_generation(2**53 - 1)
    checks.check_append([b"x" * 524_288], 0, 0, "a")
    checks.check_ttl(86_400)
    assert checks.check_delivery_limit(None) is None


def test_replies_may_be_addressed_by_name_or_by_mailbox() -> None:
    assert checks.check_reply_to("replies") == "replies"
    assert checks.check_reply_to(InMemoryMailbox(name="box")) == "box"


@dataclass
class Request:
    path: str
    deadline: datetime | None = None


def test_a_body_is_kept_as_json_that_a_person_can_read() -> None:
    assert BodyCodec(Request).encode(Request("a.mov")) == b'{"path":"a.mov","deadline":null}'


def test_a_request_with_a_deadline_can_be_read_back() -> None:
    """In an earlier implementation it could be sent, and not read."""
    request = Request("a", datetime(2026, 11, 15, 21, 0, 0, 5, tzinfo=UTC))
    codec = BodyCodec(Request)
    assert codec.decode(codec.encode(request)) == request


@pytest.mark.parametrize("body", [object(), {1, object()}, lambda: None, float, {"a": object()}])
def test_what_json_cannot_say_is_refused_with_its_type(body: Any) -> None:
    with pytest.raises(SerializationError, match=r"cannot be written as JSON") as refused:
        BodyCodec(Any).encode(body)
    assert type(body).__name__ in str(refused.value)


def test_a_body_that_contains_itself_is_refused() -> None:
    body: list[Any] = []
    body.append(body)
    with pytest.raises(SerializationError):
        BodyCodec(Any).encode(body)


def test_a_body_of_another_type_is_refused_when_it_is_encoded() -> None:
    codec = BodyCodec(Request)
    with pytest.raises(SerializationError, match="does not fit"):
        codec.encode({"file": "a"})
    assert codec.encode({"path": "a"}) == b'{"path":"a"}'  # what reads back as one is one


def test_what_does_not_fit_says_where_when_it_is_decoded() -> None:
    with pytest.raises(msgspec.DecodeError, match=r"\$\.path"):
        BodyCodec(Request).decode(b'{"path": 7}')
    with pytest.raises(msgspec.DecodeError):
        BodyCodec(Any).decode(b"\xff not json")


def test_a_type_that_json_cannot_carry_is_refused_when_the_mailbox_is_opened() -> None:
    with pytest.raises(SerializationError, match="cannot be a message type"):
        BodyCodec(dict[Request, int] | dict[int, Request])


def test_a_large_body_names_what_is_too_large() -> None:
    with pytest.raises(LimitError, match=r"reply is 600,002 bytes"):
        BodyCodec(Any).encode("x" * 600_000, "reply")


def test_one_call_for_several_mailboxes_is_checked_as_a_whole() -> None:
    engine, other = MemoryEngine(ManualClock()), MemoryEngine(ManualClock())
    half = [Outgoing(number) for number in range(600)]
    with pytest.raises(LimitError, match="send_many"):
        engine.send_across([(engine.mailbox("a"), half), (engine.mailbox("b"), half)])
    with pytest.raises(ConfigurationError, match="'b' belongs to another engine"):
        engine.send_across([(engine.mailbox("a"), half[:1]), (other.mailbox("b"), half[:1])])
    assert engine.mailbox("a").approximate_count() == 0
