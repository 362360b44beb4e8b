"""`nats://`: the engine object. It connects, checks the server and the streams, and hands out handles.

Elections and the names of stored values are in the log: its order and its time decide. A value itself is a blob.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar
from weakref import WeakSet

import nats.errors

from tenure.clock import Clock
from tenure.engines.checks import check_key, check_max_messages, check_name, check_store_value, check_ttl
from tenure.engines.contracts import (
    BodyT,
    Election,
    Engine,
    Fence,
    Finding,
    Journal,
    Leader,
    Mailbox,
    Refusal,
    ReplyT,
    Store,
    Term,
    term_margin,
)
from tenure.engines.metrics import OperationMetrics
from tenure.engines.nats import commands as c
from tenure.engines.nats import connection as background
from tenure.engines.nats import examination
from tenure.engines.nats.address import ApiError, NatsSettings, read_url
from tenure.engines.nats.blobs import BlobGoneError, Blobs
from tenure.engines.nats.command_log import CommandLog
from tenure.engines.nats.commands import AnyCommand
from tenure.engines.nats.connection import NatsConnection
from tenure.engines.nats.journal import NatsJournal
from tenure.engines.nats.mailbox import NatsMailbox
from tenure.engines.nats.streams import Names
from tenure.errors import (
    EngineClosedError,
    EngineError,
    EngineUnavailableError,
    LimitError,
    MailboxConnectionError,
    StaleFenceError,
)
from tenure.ids import new_id
from tenure.randomness import Random, fresh_random


class NatsElection(Election):
    def __init__(self, engine: NatsEngine, name: str) -> None:
        self.name = check_name(name)
        self._engine = engine

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked = self._engine.clock.boottime()
        epoch = self._engine.ask(
            "campaign", c.Campaign, self.name, candidate, float(ttl), above, lost=EngineUnavailableError
        )
        return None if epoch is None else Term(epoch, candidate, ttl, asked + ttl - term_margin(ttl))

    def renew(self, term: Term) -> Term:
        asked = self._engine.clock.boottime()
        self._engine.ask("renew", c.Renew, self.name, term.epoch, float(term.ttl), lost=EngineUnavailableError)
        return term._replace(safe_until=asked + term.ttl - term_margin(term.ttl))

    def resign(self, term: Term) -> None:
        self._engine.ask("resign", c.Resign, self.name, term.epoch, lost=EngineUnavailableError)

    def current(self) -> Leader | None:
        return self._engine.call("current", self._current, lost=EngineUnavailableError)

    async def _current(self) -> Leader | None:
        now = await self._engine.log.catch_up()
        seat = self._engine.log.ledger.seats.get(self.name)
        if seat is None or not seat.taken(now):
            return None
        return Leader(seat.candidate, seat.epoch, seat.expires - now)


Keys = list[str]  # inside the class, `list` is its method


class NatsStore(Store):
    def __init__(self, engine: NatsEngine, name: str) -> None:
        self.name = check_name(name)
        self._engine = engine

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        token = None if fence is None else (fence[0], fence[1])
        self._engine.call("put", self._put, key, bytes(value), token, ttl, lost=EngineUnavailableError)

    async def _put(self, key: str, value: bytes, fence: tuple[int, int] | None, ttl: float | None) -> None:
        log = self._engine.log
        blob = f"store-{int(log.about_now())}-{new_id()}"
        chunks = await self._engine.blobs.write(blob, value)
        seconds = None if ttl is None else float(ttl)
        try:
            await log.ask(c.Put(log.new_id(), self.name, key, blob, chunks, fence, seconds))
        except StaleFenceError:
            await self._engine.blobs.delete(blob)
            raise

    def get(self, key: str) -> bytes | None:
        check_key(key)
        return self._engine.call("get", self._get, key, lost=EngineUnavailableError)

    async def _get(self, key: str) -> bytes | None:
        while True:
            now = await self._engine.log.catch_up()
            value = self._engine.log.ledger.values.stores.get(self.name, {}).get(key)
            if value is None or not value.there(now):
                return None
            try:
                return await self._engine.blobs.read(value.blob, value.chunks)
            except BlobGoneError:
                continue  # written again meanwhile

    def delete(self, key: str) -> bool:
        check_key(key)
        return bool(self._engine.ask("delete", c.Remove, self.name, key, lost=EngineUnavailableError))

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        check_max_messages(limit)
        return self._engine.call("list", self._list, prefix, limit, after, lost=EngineUnavailableError)

    async def _list(self, prefix: str, limit: int, after: str | None) -> Keys:
        now = await self._engine.log.catch_up()
        values = self._engine.log.ledger.values.stores.get(self.name, {})
        return sorted(
            key
            for key, value in values.items()
            if key.startswith(prefix) and (after is None or key > after) and value.there(now)
        )[:limit]


T = TypeVar("T")

REFUSALS = (
    Refusal(
        "a stepped server clock changes no lease",
        "engine time is the time at which the stream's leader stored a message, and NATS has no other clock: a step forward, "
        "or a new leader whose clock is ahead, ends leases early (their holders are refused from then on); a step back "
        "lets them last longer",
    ),
    Refusal(
        "acknowledged writes survive a power failure of the machine",
        "NATS answers before it syncs to disk (sync_interval, two minutes by default). A killed server loses nothing, "
        "nor does one machine of three with ?replicas=3; `sync_interval: always` closes the gap",
    ),
    Refusal(
        "processes that only send need not read what others do",
        "every process that opens the engine folds its whole log: traffic is paid once per process, so more than some "
        "hundreds of processes, or thousands of operations a second, want several namespaces",
    ),
)


class NatsEngine(Engine):
    """Opening it connects, checks the server, makes the streams, and folds the log."""

    refusals = REFUSALS

    def __init__(self, settings: NatsSettings, clock: Clock, random: Random | None = None) -> None:
        self.url = settings.shown
        self.clock = clock
        self.settings = settings
        self.metrics = OperationMetrics("nats")
        self.names = Names(settings.namespace)
        self.closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._latest = 0.0
        self._mailboxes: WeakSet[NatsMailbox[Any, Any]] = WeakSet()
        self._journals: WeakSet[NatsJournal] = WeakSet()
        self._background = background.enter()
        try:
            self._background.run(self._open(random or fresh_random()))
        except BaseException:
            background.leave(self._background)
            raise

    async def _open(self, random: Random) -> None:
        self.link = NatsConnection(self.settings, self.clock, random)
        self.blobs = Blobs(self.link, self.names)
        self.log = CommandLog(self.link, self.names, self.blobs)
        await self.link.open()
        try:
            await examination.must_be_usable(self.link)
            await self.blobs.open()
            await self.log.open()
        except BaseException as error:
            await self.log.close()
            await self.link.close()
            if isinstance(error, ApiError):
                raise self.link.told(error, f"opening {self.url}") from error
            raise

    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        self.check_open()
        mailbox: NatsMailbox[BodyT, ReplyT] = NatsMailbox(self, name, body, reply, max_delivery_count)
        with self._lock:
            self._mailboxes.add(mailbox)
        return mailbox

    def journal(self, name: str) -> Journal:
        self.check_open()
        journal = NatsJournal(self, name)
        with self._lock:
            self._journals.add(journal)
        return journal

    def election(self, name: str) -> Election:
        self.check_open()
        return NatsElection(self, name)

    def store(self, name: str) -> Store:
        self.check_open()
        return NatsStore(self, name)

    def now(self) -> float:
        answer = self.call("now", self._now, lost=EngineUnavailableError)
        with self._lock:
            self._latest = max(self._latest, answer)
            return self._latest

    async def _now(self) -> float:
        return await self.log.catch_up()

    def check(self) -> list[Finding]:
        self.check_open()
        return self._background.run(examination.examine(self.link, self.names, self.clock))

    def close(self) -> None:
        with self._lock:
            if self.closed:
                return
            self.closed = True
            mailboxes, journals = list(self._mailboxes), list(self._journals)
        if self._pid != os.getpid():
            return  # the parent's connection is not ours to end
        for mailbox in mailboxes:
            mailbox.close()
            self.soon(mailbox.polls.close)
        for journal in journals:
            self.soon(journal.polls.close)
        self._background.run(self._close(journals))
        background.leave(self._background)

    async def _close(self, journals: list[NatsJournal]) -> None:
        with contextlib.suppress(EngineError):
            await self.log.standing.withdraw_all()
        await self.log.close()
        for journal in journals:
            await journal.stop()
        await self.link.close()

    # What its handles use

    def check_open(self) -> None:
        if self.closed:
            raise EngineClosedError(f"the engine {self.url} was closed", remedy="Open it again")
        if self._pid != os.getpid():
            raise EngineClosedError(
                f"the engine {self.url} was opened before this process was forked", remedy="Open it again in the child"
            )

    def soon(self, act: Callable[[], object]) -> None:
        """Do it on the loop, after what was asked before."""
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits there any more
            self._background.soon(act)

    def wait(self, work: Callable[..., Coroutine[Any, Any, T]], *values: Any) -> T:
        """Run it on the loop; its parts are timed by themselves. Its first argument is a way to answer before it ends."""
        self.check_open()
        with self._told("waiting", MailboxConnectionError):
            return self._background.run_answering(lambda answer: work(answer, *values))

    def call(
        self,
        operation: str,
        work: Callable[..., Coroutine[Any, Any, T]],
        *values: Any,
        lost: type[EngineUnavailableError] = MailboxConnectionError,
    ) -> T:
        """Run it on the loop, timed. A lost connection is told as `lost`."""
        self.check_open()
        with self._told(operation, lost):
            return self._background.run(self.timed(operation, work(*values)))

    @contextlib.contextmanager
    def _told(self, operation: str, lost: type[EngineUnavailableError]) -> Iterator[None]:
        """Translates errors of the loop into those of the contract."""
        try:
            yield
        except asyncio.CancelledError:
            raise EngineClosedError(f"the engine {self.url} was closed meanwhile", remedy="Open it again") from None
        except EngineUnavailableError as error:
            raise (error if isinstance(error, lost) else lost(error.fact)) from error
        except (ApiError, OSError, nats.errors.Error) as error:
            told = self.link.told(error, f"{operation} on {self.url}")
            raise (lost(told.fact) if isinstance(told, EngineUnavailableError) else told) from error

    def ask(
        self,
        operation: str,
        kind: Callable[..., AnyCommand],
        *values: Any,
        lost: type[EngineUnavailableError] = MailboxConnectionError,
    ) -> Any:
        """Append a command, and be told what came of it."""
        return self.call(operation, self._ask, kind, values, lost=lost)

    async def _ask(self, kind: Callable[..., AnyCommand], values: tuple[Any, ...]) -> Any:
        return await self.log.ask(kind(self.log.new_id(), *values))

    async def timed(self, operation: str, work: Awaitable[T]) -> T:
        begun = self.clock.monotonic()
        try:
            answer = await work
        except EngineError as error:
            self.metrics.failed(operation, error)
            raise
        self.metrics.took(operation, self.clock.monotonic() - begun)
        return answer


def open_nats(url: str, clock: Clock) -> NatsEngine:
    return NatsEngine(read_url(url), clock)
