"""Adds checksums to journal entries and snapshots, checks them (decision 0200), and recovers damaged bytes with their help (decision 0201). Pure.

An entry carries its checksum behind its append id, which every engine stores as it is: `<id>.<8 hexadecimal digits>`. It covers the id, the sequence,
the epoch and the events. A snapshot carries it as the first field of its msgpack map, which older decoders skip as a field that they do not know; it
covers the sequence and the state. Entries and snapshots of the first release have none. They are accepted as they are: *unchecked*.

A CRC is linear: the difference between the checksum that was written and the one that the bytes have now depends on nothing but the place and the
value of what changed. So one wrong byte can be found and put right, in one pass from the end. Where several corrections fit, or none, the events that
can still be decoded are kept.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

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


class _Kind(msgspec.Struct):
    type: str


_kind = msgspec.json.Decoder(_Kind)


def kind_of(event: bytes) -> str:
    """Returns the `type` of an event; empty for bytes that are no event."""
    try:
        return _kind.decode(event).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


# Salvage

_ID = re.compile(rb"([0-9a-f]{32})\.([0-9a-f]{8})")
_EVENT = b'{"type":"'
_POLYNOMIAL = 0xEDB88320


def _table() -> list[int]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return found


_STEP = _table()
_DELTA = {effect: delta for delta, effect in enumerate(_STEP) if delta}
"""Maps the change of the checksum that a wrong last byte causes to the bits of that byte that are wrong."""
_BACK = {effect >> 24: value for value, effect in enumerate(_STEP)}
"""Maps the highest byte of a step to the step. Each step has another highest byte, so every step can be undone."""


class Correction(NamedTuple):
    """A change of one byte: the byte at `place`, by xor with `delta`."""

    place: int
    delta: int

    def applied(self, data: bytes) -> bytes:
        return data[: self.place] + bytes([data[self.place] ^ self.delta]) + data[self.place + 1 :]


def corrections(data: bytes, checksum: int) -> Iterator[Correction]:
    """Yields every change of one byte that gives the data this checksum. If just one byte was damaged, its repair is among them."""
    effect = zlib.crc32(data) ^ checksum
    for place in range(len(data) - 1, -1, -1):
        if (delta := _DELTA.get(effect)) is not None:
            yield Correction(place, delta)
        # Undo the step that this byte's place adds for every byte after it.
        value = _BACK[effect >> 24]
        effect = ((effect ^ _STEP[value]) << 8 | value) & 0xFFFFFFFF


class Salvaged(NamedTuple):
    """The events that were recovered from a damaged entry. `whole`: the checksum confirms that these events were written."""

    events: tuple[bytes, ...]
    how: str
    whole: bool


Readable = Callable[[bytes], bool]
"""Returns True for bytes that can be decoded as an event (or, for `salvage_state`, as a state)."""


def salvage(entry: Entry, epochs: Iterable[int], readable: Readable) -> Salvaged:
    """Recovers as many events of a damaged entry as it can. `epochs`: those of its neighbours, in case its own was damaged."""
    events = entry.events or found_events(entry.stored)
    known = _identity(entry)
    if known is not None and events:
        for epoch in dict.fromkeys((entry.epoch, *epochs)):
            if (found := _confirmed(known, entry.seq, epoch, events, readable)) is not None:
                return found
    kept = tuple(event for event in events if readable(event))
    if not kept:
        return Salvaged((), "nothing of it can be read", whole=False)
    if len(kept) == len(events):
        return Salvaged(kept, "it is kept as it reads: nothing says which byte of it is wrong", whole=False)
    return Salvaged(kept, f"{len(kept)} of its {len(events)} events can be read, and are kept", whole=False)


class _Identity(NamedTuple):
    plain: str
    digits: str


def _identity(entry: Entry) -> _Identity | None:
    """Returns the append id and the checksum of the entry, even where the dot between them was damaged; None where there is no checksum."""
    if not entry.append_id:  # the engine could not parse the entry, but its bytes may still show the id
        found = _ID.search(entry.stored)
        return _Identity(found[1].decode(), found[2].decode()) if found is not None else None
    parsed = parse_id(entry.append_id)
    if parsed is not None:
        return _Identity(parsed.plain, f"{parsed.checksum:08x}") if parsed.checksum is not None else None
    return _Identity(entry.append_id[:32], entry.append_id[-8:]) if len(entry.append_id) == 41 else None


def _confirmed(known: _Identity, seq: int, epoch: int, events: Sequence[bytes], readable: Readable) -> Salvaged | None:
    """Returns the entry that the checksum confirms, or None where several corrections fit, or none."""
    data = entry_bytes(known.plain, seq, epoch, events)
    computed = f"{zlib.crc32(data):08x}"
    if differs(computed, known.digits) <= 1:
        return Salvaged(
            tuple(events), "its events are whole, by their checksum: only what surrounds them was damaged", True
        )
    try:
        checksum = int(known.digits, 16)
    except ValueError:
        return None
    fitting: list[Salvaged] = []
    start = len(f"{known.plain} {seq} {epoch}\n")
    for one in corrections(data, checksum):
        if one.place < len(known.plain):
            fitting.append(
                Salvaged(tuple(events), "its events are whole, by their checksum: only its id was damaged", True)
            )
        elif (mended := _mended(events, one, start)) is not None and all(map(readable, mended[0])):
            fitting.append(Salvaged(mended[0], mended[1], whole=True))
    return fitting[0] if len(fitting) == 1 else None


def _mended(events: Sequence[bytes], one: Correction, start: int) -> tuple[tuple[bytes, ...], str] | None:
    """Returns the events with one byte corrected, and a description; None where the place is not inside of any event."""
    place = one.place - start
    for number, event in enumerate(events):
        place -= 4  # the length of the event, which `entry_bytes` puts before it
        if 0 <= place < len(event):
            right = Correction(place, one.delta).applied(event)
            how = f"byte {place} of event {number + 1} is put right by its checksum: {event[place]:#04x} becomes {right[place]:#04x}"
            return (*events[:number], right, *events[number + 1 :]), how
        place -= len(event)
    return None


def differs(one: str, other: str) -> int:
    """Returns the number of characters in which two texts differ; the longer length, where their lengths differ."""
    return sum(a != b for a, b in zip(one, other, strict=True)) if len(one) == len(other) else max(len(one), len(other))


def found_events(stored: bytes) -> tuple[bytes, ...]:
    """Finds the events in bytes that an engine could not parse: each event is JSON that begins with its type."""
    found, place = [], stored.find(_EVENT)
    while place >= 0:
        end = _object_end(stored, place)
        if end and kind_of(stored[place:end]):
            found.append(stored[place:end])
        place = stored.find(_EVENT, end or place + 1)
    return tuple(found)


def _object_end(data: bytes, start: int) -> int:
    """Returns the place behind the brace that closes the object which begins at `start`; 0 where no brace does."""
    depth, in_text, place = 0, False, start
    while place < len(data):
        byte = data[place]
        if in_text:
            place += byte == 0x5C  # after a backslash, the next byte cannot end the text
            in_text = byte != 0x22
        elif byte == 0x22:
            in_text = True
        elif byte in b"{}":
            depth += 1 if byte == 0x7B else -1
            if not depth:
                return place + 1
        place += 1
    return 0


class SalvagedState(NamedTuple):
    """The state of a damaged snapshot. `whole`: the checksum confirms that this state was written."""

    state: bytes
    how: str
    whole: bool


def salvage_state(snapshot: Snapshot, readable: Readable) -> SalvagedState | None:
    """Recovers the state of a damaged snapshot. Returns None where nothing of it can be read."""
    candidates = list(snapshot_candidates(snapshot))
    for state, digits in candidates:
        if differs(f"{zlib.crc32(state_bytes(state, snapshot.seq)):08x}", digits) <= 1:
            return SalvagedState(state, "it is whole, by its checksum: only what surrounds it was damaged", whole=True)
    state, digits = candidates[0]
    data = state_bytes(state, snapshot.seq)
    skip = len(data) - len(state)
    try:
        places = [one for one in corrections(data, int(digits, 16)) if one.place >= skip]
    except ValueError:
        places = []
    fitting = [one for one in places if readable(one.applied(data)[skip:])]
    if len(fitting) == 1:
        how = f"byte {fitting[0].place - skip} of it is put right by its checksum"
        return SalvagedState(fitting[0].applied(data)[skip:], how, whole=True)
    for read in (state, snapshot.state):
        if readable(read):
            return SalvagedState(read, "it is kept as it reads: nothing says which byte of it is wrong", whole=False)
    return None
