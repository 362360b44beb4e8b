"""The sessions of one engine: borrowed for one script each, opened when needed, thrown away when they broke.

Why not redis-py's pool: docs/decisions/0054. A caller that needs a session opens it itself, so that it gets the server's own
words when that fails. When one is lost, all idle ones that the server closed are dropped with it. A server out of reach is
tried again at jittered, growing intervals by one thread at a time, however many ask; in between they wait, and those that
waited share the answer.

Every answer begins with the number of writes that the server has counted for this engine object, and every call says the
highest number that it has seen. So a server that lost an acknowledged write is found out by the next call, whatever it is
(`lua/parts/seen.lua`), and from then on the engine refuses everything.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Any

import redis.exceptions as r

from tenure.clock import Clock
from tenure.engines.backoff import Backoff
from tenure.engines.metrics import OperationMetrics
from tenure.engines.redis import faults
from tenure.engines.redis.scripts import Script, script
from tenure.engines.redis.session import Argument, Command, Session
from tenure.engines.redis.url import RedisSettings
from tenure.errors import EngineBusyError, EngineClosedError, EngineUnavailableError, EngineWentBackError, TenureError
from tenure.randomness import Random

Answer = list[Any]

COUNT_KEPT_S = 30 * 86_400
"""How long the count of an engine object is kept after it was last touched."""
_TOUCH_EVERY_S = 3_600.0


class Connections:
    """Runs scripts, one round trip each, on at most `settings.pool` sessions."""

    def __init__(
        self, settings: RedisSettings, counter: str, clock: Clock, random: Random, metrics: OperationMetrics
    ) -> None:
        self.settings, self.clock, self.metrics = settings, clock, metrics
        self._counter = counter
        self._backoff = Backoff(random, first_s=0.05, most_s=2.0)
        self._free = threading.Condition()
        self._gate = threading.Lock()
        self._counting = threading.Lock()
        self._idle: list[Session] = []
        self._open = 0
        self._pid = self._owner = os.getpid()
        self._closed = False
        self._failures = 0
        self._not_before = 0.0
        self._last_error: TenureError | None = None
        self._acknowledged = 0
        self._went_back: str | None = None
        self._touch_at = 0.0

    def call(
        self,
        operation: str,
        values: Sequence[Argument] = (),
        lost: type[EngineUnavailableError] = EngineUnavailableError,
    ) -> Answer:
        """Run one script. After `lost` the outcome is unknown; after any other error nothing has happened."""
        begun = self.clock.monotonic()
        try:
            if self._went_back is not None:
                raise EngineWentBackError(self._went_back, remedy=faults.WENT_BACK)
            answer = self._once(script(operation), values, lost)
        except TenureError as error:
            self.metrics.failed(operation, error)
            if isinstance(error, EngineWentBackError):
                self._went_back = error.fact
            raise
        finally:
            self.metrics.took(operation, self.clock.monotonic() - begun)
        if answer[0] > self._acknowledged:
            with self._counting:  # of two answers that come together, the higher one stays
                self._acknowledged = max(self._acknowledged, answer[0])
        return answer

    def _once(self, wanted: Script, values: Sequence[Argument], lost: type[EngineUnavailableError]) -> Answer:
        session = self._borrow(wanted.name, lost)
        try:
            if self.clock.boottime() > self._touch_at:
                self._touch(session)
            answer, replicas = self._exchange(session, wanted, values)
        except r.RedisError as error:
            if not session.connected or faults.is_lost(error):
                self._drop(session)
            else:
                self._give_back(session)
            raise self._told(error, wanted.name, lost) from error
        except BaseException:
            self._drop(session)  # interrupted in the middle: nobody knows what it would say next
            raise
        self._give_back(session)
        if wanted.writes and replicas < self.settings.wait:
            raise lost(
                f"{self._where(wanted.name)}: {replicas} of {self.settings.wait} replicas have it after "
                f"{self.settings.timeout_s / 2:g} s, so a failover could lose it",
                remedy="Bring the replicas back; ask what happened before doing it again",
            )
        return answer

    def _exchange(self, session: Session, wanted: Script, values: Sequence[Argument]) -> tuple[Answer, int]:
        """The script's answer, and how many replicas have what it wrote (none, when nobody has to be waited for)."""
        tail = (2, self.settings.prefix, self._counter, self._acknowledged, *values)
        wait = ("WAIT", self.settings.wait, int(self.settings.timeout_s * 500))
        followers = [wait] if wanted.writes and self.settings.wait else []
        try:
            return self._ask(session, ("EVALSHA", wanted.sha, *tail), followers)
        except r.NoScriptError:  # the server restarted, or somebody flushed its scripts
            return self._ask(session, ("EVAL", wanted.source, *tail), followers)

    def _ask(self, session: Session, command: Command, followers: Sequence[Command]) -> tuple[Answer, int]:
        """One command with what follows it, in one go. Also after an error each of them is answered."""
        session.send(command, *followers)
        try:
            answer: Answer = session.read()
        except r.RedisError:
            if session.connected:
                for _ in followers:
                    session.read()
            raise
        return answer, sum(int(session.read()) for _ in followers)

    def _touch(self, session: Session) -> None:
        """Begin, or keep, the count of our writes. One that was left alone for a month begins anew: that is no loss."""
        now = self.clock.boottime()
        if not self._touch_at or now > self._touch_at + COUNT_KEPT_S - 2 * _TOUCH_EVERY_S:
            session.ask("SET", self._counter, self._acknowledged, "NX", "EX", COUNT_KEPT_S)
        else:
            session.ask("EXPIRE", self._counter, COUNT_KEPT_S)
        self._touch_at = now + _TOUCH_EVERY_S

    def _where(self, operation: str) -> str:
        return f"{operation} on {self.settings.shown}"

    def _told(self, error: r.RedisError, operation: str, lost: type[EngineUnavailableError]) -> TenureError:
        return faults.translate(error, self._where(operation), self.settings.secret, lost, self.settings.timeout_s)

    # Borrowing

    def _borrow(self, operation: str, lost: type[EngineUnavailableError]) -> Session:
        if self._pid != os.getpid():
            self._forget_parent()
        while (found := self._take(operation)) is not None:
            if found.fresh:
                return found
            self._drop(found)
        try:
            return self._connect(operation, lost)
        except BaseException:
            with self._free:
                self._open -= 1
                self._free.notify()
            raise

    def _take(self, operation: str) -> Session | None:
        """An idle session, or None for the right to open one."""
        with self._free:
            deadline = None
            while True:
                self.check_open()
                if self._idle:
                    return self._idle.pop()
                if self._open < self.settings.pool:
                    self._open += 1
                    return None
                now = self.clock.monotonic()
                deadline = deadline or now + self.settings.timeout_s
                if now >= deadline:
                    raise EngineBusyError(
                        f"{self._where(operation)}: all {self.settings.pool} connections were busy for {self.settings.timeout_s:g} s",
                        remedy="Raise ?pool= in the URL, or use fewer threads",
                    )
                self.clock.wait(self._free, deadline - now)

    def _connect(self, operation: str, lost: type[EngineUnavailableError]) -> Session:
        failures = self._failures
        with self._gate:
            if self._failures != failures and self._last_error is not None:
                raise self._retold(self._last_error, operation, lost)  # somebody tried while we waited to
            self._await_turn()
            try:
                session = Session(self.settings)
            except r.RedisError as error:
                self._failures += 1
                self._not_before = self.clock.monotonic() + self._backoff.next()
                self._last_error = self._told(error, operation, lost)
                raise self._last_error from error
            self._backoff.reset()
            self._not_before, self._last_error = 0.0, None
        return session

    def _await_turn(self) -> None:
        with self._free:
            while not self._closed and (left := self._not_before - self.clock.monotonic()) > 0:
                self.clock.wait(self._free, left)
            self.check_open()

    def _retold(self, error: TenureError, operation: str, lost: type[EngineUnavailableError]) -> TenureError:
        """Another thread's error, as ours: an exception object belongs to one raise."""
        fact = error.fact.partition(": ")[2] or error.fact
        kind = lost if isinstance(error, EngineUnavailableError) else type(error)
        return kind(f"{self._where(operation)}: {fact}", remedy=error.remedy)

    def _give_back(self, session: Session) -> None:
        with self._free:
            if not self._closed:
                self._idle.append(session)
                self._free.notify()
                return
            self._open -= 1
        session.close()

    def _drop(self, session: Session) -> None:
        """Lost. The idle ones most likely are too: a call on each would find out one by one."""
        with self._free:
            dropped = [session, *(one for one in self._idle if not one.fresh)]
            self._idle = [one for one in self._idle if one not in dropped]
            self._open -= len(dropped)
            self._free.notify_all()
        for one in dropped:
            one.close()

    def _forget_parent(self) -> None:
        """In a forked child: the sessions are the parent's, and closing them here would end them there."""
        _inherited.extend(self._idle)
        self._free = threading.Condition()
        self._gate, self._counting = threading.Lock(), threading.Lock()
        self._idle, self._open, self._pid = [], 0, os.getpid()

    def close(self) -> None:
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._free.notify_all()
        if self._pid != os.getpid():
            return
        if idle and self._owner == self._pid:  # a forked child shares its parent's count
            with contextlib.suppress(r.RedisError):
                idle[0].ask("UNLINK", self._counter)
        for session in idle:
            session.close()

    def check_open(self) -> None:
        if self._closed:
            raise EngineClosedError(f"the engine {self.settings.shown} was closed", remedy="Open it again")


# Kept for ever, so that no destructor says goodbye on the parent's socket.
_inherited: list[Session] = []
