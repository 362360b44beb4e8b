"""Reads a page of an attempt's log as the store keeps it: its beginning and its end, and between them a line for what was dropped.

Offsets count every byte that was logged, dropped ones too. So a reader that follows a long log goes on where it was while its middle is dropped.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tenure.control.messages.job_output import LogLine

_GAP = b'\n{"dropped":'
"""How the line for dropped ones begins. Inside another line the quotes are escaped, so it stands nowhere else."""


class Gap(NamedTuple):
    """Where lines were dropped: the place of the line that says so, its length, and the bytes that it stands for. All 0 where none were."""

    place: int = 0
    length: int = 0
    dropped: int = 0

    def offset_of(self, place: int) -> int:
        return place if place <= self.place or not self.dropped else place - self.length + self.dropped

    def place_of(self, offset: int) -> int:
        if offset <= self.place or not self.dropped:
            return offset
        return max(self.place, offset - self.dropped + self.length)


def gap_of(data: bytes) -> Gap:
    found = data.find(_GAP) + 1
    end = data.find(b"\n", found) + 1
    if not found or not end:
        return Gap()
    digits = data[found + len(_GAP) - 1 : end].split(b",", 1)[0]
    return Gap(found, end - found, int(digits)) if digits.isdigit() else Gap()


def log_page(data: bytes, offset: int, limit: int) -> tuple[tuple[LogLine, ...], int, bool]:
    """Returns the whole lines from this offset on that fit the limit, the offset after them, and True when more follows."""
    gap = gap_of(data)
    lines, end = cut(data, gap.place_of(offset), limit)
    return lines, gap.offset_of(end), end < len(data)


def cut(data: bytes, offset: int, limit: int) -> tuple[tuple[LogLine, ...], int]:
    """Returns the whole lines from this offset on that fit the limit, but at least one; and the offset after them."""
    lines: list[LogLine] = []
    position = offset
    while position < len(data):
        end = data.find(b"\n", position) + 1
        if not end or (lines and end - offset > limit):
            break
        try:
            lines.append(msgspec.json.decode(data[position:end], type=LogLine))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The offset is inside a line: no page of ours gave it out.
            lines.append(LogLine(at=0.0, level="", text=data[position:end].decode(errors="replace").rstrip("\n")))
        position = end
    return tuple(lines), position
