"""`postgresql://`: the engine object, and its journal, election and store. It checks the server when it opens, owns the sessions and the listener, and
hands out handles.

Each operation of the three is one function of `sql/`. An append is a compare-and-swap on the journal's head row. An election has one row per
seat, taken and renewed by compare-and-swap in the server's time.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import logging
from collections.abc import Iterable
from typing import Any

import psycopg

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.checked_handles import (
    CheckedElection,
    CheckedStore,
    HandleTypes,
    OperationMetrics,
    PolledJournal,
    first_above,
)
from tenure.engines.checked_mailbox import CheckedMessage
from tenure.engines.checks import EntryPlace
from tenure.engines.contracts import (
    MAX_SCAN_BYTES,
    Appended,
    Entry,
    Fence,
    Finding,
    Head,
    Leader,
    Message,
    Refusal,
    Sent,
    Snapshot,
    Term,
)
from tenure.engines.postgres import address, schema
from tenure.engines.postgres.address import PostgresSettings, read_url
from tenure.engines.postgres.connections import PostgresConnections, PostgresSession, Rows
from tenure.engines.postgres.consumer import PostgresConsumer
from tenure.engines.postgres.mailbox import ClaimPace, PostgresMailbox, PostgresMessage, across, outcomes, send_across
from tenure.engines.server_wakeups import ServerWakeups
from tenure.engines.sessions import ServerEngine
from tenure.errors import LimitError, TenureError, Truncated
from tenure.randomness import Random, fresh_random


class PostgresJournal(PolledJournal):
    topic_prefix = "j/"
    engine: PostgresEngine

    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        seq, last, newest = self.engine.ask("append", self.name, events, epoch, expect, append_id)[0]
        return int(seq) if seq is not None else self.refuse_append(epoch, expect, newest, last)

    def head(self) -> Head:
        rows = self.engine.ask("head", self.name)
        return Head(*rows[0]) if rows else Head(0, 0)

    def _read(self, after: int, limit: int) -> list[Entry]:
        rows = self.engine.ask("read", self.name, after, min(limit, 2**31 - 1))
        if rows and rows[-1][0] is not None:
            raise Truncated(after, rows[-1][0] + 1)
        return [Entry(seq, epoch, append_id, at, tuple(events)) for _, seq, epoch, append_id, at, events in rows]

    def _snapshot(self, state: bytes, seq: int, epoch: int) -> None:
        if seq < 0:
            raise LimitError("seq", seq, "0 or more")
        refused, current = self.engine.ask("snapshot", self.name, state, seq, epoch)[0]
        if refused is not None:
            self._refuse_snapshot(refused, seq, epoch, current)

    def latest_snapshot(self) -> Snapshot | None:
        rows = self.engine.ask("latest_snapshot", self.name)
        return Snapshot(*rows[0]) if rows else None

    def truncate(self, seq: int) -> None:
        self.engine.ask("truncate", self.name, seq)


class PostgresElection(CheckedElection):
    engine: PostgresEngine

    def _campaign(self, candidate: str, ttl: float, above: int) -> int | None:
        rows = self.engine.ask("campaign", self.name, candidate, ttl, above)
        return int(rows[0][0]) if rows else None

    def _renew(self, term: Term) -> int | None:
        newest: int | None = self.engine.ask("renew", self.name, term.epoch, float(term.ttl))[0][0]
        return newest

    def resign(self, term: Term) -> None:
        self.engine.ask("resign", self.name, term.epoch)

    def current(self) -> Leader | None:
        rows = self.engine.ask("leader", self.name)
        return Leader(*rows[0]) if rows else None


class PostgresStore(CheckedStore):
    engine: PostgresEngine

    def _put(self, key: str, value: bytes, fence: Fence | None, ttl: float | None) -> Fence | None:
        generation, delivery = fence if fence is not None else (None, None)
        refused = self.engine.ask("put", self.name, key, value, generation, delivery, ttl)
        return Fence(*refused[0]) if refused else None

    def _get(self, key: str) -> bytes | None:
        value: bytes | None = self.engine.ask("get", self.name, key)[0][0]
        return value

    def _delete(self, key: str) -> bool:
        return bool(self.engine.ask("remove", self.name, key)[0][0])

    def _list(self, prefix: str, limit: int, after: str | None) -> builtins.list[str]:
        return [key for (key,) in self.engine.ask("list", self.name, prefix, after, first_above(prefix), limit)]

    def _put_many(self, values: dict[str, bytes | None], fence: Fence, ttl: float | None) -> None:
        self.engine.ask("put_many", self.name, builtins.list(values), builtins.list(values.values()), *fence, ttl)

    def _get_many(self, keys: builtins.list[str]) -> dict[str, bytes]:
        return dict(self.engine.ask("get_many", self.name, keys))

    def _scan(self, prefix: str, limit: int, after: str | None, reverse: bool) -> builtins.list[tuple[str, bytes]]:
        bounds = prefix, after, first_above(prefix)
        return [
            (key, value) for key, value in self.engine.ask("scan", self.name, *bounds, limit, MAX_SCAN_BYTES, reverse)
        ]


log = logging.getLogger("tenure.engines.postgres")

_TIDY_EVERY_S = 60.0
_TIDY_ROWS = 500

REFUSALS = (
    Refusal(
        "a stepped server clock changes no lease",
        "leases are kept in the server's own time, and PostgreSQL has no other clock: a step forward ends leases early "
        "(their holders are refused from then on), a step back prolongs them",
    ),
    Refusal(
        "acknowledged writes survive a failover to an asynchronous standby",
        "PostgreSQL answers before such a standby has them; synchronous_standby_names makes it wait. "
        "`tenure doctor` says whether this server has such a standby",
    ),
)


class PostgresWakeupListener:
    """Hears of what others did: one session that listens to the topics somebody waits on (see `ring` in sql/waking.sql).

    A connection that the network forgot is found out by libpq's keepalives, so it asks nothing while idle.
    """

    def __init__(self, connections: PostgresConnections, statements: schema.Statements) -> None:
        self._try, self._statements = connections.listening, statements
        self._prefix = schema.channel_prefix(connections.settings.schema)
        self._topics: dict[str, str] = {}  # by channel
        self._heard: list[str] = []
        self._session = self._try(connections.open_session)
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


def bucket_of(topic: str) -> str:
    """Returns the topic that stands for a mailbox's and others: see `waking.sql`, which has the same rule."""
    return f"b/{hashlib.md5(topic.encode(), usedforsecurity=False).digest()[0] & 63}"


