"""The claim page: shared memory that names every item that a supervisor has claimed and not settled.

The supervisor writes a ticket here before it hands the item to a slot. So a successor of a dead worker returns what had not started at once.
The page also decides who has an item that is to be taken back (RULINGS 8): the slot writes "started", then reads the mark "withdrawn", then
runs; the supervisor writes the mark, waits a tick, and takes back only what has not started. Whatever stops in between, at most one runs it.
What was taken back is named in another entry, under another number: the slot that was slow to read the hand-over finds the mark for ever.

It is a file of its own beside the beat board: a worker of an earlier release removes boards whose size it does not know.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from tenure import machine
from tenure.beat.board import open_own_file
from tenure.engines.contracts import Ticket
from tenure.errors import BoardError

ENTRY_BYTES = 1_024
_WORDS = 4
_NUMBER, _STARTED, _WITHDRAWN = range(3)  # the supervisor, the slot and the supervisor write them
_COLD = struct.Struct("<II")  # length, checksum
COLD_OFFSET = _WORDS * 8
_ROOM = ENTRY_BYTES - COLD_OFFSET - _COLD.size


class NamedClaim(msgspec.Struct, frozen=True, array_like=True):
    """One claim as the page names it: enough to give it back."""

    queue: str
    workflow: str
    ticket: Ticket


class HeldClaim(NamedTuple):
    """One entry of a page that a dead worker left."""

    claim: NamedClaim
    started: bool


class ClaimPage:
    """The page of one supervisor. It creates it; its slots open it by path."""

    def __init__(self, path: Path, page: mmap.mmap, *, owner: bool) -> None:
        self.path, self._page, self._owner = path, page, owner
        self.entries = len(page) // ENTRY_BYTES
        self._view = memoryview(page)
        self._words = self._view.cast("q")
        self.free_entries = list(range(self.entries - 1, -1, -1)) if owner else []
        """The entries that no claim uses, the next one last. Only the supervisor has it."""

    @classmethod
    def create(cls, folder: Path, incarnation: str, entries: int) -> ClaimPage:
        path, size = claim_path(folder, incarnation), entries * ENTRY_BYTES
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            machine.here.allocate(descriptor, size)  # a full /dev/shm is an error here, not a SIGBUS later
            return cls(path, mmap.mmap(descriptor, size), owner=True)
        finally:
            os.close(descriptor)

    @classmethod
    def open(cls, path: Path) -> ClaimPage:
        """Opens a page of this user. Raises `BoardError` for what is none."""
        try:
            descriptor = open_own_file(path, os.O_RDWR)
            try:
                return cls(path, mmap.mmap(descriptor, 0), owner=False)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise BoardError(f"cannot open the claim page {path}: {error}") from error

    # The supervisor's side.

    def name(self, number: int, claim: NamedClaim) -> int:
        """Writes a claim into a free entry and returns the entry; -1 when none is free, or the claim does not fit.

        A claim that is not named comes back when its short lease ends.
        """
        data = msgspec.msgpack.encode(claim)
        if not self.free_entries or len(data) > _ROOM:
            return -1
        entry = self.free_entries.pop()
        start = entry * ENTRY_BYTES + COLD_OFFSET
        _COLD.pack_into(self._view, start, len(data), zlib.crc32(data))
        self._view[start + _COLD.size : start + _COLD.size + len(data)] = data
        self._words[entry * ENTRY_BYTES // 8 + _NUMBER] = number  # last: whoever sees the number finds the rest whole
        return entry

    def free(self, entry: int) -> None:
        if entry >= 0:
            self.clear(entry)
            self.free_entries.append(entry)

    def clear(self, entry: int) -> None:
        """Names nothing in an entry any more, and keeps it from use: a slot may still write there that it started what the entry named."""
        self._words[entry * ENTRY_BYTES // 8 + _NUMBER] = 0

    def withdraw(self, entry: int, number: int) -> None:
        self._words[entry * ENTRY_BYTES // 8 + _WITHDRAWN] = number

    def has_started(self, entry: int, number: int) -> bool:
        return self._words[entry * ENTRY_BYTES // 8 + _STARTED] == number

    # The slot's side.

    def start(self, entry: int, number: int) -> bool:
        """Marks an item as started. Returns False when it was withdrawn: then the slot must not run it."""
        self.mark_started(entry, number)
        return not self.is_withdrawn(entry, number)

    def mark_started(self, entry: int, number: int) -> None:
        self._words[entry * ENTRY_BYTES // 8 + _STARTED] = number

    def is_withdrawn(self, entry: int, number: int) -> bool:
        return self._words[entry * ENTRY_BYTES // 8 + _WITHDRAWN] == number

    # A successor's side.

    def held(self) -> list[HeldClaim]:
        """Returns what the page names. It skips entries that were cut short."""
        found = []
        for entry in range(self.entries):
            place, start = entry * ENTRY_BYTES // 8, entry * ENTRY_BYTES + COLD_OFFSET
            number = self._words[place + _NUMBER]
            length, checksum = _COLD.unpack_from(self._view, start)
            if not number or length > _ROOM:
                continue
            data = bytes(self._view[start + _COLD.size : start + _COLD.size + length])
            if zlib.crc32(data) != checksum:
                continue
            try:
                claim = msgspec.msgpack.decode(data, type=NamedClaim)
            except msgspec.DecodeError:
                continue
            found.append(HeldClaim(claim, self._words[place + _STARTED] == number))
        return found

    def close(self) -> None:
        """Unmaps the page; its owner also removes the file."""
        self._words.release()
        self._view.release()
        self._page.close()
        if self._owner:
            self.path.unlink(missing_ok=True)


def claim_path(folder: Path, incarnation: str) -> Path:
    return folder / f"claims-{incarnation}"
