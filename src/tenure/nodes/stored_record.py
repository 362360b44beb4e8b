"""Reads records that nodes keep in stores. What cannot be read is the store's damage, and is said so: it is no fault of whoever asks for it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from tenure.errors import EngineCorruptError

RecordT = TypeVar("RecordT")


def read_record(stored: bytes, kind: type[RecordT] | Any, what: str) -> RecordT:
    """The record in these bytes. Raises `EngineCorruptError`, which names `what` it is."""
    try:
        return msgspec.json.decode(stored, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineCorruptError(
            f"the store's record of {what} cannot be read: {error}",
            remedy="It was written by something else, or damaged; delete it from the store, or restore it from a backup",
        ) from error
