"""Scripts on sessions of Redis: one round trip each, and the count of writes that finds out a server which lost some.

`engines.sessions` borrows, loses and opens sessions again. In one session redis-py connects, logs in and speaks TLS, and hiredis packs and
parses.

Every answer begins with the number of writes that the server has counted for this engine object, and every call says the
highest number that it has seen. So a server that lost an acknowledged write is found out by the next call, whatever it is
(`lua/parts/seen.lua`), and from then on the engine refuses everything.

This file also translates the server's errors into ours, each with its remedy. `unknown outcome` errors (the connection was lost, too few
replicas answered) are EngineUnavailableError, or MailboxConnectionError from a mailbox. All others were answered by the server: nothing
happened.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
import redis.exceptions as r
from redis.connection import Connection, SSLConnection

from tenure.clock import Clock
from tenure.engines.metrics import OperationMetrics
from tenure.engines.redis.address import RedisSettings
from tenure.engines.redis.scripts import Script, script
from tenure.engines.sessions import Sessions
from tenure.engines.urls import certificate_refused, certificate_remedy
from tenure.errors import (
    ConfigurationError,
    EngineBusyError,
    EngineError,
    EngineFullError,
    EngineReadOnlyError,
    EngineRefusedError,
    EngineUnavailableError,
    EngineWentBackError,
    TenureError,
)
from tenure.randomness import Random

WENT_BACK = (
    "Work that it had accepted is lost. Stop, and find out what: a restart without persistence, or a failover to a replica "
    "that lagged behind. Processes that are started anew go on with what is there"
)
_AUTH = "Check user and password, in the URL or in REDIS_USERNAME and REDIS_PASSWORD"
_ACL = "Let this user run scripts on its keys and channels: ACL SETUSER name ~{namespace}:* &{namespace}:* +@all -@dangerous +info"

# By the first word of the server's error.
_WORDS: dict[str, tuple[type[TenureError], str | None]] = {
    "WENTBACK": (EngineWentBackError, WENT_BACK),
    "OOM": (EngineFullError, "The server reached maxmemory: raise it or remove data; nothing was changed"),
    "MISCONF": (EngineFullError, "The server cannot write to its disk: make room there; nothing was changed"),
    "NOREPLICAS": (EngineFullError, "min-replicas-to-write is not met: bring the replicas back; nothing was changed"),
    "BUSY": (EngineBusyError, "A script of somebody else holds the server: SCRIPT KILL ends it"),
    "NOAUTH": (ConfigurationError, _AUTH),
    "WRONGPASS": (ConfigurationError, _AUTH),
    "NOPERM": (EngineReadOnlyError, _ACL),
    # It was the primary when we opened it, and will be found behind the same name again, or its successor will.
    "READONLY": (EngineUnavailableError, "The server became a replica: point the name in the URL at the primary"),
    "MOVED": (EngineRefusedError, "In a cluster, name the primary that owns the namespace's slot in the URL"),
    "CLUSTERDOWN": (EngineUnavailableError, None),
    "LOADING": (EngineUnavailableError, "The server reads its data from disk: wait"),
    "MASTERDOWN": (EngineUnavailableError, None),
}
# redis-py takes the first word away where it has a class for it.
_CLASSES: tuple[tuple[type[r.RedisError], str], ...] = (
    (r.OutOfMemoryError, "OOM"),
    (r.NoPermissionError, "NOPERM"),
    (r.ReadOnlyError, "READONLY"),
    (r.BusyLoadingError, "LOADING"),
    (r.AuthenticationError, "WRONGPASS"),
    (r.MovedError, "MOVED"),
    (r.MasterDownError, "MASTERDOWN"),
    (r.ClusterDownError, "CLUSTERDOWN"),
)


def is_lost(error: r.RedisError) -> bool:
    """Returns True when the session can be used no more. One whose server became a replica must find the new primary."""
    return isinstance(error, r.ConnectionError | r.TimeoutError | r.ReadOnlyError | r.InvalidResponse)


def translate(
    error: r.RedisError, where: str, secret: str, lost: type[EngineUnavailableError], patience_s: float = 0.0
) -> TenureError:
    """The error that a caller gets. `secret` never appears in it."""
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, r.TimeoutError):
        text = f"the server did not answer within {patience_s:g} s"
    if secret:
        text = text.replace(secret, "***")
    if certificate_refused(text) or (isinstance(error, r.ConnectionError) and "No such file" in text):
        return ConfigurationError(f"{where}: {text}", remedy=certificate_remedy("?ssl_ca_certs="))
    word = _word(error, text)
    if word in _WORDS:
        kind, remedy = _WORDS[word]
        fact = f"{where}: {text.removeprefix(word).strip() if word == 'WENTBACK' else text}"
        return (lost if kind is EngineUnavailableError else kind)(fact, remedy=remedy)
    if is_lost(error):
        return lost(f"{where}: {text}")
    return EngineError(f"{where}: {text}")


def _word(error: r.RedisError, text: str) -> str:
    for kind, word in _CLASSES:
        if isinstance(error, kind):
            return word
    first = text.partition(" ")[0]
    if first in _WORDS:
        return first
    # An error that a command met inside of a script is told in the middle of the script's own.
    if "No permissions" in text:
        return "NOPERM"
    return next((word for word in _WORDS if f"-{word} " in text or f" {word} " in text), "")


Argument = str | bytes | int
Command = Sequence[Argument]
_pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub allows a tuple of one only


class RedisSession:
    """Opened by making it. Every method raises redis-py's errors; after one that lost the connection it is of no use."""

    def __init__(self, settings: RedisSettings) -> None:
        kind: Any = SSLConnection if settings.tls else Connection  # redis-py's connections are not typed
        self._connection = kind(**settings.connection)
        self._connection.connect()

    def send(self, *commands: Command) -> None:
        """Several commands in one go: each will be answered."""
        packed = [_pack(tuple(command)) for command in commands]
        self._connection.send_packed_command(packed if len(packed) == 1 else [b"".join(packed)], check_health=False)

    def read(self) -> Any:
        return self._connection.read_response()

    def ask(self, *words: Argument) -> Any:
        """One command and its answer."""
        self.send(words)
        return self.read()

    def pending(self, within_s: float = 0) -> bool:
        """Returns True when bytes can be read, at once or within the given seconds."""
        return bool(self._connection.can_read(within_s))

    @property
    def connected(self) -> bool:
        return bool(self._connection.is_connected)

    @property
    def fresh(self) -> bool:
        """Returns True when the session can be used: an idle one on which bytes wait was closed by the server, or is out of step."""
        try:
            return not self.pending()
        except r.RedisError:
            return False

    def fileno(self) -> int:
        return int(self._connection._sock.fileno())

    def close(self) -> None:
        with contextlib.suppress(r.RedisError, OSError):
            self._connection.disconnect()


