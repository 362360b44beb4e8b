"""`redis://`: the engine object. It checks the server when it opens, owns the sessions and the listener, and hands out handles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.checked_handles import HandleTypes, OperationMetrics
from tenure.engines.checked_mailbox import CheckedMessage, LostClaims
from tenure.engines.checks import CheckedAppend, EntryPlace
from tenure.engines.contracts import Appended, Finding, Journal, Mailbox, Message, Outgoing, Refusal, Sent
from tenure.engines.redis import address
from tenure.engines.redis.address import RedisSettings, read_url
from tenure.engines.redis.connections import Answer, RedisConnections, every_script
from tenure.engines.redis.consumer import RedisConsumer
from tenure.engines.redis.handover import Offers
from tenure.engines.redis.journal_election_store import RedisElection, RedisJournal, RedisStore
from tenure.engines.redis.mailbox import (
    RedisMailbox,
    RedisMessage,
    message_words,
    send_across,
    sent_outcomes,
)
from tenure.engines.redis.pipelined_commands import PipelinedCommands
from tenure.engines.redis.session import Argument, RedisSession
from tenure.engines.server_wakeups import ServerWakeups
from tenure.engines.sessions import ServerEngine
from tenure.errors import EngineUnavailableError, EngineVersionError, MailboxConnectionError
from tenure.randomness import IdSource, Random, fresh_random, new_id

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


class RedisWakeupListener:
    """Hears of what others did: one connection that is subscribed to the topics of the namespace somebody waits on.

    It pings when it hears nothing, so that a connection which the network forgot is found out.
    """

    def __init__(self, connections: RedisConnections, address: str, hand_over: Callable[[bytes], None]) -> None:
        """`hand_over` gets each message that is handed over to this process, at that address."""
        self._settings, self._try = connections.settings, connections.listening
        self._prefix = f"{self._settings.prefix}bell:"
        self._address, self._hand_over = f"{self._settings.prefix}hand:{address}", hand_over
        self._heard: list[str] = []
        self._pinged = False
        self._session = self._try(connections.open_session)

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


class RedisEngine(ServerEngine):
    """Opening it connects, checks the server, and registers this object with it."""

    refusals = REFUSALS
    appends_in_one_step = True
    handles = HandleTypes(RedisMailbox, RedisJournal, RedisElection, RedisStore, RedisConsumer)

    def __init__(
        self, settings: RedisSettings, clock: Clock, random: Random | None = None, ids: IdSource = new_id
    ) -> None:
        super().__init__()
        self.url, self.clock, self.settings = settings.shown, clock, settings
        self._random = random or fresh_random()
        name = ids()
        self.connections: RedisConnections = RedisConnections(
            settings, f"{settings.prefix}w:{name}", clock, self._random, OperationMetrics("redis")
        )
        self._facts = self._prepare_server()
        self.commands = PipelinedCommands(self.connections)
        self.offers = Offers(name, self.commands)
        # With replicas to wait for, a message belongs to its consumer only when they know it. In a cluster every node gets every publication.
        self.hands_over = not settings.wait and self._facts.get("cluster_enabled") != "1"
        self.wakeups: ServerWakeups = ServerWakeups(
            "redis", self._new_listener, clock, Backoff(self._random, first_s=0.05, most_s=5.0)
        )
        self._lost_claims: dict[str, LostClaims[str]] = {}
        self.instance = self._begin(ids())

    def _prepare_server(self) -> address.Facts:
        """Refuse what cannot work, and say what works with a reservation."""
        with self.connections.session_of_its_own("opening") as session:
            facts = address.must_be_usable(session, self.settings)
            findings = address.durability(session, facts, self.settings)
            load_scripts(session)
        self.warn_of(findings, log)
        return facts

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

    def _send_across(self, batches: list[tuple[Any, list[CheckedMessage]]]) -> list[Sent]:
        return send_across(self, batches)

    def _acknowledges(self, message: Message[Any, Any]) -> bool:
        return isinstance(message, RedisMessage) and message.is_of(self)

    def _append_with(
        self, journal: Any, events: list[bytes], place: EntryPlace, batches: list[Any], acknowledges: list[Any]
    ) -> Appended:
        """One script."""
        one = CheckedAppend(journal, events, place, batches, acknowledges)
        return _appended(one, self.ask("append_with", *_append_words(one)))

    async def append_on_loop(
        self,
        journal: Journal,
        events: Sequence[bytes],
        *,
        epoch: int,
        expect: int,
        append_id: str,
        sends: Sequence[tuple[Mailbox[Any, Any], Sequence[Outgoing[Any]]]] = (),
        acknowledges: Sequence[Message[Any, Any]] = (),
    ) -> Appended | None:
        """Does what `append_with` does, without a thread. None: nothing was done, because it might hold the event loop up."""
        # Imported here: a supervisor has no event loop, and shall start quickly.
        from tenure.engines.redis.loop_calls import call_on_loop

        one = self.checked_append(journal, events, (epoch, expect, append_id), sends, acknowledges)
        answer = await call_on_loop(self.connections, "append_with", _append_words(one))
        return _appended(one, answer) if answer is not None else None

    def server_time(self) -> float:
        return float(self.ask("now")[1] / 1e6)

    def examine(self, session: RedisSession) -> list[Finding]:
        return address.examine(session, self.settings, self.clock)

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

    def call(self, operation: str, *values: Argument) -> Answer:
        """Calls one script for a mailbox: a lost connection is a `MailboxConnectionError`."""
        return self.connections.call(operation, values, MailboxConnectionError)

    def lost_claims(self, mailbox: str) -> LostClaims[str]:
        with self._lock:
            return self._lost_claims.setdefault(mailbox, LostClaims())

    def new_token(self) -> str:
        """Names one claim. Random, so that a receipt never fits a message that took its number after data was lost."""
        return f"{self._random.getrandbits(64):016x}"

    def _new_listener(self) -> RedisWakeupListener:
        return RedisWakeupListener(self.connections, self.offers.address, self.offers.hand_over)


def _append_words(one: CheckedAppend) -> tuple[Argument, ...]:
    """Returns the arguments of the script that appends with parts."""
    counts = (sum(len(messages) for _, messages in one.batches), len(one.acknowledges))
    addresses = (word for message in one.acknowledges for word in message.address)
    return (*one.journal.entry_words(one.events, one.place), *counts, *message_words(one.batches), *addresses)


def _appended(one: CheckedAppend, answer: Answer) -> Appended:
    _, seq, *rest = answer
    if seq == -1:
        last, newest = rest
        one.journal.refuse_append(one.place.epoch, one.place.expect, newest, last)
    told, gone = rest
    return Appended(int(seq), sent_outcomes(one.batches, told), [one.acknowledges[at] for at in gone])


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
