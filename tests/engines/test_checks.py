from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from tenure.engines import InMemoryMailbox, checks
from tenure.errors import LimitError


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
    assert checks.check_reply_to(None) is None
    assert checks.check_reply_to("replies") == "replies"
    assert checks.check_reply_to(InMemoryMailbox(name="box")) == "box"
