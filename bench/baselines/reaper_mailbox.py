"""A mailbox as it is usually written in memory: one lock, a deque, a dict of invisible messages, and a reaper thread.

Kept to be measured against. It stores the objects themselves, makes ids with uuid4, and a thread puts back what expired.
It is written to be fair: no sleeping polls, no work under the lock that need not be there, a reaper that looks ten times a second.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4


class ReceiptHandleExpired(Exception):
    pass


@dataclass(slots=True)
class Held:
    id: str
    body: Any
    enqueued_at: datetime
    reply_to: Any = None
    delivery_count: int = 0
    expires_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    body: Any
    receipt_handle: str
    delivery_count: int
    enqueued_at: datetime
    reply_to: Any
    _acknowledge: Callable[[str], None] = field(repr=False)
    _nack: Callable[[str, float], None] = field(repr=False)
    _extend: Callable[[str, float], None] = field(repr=False)

    def acknowledge(self) -> None:
        self._acknowledge(self.receipt_handle)

    def nack(self, visibility_timeout: float = 0) -> None:
        self._nack(self.receipt_handle, visibility_timeout)

    def extend_visibility(self, seconds: float) -> None:
        self._extend(self.receipt_handle, seconds)


class ReaperMailbox:
    def __init__(self, reap_interval: float = 0.1) -> None:
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)
        self._pending: deque[Held] = deque()
        self._invisible: dict[str, Held] = {}
        self._interval = reap_interval
        self._stop = threading.Event()
        self._reaper = threading.Thread(target=self._reap_loop, daemon=True)
        self._reaper.start()

    def send(self, body: Any, reply_to: Any = None) -> str:
        held = Held(id=str(uuid4()), body=body, enqueued_at=datetime.now(UTC), reply_to=reply_to)
        with self._ready:
            self._pending.append(held)
            self._ready.notify()
        return held.id

    def receive(
        self, max_messages: int = 1, visibility_timeout: float = 300, wait_time_seconds: float = 0
    ) -> list[Message]:
        if not 1 <= max_messages <= 10:
            raise ValueError("max_messages must be between 1 and 10")
        if not 0 <= visibility_timeout <= 43_200:
            raise ValueError("visibility_timeout must be between 0 and 43200")
        deadline = time.monotonic() + wait_time_seconds
        found: list[Message] = []
        with self._ready:
            while not self._pending:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return found
                self._ready.wait(remaining)
            while self._pending and len(found) < max_messages:
                held = self._pending.popleft()
                receipt = str(uuid4())
                held.delivery_count += 1
                held.expires_at = time.monotonic() + visibility_timeout
                self._invisible[receipt] = held
                found.append(
                    Message(
                        id=held.id,
                        body=held.body,
                        receipt_handle=receipt,
                        delivery_count=held.delivery_count,
                        enqueued_at=held.enqueued_at,
                        reply_to=held.reply_to,
                        _acknowledge=self._acknowledge,
                        _nack=self._nack,
                        _extend=self._extend,
                    )
                )
        return found

    def _acknowledge(self, receipt: str) -> None:
        with self._lock:
            if self._invisible.pop(receipt, None) is None:
                raise ReceiptHandleExpired(receipt)

    def _nack(self, receipt: str, visibility_timeout: float) -> None:
        with self._ready:
            held = self._invisible.pop(receipt, None)
            if held is None:
                raise ReceiptHandleExpired(receipt)
            if visibility_timeout:
                held.expires_at = time.monotonic() + visibility_timeout
                self._invisible[str(uuid4())] = held
            else:
                self._pending.append(held)
                self._ready.notify()

    def _extend(self, receipt: str, seconds: float) -> None:
        with self._lock:
            held = self._invisible.get(receipt)
            if held is None:
                raise ReceiptHandleExpired(receipt)
            held.expires_at = time.monotonic() + seconds

    def approximate_count(self) -> int:
        with self._lock:
            return len(self._pending) + len(self._invisible)

    def _reap_loop(self) -> None:
        while not self._stop.wait(self._interval):
            self._reap()

    def _reap(self) -> None:
        now = time.monotonic()
        with self._ready:
            expired = [receipt for receipt, held in self._invisible.items() if held.expires_at <= now]
            for receipt in expired:
                self._pending.append(self._invisible.pop(receipt))
            if expired:
                self._ready.notify_all()

    def close(self) -> None:
        self._stop.set()
        self._reaper.join()
