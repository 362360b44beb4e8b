"""Recovers events and states from damaged bytes of a journal, with the help of their checksum (decision 0201). Pure.

A CRC is linear: the difference between the checksum that was written and the one that the bytes have now depends on nothing but the place and the
value of what changed. So one wrong byte can be found and put right, in one pass from the end. Where several corrections fit, or none, the events that
can still be decoded are kept.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tenure.engines.contracts import Entry, Snapshot
from tenure.nodes.journal_checksum import entry_bytes, parse_id, snapshot_candidates, state_bytes
from tenure.nodes.journal_reading import kind_of

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
