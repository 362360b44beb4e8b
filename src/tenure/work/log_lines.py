"""The lines of attempts' logs: where they wait while an attempt runs, and how they come into the store.

A slot process keeps them in files, and its supervisor publishes the files while the attempts run; attempts in threads keep theirs in memory.
At the end the lines move into the store. `attempt_logs` has what collects them.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from tenure.beat.board import open_own_file, read_own_file
from tenure.beat.record import BeatReading, Occupant, Phase
from tenure.clock import Clock
from tenure.engines.contracts import Fence, Store
from tenure.errors import ForeignFileError, StaleFenceError, TenureError

HEAD_BYTES = 131_072
"""An attempt keeps this much of the beginning of its log."""
TAIL_BYTES = 65_536
"""The end of a long log is kept in two parts of this size. When the newer one is full, the older one is dropped, and a line says so."""
MOST_READ_BYTES = 4 * HEAD_BYTES
"""No more than this is read of a log file: a workflow runs in the process that writes it, and may have made it longer."""
LOG_TTL_S = 7 * 86_400
COMPRESSED_FROM_BYTES = 1_024
"""A shorter log is stored as it is."""
_COMPRESSED = b"\x78"
"""The first byte of a compressed log. Lines are JSON objects, and begin with a brace."""
PUBLISH_EVERY_S = 2.0
"""The supervisor publishes a running attempt's log this often, if it has grown."""


class LogLines(Protocol):
    """The place in which the lines of running attempts wait, by `AttemptHandle.log_place`."""

    def clear(self, place: str) -> None: ...

    def append(self, place: str, line: bytes, position: int) -> None:
        """Adds a line, of which `position` bytes were logged before. One that cannot be kept is lost: a workflow must not fail because its log did."""

    def read(self, place: str) -> bytes: ...


class FileLines:
    """Keeps the lines in one file for each attempt, which survives a SIGKILL of the slot. An attempt that logs nothing has no file.

    The slot writes it; its supervisor publishes it, and removes it when it is in the store.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, place: str, part: str = "log") -> Path:
        return self._folder / f"attempt-{place}.{part}"

    def clear(self, place: str) -> None:
        for part in ("log", "older", "newer"):
            self.path(place, part).unlink(missing_ok=True)

    def append(self, place: str, line: bytes, position: int) -> None:
        """Makes one write(2), so that a line that was logged before a SIGKILL is there after it."""
        part = "log" if position < HEAD_BYTES else "newer"
        with contextlib.suppress(OSError, ForeignFileError):
            if part == "newer":
                line = self._turn(place, position) + line
            descriptor = open_own_file(self.path(place, part), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def _turn(self, place: str, position: int) -> bytes:
        """Returns the first line of the newer part where there is none yet, or the last one was full: it says where in the log the part begins."""
        newer = self.path(place, "newer")
        try:
            if newer.stat().st_size < TAIL_BYTES:
                return b""
            newer.replace(self.path(place, "older"))
        except FileNotFoundError:
            pass
        return b"%d\n" % position

    def read(self, place: str) -> bytes:
        parts = [LogPart.of(self._read(place, part)) for part in ("older", "newer")]
        return joined(self._read(place, "log"), [part for part in parts if part is not None])

    def _read(self, place: str, part: str) -> bytes:
        try:
            return read_own_file(self.path(place, part), MOST_READ_BYTES)
        except (OSError, ForeignFileError):
            return b""

    def size(self, place: str) -> int:
        """Returns the bytes that were logged, dropped ones included. It only grows."""
        try:
            newer = self.path(place, "newer")
            with contextlib.suppress(FileNotFoundError):
                size = newer.stat().st_size
                with newer.open("rb") as part:
                    begins = part.readline(20)
                return int(begins or b"0") + size - len(begins)
            return self.path(place).stat().st_size
        except (OSError, ValueError):
            return 0


class LogPart(NamedTuple):
    """A part of the end of a log, and the position in the log at which it begins."""

    position: int
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> LogPart | None:
        position, _, rest = data.partition(b"\n")
        return cls(int(position), rest) if position.isdigit() and rest else None


def joined(head: bytes, parts: list[LogPart]) -> bytes:
    """Returns the log as it is shown. Where lines were dropped, one stands for them that says how many bytes they had."""
    dropped = max(0, parts[0].position - len(head)) if parts else 0
    gap = b""
    if dropped:
        text = f"{dropped:,} bytes of the log were dropped here: its beginning and its end are kept"
        gap = msgspec.json.encode({"dropped": dropped, "at": 0.0, "level": "", "text": text}) + b"\n"
    return head + gap + b"".join(part.data for part in parts)


class MemoryLines:
    """Keeps the lines in memory, for attempts in threads of this process and on its event loop."""

    def __init__(self) -> None:
        self._held: dict[str, list[bytes]] = {}
        self._ends: dict[str, list[LogPart]] = {}

    def clear(self, place: str) -> None:
        self._held.pop(place, None)
        self._ends.pop(place, None)

    def append(self, place: str, line: bytes, position: int) -> None:
        if position < HEAD_BYTES:
            self._held.setdefault(place, []).append(line)
            return
        parts = self._ends.get(place, [])
        if not parts or len(parts[-1].data) >= TAIL_BYTES:
            parts = [*parts[-1:], LogPart(position, b"")]
        self._ends[place] = [*parts[:-1], parts[-1]._replace(data=parts[-1].data + line)]

    def read(self, place: str) -> bytes:
        return joined(b"".join(self._held.get(place, ())), self._ends.get(place, []))


def log_key(job: str, workflow: str, attempt: int) -> str:
    return f"{job}/{workflow}/{attempt}"[:512]


def key_of(occupant: Occupant) -> str:
    return log_key(occupant.job, occupant.workflow_id or occupant.workflow, occupant.attempt)


def fence_of(occupant: Occupant) -> Fence:
    return Fence(occupant.ticket.generation, occupant.ticket.delivery_count)


def stored_log(lines: bytes) -> bytes:
    """Returns the bytes with which these lines are stored. Lines are alike, so that compressed they take a fraction of the engine's room."""
    return lines if len(lines) < COMPRESSED_FROM_BYTES else zlib.compress(lines, 1)


