"""Heartbeat and LeaseExtender the documents' own way: a lock per beat, a lock per callback.

`DocumentHeartbeat` and `DocumentLeaseExtender` are document 003's code. It has neither a count nor progress nor `add_callback`;
`LockedHeartbeat` does the same things as ours (documents 003 and 004 together), in the same way as the document: a lock for the
beat, a lock for the callbacks. `LockedOnceHeartbeat` is the same with both under one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class DocumentHeartbeat:
    """Document 003, "Heartbeat Extension"."""

    _last_beat: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    on_beat: Callable[[], None] | None = None

    def beat(self) -> None:
        with self._lock:
            self._last_beat = time.monotonic()
        if self.on_beat is not None:
            self.on_beat()

    def elapsed(self) -> float:
        with self._lock:
            return time.monotonic() - self._last_beat


@dataclass(slots=True)
class LockedHeartbeat:
    """What ours does, the document's way: state under a lock, the callbacks copied under it and called outside."""

    _last_beat: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _count: int = 0
    _callbacks: list[Callable[[], None]] = field(default_factory=list)
    on_beat: Callable[[], None] | None = None
    progress: float | None = None
    note: str | None = None

    def beat(self, progress: float | None = None, note: str | None = None) -> None:
        with self._lock:
            self._last_beat = time.monotonic()
            self._count += 1
            if progress is not None:
                self.progress = progress
            if note is not None:
                self.note = note
        if self.on_beat is not None:
            self.on_beat()
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()


class LockedOnceHeartbeat(LockedHeartbeat):
    """The same, with the callbacks copied under the beat's own lock."""

    __slots__ = ()

    def beat(self, progress: float | None = None, note: str | None = None) -> None:
        with self._lock:
            self._last_beat = time.monotonic()
            self._count += 1
            if progress is not None:
                self.progress = progress
            if note is not None:
                self.note = note
            callbacks = list(self._callbacks)
        if self.on_beat is not None:
            self.on_beat()
        for callback in callbacks:
            callback()


class DocumentLeaseExtender:
    """Document 003, "LeaseExtender", without its logging, which the rate-limited path does not reach."""

    def __init__(self, interval: float, extension: int) -> None:
        self._interval, self._extension = interval, extension
        self._lock = threading.Lock()
        self._msg: Any = None
        self._heartbeat: DocumentHeartbeat | LockedHeartbeat | None = None
        self._last_extension = 0.0
        self._original_callback: Callable[[], None] | None = None

    @contextmanager
    def attach(self, msg: Any, heartbeat: DocumentHeartbeat | LockedHeartbeat) -> Iterator[None]:
        with self._lock:
            self._msg = msg
            self._heartbeat = heartbeat
            self._last_extension = time.monotonic()
            self._original_callback = heartbeat.on_beat
            heartbeat.on_beat = self._on_beat
        try:
            yield
        finally:
            with self._lock:
                heartbeat.on_beat = self._original_callback
                self._msg = self._heartbeat = self._original_callback = None

    def _on_beat(self) -> None:
        if self._original_callback is not None:
            self._original_callback()
        with self._lock:
            if self._msg is None:
                return
            now = time.monotonic()
            if now - self._last_extension < self._interval:
                return
            self._msg.extend_visibility(self._extension)
            self._last_extension = now
