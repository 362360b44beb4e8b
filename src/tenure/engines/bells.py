"""Long polls: how a thread waits until there may be something for it, and how it is told.

A *bell* is one topic (a mailbox, a journal) in one engine. One thread per engine, started by the first long poll, holds an
*ear*: one connection that listens to the topics somebody waits on. A topic that nobody has waited on for a while is not
listened to any more. What an ear is, each engine says; this file knows no server.

When the ear is lost, every bell rings: waiters look for themselves, and a server that is down tells them so. The thread
connects again with backoff; meanwhile waiters look once a second. An engine that cannot listen (behind a transaction pooler) has no
ear at all, and its waiters look every `poll_s`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.errors import EngineClosedError, EngineUnavailableError

log = logging.getLogger("tenure.engines")
T = TypeVar("T")

LOOK_S = 1.0
"""How often a waiter looks by itself while the listening connection is down."""
TRUST_S = 30.0
"""And while it is up: nothing should get lost, and a look costs nothing at this rate."""
IDLE_S = 5.0
"""A topic without a waiter for this long is not listened to."""
SUBSCRIBE_S = 5.0
SHORTEST_WAIT_S = 0.001


class Ear(Protocol):
    """A connection that hears of topics. Every method raises EngineUnavailableError when it is lost."""

    def fileno(self) -> int: ...

    def listen(self, topics: Iterable[str]) -> None:
        """From when this returns, everything that happens on them is heard."""

    def ignore(self, topics: Iterable[str]) -> None: ...

    def heard(self) -> list[str]:
        """Returns the wake-ups that have arrived, without waiting."""

    def idle(self) -> None:
        """Nothing arrived for a while: find out whether the server is still there."""

    def close(self) -> None: ...


class Look(NamedTuple, Generic[T]):
    """The outcome of one look: results, a flag to look again at once, and the seconds until something is due."""

    found: list[T]
    again: bool = False
    due_in: float | None = None


class Bell:
    """One topic: its waiters wait on `condition`; `rings` tells them that something happened since they looked."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
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

    def __init__(self, bells: Bells, topic: str) -> None:
        self.bell = bells.bell(topic)
        self.closed = False
        self._bells, self._clock = bells, bells.clock
        self._under_way = 0
        self._wakes = 0
        self._wake_next = False

    def poll(self, wait_s: float, look: Callable[[], Look[T]], handed: Callable[[], bool] = lambda: False) -> list[T]:
        """Look until something is found, the time is over, or the poll is ended. A look must be repeatable.

        `handed` says that a look will find something, without the bell having rung; whoever makes it true notifies its condition.
        """
        end = self._clock.monotonic() + wait_s
        ticket: int | None = None
        try:
            while True:
                seen = self.bell.rings
                found, again, due_in = look() if ticket is None else _looked_twice(look)
                if found:
                    return found
                if ticket is None and (ticket := self._begin()) is None:
                    return []
                left = end - self._clock.monotonic()
                if left <= 0 or self._ended(ticket):
                    return []
                if again or self._bells.subscribe(self.bell, left, partial(self._ended, ticket)):
                    continue
                if self._ended(ticket):
                    return []
                pause = min(left, self._bells.look_every(self.bell))
                if due_in is not None:
                    pause = min(pause, max(SHORTEST_WAIT_S, due_in))
                self._wait(ticket, seen, pause, handed)
                if self.closed:
                    return []
        except EngineClosedError:
            if ticket is None:
                raise
            return []  # closed while we waited: the wait ends, as with any close
        finally:
            if ticket is not None:
                self._end()

    def wake(self) -> None:
        with self.bell.condition:
            if self._under_way:
                self._wakes += 1
                self.bell.condition.notify_all()
            else:
                self._wake_next = True
        self._bells.stir()

    def close(self) -> None:
        with self.bell.condition:
            self.closed = True
            self.bell.condition.notify_all()
        self._bells.stir()

    def _begin(self) -> int | None:
        """A ticket for one poll, or None when a `wake` that came before it says not to wait."""
        with self.bell.condition:
            if self._wake_next:
                self._wake_next = False
                return None
            self._under_way += 1
            self.bell.waiting += 1
            return self._wakes

    def _end(self) -> None:
        with self.bell.condition:
            self._under_way -= 1
            self.bell.waiting -= 1
            self.bell.idle_since = self._clock.monotonic()

    def _ended(self, ticket: int) -> bool:
        return self.closed or self._wakes != ticket

    def _wait(self, ticket: int, seen: int, seconds: float, handed: Callable[[], bool]) -> None:
        """Until the bell rang after `seen`, the time is over, or the poll was ended."""
        bell, end = self.bell, self._clock.monotonic() + seconds
        with bell.condition:
            while bell.rings == seen and not handed() and not self._ended(ticket):
                left = end - self._clock.monotonic()
                if left <= 0 or not self._clock.wait(bell.condition, left):
                    return


