"""Sends commands to the server without waiting for their answers, on a session of its own.

A consumer that was handed a message confirms it, and one that stops waiting withdraws its offer. Neither has to wait for the answer, and
both can be told twice: what had no answer when the connection broke is told again on the next one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import redis.exceptions as r

from tenure.engines.redis.connections import Answer, Argument, RedisConnections, RedisSession
from tenure.engines.redis.scripts import script

_FAREWELL_S = 1.0
"""The seconds that closing waits for the last answers: closing on unread answers resets the connection, and commands may be lost with it."""


class Word(NamedTuple):
    """Something that was told, when, and who wants to know that it was done."""

    operation: str
    values: tuple[Argument, ...]
    at: float
    answered: Callable[[Answer], None]


class Aside:
    """Safe to share between threads; a forked child begins anew."""

    def __init__(self, connections: RedisConnections) -> None:
        self._connections = connections
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._session: RedisSession | None = None
        self._unanswered: deque[Word] = deque()

    def tell(self, operation: str, *values: Argument, answered: Callable[[Answer], None] = lambda answer: None) -> bool:
        """False when the server cannot be reached: then nothing was told."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if self._closed:
                return False
            self._hear()
            word = Word(operation, values, self._connections.clock.monotonic(), answered)
            self._unanswered.append(word)
            return self._say(word)

    def hear(self) -> None:
        """Take the answers that have come, without waiting for more."""
        if self._pid == os.getpid():
            with self._lock:
                self._hear()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._session is not None and self._pid == os.getpid():
                with contextlib.suppress(r.RedisError, OSError):
                    while self._unanswered and self._session.pending(_FAREWELL_S):
                        self._take(self._session)
                self._lose()

    def _say(self, *words: Word) -> bool:
        """On the session that there is. If it broke, then on a new one, with everything that had no answer."""
        if self._session is not None:
            try:
                for word in words:
                    self._send(self._session, word)
                return True
            except (r.RedisError, OSError):
                self._lose()
        try:
            self._session = RedisSession(self._connections.settings)
            now = self._connections.clock.monotonic()
            self._unanswered = deque(word._replace(at=now) for word in self._unanswered)
            for word in self._unanswered:
                self._send(self._session, word)
            return True
        except (r.RedisError, OSError):
            self._lose()
            self._unanswered.clear()
            return False

    def _hear(self) -> None:
        if self._session is not None and not self._heard(self._session):
            self._lose()
            if self._unanswered:
                self._say()

    def _heard(self, session: RedisSession) -> bool:
        """False when the connection broke, or the server has been silent for too long."""
        try:
            while session.pending():
                if not self._unanswered:
                    return False  # nobody asked: it says that it closes
                self._take(session)
        except (r.RedisError, OSError):
            return False
        now, patience_s = self._connections.clock.monotonic(), self._connections.settings.timeout_s
        return not self._unanswered or now < self._unanswered[0].at + patience_s

    def _take(self, session: RedisSession) -> None:
        try:
            answer: Answer = session.read()
        except r.NoScriptError:  # somebody flushed the server's scripts
            word = self._unanswered.popleft()
            self._unanswered.append(word)
            self._send(session, word, whole=True)
        except r.ResponseError:
            self._unanswered.popleft()  # it was not done; whoever asks next gets to know why
        else:
            word = self._unanswered.popleft()
            self._connections.learn(answer[0])
            word.answered(answer)

    def _send(self, session: RedisSession, word: Word, *, whole: bool = False) -> None:
        session.send(self._connections.command(script(word.operation), word.values, whole=whole))

    def _lose(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None
