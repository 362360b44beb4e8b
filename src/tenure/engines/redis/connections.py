"""Scripts on sessions of Redis: one round trip each, and the count of writes that finds out a server which lost some.

How sessions are borrowed, lost and opened again is `engines.sessions`.

Every answer begins with the number of writes that the server has counted for this engine object, and every call says the
highest number that it has seen. So a server that lost an acknowledged write is found out by the next call, whatever it is
(`lua/parts/seen.lua`), and from then on the engine refuses everything.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import redis.exceptions as r

from tenure.clock import Clock
from tenure.engines.metrics import OperationMetrics
from tenure.engines.redis import faults
from tenure.engines.redis.scripts import Script, script
from tenure.engines.redis.session import Argument, Command, Session
from tenure.engines.redis.url import RedisSettings
from tenure.engines.sessions import Sessions
from tenure.errors import EngineUnavailableError, EngineWentBackError, TenureError
from tenure.randomness import Random

Answer = list[Any]

COUNT_KEPT_S = 30 * 86_400
"""The seconds for which the count of an engine object is kept after its last use."""
_TOUCH_EVERY_S = 3_600.0


class Connections:
    """Runs scripts, one round trip each."""

    def __init__(
        self, settings: RedisSettings, counter: str, clock: Clock, random: Random, metrics: OperationMetrics
    ) -> None:
        self.settings, self.clock, self.metrics = settings, clock, metrics
        self._counter = counter
        self.sessions = Sessions(
            settings,
            clock,
            random,
            connect=lambda: Session(settings),
            errors=r.RedisError,
            told=self._told,
            forked=self._count_anew,
        )
        self._owner = os.getpid()
        self._count_anew()
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
        self.learn(answer[0])
        return answer

    def learn(self, writes: int) -> None:
        """The server has told us of so many writes of ours."""
        if writes > self._acknowledged:
            with self._counting:  # of two answers that come together, the higher one stays
                self._acknowledged = max(self._acknowledged, writes)

    def command(self, wanted: Script, values: Sequence[Argument], *, whole: bool = False) -> Command:
        """A call of a script, by its SHA or as a whole."""
        name, text = ("EVAL", wanted.source) if whole else ("EVALSHA", wanted.sha)
        return (name, text, 2, self.settings.prefix, self._counter, self._acknowledged, *values)

    def _once(self, wanted: Script, values: Sequence[Argument], lost: type[EngineUnavailableError]) -> Answer:
        session = self.sessions.borrow(wanted.name, lost)
        try:
            if self.clock.boottime() > self._touch_at:
                self._touch(session)
            answer, replicas = self._exchange(session, wanted, values)
        except r.RedisError as error:
            if not session.connected or faults.is_lost(error):
                self.sessions.drop(session)
            else:
                self.sessions.give_back(session)
            raise self._told(error, wanted.name, lost) from error
        except BaseException:
            self.sessions.drop(session)  # interrupted in the middle: nobody knows what it would say next
            raise
        self.sessions.give_back(session)
        if wanted.writes and replicas < self.settings.wait:
            raise lost(
                f"{self.sessions.where(wanted.name)}: {replicas} of {self.settings.wait} replicas have it after "
                f"{self.settings.timeout_s / 2:g} s, so a failover could lose it",
                remedy="Bring the replicas back; ask what happened before doing it again",
            )
        return answer

    def _exchange(self, session: Session, wanted: Script, values: Sequence[Argument]) -> tuple[Answer, int]:
        """The script's answer, and how many replicas have what it wrote (none, when nobody has to be waited for)."""
        wait = ("WAIT", self.settings.wait, int(self.settings.timeout_s * 500))
        followers = [wait] if wanted.writes and self.settings.wait else []
        try:
            return self._ask(session, self.command(wanted, values), followers)
        except r.NoScriptError:  # the server restarted, or somebody flushed its scripts
            return self._ask(session, self.command(wanted, values, whole=True), followers)

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

    def _told(self, error: r.RedisError, operation: str, lost: type[EngineUnavailableError]) -> TenureError:
        where = self.sessions.where(operation)
        return faults.translate(error, where, self.settings.secret, lost, self.settings.timeout_s)

    def _count_anew(self) -> None:
        """In a forked child the lock may be held by a thread that is not there."""
        self._counting = threading.Lock()

    def check_open(self) -> None:
        self.sessions.check_open()

    def close(self) -> None:
        """A forked child shares its parent's count, and leaves it."""
        ours = self._owner == os.getpid()
        self.sessions.close((lambda session: session.ask("UNLINK", self._counter)) if ours else None)
