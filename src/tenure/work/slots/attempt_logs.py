"""What an attempt logs and prints: written to a file that outlives the slot, shown while it runs, and kept in the store."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import msgspec

from tenure.beat.own_files import open_own_file, read_own_file
from tenure.clock import Clock
from tenure.engines.contracts import Fence, Store
from tenure.errors import ForeignFileError, StaleFenceError
from tenure.work.attempt_handle import Seat
from tenure.work.context import current_or_none

MAX_LOG_BYTES = 262_144
"""Of one attempt; what comes after is dropped, and the last line says so."""
MOST_READ_BYTES = 2 * MAX_LOG_BYTES
"""Of a log file: the workflow runs in the process that writes it, and may have made it as long as it likes."""
MAX_LINE_CHARS = 8_000
LOG_TTL_S = 7 * 86_400
SHOW_EVERY_S = 2.0
"""How often the log of an attempt that runs is shown to others, if there is more of it."""


class AttemptLogHandler(logging.Handler):
    """On the root logger of a slot: lines that are logged while a workflow runs go to that attempt's file.

    One write(2) a line, so that what was logged before a SIGKILL is there after it.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__()
        self._folder, self._clock = folder, clock
        self._written: dict[int, int] = {}
        self._unfinished: dict[tuple[int, str], str] = {}

    def begin(self, record: int) -> None:
        log_path(self._folder, record).unlink(missing_ok=True)
        self._written[record] = 0
        self._drop(record)

    def end(self, seat: Seat) -> None:
        """The attempt is over: what it printed without a line break is a line, too."""
        for record, stream in [key for key in self._unfinished if key[0] == seat.record.index]:
            self._write(seat, stream, self._unfinished.pop((record, stream)), self._clock.wall())

    def emit(self, line: logging.LogRecord) -> None:
        context = current_or_none()
        if context is None:
            return
        self._write(context._seat, line.levelname.lower(), text_of(line), line.created)

    def printed(self, stream: str, text: str) -> None:
        """Something was written to standard output or error; whole lines of it belong to the attempt that runs here."""
        context = current_or_none()
        if context is None:
            return
        key = context._seat.record.index, stream
        *lines, rest = (self._unfinished.pop(key, "") + text).split("\n")
        if len(rest) > MAX_LINE_CHARS:
            lines, rest = [*lines, rest], ""
        if rest:
            self._unfinished[key] = rest
        for one in lines:
            self._write(context._seat, stream, one, self._clock.wall())

    def _write(self, seat: Seat, level: str, text: str, at: float) -> None:
        index = seat.record.index
        if self._written.get(index, 0) > MAX_LOG_BYTES:
            return
        entry = entry_of(seat, level, text, at)
        data = msgspec.json.encode(entry) + b"\n"
        self._written[index] = self._written.get(index, 0) + len(data)
        if self._written[index] > MAX_LOG_BYTES:
            data = msgspec.json.encode({**entry, "text": f"the log is cut here: over {MAX_LOG_BYTES:,} bytes"}) + b"\n"
        # A line that cannot be written is lost: a workflow must not fail because its log did.
        with contextlib.suppress(OSError, ForeignFileError):
            descriptor = open_own_file(log_path(self._folder, index), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)

    def _drop(self, record: int) -> None:
        for key in [key for key in self._unfinished if key[0] == record]:
            del self._unfinished[key]


class Overheard(io.TextIOBase):
    """Standard output or error of a slot: it goes where it went, and what an attempt prints goes to its log, too."""

    def __init__(self, stream: TextIO, name: str, handler: AttemptLogHandler) -> None:
        self._stream, self._name, self._handler = stream, name, handler

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        # What a handler of the user's logging prints was heard as a record already.
        if sys._getframe(1).f_globals.get("__name__") != "logging":
            self._handler.printed(self._name, text)
        return written

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def text_of(line: logging.LogRecord) -> str:
    """What was logged; what cannot be formatted as it came."""
    try:
        text = line.getMessage()
        if line.exc_info:
            text += "\n" + logging.Formatter().formatException(line.exc_info)
    except Exception:
        return f"{line.msg!r} (could not be formatted with {line.args!r})"
    return text


def entry_of(seat: Seat, level: str, text: str, at: float) -> dict[str, Any]:
    """One line as it is kept."""
    trace = {"trace": seat.trace} if seat.trace else {}
    return {
        **trace,
        "at": round(at, 3),
        "level": level,
        "job": seat.occupant.job,
        "workflow": seat.occupant.workflow,
        "attempt": seat.occupant.attempt,
        "text": text[:MAX_LINE_CHARS].encode(errors="replace").decode(),
    }


def log_path(folder: Path, record: int) -> Path:
    return folder / f"attempt-{record}.log"


def log_key(job: str, workflow: str, attempt: int) -> str:
    return f"{job}/{workflow}/{attempt}"[:512]


def keep_log(store: Store, folder: Path, record: int, *, key: str, fence: Fence) -> bool:
    """Move an attempt's lines into the store; False when there are none."""
    path = log_path(folder, record)
    try:
        data = read_own_file(path, MOST_READ_BYTES)
    except (OSError, ForeignFileError):
        return False
    if not data:
        return False
    store.put(key, data, fence=fence, ttl=LOG_TTL_S)
    path.unlink(missing_ok=True)
    return True


def show_log(store: Store, folder: Path, record: int, *, key: str, fence: Fence, shown: int) -> int:
    """Put what there is of a running attempt's lines into the store, if it is more than was shown; how much it is now.

    Written with the fence of the delivery before: whatever was kept at the end of this one is newer, and stays.
    """
    try:
        data = read_own_file(log_path(folder, record), MOST_READ_BYTES)
    except (OSError, ForeignFileError):
        return shown
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) <= shown:
        return shown
    try:
        store.put(key, whole, fence=Fence(fence.generation, fence.delivery - 1), ttl=LOG_TTL_S)
    except StaleFenceError:
        return shown  # it has ended since, and all of it was kept
    return len(whole)
