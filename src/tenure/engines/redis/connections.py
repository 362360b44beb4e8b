"""Scripts on sessions of Redis: one round trip each, and the count of writes that finds out a server which lost some.

`engines.sessions` borrows, loses and opens sessions again; `session.py` is one of them.

Every answer begins with the number of writes that the server has counted for this engine object, and every call says the
highest number that it has seen. So a server that lost an acknowledged write is found out by the next call, whatever it is
(`lua/parts/seen.lua`), and from then on the engine refuses everything.

This file also translates the server's errors into ours, each with its remedy. `unknown outcome` errors (the connection was lost, too few
replicas answered) are EngineUnavailableError, or MailboxConnectionError from a mailbox. All others were answered by the server: nothing
happened.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tenure.clock import Clock
from tenure.engines.checked_handles import OperationMetrics
from tenure.engines.contracts import KEY_MEMORY_S
from tenure.engines.redis.address import RedisSettings
from tenure.engines.redis.session import (
    Argument,
    Command,
    RedisAnswerLate,
    RedisConnectionLost,
    RedisFailure,
    RedisRefused,
    RedisSession,
)
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


def translate(
    error: RedisFailure, where: str, secret: str, lost: type[EngineUnavailableError], patience_s: float = 0.0
) -> TenureError:
    """The error that a caller gets. `secret` never appears in it."""
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, RedisAnswerLate):
        text = f"the server did not answer within {patience_s:g} s"
    if secret:
        text = text.replace(secret, "***")
    if certificate_refused(text) or (isinstance(error, RedisConnectionLost) and "No such file" in text):
        return ConfigurationError(f"{where}: {text}", remedy=certificate_remedy("?ssl_ca_certs="))
    word = _word(error, text)
    if word in _WORDS:
        kind, remedy = _WORDS[word]
        fact = f"{where}: {text.removeprefix(word).strip() if word == 'WENTBACK' else text}"
        return (lost if kind is EngineUnavailableError else kind)(fact, remedy=remedy)
    if error.ends_session:
        return lost(f"{where}: {text}")
    return EngineError(f"{where}: {text}")


def _word(error: RedisFailure, text: str) -> str:
    for word in (error.word, text.partition(" ")[0]):
        if word in _WORDS:
            return word
    # An error that a command met inside of a script is told in the middle of the script's own.
    if "No permissions" in text:
        return "NOPERM"
    return next((word for word in _WORDS if f"-{word} " in text or f" {word} " in text), "")


_FOLDER = Path(__file__).parent / "lua"
_HEADER = re.compile(r"-- uses: ([a-z ]+?)(; writes)?\n")
HANDED_S = 10.0
"""The lease of a message that was handed over, until its consumer answers: as long as that of work which was claimed and not started."""
OFFERED_S = 35.0
"""The seconds for which an offer stands: longer than a waiter waits before it looks by itself."""
_CONSTANTS = {
    "{memory}": KEY_MEMORY_S,
    "{batch}": 33_554_432,
    "{handed}": round(HANDED_S * 1e6),
    "{offered}": round(OFFERED_S * 1e6),
    "{covered}": 60,  # seconds: a look that brings the names comes every few seconds
    "{small}": 65_536,  # larger ones are claimed: a publication also goes to every replica
}
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Script(msgspec.Struct, frozen=True):
    """One operation: a file of `lua/`, put together with the parts that its first line names ("-- uses: seen time ring post; writes").

    `writes`: it may change something, so that replicas may have to be waited for.
    """

    name: str
    source: str
    sha: bytes
    writes: bool


def every_script() -> list[Script]:
    """All of them, to be loaded when an engine opens."""
    return [script(path.stem) for path in _FOLDER.glob("*.lua")]


@cache
def script(name: str) -> Script:
    """Read from the package when it is first needed."""
    body = (_FOLDER / f"{name}.lua").read_text()
    header = _HEADER.match(body)
    if header is None:
        raise ValueError(f"{name}.lua does not begin with '-- uses: …'")
    parts = [(_FOLDER / "parts" / f"{part}.lua").read_text() for part in header[1].split()]
    # Comments are for readers of the files; the server parses the script anew after each restart.
    source = _COMMENT.sub("", "".join([*parts, body]))
    for constant, value in _CONSTANTS.items():
        source = source.replace(constant, str(value))
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest().encode()
    return Script(name, source, sha, header[2] is not None)


Answer = list[Any]

NO_SCRIPT = "NOSCRIPT"
COUNT_KEPT_S = 30 * 86_400
"""The seconds for which the count of an engine object is kept after its last use."""
_TOUCH_EVERY_S = 3_600.0


class RedisConnections(Sessions[RedisSession]):
    """Runs scripts, one round trip each."""

    errors = RedisFailure
    settings: RedisSettings

    def __init__(
        self, settings: RedisSettings, counter: str, clock: Clock, random: Random, metrics: OperationMetrics
    ) -> None:
        super().__init__(settings, clock, random, metrics)
        self._counter = counter
        self._owner = os.getpid()
        self._counting = threading.Lock()
        self._acknowledged = 0
        self._went_back: str | None = None
        self._touch_at = 0.0

    def open_session(self) -> RedisSession:
        return RedisSession(self.settings)

    def is_broken(self, session: RedisSession, error: RedisFailure) -> bool:
        return not session.connected or error.ends_session

    def translated(self, error: RedisFailure, where: str, lost: type[EngineUnavailableError]) -> TenureError:
        return translate(error, where, self.settings.secret, lost, self.settings.timeout_s)

    def renew_after_fork(self) -> None:
        """In a forked child the lock may be held by a thread that is not there."""
        self._counting = threading.Lock()

    def call(
        self,
        operation: str,
        values: Sequence[Argument] = (),
        lost: type[EngineUnavailableError] = EngineUnavailableError,
    ) -> Answer:
        """Runs one script."""
        wanted = script(operation)
        self._refuse_after_loss(operation)
        try:
            answer = self.run(operation, lost, lambda session: self._exchange(session, wanted, values, lost))
        except EngineWentBackError as error:
            self._went_back = error.fact
            raise
        self.note_writes(answer[0])
        return answer

    def _refuse_after_loss(self, operation: str) -> None:
        if self._went_back is not None:
            refused = EngineWentBackError(self._went_back, remedy=WENT_BACK)
            self.metrics.failed(operation, refused)
            raise refused

    # For calls on an event loop (`loop_calls`)

    def idle_session(self, operation: str) -> RedisSession | None:
        """Returns a session that is open and that nobody uses, for one command whose answer need not be waited for with others'."""
        self._refuse_after_loss(operation)
        if self.settings.wait or self.settings.tls or self.clock.boottime() > self._touch_at:
            return None
        return self.take_idle()

    def note_failure(self, operation: str, error: TenureError) -> None:
        if isinstance(error, EngineWentBackError):
            self._went_back = error.fact
        self.metrics.failed(operation, error)

    def note_writes(self, writes: int) -> None:
        """The server has told us of so many writes of ours."""
        if writes > self._acknowledged:
            with self._counting:  # of two answers that come together, the higher one stays
                self._acknowledged = max(self._acknowledged, writes)

    def command(self, wanted: Script, values: Sequence[Argument], *, whole: bool = False) -> Command:
        """A call of a script, by its SHA or as a whole."""
        name, text = ("EVAL", wanted.source) if whole else ("EVALSHA", wanted.sha)
        return (name, text, 2, self.settings.prefix, self._counter, self._acknowledged, *values)

    def _exchange(
        self, session: RedisSession, wanted: Script, values: Sequence[Argument], lost: type[EngineUnavailableError]
    ) -> Answer:
        """Returns the script's answer, once enough replicas have what it wrote."""
        if self.clock.boottime() > self._touch_at:
            self._touch(session)
        wait = ("WAIT", self.settings.wait, int(self.settings.timeout_s * 500))
        followers = [wait] if wanted.writes and self.settings.wait else []
        try:
            answer, replicas = self._ask(session, self.command(wanted, values), followers)
        except RedisRefused as error:
            if error.word != NO_SCRIPT:
                raise
            # The server restarted, or somebody flushed its scripts.
            answer, replicas = self._ask(session, self.command(wanted, values, whole=True), followers)
        if followers and replicas < self.settings.wait:
            raise lost(
                f"{self.where(wanted.name)}: {replicas} of {self.settings.wait} replicas have it after "
                f"{self.settings.timeout_s / 2:g} s, so a failover could lose it",
                remedy="Bring the replicas back; ask what happened before doing it again",
            )
        return answer

    def _ask(self, session: RedisSession, command: Command, followers: Sequence[Command]) -> tuple[Answer, int]:
        """One command with what follows it, in one go. Also after an error each of them is answered."""
        session.send(command, *followers)
        try:
            answer: Answer = session.read()
        except RedisFailure:
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

    def close(self, farewell: Callable[[RedisSession], object] | None = None) -> None:
        """A forked child shares its parent's count, and leaves it."""
        ours = self._owner == os.getpid()
        super().close((lambda session: session.ask("UNLINK", self._counter)) if ours else farewell)
