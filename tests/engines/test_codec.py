from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tenure.engines.codec import Codec
from tenure.errors import LimitError, SerializationError


@dataclass
class Request:
    path: str
    deadline: datetime | None = None


def test_a_body_is_kept_as_json_that_a_person_can_read() -> None:
    assert Codec(Request).encode(Request("a.mov")) == b'{"path":"a.mov","deadline":null}'


def test_a_request_with_a_deadline_can_be_read_back() -> None:
    """In an earlier implementation it could be sent, and not read."""
    request = Request("a", datetime(2026, 11, 15, 21, 0, 0, 5, tzinfo=UTC))
    codec = Codec(Request)
    assert codec.decode(codec.encode(request)) == request


@pytest.mark.parametrize("body", [object(), {1, object()}, lambda: None, float, {"a": object()}])
def test_what_json_cannot_say_is_refused_with_its_type(body: Any) -> None:
    with pytest.raises(SerializationError, match=r"cannot be written as JSON") as refused:
        Codec(Any).encode(body)
    assert type(body).__name__ in str(refused.value)


def test_a_body_that_contains_itself_is_refused() -> None:
    body: list[Any] = []
    body.append(body)
    with pytest.raises(SerializationError):
        Codec(Any).encode(body)


def test_a_body_of_another_type_is_refused_when_it_is_encoded() -> None:
    codec = Codec(Request)
    with pytest.raises(SerializationError, match="does not fit"):
        codec.encode({"file": "a"})
    assert codec.encode({"path": "a"}) == b'{"path":"a"}'  # what reads back as one is one


def test_what_does_not_fit_says_where_when_it_is_decoded() -> None:
    with pytest.raises(msgspec.DecodeError, match=r"\$\.path"):
        Codec(Request).decode(b'{"path": 7}')
    with pytest.raises(msgspec.DecodeError):
        Codec(Any).decode(b"\xff not json")


def test_a_type_that_json_cannot_carry_is_refused_when_the_mailbox_is_opened() -> None:
    with pytest.raises(SerializationError, match="cannot be a message type"):
        Codec(dict[Request, int] | dict[int, Request])


def test_a_large_body_names_what_is_too_large() -> None:
    with pytest.raises(LimitError, match=r"reply is 600,002 bytes"):
        Codec(Any).encode("x" * 600_000, "reply")
