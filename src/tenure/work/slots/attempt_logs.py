"""The log of an attempt: its log records and its printed lines.

A slot process writes them to a file, which survives a SIGKILL of the slot. The supervisor publishes the file while the attempt runs. At
the end the lines move into the store. Attempts that run inside this process keep their lines in memory instead.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import msgspec

from tenure.beat.board import BeatReading, Occupant, Phase
from tenure.beat.own_files import open_own_file, read_own_file
from tenure.clock import Clock
from tenure.engines.contracts import Fence, Store
from tenure.errors import ForeignFileError, StaleFenceError, TenureError
from tenure.work.attempt_handle import AttemptHandle
from tenure.work.context import current_or_none

MAX_LOG_BYTES = 262_144
"""An attempt keeps this much of its log. Later lines are dropped, and the last line says so."""
MOST_READ_BYTES = 2 * MAX_LOG_BYTES
"""No more than this is read of a log file: a workflow runs in the process that writes it, and may have made it longer."""
MAX_LINE_CHARS = 8_000
LOG_TTL_S = 7 * 86_400
PUBLISH_EVERY_S = 2.0
"""The supervisor publishes a running attempt's log this often, if it has grown."""


class AttemptLogHandler(logging.Handler):
    """Writes each line that a workflow logs to its attempt's file. A slot installs it on the root logger.

    It makes one write(2) per line, so that a line that was logged before a SIGKILL is there after it.
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

    def end(self, handle: AttemptHandle) -> None:
        """Ends the log of an attempt: text that it printed without a line break becomes a line."""
        for record, stream in [key for key in self._unfinished if key[0] == handle.record.index]:
            self._write(handle, stream, self._unfinished.pop((record, stream)), self._clock.wall())

    def emit(self, line: logging.LogRecord) -> None:
        context = current_or_none()
        if context is None:
            return
        self._write(context._handle, line.levelname.lower(), text_of(line), line.created)

    def printed(self, stream: str, text: str) -> None:
        """Adds text that was printed to standard output or error. Whole lines go to the log of the attempt that runs in this context."""
        context = current_or_none()
        if context is None:
            return
        key = context._handle.record.index, stream
        *lines, rest = (self._unfinished.pop(key, "") + text).split("\n")
        if len(rest) > MAX_LINE_CHARS:
            lines, rest = [*lines, rest], ""
        if rest:
            self._unfinished[key] = rest
        for one in lines:
            self._write(context._handle, stream, one, self._clock.wall())

    def _write(self, handle: AttemptHandle, level: str, text: str, at: float) -> None:
        index = handle.record.index
        if self._written.get(index, 0) > MAX_LOG_BYTES:
            return
        entry = entry_of(handle, level, text, at)
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


class MemoryLogHandler(logging.Handler):
    """Holds the lines that workflows log in this process until their attempt ends. Inline slots install it on the root logger."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, list[bytes]] = {}
        self._written: dict[int, int] = {}

    def emit(self, line: logging.LogRecord) -> None:
        context = current_or_none()
        if context is None:
            return
        handle = context._handle
        data = msgspec.json.encode(entry_of(handle, line.levelname.lower(), text_of(line), line.created)) + b"\n"
        written = self._written.get(id(handle), 0) + len(data)
        if written <= MAX_LOG_BYTES:
            self._written[id(handle)] = written
            self._held.setdefault(id(handle), []).append(data)

    def keep(self, store: Store, handle: AttemptHandle, *, key: str, fence: Fence) -> bool:
        """Moves the attempt's lines into the store; returns False when there are none."""
        lines = self._held.pop(id(handle), None)
        self._written.pop(id(handle), None)
        if not lines:
            return False
        store.put(key, b"".join(lines), fence=fence, ttl=LOG_TTL_S)
        return True


class LoggedStream(io.TextIOBase):
    """Replaces standard output or error of a slot: it passes text on, and copies what an attempt prints to the attempt's log."""

    def __init__(self, stream: TextIO, name: str, handler: AttemptLogHandler) -> None:
        self._stream, self._name, self._handler = stream, name, handler

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        # A logging handler of the user printed this: the log handler has the record already.
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
    """Returns the formatted text of a log record, or its raw parts when they cannot be formatted."""
    try:
        text = line.getMessage()
        if line.exc_info:
            text += "\n" + logging.Formatter().formatException(line.exc_info)
    except Exception:
        return f"{line.msg!r} (could not be formatted with {line.args!r})"
    return text


def entry_of(handle: AttemptHandle, level: str, text: str, at: float) -> dict[str, Any]:
    """Returns one line in the form that the store keeps."""
    trace = {"trace": handle.trace} if handle.trace else {}
    return {
        **trace,
        "at": round(at, 3),
        "level": level,
        "job": handle.occupant.job,
        "workflow": handle.occupant.workflow,
        "attempt": handle.occupant.attempt,
        "text": text[:MAX_LINE_CHARS].encode(errors="replace").decode(),
    }


def log_path(folder: Path, record: int) -> Path:
    return folder / f"attempt-{record}.log"


def log_key(job: str, workflow: str, attempt: int) -> str:
    return f"{job}/{workflow}/{attempt}"[:512]


def keep_log(store: Store, folder: Path, record: int, *, key: str, fence: Fence) -> bool:
    """Moves an attempt's lines from its file into the store; returns False when there are none."""
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


def publish_log(store: Store, folder: Path, record: int, *, key: str, fence: Fence, shown: int) -> int:
    """Puts a running attempt's lines into the store if there are more than `shown` bytes; returns how many are published now.

    It writes with the fence of the delivery before. So the store refuses it after this delivery has kept its whole log.
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
        return shown  # the attempt has ended since, and its whole log was kept
    return len(whole)


@dataclass(slots=True)
class PublishedLog:
    """The published part of one attempt's log."""

    serial: int
    due: float
    size: int = 0
    busy: bool = False


class LogPublisher:
    """Publishes the logs of running attempts. The supervisor calls `look` for each record; `submit` runs a call in another thread."""

    def __init__(self, store: Store, folder: Path, clock: Clock, submit: Callable[[Callable[[], None]], Any]) -> None:
        self._store, self._folder, self._clock, self._submit = store, folder, clock, submit
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
        try:
            grown = log_path(self._folder, index).stat().st_size > shown.size
        except OSError:
            return
        if grown:
            shown.busy = True
            self._submit(lambda: self._show(index, shown, occupant))

    def _show(self, index: int, shown: PublishedLog, occupant: Occupant) -> None:
        key = log_key(occupant.job, occupant.workflow_id or occupant.workflow, occupant.attempt)
        fence = Fence(occupant.ticket.generation, occupant.ticket.delivery_count)
        try:
            shown.size = publish_log(self._store, self._folder, index, key=key, fence=fence, shown=shown.size)
        except TenureError:
            return  # the engine is away: a later look or the end of the attempt publishes it
        finally:
            shown.busy = False
