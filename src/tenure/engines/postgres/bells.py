"""Long polls: how a thread waits until there may be something for it, and how it is told.

A *bell* is one topic (a mailbox, a journal) in one engine. One thread per engine, started by the first long poll, holds one
connection that listens to the topics somebody waits on, and rings their bells. A topic that nobody has waited on for a
while is not listened to any more, and then its senders need not notify (see `ring` in sql/waking.sql).

When that connection is lost, every bell rings: waiters look for themselves, and a server that is down tells them so. The
thread reconnects with backoff; meanwhile waiters look once a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import select
import socket
import threading

import psycopg

from tenure.clock import Clock
from tenure.engines.backoff import Backoff
from tenure.engines.postgres import faults
from tenure.engines.postgres.connections import Session, open_session
from tenure.engines.postgres.schema import channel_prefix
from tenure.engines.postgres.statements import Statements
from tenure.engines.postgres.url import PostgresSettings
from tenure.errors import EngineUnavailableError
from tenure.randomness import Random

log = logging.getLogger("tenure.engines.postgres")

_LOOK_S = 1.0
"""How often a waiter looks by itself while the listening connection is down."""
_TRUST_S = 30.0
"""And while it is up: nothing should get lost, and a look costs nothing at this rate."""
_IDLE_S = 5.0
"""A topic without a waiter for this long is not listened to."""
_SUBSCRIBE_S = 5.0


class Bell:
    """One topic: its waiters wait on `condition`; `rings` tells them that something happened since they looked."""

    def __init__(self, topic: str, channel: str) -> None:
        self.topic, self.channel = topic, channel
        self.condition = threading.Condition()
        self.rings = 0
        self.waiting = 0
        self.idle_since = 0.0
        self.listening = False

    def ring(self) -> None:
        with self.condition:
            self.rings += 1
            self.condition.notify_all()


class Polls:
    """The long polls of one handle, and how `wake` and `close` end them."""

    def __init__(self, bell: Bell, clock: Clock) -> None:
        self.bell = bell
        self.closed = False
        self._clock = clock
        self._under_way = 0
        self._wakes = 0
        self._wake_next = False

    def begin(self) -> int | None:
        """A ticket for one poll, or None when a `wake` that came before it says not to wait."""
        with self.bell.condition:
            if self._wake_next:
                self._wake_next = False
                return None
            self._under_way += 1
            self.bell.waiting += 1
            return self._wakes

    def end(self) -> None:
        with self.bell.condition:
            self._under_way -= 1
            self.bell.waiting -= 1
            self.bell.idle_since = self._clock.monotonic()

    def ended(self, ticket: int) -> bool:
        return self.closed or self._wakes != ticket

    def wake(self) -> None:
        with self.bell.condition:
            if self._under_way:
                self._wakes += 1
                self.bell.condition.notify_all()
            else:
                self._wake_next = True

    def close(self) -> None:
        with self.bell.condition:
            self.closed = True
            self.bell.condition.notify_all()

    def wait(self, ticket: int, seen: int, seconds: float) -> None:
        """Until the bell rang after `seen`, the time is over, or the poll was ended."""
        bell, end = self.bell, self._clock.monotonic() + seconds
        with bell.condition:
            while bell.rings == seen and not self.ended(ticket):
                left = end - self._clock.monotonic()
                if left <= 0 or not self._clock.wait(bell.condition, left):
                    return


class Bells:
    """All bells of one engine, and the thread that rings them."""

    def __init__(self, settings: PostgresSettings, statements: Statements, clock: Clock, random: Random) -> None:
        self._settings, self._statements, self._clock = settings, statements, clock
        self._backoff = Backoff(random, first_s=0.05, most_s=5.0)
        self._prefix = channel_prefix(settings.schema)
        self._bells: dict[str, Bell] = {}
        self._channels: dict[str, Bell] = {}
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._wanted: set[Bell] = set()
        self._thread: threading.Thread | None = None
        self._attempts = 0
        self._closing = False
        self._deaf = False
        self._pipe: tuple[socket.socket, socket.socket] | None = None

    def bell(self, topic: str) -> Bell:
        with self._lock:
            found = self._bells.get(topic)
            if found is None:
                channel = self._prefix + hashlib.md5(topic.encode(), usedforsecurity=False).hexdigest()
                found = self._bells[topic] = self._channels[channel] = Bell(topic, channel)
            return found

    def look_every(self, bell: Bell) -> float:
        """How long a waiter may wait before it looks by itself."""
        if not self._settings.notify:
            return self._settings.poll_s
        return _TRUST_S if bell.listening else _LOOK_S

    def subscribe(self, bell: Bell, seconds: float) -> bool:
        """Listen to this topic. True when that is new: what was sent before is not announced, so look once more."""
        if bell.listening or not self._settings.notify:
            return False
        if self._pid != os.getpid():
            self._after_fork()
        with self._lock:
            if self._closing:
                return False
            self._wanted.add(bell)
            attempts = self._attempts
            self._start()
            end = self._clock.monotonic() + min(seconds, _SUBSCRIBE_S)
            while not bell.listening and self._attempts == attempts and not self._closing:
                left = end - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait(self._lock, left)
        return bell.listening

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._lock.notify_all()
            thread = self._thread if self._pid == os.getpid() else None
        self._nudge()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=10)

    def _after_fork(self) -> None:
        """In a forked child the thread is gone, and its connection is the parent's."""
        for bell in self._bells.values():
            bell.listening, bell.waiting = False, 0
        self._reset()

    def _start(self) -> None:
        if self._thread is None:
            self._pipe = socket.socketpair()
            for end in self._pipe:
                end.setblocking(False)
            self._thread = threading.Thread(target=self._run, name="tenure-postgres-listener", daemon=True)
            self._thread.start()
        else:
            self._nudge()

    def _nudge(self) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe[1].send(b"x")

    # The thread

    def _run(self) -> None:
        assert self._pipe is not None
        try:
            while not self._closing:
                try:
                    self._listen()
                except psycopg.Error as error:
                    self._lost(error)
        finally:
            for end in self._pipe:
                end.close()

    def _listen(self) -> None:
        with contextlib.closing(open_session(self._settings, self._clock)) as session:
            session.add_notify_handler(lambda note: self._ring(note.channel))
            with self._lock:
                again = [bell for bell in self._wanted if bell.waiting]
                self._wanted = set(again)
            self._subscribe(session, again)
            self._backoff.reset()
            if self._deaf:
                self._deaf = False
                log.info("listening again on %s", self._settings.shown)
            while not self._closing:
                self._await(session)
                with self._lock:
                    new = [bell for bell in self._wanted if not bell.listening]
                self._subscribe(session, new)
                self._drop_idle(session)

    def _await(self, session: Session) -> None:
        """Until the server or one of our threads says something; rings what was announced."""
        assert self._pipe is not None
        poll = select.poll()
        poll.register(session.pgconn.socket, select.POLLIN)
        poll.register(self._pipe[0], select.POLLIN)
        for fileno, _ in poll.poll(_IDLE_S * 1_000):
            if fileno == self._pipe[0].fileno():
                with contextlib.suppress(BlockingIOError):
                    self._pipe[0].recv(4_096)
            else:
                session.pgconn.consume_input()
        while (note := session.pgconn.notifies()) is not None:
            self._ring(note.relname.decode())

    def _ring(self, channel: str) -> None:
        bell = self._channels.get(channel)
        if bell is not None:
            bell.ring()

    def _subscribe(self, session: Session, bells: list[Bell]) -> None:
        for bell in bells:
            session.execute(self._statements.listen, (bell.topic,))
            with self._lock:
                bell.listening = True
                self._lock.notify_all()
            bell.ring()

    def _drop_idle(self, session: Session) -> None:
        now = self._clock.monotonic()
        with self._lock:
            idle = [
                bell for bell in self._wanted if bell.listening and not bell.waiting and now - bell.idle_since > _IDLE_S
            ]
            for bell in idle:
                bell.listening = False
                self._wanted.discard(bell)
        for bell in idle:
            session.execute(self._statements.unlisten, (bell.topic,))

    def _lost(self, error: psycopg.Error) -> None:
        told = faults.translate(error, "listening", self._settings.secret, EngineUnavailableError)
        pause = self._backoff.next()
        if not self._deaf:  # once per outage
            self._deaf = True
            log.warning("%s; consumers look every %g s until it is back", told.fact, _LOOK_S)
        with self._lock:
            self._attempts += 1
            deaf = list(self._wanted)
            for bell in deaf:
                bell.listening = False
            self._lock.notify_all()
        for bell in deaf:
            bell.ring()
        with self._lock:
            if not self._closing:
                self._clock.wait(self._lock, pause)
