"""Commands to the server whose answers nobody waits for, on a session of their own."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tenure.engines.redis.connections import NO_SCRIPT, Answer, RedisConnections, script
from tenure.engines.redis.session import Argument, RedisFailure, RedisRefused, RedisSession

_LAST_ANSWERS_S = 1.0
"""The seconds that closing waits for the last answers: closing on unread answers resets the connection, and commands may be lost with it."""


class PipelinedCommand(NamedTuple):
    """A script that was called, the time at which it was sent, and the function that gets its answer."""

    operation: str
    values: tuple[Argument, ...]
    sent_at: float
    on_answer: Callable[[Answer], None]


class PipelinedCommands:
    """Sends commands to the server without waiting for their answers, on a session of its own.

    A consumer that was handed a message confirms it, and one that stops waiting withdraws its offer. Neither has to wait for the answer,
    and both may arrive twice: a command that had no answer when the connection broke is sent again on the next one.

    Answers are read by the thread that sends the next command, or that asks for them with `read_answers`; no thread waits for them. So work
    that never lets go of the interpreter delays no confirmation, and reads the answer itself when it comes to ask. Safe to share between
    threads; a forked child begins anew.
    """

    def __init__(self, connections: RedisConnections) -> None:
        self._connections = connections
        self._closed = False
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._session: RedisSession | None = None
        self._unanswered: deque[PipelinedCommand] = deque()
        """In the order in which they were sent, which is the order of their answers."""

    def send(
        self, operation: str, *values: Argument, on_answer: Callable[[Answer], None] = lambda answer: None
    ) -> bool:
        """Calls a script. Returns False when the server cannot be reached: then nothing was sent."""
        if self._pid != os.getpid():
            self._begin_after_fork()
        with self._lock:
            if self._closed:
                return False
            self._read_arrived()
            command = PipelinedCommand(operation, values, self._connections.clock.monotonic(), on_answer)
            self._unanswered.append(command)
            return self._write(command)

    def read_answers(self) -> None:
        """Reads the answers that have arrived, without waiting for more."""
        if self._pid == os.getpid():
            with self._lock:
                self._read_arrived()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._session is not None and self._pid == os.getpid():
                with contextlib.suppress(RedisFailure, OSError):
                    while self._unanswered and self._session.pending(_LAST_ANSWERS_S):
                        self._read_one(self._session)
                self._drop_session()

    def _begin_after_fork(self) -> None:
        """The session and the commands without an answer are the parent's, and the lock may be held by a thread that is not here."""
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._session, self._unanswered = None, deque()

    def _write(self, *commands: PipelinedCommand) -> bool:
        """Writes to the session that there is. If that broke, opens another and sends everything that had no answer."""
        if self._session is not None:
            try:
                for command in commands:
                    self._write_one(self._session, command)
                return True
            except (RedisFailure, OSError):
                self._drop_session()
        try:
            self._session = self._connections.open_session()
            now = self._connections.clock.monotonic()
            self._unanswered = deque(command._replace(sent_at=now) for command in self._unanswered)
            for command in self._unanswered:
                self._write_one(self._session, command)
            return True
        except (RedisFailure, OSError):
            self._drop_session()
            self._unanswered.clear()
            return False

    def _read_arrived(self) -> None:
        if self._session is not None and not self._read_from(self._session):
            self._drop_session()
            if self._unanswered:
                self._write()

    def _read_from(self, session: RedisSession) -> bool:
        """Returns False when the connection broke, or the server has been silent for too long."""
        try:
            while session.pending():
                if not self._unanswered:
                    return False  # an answer to no command: the server says that it closes
                self._read_one(session)
        except (RedisFailure, OSError):
            return False
        now, patience_s = self._connections.clock.monotonic(), self._connections.settings.timeout_s
        return not self._unanswered or now < self._unanswered[0].sent_at + patience_s

    def _read_one(self, session: RedisSession) -> None:
        try:
            answer: Answer = session.read()
        except RedisRefused as error:
            if error.ends_session:
                raise
            command = self._unanswered.popleft()
            if error.word == NO_SCRIPT:  # the server's scripts were flushed: send this one whole, as the last
                self._unanswered.append(command)
                self._write_one(session, command, whole=True)
            # Any other: it was not done, and the next call on the message says why.
        else:
            command = self._unanswered.popleft()
            self._connections.note_writes(answer[0])
            command.on_answer(answer)

    def _write_one(self, session: RedisSession, command: PipelinedCommand, *, whole: bool = False) -> None:
        session.send(self._connections.command(script(command.operation), command.values, whole=whole))

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None
