"""The log lines of attempts in this process: held in memory until the attempt ends, then kept in the store."""

from __future__ import annotations

import logging

import msgspec

from tenure.engines.contracts import Fence, Store
from tenure.work.attempt_handle import Seat
from tenure.work.context import current_or_none
from tenure.work.slots.attempt_logs import LOG_TTL_S, MAX_LOG_BYTES, entry_of, text_of


class HeldLogs(logging.Handler):
    """On the root logger while inline slots run: lines that are logged inside a workflow belong to its attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, list[bytes]] = {}
        self._written: dict[int, int] = {}

    def emit(self, line: logging.LogRecord) -> None:
        context = current_or_none()
        if context is None:
            return
        seat = context._seat
        data = msgspec.json.encode(entry_of(seat, line.levelname.lower(), text_of(line), line.created)) + b"\n"
        written = self._written.get(id(seat), 0) + len(data)
        if written <= MAX_LOG_BYTES:
            self._written[id(seat)] = written
            self._held.setdefault(id(seat), []).append(data)

    def keep(self, store: Store, seat: Seat, *, key: str, fence: Fence) -> bool:
        """Put what was logged into the store; False when there is nothing."""
        lines = self._held.pop(id(seat), None)
        self._written.pop(id(seat), None)
        if not lines:
            return False
        store.put(key, b"".join(lines), fence=fence, ttl=LOG_TTL_S)
        return True
