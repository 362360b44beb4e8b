"""Hears of what others did: one session that listens to the topics somebody waits on (see `ring` in sql/waking.sql)."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import psycopg

from tenure.clock import Clock
from tenure.engines.postgres.address import PostgresSettings
from tenure.engines.postgres.connections import open_session, translate
from tenure.engines.postgres.schema import Statements, channel_prefix
from tenure.errors import EngineUnavailableError

T = TypeVar("T")


class PostgresWakeupListener:
    """A listener. A connection that the network forgot is found out by libpq's keepalives, so it asks nothing while idle."""

    def __init__(self, settings: PostgresSettings, statements: Statements, clock: Clock) -> None:
        self._settings, self._statements = settings, statements
        self._prefix = channel_prefix(settings.schema)
        self._topics: dict[str, str] = {}  # by channel
        self._heard: list[str] = []
        self._session = self._try(lambda: open_session(settings, clock))
        # What comes together with the answer of a statement is given to the handler and not kept by libpq.
        self._session.add_notify_handler(lambda note: self._note(note.channel))

    def fileno(self) -> int:
        return self._session.pgconn.socket

    def listen(self, topics: Iterable[str]) -> None:
        for topic in topics:
            channel = self._prefix + hashlib.md5(topic.encode(), usedforsecurity=False).hexdigest()
            self._topics[channel] = topic
            self._tell(self._statements.listen, topic)

    def ignore(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._tell(self._statements.unlisten, topic)

    def heard(self) -> list[str]:
        def drain() -> None:
            self._session.pgconn.consume_input()
            while (note := self._session.pgconn.notifies()) is not None:
                self._note(note.relname.decode())

        self._try(drain)
        heard, self._heard = self._heard, []
        return heard

    def idle(self) -> None:
        pass

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error, OSError):
            self._session.close()

    def _note(self, channel: str) -> None:
        if (topic := self._topics.get(channel)) is not None:
            self._heard.append(topic)

    def _tell(self, statement: str, topic: str) -> None:
        self._try(lambda: self._session.execute(statement, (topic,)))

    def _try(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except psycopg.Error as error:
            where = f"listening on {self._settings.shown}"
            told = translate(error, where, self._settings.secret, EngineUnavailableError)
            if isinstance(told, EngineUnavailableError):
                raise told from error
            # Not allowed to connect any more, say: waiters look by themselves, and meet the reason there.
            raise EngineUnavailableError(told.fact, remedy=told.remedy) from error
