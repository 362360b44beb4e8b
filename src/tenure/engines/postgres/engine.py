"""`postgresql://`: the engine object. It checks the server when it opens, owns the sessions, and hands out handles."""

from __future__ import annotations

import logging
import threading
from typing import Any

import psycopg

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.contracts import BodyT, Election, Engine, Finding, Journal, Level, Mailbox, Refusal, ReplyT, Store
from tenure.engines.metrics import OperationMetrics
from tenure.engines.postgres import address, schema
from tenure.engines.postgres.address import PostgresSettings, read_url
from tenure.engines.postgres.claim_pace import ClaimPace
from tenure.engines.postgres.connections import PostgresConnections, Rows, open_session, translate
from tenure.engines.postgres.journal_election_store import PostgresElection, PostgresJournal, PostgresStore
from tenure.engines.postgres.mailbox import PostgresMailbox
from tenure.engines.postgres.wakeup_listener import PostgresWakeupListener
from tenure.engines.server_wakeups import ServerWakeups
from tenure.errors import EngineUnavailableError, TenureError
from tenure.randomness import Random, fresh_random

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


class PostgresEngine(Engine):
    """Opening it connects, checks the server, and makes or migrates the schema."""

    refusals = REFUSALS

    def __init__(self, settings: PostgresSettings, clock: Clock, random: Random | None = None) -> None:
        self.url = settings.shown
        self.clock = clock
        self.settings = settings
        self._random = random or fresh_random()
        self.statements = schema.statements_for(settings.schema)
        self.metrics = OperationMetrics("postgres")
        self._prepare_server()
        self.connections = PostgresConnections(settings, clock, self._random, self.metrics)
        self.wakeups = ServerWakeups(
            "postgres",
            lambda: PostgresWakeupListener(settings, self.statements, clock),
            clock,
            Backoff(self._random, first_s=0.05, most_s=5.0),
            poll_s=None if settings.notify else settings.poll_s,
        )
        self._paces: dict[str, ClaimPace] = {}
        self._lock = threading.Lock()
        self._latest = 0.0
        # The first round of tidying comes soon, and not at the same moment in every process.
        self._tidy_at = clock.monotonic() + _TIDY_EVERY_S * self._random.random()

    def _prepare_server(self) -> None:
        """Refuse what cannot work, say what works with a reservation, and bring the schema up to date."""
        try:
            with open_session(self.settings, self.clock) as session:
                address.must_be_usable(session)
                schema.ensure(session, self.settings.schema)
                findings = address.durability(session)
        except psycopg.Error as error:
            where = f"opening {self.url}"
            raise translate(error, where, self.settings.secret, EngineUnavailableError) from error
        for level, what, remedy in findings:
            if level is not Level.OK:
                log.warning("%s: %s. %s", self.url, what, remedy)
        if not self.settings.notify:
            log.warning("%s: notify=off, so consumers poll every %g s", self.url, self.settings.poll_s)

    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        self.connections.check_open()
        return PostgresMailbox(self, name, body, reply, max_delivery_count)

    def journal(self, name: str) -> Journal:
        self.connections.check_open()
        return PostgresJournal(self, name)

    def election(self, name: str) -> Election:
        self.connections.check_open()
        return PostgresElection(self, name)

    def store(self, name: str) -> Store:
        self.connections.check_open()
        return PostgresStore(self, name)

    def now(self) -> float:
        answer = float(self.ask("now")[0][0])
        with self._lock:
            self._latest = max(self._latest, answer)  # the server's clock may be set back, engine time may not
            return self._latest

    def check(self) -> list[Finding]:
        self.connections.check_open()
        try:
            with open_session(self.settings, self.clock) as session:
                return address.examine(session, self.settings, self.clock)
        except psycopg.Error as error:
            where = f"checking {self.url}"
            told = translate(error, where, self.settings.secret, EngineUnavailableError)
            return [Finding(Level.ERROR, told.fact, told.remedy)]

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
