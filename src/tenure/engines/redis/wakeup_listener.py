"""Hears of what others did: one connection that is subscribed to the topics of the namespace somebody waits on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import redis.exceptions as r

from tenure.engines.redis.address import RedisSettings
from tenure.engines.redis.connections import RedisSession, translate
from tenure.errors import EngineUnavailableError, TenureError

T = TypeVar("T")


class RedisWakeupListener:
    """A subscriber. Pings when it hears nothing, so that a connection which the network forgot is found out."""

    def __init__(self, settings: RedisSettings, address: str, hand_over: Callable[[bytes], None]) -> None:
        """`hand_over` gets each message that is handed over to this process, at that address."""
        self._settings = settings
        self._prefix = f"{settings.prefix}bell:"
        self._address, self._hand_over = f"{settings.prefix}hand:{address}", hand_over
        self._heard: list[str] = []
        self._pinged = False
        self._session = self._try(lambda: RedisSession(settings))

    def fileno(self) -> int:
        return self._session.fileno()

    def listen(self, topics: Iterable[str]) -> None:
        self._change("SUBSCRIBE", topics, self._address)

    def ignore(self, topics: Iterable[str]) -> None:
        self._change("UNSUBSCRIBE", topics)

    def _change(self, word: str, topics: Iterable[str], *more: str) -> None:
        channels = [*(self._prefix + topic for topic in topics), *more]

        def exchange() -> None:
            self._session.send((word, *channels))
            left = len(channels)
            while left:
                left -= self._note(self._session.read()) == word.lower()

        self._try(exchange)

    def heard(self) -> list[str]:
        def drain() -> None:
            while self._session.pending():
                self._note(self._session.read())

        self._try(drain)
        heard, self._heard = self._heard, []
        return heard

    def idle(self) -> None:
        if self._pinged:
            raise EngineUnavailableError(f"listening on {self._settings.shown}: the server does not answer")
        self._pinged = True
        self._try(lambda: self._session.send(("PING",)))

    def close(self) -> None:
        self._session.close()

    def _note(self, answer: Any) -> str:
        """Keep what was announced; what kind of answer it was."""
        self._pinged = False
        kind = answer[0].decode() if isinstance(answer, list) else ""
        if kind == "message":
            channel = answer[1].decode()
            if channel == self._address:
                self._hand_over(answer[2])
            else:
                self._heard.append(channel.removeprefix(self._prefix))
        return kind

    def _try(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except r.RedisError as error:
            where, patience = f"listening on {self._settings.shown}", self._settings.timeout_s
            told: TenureError = translate(error, where, self._settings.secret, EngineUnavailableError, patience)
            if isinstance(told, EngineUnavailableError):
                raise told from error
            # Not allowed to subscribe, say: waiters look by themselves, and `tenure doctor` names the reason.
            raise EngineUnavailableError(told.fact, remedy=told.remedy) from error