Answer = list[Any]

COUNT_KEPT_S = 30 * 86_400
"""The seconds for which the count of an engine object is kept after its last use."""
_TOUCH_EVERY_S = 3_600.0


class RedisConnections:
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
            connect=lambda: RedisSession(settings),
            errors=r.RedisError,
            translate=self._translated,
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
                raise EngineWentBackError(self._went_back, remedy=WENT_BACK)
            answer = self._once(script(operation), values, lost)
        except TenureError as error:
            self.metrics.failed(operation, error)
            if isinstance(error, EngineWentBackError):
                self._went_back = error.fact
            raise
        finally:
            self.metrics.took(operation, self.clock.monotonic() - begun)
        self.note_writes(answer[0])
        return answer

    def note_writes(self, writes: int) -> None:
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
            if not session.connected or is_lost(error):
                self.sessions.drop(session)
            else:
                self.sessions.give_back(session)
            raise self._translated(error, wanted.name, lost) from error
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

    def _exchange(self, session: RedisSession, wanted: Script, values: Sequence[Argument]) -> tuple[Answer, int]:
        """The script's answer, and how many replicas have what it wrote (none, when nobody has to be waited for)."""
        wait = ("WAIT", self.settings.wait, int(self.settings.timeout_s * 500))
        followers = [wait] if wanted.writes and self.settings.wait else []
        try:
            return self._ask(session, self.command(wanted, values), followers)
        except r.NoScriptError:  # the server restarted, or somebody flushed its scripts
            return self._ask(session, self.command(wanted, values, whole=True), followers)

    def _ask(self, session: RedisSession, command: Command, followers: Sequence[Command]) -> tuple[Answer, int]:
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

    def _touch(self, session: RedisSession) -> None:
        """Begin, or keep, the count of our writes. One that was left alone for a month begins anew: that is no loss."""
        now = self.clock.boottime()
        if not self._touch_at or now > self._touch_at + COUNT_KEPT_S - 2 * _TOUCH_EVERY_S:
            session.ask("SET", self._counter, self._acknowledged, "NX", "EX", COUNT_KEPT_S)
        else:
            session.ask("EXPIRE", self._counter, COUNT_KEPT_S)
        self._touch_at = now + _TOUCH_EVERY_S

    def _translated(self, error: r.RedisError, operation: str, lost: type[EngineUnavailableError]) -> TenureError:
        where = self.sessions.where(operation)
        return translate(error, where, self.settings.secret, lost, self.settings.timeout_s)

    def _count_anew(self) -> None:
        """In a forked child the lock may be held by a thread that is not there."""
        self._counting = threading.Lock()

    def check_open(self) -> None:
        self.sessions.check_open()

    def close(self) -> None:
        """A forked child shares its parent's count, and leaves it."""
        ours = self._owner == os.getpid()
        self.sessions.close((lambda session: session.ask("UNLINK", self._counter)) if ours else None)
