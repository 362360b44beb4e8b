"""Collects the log of an attempt: its log records and its printed lines.

One handler collects the lines of all attempts in a process, and hands them to `log_lines`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from typing import Any, TextIO

import msgspec

from tenure.clock import Clock
from tenure.work.attempt_handle import AttemptHandle
from tenure.work.context import current_or_none
from tenure.work.log_lines import LogLines

MAX_LINE_CHARS = 8_000
STREAMS = ("stdout", "stderr")


class AttemptLogHandler(logging.Handler):
    """Collects what workflows log in this process, and what they print where a `LoggedStream` says so. Install it on the root logger."""

    def __init__(self, lines: LogLines, clock: Clock) -> None:
        super().__init__()
        self.lines, self._clock = lines, clock
        self._running: dict[int, AttemptHandle] = {}
        """The attempt of each record. A thread that outlives its attempt logs nothing: another one may have the record."""
        self._written: dict[int, int] = {}
        """The bytes that each of them has logged."""
        self._last: dict[int, str] = {}
        """The last text of each of them. The same line again is nothing new."""
        self._unfinished: dict[tuple[int, str], str] = {}
        """The last line of each stream that a record's attempt has not ended yet."""

    def begin(self, handle: AttemptHandle) -> None:
        index = handle.record.index
        self._running[index], self._written[index] = handle, 0
        self._last.pop(index, None)
        if self._unfinished:  # rarely: most attempts print whole lines, or nothing
            for stream in STREAMS:
                self._unfinished.pop((index, stream), None)

    def end(self, handle: AttemptHandle) -> bool:
        """Ends the log of an attempt: text that it printed without a line break becomes a line. Returns False when it logged nothing."""
        index = handle.record.index
        for stream in STREAMS if self._unfinished else ():
            if text := self._unfinished.pop((index, stream), ""):
                self._write(handle, stream, text, self._clock.wall())
        self._running.pop(index, None)
        return self._written.get(index, 0) > 0

    def emit(self, line: logging.LogRecord) -> None:
        context = current_or_none()
        if context is not None:
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
        if self._running.get(index) is not handle:
            return
        if self._last.get(index) != text:
            self._last[index] = text
            handle.show_output()
        data = msgspec.json.encode(entry_of(handle, level, text, at)) + b"\n"
        position = self._written[index]
        self._written[index] = position + len(data)
        self.lines.append(handle.log_place, data, position)


class LoggedStream(io.TextIOBase):
    """Replaces standard output or error of a slot: it passes text on, and copies what an attempt prints to the attempt's log."""

    def __init__(self, stream: TextIO, name: str, handler: AttemptLogHandler) -> None:
        self._stream, self._name, self._handler = stream, name, handler

    def write(self, text: str) -> int:
        written = len(text)
        with contextlib.suppress(OSError):  # a full disk must not fail the work that prints
            written = self._stream.write(text)
        # A logging handler of the user printed this: the log handler has the record already.
        if sys._getframe(1).f_globals.get("__name__") != "logging":
            self._handler.printed(self._name, text)
        return written

    def flush(self) -> None:
        with contextlib.suppress(OSError):
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
