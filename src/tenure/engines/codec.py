"""Between Python values and the bytes that engines keep: JSON that a person can read, checked against the type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tenure.engines.checks import check_body
from tenure.engines.contracts import MAX_BODY_BYTES
from tenure.errors import SerializationError

_encode = msgspec.json.Encoder().encode


class Codec:
    """Encodes and decodes the bodies, or the replies, of one mailbox."""

    __slots__ = ("decode", "kind")

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        try:
            # `decode` raises `msgspec.DecodeError` (its message says where and why) for what does not fit the type.
            self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
        except TypeError as error:
            raise SerializationError(
                f"{kind!r} cannot be a message type: {error}",
                remedy="Use a dataclass, a msgspec.Struct, a TypedDict or plain JSON types",
            ) from error

    def encode(self, body: Any, field: str = "body") -> bytes:
        """Raises `SerializationError` for what JSON cannot say or the type does not allow, `LimitError` for its size."""
        try:
            encoded = _encode(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SerializationError(
                f"a {field} of type {type(body).__name__} cannot be written as JSON: {error}",
                remedy="Send a dataclass, a msgspec.Struct or plain JSON types",
            ) from error
        if self.kind is not Any:
            # The sender should hear of a body that no consumer could read, not the dead letters.
            try:
                self.decode(encoded)
            except msgspec.DecodeError as error:
                raise SerializationError(
                    f"a {field} of type {type(body).__name__} does not fit {self.kind!r}: {error}",
                    remedy="Send what the mailbox was opened for",
                ) from error
        return encoded if len(encoded) <= MAX_BODY_BYTES else check_body(encoded, field)
