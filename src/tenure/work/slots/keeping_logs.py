"""The log lines of an attempt: written to a file that outlives the slot, then kept in the store."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from tenure.engines.contracts import Fence, Store
from tenure.work.context import current_or_none

MAX_LOG_BYTES = 262_144
"""Of one attempt; what comes after is dropped, and the last line says so."""
LOG_TTL_S = 7 * 86_400


class AttemptLogHandler(logging.Handler):
    """On the root logger of a slot: lines that are logged while a workflow runs go to that attempt's file.

    One write(2) a line, so that what was logged before a SIGKILL is there after it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._written: dict[int, int] = {}

    def begin(self, record: int) -> None:
        log_path(self._folder, record).unlink(missing_ok=True)
        self._written[record] = 0

    def emit(self, line: logging.LogRecord) -> None:
        context = current_or_none()
        if context is None:
            return
        seat = context._seat
        index = seat.record.index
        if self._written.get(index, 0) > MAX_LOG_BYTES:
            return
        try:
            text = line.getMessage()
            if line.exc_info:
                text += "\n" + logging.Formatter().formatException(line.exc_info)
        except Exception:
            text = f"{line.msg!r} (could not be formatted with {line.args!r})"
        entry = {
            "at": round(line.created, 3),
            "level": line.levelname.lower(),
            "job": seat.occupant.job,
            "workflow": seat.occupant.workflow,
            "attempt": seat.occupant.attempt,
            "text": text[:8_000],
        }
        data = msgspec.json.encode(entry) + b"\n"
        self._written[index] = self._written.get(index, 0) + len(data)
        if self._written[index] > MAX_LOG_BYTES:
            data = msgspec.json.encode({**entry, "text": f"the log is cut here: over {MAX_LOG_BYTES:,} bytes"}) + b"\n"
        with log_path(self._folder, index).open("ab", buffering=0) as file:
            file.write(data)


def log_path(folder: Path, record: int) -> Path:
    return folder / f"attempt-{record}.log"


def log_key(job: str, workflow: str, attempt: int) -> str:
    return f"{job}/{workflow}/{attempt}"[:512]


def keep_log(store: Store, folder: Path, record: int, *, key: str, fence: Fence) -> bool:
    """Move an attempt's lines into the store; False when there are none."""
    path = log_path(folder, record)
    try:
        data = path.read_bytes()
    except OSError:
        return False
    if not data:
        return False
    store.put(key, data, fence=fence, ttl=LOG_TTL_S)
    path.unlink(missing_ok=True)
    return True
