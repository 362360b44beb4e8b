"""The records in a journal's stream and in its pointer: entries, as messages have them, and the place of the snapshot. Their fields are formats."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tenure.engines.contracts import Entry


class Line(msgspec.Struct, array_like=True, frozen=True):
    """An entry as its message has it. `writer` names one call, so that it knows its own after a lost answer."""

    epoch: int
    append_id: str
    writer: str
    events: list[bytes]
    parts: bytes = b""
    """The messages that it brings (`entry_parts`), where there are any."""


class Found(NamedTuple):
    """A message of the stream, as it is stored."""

    seq: int
    data: bytes
    at: float


class Mark(msgspec.Struct, frozen=True):
    """The snapshot's place, and how far the journal was truncated."""

    seq: int
    epoch: int
    blob: str
    chunks: int
    truncated: int = 0


encode_line = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Line).decode
encode_mark = msgspec.json.Encoder().encode
decode_mark = msgspec.json.Decoder(Mark).decode


def entry_of(seq: int, data: bytes, at: float) -> Entry:
    line = line_of(data)
    if line is None:
        return Entry(seq, 0, "", at, (), "it is not epoch, id, writer and events", data)
    return Entry(seq, line.epoch, line.append_id, at, tuple(line.events))


def line_of(data: bytes) -> Line | None:
    """The entry that a message carries; None for one that is damaged."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
