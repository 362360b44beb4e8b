"""The keys that ended and left nothing but their generation, in 28 bytes each. Pure.

An engine remembers a key for a day after its message ended. As a record in a dictionary a key takes 0.4 kB, and every process that folds the log of
NATS holds all of them: 200,000 jobs an hour were 2 GB in each. A key is known here by a digest of its name, so the name is not there any more.

Entries stand in *shelves*, sorted by their digest. A shelf that grows too long becomes two. What is here, and on which shelf, follows from the calls and
their order alone, so every process that folds one log has the same bytes in its snapshots.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple, Self

from tenure.engines.contracts import KEY_MEMORY_S

SHELF = 2_048
"""The most entries of a shelf. To put one in moves half a shelf: some kilobytes."""
_SWEPT_EVERY = 64
"""So many keys come before the next shelf is looked through for those whose time is over: these are at most 1 in 16 of all."""
_SIZES = (8, 8, 4, 8)
"""The columns of an entry, and their bytes in a snapshot: two halves of the digest, the generation, the time."""
_digests = struct.Struct("<QQ")
_MOST_GENERATION = 2**32 - 1
_BIG_ENDIAN = sys.byteorder == "big"


class Shelf(NamedTuple):
    """Columns of equal length. Row i is one key; `first` grows, and rows with the same `first` are told apart by `second`."""

    first: array[Any]
    second: array[Any]
    generation: array[Any]
    ended_at: array[Any]

    @classmethod
    def empty(cls) -> Self:
        return cls(array("Q"), array("Q"), array("I"), array("d"))

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Raises `ValueError` for bytes that are no shelf."""
        rows, rest = divmod(len(data), sum(_SIZES))
        if rest or not rows:
            raise ValueError(f"a shelf of keys has {len(data)} bytes, and an entry has {sum(_SIZES)}")
        shelf, start = cls.empty(), 0
        for column, size in zip(shelf, _SIZES, strict=True):
            column.frombytes(data[start : start + rows * size])
            start += rows * size
            if _BIG_ENDIAN:
                column.byteswap()
        if any(low > high for low, high in pairwise(shelf.first)):
            raise ValueError("a shelf of keys is not in its order")
        return shelf

    def insert(self, row: int, first: int, second: int, generation: int, ended_at: float) -> None:
        self.first.insert(row, first)
        self.second.insert(row, second)
        self.generation.insert(row, generation)
        self.ended_at.insert(row, ended_at)

    def split(self) -> Shelf:
        """Keeps the lower half, and returns the upper one. Rows with the same `first` stay together: a name is looked for on one shelf."""
        middle = bisect_left(self.first, self.first[len(self.first) // 2]) or bisect_right(self.first, self.first[0])
        upper = Shelf(*(column[middle:] for column in self))
        for column in self:
            del column[middle:]
        return upper

    def remembered(self, now: float) -> Shelf:
        """Returns the rows whose time is not over at `now`."""
        kept = [row for row, ended_at in enumerate(self.ended_at) if ended_at + KEY_MEMORY_S > now]
        return Shelf(*(array(column.typecode, [column[row] for row in kept]) for column in self))

    def encoded(self) -> bytes:
        if not _BIG_ENDIAN:
            return b"".join(column.tobytes() for column in self)
        swapped = [array(column.typecode, column) for column in self]
        for column in swapped:
            column.byteswap()
        return b"".join(column.tobytes() for column in swapped)


class EndedKeys:
    """A mapping of names to generations that forgets each a day after its end."""

    def __init__(self, kept: list[bytes] | None = None, swept: int = 0, came: int = 0) -> None:
        """The arguments are what `keep` returned, from a snapshot."""
        self._shelves = [Shelf.decoded(data) for data in kept or ()]
        self._firsts = [shelf.first[0] for shelf in self._shelves]
        self._swept, self._came = swept, came

    def __len__(self) -> int:
        """Counts also those whose time is over and that were not swept yet."""
        return sum(len(shelf.first) for shelf in self._shelves)

    @staticmethod
    def takes(generation: int) -> bool:
        """Returns True for a generation that fits into an entry."""
        return 0 <= generation <= _MOST_GENERATION

    def generation(self, name: str, now: float) -> int | None:
        """Returns the generation of a key that ended less than a day before `now`."""
        if not self._shelves:
            return None
        first, second = _digest(name)
        shelf = self._shelves[self._place(first)]
        row, known = _row(shelf, first, second)
        if not known or shelf.ended_at[row] + KEY_MEMORY_S <= now:
            return None
        found: int = shelf.generation[row]
        return found

    def put(self, name: str, generation: int, ended_at: float, now: float) -> None:
        """Remembers a key, or its later end."""
        first, second = _digest(name)
        if not self._shelves:
            self._shelves, self._firsts = [Shelf.empty()], [first]
        place = self._place(first)
        shelf = self._shelves[place]
        row, known = _row(shelf, first, second)
        if known:
            shelf.generation[row], shelf.ended_at[row] = generation, ended_at
        else:
            shelf.insert(row, first, second, generation, ended_at)
            self._firsts[place] = shelf.first[0]
        if len(shelf.first) > SHELF and shelf.first[0] != shelf.first[-1]:
            upper = shelf.split()
            self._shelves.insert(place + 1, upper)
            self._firsts.insert(place + 1, upper.first[0])
        self._came += 1
        if self._came % _SWEPT_EVERY == 0:
            self._swept = (self._swept + 1) % len(self._shelves)
            self._drop_old(self._swept, now)

    def sweep(self, now: float) -> None:
        """Drops every key whose time is over. It changes nothing of what `generation` returns."""
        for place in reversed(range(len(self._shelves))):
            self._drop_old(place, now)

    def keep(self) -> tuple[list[bytes], int, int]:
        """Returns what a snapshot keeps: the shelves as they are, and where sweeping goes on."""
        return [shelf.encoded() for shelf in self._shelves], self._swept, self._came

    def _place(self, first: int) -> int:
        """Returns the shelf on which a digest stands, or would stand."""
        return max(0, bisect_right(self._firsts, first) - 1)

    def _drop_old(self, place: int, now: float) -> None:
        shelf = self._shelves[place]
        if min(shelf.ended_at) + KEY_MEMORY_S > now:
            return
        kept = self._shelves[place] = shelf.remembered(now)
        if kept.first:
            self._firsts[place] = kept.first[0]
        else:
            del self._shelves[place], self._firsts[place]


def _digest(name: str) -> tuple[int, int]:
    found: tuple[int, int] = _digests.unpack(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest())
    return found


def _row(shelf: Shelf, first: int, second: int) -> tuple[int, bool]:
    """Returns the row of a digest and True, or where it would stand and False."""
    row = bisect_left(shelf.first, first)
    while row < len(shelf.first) and shelf.first[row] == first:
        if shelf.second[row] == second:
            return row, True
        row += 1
    return row, False
