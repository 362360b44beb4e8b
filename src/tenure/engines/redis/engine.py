"""`redis://`: the engine object. It checks the server when it opens, owns the sessions, and hands out handles."""

from __future__ import annotations

import logging
import threading
from typing import Any

import redis.exceptions as r

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.checked_mailbox import LostClaims
from tenure.engines.contracts import BodyT, Election, Engine, Finding, Journal, Level, Mailbox, Refusal, ReplyT, Store
from tenure.engines.metrics import OperationMetrics
from tenure.engines.redis import address
from tenure.engines.redis.address import RedisSettings, read_url
from tenure.engines.redis.connections import Answer, Argument, RedisConnections, RedisSession, translate
from tenure.engines.redis.handover import Offers
from tenure.engines.redis.journal_election_store import RedisElection, RedisJournal, RedisStore
from tenure.engines.redis.mailbox import RedisMailbox
from tenure.engines.redis.pipelined_commands import PipelinedCommands
from tenure.engines.redis.scripts import every_script
from tenure.engines.redis.wakeup_listener import RedisWakeupListener
from tenure.engines.server_wakeups import ServerWakeups
from tenure.errors import EngineUnavailableError, EngineVersionError
from tenure.ids import IdSource, new_id
from tenure.randomness import Random, fresh_random

log = logging.getLogger("tenure.engines.redis")

FORMAT = 1
"""The format of the keys. A newer Tenure wrote to a server that shows a higher one."""

REFUSALS = (
    Refusal(
        "acknowledged writes survive an asynchronous failover",
        "Redis answers before its replicas have a write, and a replica that is promoted forgets what it never got. With ?wait=n "
        "a call returns only when n replicas have it, and fails loudly otherwise; it survives a failover to one of those "
        "n, which is for whoever promotes to choose. A loss is noticed by every process that had been told of the lost write",
    ),
    Refusal(
        "acknowledged writes survive a crash of the server",
        "that is appendonly yes with appendfsync always; with everysec the last second is lost, without appendonly all since the "
        "last snapshot. `tenure doctor` says which it is",
    ),
    Refusal(
        "a stepped server clock changes no lease",
        "leases are kept in the server's own time, and Redis has no other clock: a step forward ends leases early (their "
        "holders are refused from then on), a step back prolongs them",
    ),
    Refusal(
        "a failover is followed by itself",
        "the URL names one server: let the name, a proxy or a virtual address follow the primary. Sentinel and cluster redirects "
        "are not followed",
    ),
)


class RedisEngine(Engine):
    """Opening it connects, checks the server, and registers this object with it."""

    refusals = REFUSALS

    def __init__(
        self, settings: RedisSettings, clock: Clock, random: Random | None = None, ids: IdSource = new_id
    ) -> None:
        self.url = settings.shown
        self.clock = clock
        self.settings = settings
        self._random = random or fresh_random()
        self.metrics = OperationMetrics("redis")
        name = ids()
        counter = f"{settings.prefix}w:{name}"
        self._prepare_server()
        self.connections = RedisConnections(settings, counter, clock, self._random, self.metrics)
        self.commands = PipelinedCommands(self.connections)
        self.offers = Offers(name, self.commands)
        # With replicas to wait for, a message belongs to its consumer only when they know it. In a cluster every node gets every publication.
        self.hands_over = not settings.wait and self._facts.get("cluster_enabled") != "1"
        self.wakeups = ServerWakeups(
            "redis", self._new_listener, clock, Backoff(self._random, first_s=0.05, most_s=5.0)
        )
        self._lost_claims: dict[str, LostClaims[str]] = {}
        self._lock = threading.Lock()
        self._latest = 0.0
        self.instance = self._begin(ids())

    def _prepare_server(self) -> None:
        """Refuse what cannot work, and say what works with a reservation."""
        try:
            session = RedisSession(self.settings)
            try:
                self._facts = address.must_be_usable(session, self.settings)
                findings = address.durability(session, self._facts, self.settings)
                load_scripts(session)
            finally:
                session.close()
        except r.RedisError as error:
            where = f"opening {self.url}"
            raise translate(
                error, where, self.settings.secret, EngineUnavailableError, self.settings.timeout_s
            ) from error
        for level, what, remedy in findings:
            if level is not Level.OK:
                log.warning("%s: %s. %s", self.url, what, remedy)

    def _begin(self, fresh: str) -> str:
        """Register; the name of the instance, which a namespace gets once."""
        _, told, new = self.ask("begin", f"{FORMAT} {fresh}")
        version, _, instance = told.decode().partition(" ")
        if int(version) > FORMAT:
            raise EngineVersionError(
                f"{self.url}: namespace {self.settings.namespace!r} has format {version}, and this Tenure knows {FORMAT}",
                remedy="Upgrade Tenure, or use another namespace",
            )
        if new and (loss := address.possible_loss(self._facts)):
            log.warning("%s: %s", self.url, loss)
        return str(instance)

    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        self.connections.check_open()
        return RedisMailbox(self, name, body, reply, max_delivery_count)

    def journal(self, name: str) -> Journal:
        self.connections.check_open()
        return RedisJournal(self, name)

    def election(self, name: str) -> Election:
        self.connections.check_open()
        return RedisElection(self, name)

    def store(self, name: str) -> Store:
        self.connections.check_open()
        return RedisStore(self, name)

    def now(self) -> float:
        answer = self.ask("now")[1] / 1e6
        with self._lock:
            self._latest = max(self._latest, answer)  # the server's clock may be set back, engine time may not
            return self._latest

    def check(self) -> list[Finding]:
        self.connections.check_open()
        try:
            session = RedisSession(self.settings)
            try:
                return address.examine(session, self.settings, self.clock)
            finally:
                session.close()
        except r.RedisError as error:
            where = f"checking {self.url}"
            told = translate(error, where, self.settings.secret, EngineUnavailableError, self.settings.timeout_s)
            return [Finding(Level.ERROR, told.fact, told.remedy)]

    def close(self) -> None:
        self.wakeups.end_polls()
        self.wakeups.close()
        self.offers.close()
        self.commands.close()
        self.connections.close()

    # What its handles use

    def ask(self, operation: str, *values: Argument) -> Answer:
        """Calls one script: one round trip."""
        return self.connections.call(operation, values)

    def lost_claims(self, mailbox: str) -> LostClaims[str]:
        with self._lock:
            return self._lost_claims.setdefault(mailbox, LostClaims())

    def new_token(self) -> str:
        """Names one claim. Random, so that a receipt never fits a message that took its number after data was lost."""
        return f"{self._random.getrandbits(64):016x}"

    def _new_listener(self) -> RedisWakeupListener:
        return RedisWakeupListener(self.settings, self.offers.address, self.offers.hand_over)


def load_scripts(session: RedisSession) -> None:
    """Bring those that the server does not know, so that a first call of each need not be made twice."""
    scripts = every_script()
    known = session.ask("SCRIPT", "EXISTS", *(one.sha for one in scripts))
    missing = [one for one, is_known in zip(scripts, known, strict=True) if not is_known]
    if missing:
        session.send(*(("SCRIPT", "LOAD", one.source) for one in missing))
    for _ in missing:
        session.read()


def open_redis(url: str, clock: Clock) -> RedisEngine:
    return RedisEngine(read_url(url), clock)
