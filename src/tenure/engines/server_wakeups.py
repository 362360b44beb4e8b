"""Wake-ups from a server: one thread per engine, started by the first long poll, holds one connection that listens to the topics of waiters.

It stops listening to a topic that no poll has waited for in a while. What a listening connection is, each engine says; this file knows no
server.

When the connection is lost, every topic is rung: waiters look for themselves, and meet the error of a server that is down. The thread
connects again with backoff; meanwhile waiters look once a second. An engine that cannot listen (behind a transaction pooler) has no
connection for it at all, and its waiters look every `poll_s`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import select
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.long_poll import LookResult, Poll, WakeupSource, WakeupTopic
from tenure.errors import EngineUnavailableError

log = logging.getLogger("tenure.engines")
T = TypeVar("T")

LOOK_S = 1.0
"""The seconds between looks of a waiter while the listening connection is down."""
TRUST_S = 30.0
"""The seconds between looks while it is up: nothing should get lost, and a look costs nothing at this rate."""
IDLE_S = 5.0
"""A topic without a waiter for this long is not listened to."""
SUBSCRIBE_S = 5.0
"""The longest wait of a poll for its topic to be listened to: a server may accept connections and answer nothing."""


class WakeupListener(Protocol):
    """A connection that hears of topics. Every method raises EngineUnavailableError when it is lost."""

    def fileno(self) -> int: ...

    def listen(self, topics: Iterable[str]) -> None:
        """Listens to these topics. From when this returns, everything that happens on them is heard."""

    def ignore(self, topics: Iterable[str]) -> None: ...

    def heard(self) -> list[str]:
        """Returns the wake-ups that have arrived, without waiting."""

    def idle(self) -> None:
        """Finds out whether the server is still there, after nothing arrived for a while."""

    def close(self) -> None: ...


class ServerTopic(WakeupTopic):
    """A topic that the listening connection may hear of."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.heard = False
        """True from when the server has confirmed that it announces this topic. Only the listening thread sets it."""
        self.parts: list[ServerTopic] = [self]
        """The topics that are listened to for it: itself, or those of a bundle."""
        self.idle_since = 0.0

    @property
    def listening(self) -> bool:
        return all(part.heard for part in self.parts)

    def last_waited(self, now: float) -> float:
        """Returns when a poll last waited for it, itself or in a bundle; `now` while one does."""
        waited: list[WakeupTopic] = [self, *self.bundles]
        if any(topic.waiting for topic in waited):
            return now
        return max(topic.idle_since for topic in waited if isinstance(topic, ServerTopic))

    def renew(self) -> None:
        super().renew()
        self.heard = False