def read_log(stored: bytes | None) -> bytes:
    """Returns the lines of a stored log, none where there is none. A damaged one gives what can be read of it, and a line that says so."""
    if stored is None or not stored.startswith(_COMPRESSED):
        return stored or b""
    inflating = zlib.decompressobj()
    lines, step = bytearray(), 4_096
    try:
        for start in range(0, len(stored), step):
            lines += inflating.decompress(stored[start : start + step], MOST_READ_BYTES - len(lines) + 1)
            if len(lines) > MOST_READ_BYTES:
                break
        if inflating.eof:
            return bytes(lines)
    except zlib.error:
        pass
    text = "the rest of this log cannot be read: it was damaged in the engine's store"
    whole = bytes(lines[: lines.rfind(b"\n") + 1])
    return whole + msgspec.json.encode({"at": 0.0, "level": "", "text": text}) + b"\n"


def keep_log(store: Store, lines: LogLines, place: str, key: str, fence: Fence) -> None:
    """Moves an attempt's lines into the store, if there are any."""
    if data := lines.read(place):
        store.put(key, stored_log(data), fence=fence, ttl=LOG_TTL_S)
        lines.clear(place)


def publish_log(store: Store, lines: FileLines, place: str, occupant: Occupant, shown: int) -> int:
    """Puts a running attempt's lines into the store if there are more than `shown` bytes; returns how many are published now.

    It writes with the fence of the delivery before. So the store refuses it after this delivery has kept its whole log.
    """
    size, data, fence = lines.size(place), lines.read(place), fence_of(occupant)
    whole = data[: data.rfind(b"\n") + 1]
    size -= len(data) - len(whole)
    if size <= shown:
        return shown
    try:
        store.put(key_of(occupant), stored_log(whole), fence=Fence(fence.generation, fence.delivery - 1), ttl=LOG_TTL_S)
    except StaleFenceError:
        return shown  # the attempt has ended since, and its whole log was kept
    return size


@dataclass(slots=True)
class PublishedLog:
    """The published part of one attempt's log."""

    serial: int
    due: float
    size: int = 0
    busy: bool = False


class LogPublisher:
    """Publishes the logs of running attempts. The supervisor calls `look` for each record; `submit` runs a call in another thread."""

    def __init__(
        self, store: Store, lines: FileLines, clock: Clock, submit: Callable[[Callable[[], None]], Any]
    ) -> None:
        self._store, self._lines, self._clock, self._submit = store, lines, clock, submit
        self._shown: dict[int, PublishedLog] = {}

    def look(self, index: int, reading: BeatReading) -> None:
        occupant = reading.occupant
        if reading.phase is not Phase.RUNNING or occupant is None or not occupant.managed:
            self._shown.pop(index, None)
            return
        now, shown = self._clock.monotonic(), self._shown.get(index)
        if shown is None or shown.serial != reading.serial:
            # The first lines are published sooner: a person may be watching how it begins.
            shown = self._shown[index] = PublishedLog(reading.serial, now + PUBLISH_EVERY_S / 4)
        if shown.busy or now < shown.due:
            return
        shown.due = now + PUBLISH_EVERY_S
        place = f"{index}-{reading.serial}"
        if self._lines.size(place) > shown.size:
            shown.busy = True
            self._submit(lambda: self._show(place, shown, occupant))

    def _show(self, place: str, shown: PublishedLog, occupant: Occupant) -> None:
        try:
            shown.size = publish_log(self._store, self._lines, place, occupant, shown.size)
        except TenureError:
            return  # the engine is away: a later look or the end of the attempt publishes it
        finally:
            shown.busy = False
