"""Adds checksums to journal entries and snapshots, where the first release ignores them, and checks them (decision 0200). Pure.

An entry carries its checksum behind its append id, which every engine stores as it is: `<id>.<8 hexadecimal digits>`. It covers the id, the sequence,
the epoch and the events. A snapshot carries it as the first field of its msgpack map, which older decoders skip as a field that they do not know; it
covers the sequence and the state. Entries and snapshots of the first release have none. They are accepted as they are: *unchecked*.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tenure.engines.contracts import Entry, Snapshot

_CHECKED = re.compile(r"(.*)\.([0-9a-f]{8})", re.DOTALL)
_PLAIN_CHARS = 32
"""The ids of the first release have this many characters, and no dot. A longer one without a checksum lost it to damage."""
_KEY = b"\xa8checksum"
_DIGITS = b"\xa8"  # a msgpack string of eight bytes
_FIRST = b"\xa7version"
"""The first field of every snapshot that has no checksum."""


def entry_bytes(append_id: str, seq: int, epoch: int, events: Sequence[bytes]) -> bytes:
    """Returns the bytes that the checksum of an entry covers.

    The length of each event goes before it, so that the checksum also notices bytes that move from one event to the next.
    """
    framed = [part for event in events for part in (len(event).to_bytes(4, "little"), event)]
    return b"".join((f"{append_id} {seq} {epoch}\n".encode(), *framed))


def checked_id(append_id: str, seq: int, epoch: int, events: Sequence[bytes]) -> str:
    """Returns the append id with the checksum of the entry that will have this sequence."""
    return f"{append_id}.{zlib.crc32(entry_bytes(append_id, seq, epoch, events)):08x}"


class AppendId(NamedTuple):
    """An append id taken apart. `checksum` is None for an id of the first release."""

    plain: str
    checksum: int | None


def parse_id(append_id: str) -> AppendId | None:
    """Returns the parts of an append id; None for one that neither this release nor the first one writes."""
    if (found := _CHECKED.fullmatch(append_id)) is not None:
        return AppendId(found[1], int(found[2], 16))
    if "." in append_id or len(append_id) > _PLAIN_CHARS:
        return None
    return AppendId(append_id, None)


def is_checked(entry: Entry) -> bool:
    found = parse_id(entry.append_id)
    return found is not None and found.checksum is not None


def entry_damage(entry: Entry) -> str:
    """Returns what is wrong with an entry, in words; empty when its checksum is right, or when it has none."""
    if entry.damage:
        return entry.damage
    found = parse_id(entry.append_id)
    if found is None:
        return f"its append id {entry.append_id!r} has lost its checksum"
    if found.checksum is None:
        return ""
    computed = zlib.crc32(entry_bytes(found.plain, entry.seq, entry.epoch, entry.events))
    if computed == found.checksum:
        return ""
    return f"its checksum is {found.checksum:08x}, and its contents have {computed:08x}"


# Snapshots


def checked_state(state: bytes, seq: int) -> bytes:
    """Returns the snapshot of the state at `seq`, with its checksum as the first field."""
    size, fields = _map(state)
    digits = f"{_state_checksum(state, seq):08x}".encode()
    return _header(size + 1) + _KEY + _DIGITS + digits + fields


class OpenedSnapshot(NamedTuple):
    """A snapshot without its checksum, as the book wrote it; `damage` says what is wrong with it, if anything is."""

    state: bytes
    damage: str = ""
    checked: bool = False


def opened(snapshot: Snapshot) -> OpenedSnapshot:
    """Takes the checksum off a snapshot, and compares it with the contents."""
    try:
        size, fields = _map(snapshot.state)
    except ValueError as error:
        return OpenedSnapshot(snapshot.state, str(error))
    if fields.startswith(_FIRST):
        return OpenedSnapshot(snapshot.state)
    start = len(_KEY) + len(_DIGITS)
    digits, rest = fields[start : start + 8], fields[start + 8 :]
    if not fields.startswith(_KEY + _DIGITS):
        return OpenedSnapshot(snapshot.state, "it begins with neither a checksum nor a version")
    state = _header(size - 1) + rest
    computed = f"{_state_checksum(state, snapshot.seq):08x}".encode()
    if computed == digits:
        return OpenedSnapshot(state, checked=True)
    told = digits.decode("ascii", "backslashreplace")
    return OpenedSnapshot(state, f"its checksum is {told}, and its contents have {computed.decode()}", checked=True)


def snapshot_candidates(snapshot: Snapshot) -> Iterator[tuple[bytes, str]]:
    """Yields the states that a damaged snapshot may have had, each with the digits of its checksum.

    It tries several numbers of fields, because the damaged byte may be the one that holds that number.
    """
    start = len(_KEY) + len(_DIGITS)
    for size, fields in _maps(snapshot.state):
        digits = fields[start : start + 8].decode("ascii", "replace")
        yield _header(size - 1) + fields[start + 8 :], digits


def _maps(state: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the map as its header says, and then with every number of fields that a state may have."""
    with contextlib.suppress(ValueError):
        yield _map(state)
    yield from ((size, state[1:]) for size in range(2, 16))
    yield from ((size, state[3:]) for size in range(16, 64))


def begins_as_a_state(state: bytes) -> bool:
    """Returns True when the first field is the one that every state has.

    Decoding alone would not tell: every field of a state has a default, so a map without any of them decodes as an empty state.
    """
    try:
        return _map(state)[1].startswith(_FIRST)
    except ValueError:
        return False


def state_bytes(state: bytes, seq: int) -> bytes:
    """Returns the bytes that the checksum of a snapshot covers."""
    return f"{seq}\n".encode() + state


def _state_checksum(state: bytes, seq: int) -> int:
    # Equals the checksum of `state_bytes`, without a copy of a large state.
    return zlib.crc32(state, zlib.crc32(f"{seq}\n".encode()))


def _map(state: bytes) -> tuple[int, bytes]:
    """Returns the number of fields of a msgpack map, and their bytes. Raises `ValueError` for anything else."""
    if state and 0x80 <= state[0] <= 0x8F:
        return state[0] & 0x0F, state[1:]
    if len(state) > 3 and state[0] == 0xDE:
        return int.from_bytes(state[1:3], "big"), state[3:]
    raise ValueError("it is no msgpack map")


def _header(size: int) -> bytes:
    # As the encoder writes it, so that taking a checksum off gives the same bytes again.
    return bytes([0x80 | size]) if 0 <= size <= 15 else b"\xde" + (size & 0xFFFF).to_bytes(2, "big")