class ServerWakeups(WakeupSource[ServerTopic]):
    """The topics of one engine, and the thread that rings them."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], WakeupListener],
        clock: Clock,
        backoff: Backoff,
        *,
        poll_s: float | None = None,
        announced_as: Callable[[str], str] = str,
    ) -> None:
        super().__init__(clock)
        self._announced_as = announced_as
        self._poll_s = poll_s
        self._name, self._connect, self._backoff = name, connect, backoff
        self._wanted: set[ServerTopic] = set()
        self._thread: threading.Thread | None = None
        self._attempts = 0
        """Failed attempts to listen. A poll that waits for its topic goes on without it when this grows."""
        self._closing = False
        self._deaf = False
        self._nudges: tuple[socket.socket, socket.socket] | None = None
        """Our threads write to the second one, and the listening thread looks up."""

    def new_topic(self, name: str) -> ServerTopic:
        return ServerTopic(name)

    def announced_as(self, name: str) -> str:
        return self._announced_as(name)

    def left(self, topic: ServerTopic) -> None:
        topic.idle_since = self.clock.monotonic()

    def covered(self, bundle: ServerTopic, topics: list[ServerTopic]) -> None:
        bundle.parts = topics

    def look_again(self, topic: ServerTopic, look: Callable[[], LookResult[T]]) -> LookResult[T]:
        # A waiter's connection lay idle: that it broke meanwhile is known only after it was used. A server that is down fails twice.
        try:
            return look()
        except EngineUnavailableError:
            return look()

    def look_every(self, topic: ServerTopic) -> float:
        if self._poll_s is not None:
            return self._poll_s
        return TRUST_S if topic.listening else LOOK_S

    def watch(self, topic: ServerTopic, seconds: float, poll: Poll) -> bool:
        if self._poll_s is not None or topic.listening:
            return False
        with self.lock:
            if self._closing:
                return False
            self._wanted.update(topic.parts)
            attempts = self._attempts
            self._start()
            end = self.clock.monotonic() + min(seconds, SUBSCRIBE_S)
            while not topic.listening and self._attempts == attempts and not (self._closing or poll.over):
                left = end - self.clock.monotonic()
                if left <= 0:
                    break
                self.clock.wait(self.lock, left)
        return topic.listening

    def close(self) -> None:
        self.check_fork()
        with self.lock:
            self._closing = True
            self.lock.notify_all()
            thread = self._thread
        self._nudge()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=10)

    def renew_after_fork(self) -> None:
        """Begins anew in a forked child: the thread is gone, and its connection is the parent's."""
        super().renew_after_fork()
        self._wanted, self._thread, self._nudges = set(), None, None
        self._attempts, self._deaf = 0, False

    def _start(self) -> None:
        if self._thread is None:
            self._nudges = socket.socketpair()
            for end in self._nudges:
                end.setblocking(False)
            self._thread = threading.Thread(target=self._run, name=f"tenure-{self._name}-listener", daemon=True)
            self._thread.start()
        else:
            self._nudge()

    def _nudge(self) -> None:
        if self._nudges is not None:
            with contextlib.suppress(OSError):
                self._nudges[1].send(b"x")

    # The thread

    def _run(self) -> None:
        assert self._nudges is not None
        try:
            while not self._closing:
                try:
                    with contextlib.closing(self._connect()) as listener:
                        self._hear(listener)
                except EngineUnavailableError as error:
                    self._lost(error)
        finally:
            for end in self._nudges:
                end.close()

    def _hear(self, listener: WakeupListener) -> None:
        with self.lock:
            self._wanted = {topic for topic in self._wanted if topic.last_waited(math.inf) == math.inf}
        while not self._closing:
            self._listen(listener)
            if self._deaf:
                self._deaf = False
                log.info("listening again on %s", self._name)
            # Before each wait: wake-ups that came together with an answer have been read already, and wake no poll.
            self._ring(listener)
            self._ring_until_nudged(listener)
            self._drop_idle(listener)

    def _ring(self, listener: WakeupListener) -> None:
        for name in listener.heard():
            if (topic := self._topics.get(name)) is not None:
                topic.ring()

    def _ring_until_nudged(self, listener: WakeupListener) -> None:
        """Returns when one of our threads nudges, or when it is time to look at what is listened to.

        It does as little as possible in between, because the waiters that were rung want the interpreter now.
        """
        assert self._nudges is not None
        poll, nudges = select.poll(), self._nudges[0].fileno()
        poll.register(listener.fileno(), select.POLLIN)
        poll.register(nudges, select.POLLIN)
        end = self.clock.monotonic() + IDLE_S
        while True:
            ready = poll.poll(IDLE_S * 1_000)
            if not ready:
                listener.idle()
                return
            self._ring(listener)
            if any(file == nudges for file, _ in ready):
                self._nudges[0].recv(4_096)
                return
            if self.clock.monotonic() > end:
                return

    def _listen(self, listener: WakeupListener) -> None:
        with self.lock:
            new = [topic for topic in self._wanted if not topic.heard]
        if not new:
            return
        listener.listen(topic.name for topic in new)
        self._backoff.reset()
        with self.lock:
            for topic in new:
                topic.heard = True
            self.lock.notify_all()
        for topic in new:
            topic.ring()

    def _drop_idle(self, listener: WakeupListener) -> None:
        now = self.clock.monotonic()
        with self.lock:
            idle = [topic for topic in self._wanted if topic.heard and now - topic.last_waited(now) > IDLE_S]
            for topic in idle:
                topic.heard = False
                self._wanted.discard(topic)
        if idle:
            listener.ignore(topic.name for topic in idle)

    def _lost(self, error: EngineUnavailableError) -> None:
        pause = self._backoff.next()
        if not self._deaf:  # once per outage
            self._deaf = True
            log.warning("%s; consumers look every %g s until it is back", error.fact, LOOK_S)
        with self.lock:
            self._attempts += 1
            unheard = list(self._wanted)
            for topic in unheard:
                topic.heard = False
            self.lock.notify_all()
        for topic in unheard:
            topic.ring()
        with self.lock:
            if not self._closing:
                self.clock.wait(self.lock, pause)