def _looked_twice(look: Callable[[], Look[T]]) -> Look[T]:
    """A waiter's connection lay idle: that it broke meanwhile is known only after it was used. A server that is down fails twice."""
    try:
        return look()
    except EngineUnavailableError:
        return look()


class Bells:
    """All bells of one engine, and the thread that rings them."""

    def __init__(
        self, name: str, connect: Callable[[], Ear], clock: Clock, backoff: Backoff, *, poll_s: float | None = None
    ) -> None:
        self.clock = clock
        self._poll_s = poll_s
        self._name, self._connect, self._backoff = name, connect, backoff
        self._bells: dict[str, Bell] = {}
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
            return self._bells.setdefault(topic, Bell(topic))

    def stir(self) -> None:
        """Let those who wait for a subscription see whether they still want it."""
        with self._lock:
            self._lock.notify_all()

    def look_every(self, bell: Bell) -> float:
        """Returns the seconds that a waiter may wait before it looks by itself."""
        if self._poll_s is not None:
            return self._poll_s
        return TRUST_S if bell.listening else LOOK_S

    def subscribe(self, bell: Bell, seconds: float, ended: Callable[[], bool]) -> bool:
        """Listen to this topic. True when that is new: what was sent before is not announced, so look once more."""
        if self._poll_s is not None:
            return False
        if self._pid != os.getpid():
            self._after_fork()
        if bell.listening:
            return False
        with self._lock:
            if self._closing:
                return False
            self._wanted.add(bell)
            attempts = self._attempts
            self._start()
            end = self.clock.monotonic() + min(seconds, SUBSCRIBE_S)
            while not bell.listening and self._attempts == attempts and not (self._closing or ended()):
                left = end - self.clock.monotonic()
                if left <= 0:
                    break
                self.clock.wait(self._lock, left)
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
            self._thread = threading.Thread(target=self._run, name=f"tenure-{self._name}-listener", daemon=True)
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
                    with contextlib.closing(self._connect()) as ear:
                        self._hear(ear)
                except EngineUnavailableError as error:
                    self._lost(error)
        finally:
            for end in self._pipe:
                end.close()

    def _hear(self, ear: Ear) -> None:
        with self._lock:
            self._wanted = {bell for bell in self._wanted if bell.waiting}
        while not self._closing:
            self._listen(ear)
            if self._deaf:
                self._deaf = False
                log.info("listening again on %s", self._name)
            # Before each wait: what came together with an answer is in the ear already, and wakes no poll.
            self._ring(ear)
            self._ring_until_stirred(ear)
            self._drop_idle(ear)

    def _ring(self, ear: Ear) -> None:
        for topic in ear.heard():
            if (bell := self._bells.get(topic)) is not None:
                bell.ring()

    def _ring_until_stirred(self, ear: Ear) -> None:
        """Until one of our threads says something, or it is time to look at what is listened to. In between as little as possible: whoever was rung
        for wants the interpreter now."""
        assert self._pipe is not None
        poll, nudges = select.poll(), self._pipe[0].fileno()
        poll.register(ear.fileno(), select.POLLIN)
        poll.register(nudges, select.POLLIN)
        end = self.clock.monotonic() + IDLE_S
        while True:
            ready = poll.poll(IDLE_S * 1_000)
            if not ready:
                ear.idle()
                return
            self._ring(ear)
            if any(file == nudges for file, _ in ready):
                self._pipe[0].recv(4_096)
                return
            if self.clock.monotonic() > end:
                return

    def _listen(self, ear: Ear) -> None:
        with self._lock:
            new = [bell for bell in self._wanted if not bell.listening]
        if not new:
            return
        ear.listen(bell.topic for bell in new)
        self._backoff.reset()
        with self._lock:
            for bell in new:
                bell.listening = True
            self._lock.notify_all()
        for bell in new:
            bell.ring()

    def _drop_idle(self, ear: Ear) -> None:
        now = self.clock.monotonic()
        with self._lock:
            idle = [b for b in self._wanted if b.listening and not b.waiting and now - b.idle_since > IDLE_S]
            for bell in idle:
                bell.listening = False
                self._wanted.discard(bell)
        if idle:
            ear.ignore(bell.topic for bell in idle)

    def _lost(self, error: EngineUnavailableError) -> None:
        pause = self._backoff.next()
        if not self._deaf:  # once per outage
            self._deaf = True
            log.warning("%s; consumers look every %g s until it is back", error.fact, LOOK_S)
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
                self.clock.wait(self._lock, pause)