class PostgresEngine(ServerEngine):
    """Opening it connects, checks the server, and makes or migrates the schema."""

    refusals = REFUSALS
    appends_in_one_step = True
    handles = HandleTypes(PostgresMailbox, PostgresJournal, PostgresElection, PostgresStore, PostgresConsumer)

    def __init__(self, settings: PostgresSettings, clock: Clock, random: Random | None = None) -> None:
        super().__init__()
        self.url, self.clock, self.settings = settings.shown, clock, settings
        self._random = random or fresh_random()
        self.statements = schema.statements_for(settings.schema)
        self.connections: PostgresConnections = PostgresConnections(
            settings, clock, self._random, OperationMetrics("postgres")
        )
        self._prepare_server()
        self.wakeups: ServerWakeups = ServerWakeups(
            "postgres",
            lambda: PostgresWakeupListener(self.connections, self.statements),
            clock,
            Backoff(self._random, first_s=0.05, most_s=5.0),
            poll_s=None if settings.notify else settings.poll_s,
            announced_as=bucket_of,
        )
        self._paces: dict[str, ClaimPace] = {}
        # The first round of tidying comes soon, and not at the same moment in every process.
        self._tidy_at = clock.monotonic() + _TIDY_EVERY_S * self._random.random()

    def _prepare_server(self) -> None:
        """Refuse what cannot work, say what works with a reservation, and bring the schema up to date."""
        with self.connections.session_of_its_own("opening") as session:
            address.must_be_usable(session)
            schema.ensure(session, self.settings.schema)
            findings = address.durability(session)
        self.warn_of(findings, log)
        if not self.settings.notify:
            log.warning("%s: notify=off, so consumers poll every %g s", self.url, self.settings.poll_s)

    def _send_across(self, batches: list[tuple[Any, list[CheckedMessage]]]) -> list[Sent]:
        return send_across(self, batches)

    def _acknowledges(self, message: Message[Any, Any]) -> bool:
        return isinstance(message, PostgresMessage) and message.is_of(self)

    def _append_with(
        self, journal: Any, events: list[bytes], place: EntryPlace, batches: list[Any], acknowledges: list[Any]
    ) -> Appended:
        """One function, hence one commit."""
        messages, sends = across(batches)
        receipts = [message.receipt for message in acknowledges]
        numbers, tokens = [number for number, _ in receipts], [token for _, token in receipts]
        rows = self.ask("append_with", journal.name, events, *place, *sends, numbers, tokens)
        _, seq, last, newest, _ = rows[0]
        if seq is None:
            journal.refuse_append(place.epoch, place.expect, newest, last)
        sent = outcomes(
            messages, [(number, current, revoked) for kind, number, current, _, revoked in rows if kind == 1]
        )
        held = {number for kind, number, *_ in rows if kind == 2}
        return Appended(int(seq), sent, [message for message in acknowledges if message.receipt[0] not in held])

    def server_time(self) -> float:
        return float(self.ask("now")[0][0])

    def examine(self, session: PostgresSession) -> list[Finding]:
        return address.examine(session, self.settings, self.clock)

    def close(self) -> None:
        self.wakeups.end_polls()
        self.connections.close()
        self.wakeups.close()

    # What its handles use

    def ask(self, operation: str, *values: Any) -> Rows:
        """Calls one function of the schema: one round trip."""
        return self.connections.query(operation, getattr(self.statements, operation), values)

    def pace(self, mailbox: str) -> ClaimPace:
        with self._lock:
            return self._paces.setdefault(mailbox, ClaimPace())

    def new_token(self) -> int:
        """Names one claim. Random, so that a receipt never fits a row that took its row's number after data was lost."""
        return self._random.getrandbits(62) + 1

    def tidy_if_due(self) -> None:
        """Forget old keys and expired values, about once a minute, in the thread of some consumer."""
        if self.clock.monotonic() < self._tidy_at:
            return
        with self._lock:
            if self.clock.monotonic() < self._tidy_at:
                return
            self._tidy_at = self.clock.monotonic() + _TIDY_EVERY_S * (0.5 + self._random.random())
        try:
            if self.ask("tidy", _TIDY_ROWS)[0][0] >= _TIDY_ROWS:
                self._tidy_at = 0.0  # there is more
        except TenureError as error:
            log.warning("old keys and values were not removed: %s", error.fact)


def open_postgres(url: str, clock: Clock) -> PostgresEngine:
    return PostgresEngine(read_url(url), clock)
