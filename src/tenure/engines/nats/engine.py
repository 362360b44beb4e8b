"""`nats://`: the engine object. It connects, checks the server and the streams, and hands out handles.

Elections and the names of stored values are in the log: its order and its time decide. A value itself is a blob.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar
from weakref import WeakSet

import nats.errors

from tenure.clock import Clock
from tenure.engines.checked_handles import (
    CheckedElection,
    CheckedEngine,
    CheckedStore,
    HandleTypes,
    OperationMetrics,
    page_of,
)
from tenure.engines.checked_mailbox import CheckedMessage
from tenure.engines.checks import EntryPlace
from tenure.engines.contracts import (
    KEY_MEMORY_S,
    MAX_SCAN_BYTES,
    Appended,
    Fence,
    Finding,
    Leader,
    Refusal,
    Sent,
    Term,
)
from tenure.engines.nats import commands as c
from tenure.engines.nats import connection as background
from tenure.engines.nats import examination
from tenure.engines.nats.address import ApiError, NatsSettings, read_url
from tenure.engines.nats.commands import AnyCommand
from tenure.engines.nats.consumer import NatsConsumer
from tenure.engines.nats.journal import NatsJournal
from tenure.engines.nats.mailbox import NatsMailbox, NatsMessage, entry_parts_of, send_across
from tenure.engines.nats.polls import NatsPolls
from tenure.engines.nats.process_log import logs_of
from tenure.engines.nats.streams import BlobGoneError, Names
from tenure.errors import (
    EngineClosedError,
    EngineError,
    EngineUnavailableError,
    MailboxConnectionError,
    StaleFenceError,
)
from tenure.randomness import Random, fresh_random, new_id

T = TypeVar("T")


class NatsElection(CheckedElection):
    """The fold decides, and raises what a caller is to get."""

    engine: NatsEngine

    def _campaign(self, candidate: str, ttl: float, above: int) -> int | None:
        epoch: int | None = self._ask("campaign", c.Campaign, self.name, candidate, ttl, above)
        return epoch

    def _renew(self, term: Term) -> None:
        self._ask("renew", c.Renew, self.name, term.epoch, float(term.ttl))

    def resign(self, term: Term) -> None:
        self._ask("resign", c.Resign, self.name, term.epoch)

    def current(self) -> Leader | None:
        return self.engine.call("current", self._current, lost=EngineUnavailableError)

    async def _current(self) -> Leader | None:
        now = await self.engine.log.catch_up()
        seat = self.engine.log.ledger.seats.get(self.name)
        if seat is None or not seat.taken(now):
            return None
        return Leader(seat.candidate, seat.epoch, seat.expires - now)

    def _ask(self, operation: str, kind: Callable[..., AnyCommand], *values: Any) -> Any:
        return self.engine.ask(operation, kind, *values, lost=EngineUnavailableError)


class NatsStore(CheckedStore):
    engine: NatsEngine

    def _put(self, key: str, value: bytes, fence: Fence | None, ttl: float | None) -> None:
        token = None if fence is None else (fence[0], fence[1])
        self._call("put", self._write, key, value, token, ttl)

    async def _write(self, key: str, value: bytes, fence: tuple[int, int] | None, ttl: float | None) -> None:
        log = self.engine.log
        blob = f"store-{int(log.about_now())}-{new_id()}"
        chunks = await self.engine.blobs.write(blob, value)
        try:
            await log.ask(c.Put(log.new_id(), self.name, key, blob, chunks, fence, ttl))
        except StaleFenceError:
            await self.engine.blobs.delete(blob)
            raise

    def _get(self, key: str) -> bytes | None:
        return self._call("get", self._value, key)

    async def _value(self, key: str) -> bytes | None:
        while True:
            now = await self.engine.log.catch_up()
            value = self.engine.log.ledger.values.stores.get(self.name, {}).get(key)
            if value is None or not value.there(now):
                return None
            try:
                return await self.engine.blobs.read(value.blob, value.chunks)
            except BlobGoneError:
                continue  # written again meanwhile

    def _delete(self, key: str) -> bool:
        return bool(self.engine.ask("delete", c.Remove, self.name, key, lost=EngineUnavailableError))

    def _list(self, prefix: str, limit: int, after: str | None) -> list[str]:
        return self._call("list", self._keys, prefix, limit, after)

    async def _keys(self, prefix: str, limit: int, after: str | None) -> builtins.list[str]:
        now = await self.engine.log.catch_up()
        values = self.engine.log.ledger.values.stores.get(self.name, {})
        return sorted(
            key
            for key, value in values.items()
            if key.startswith(prefix) and (after is None or key > after) and value.there(now)
        )[:limit]

    def _put_many(self, values: dict[str, bytes | None], fence: Fence, ttl: float | None) -> None:
        self._call("put_many", self._write_many, values, (fence[0], fence[1]), ttl)

    async def _write_many(self, values: dict[str, bytes | None], fence: tuple[int, int], ttl: float | None) -> None:
        items = list(values.items())
        for start in range(0, len(items), _AT_ONCE):
            few = items[start : start + _AT_ONCE]
            await asyncio.gather(*(self._write_fenced(key, value, fence, ttl) for key, value in few))

    async def _write_fenced(self, key: str, value: bytes | None, fence: tuple[int, int], ttl: float | None) -> None:
        log = self.engine.log
        with contextlib.suppress(StaleFenceError):  # a higher fence has written it, which is as it should be
            if value is not None:
                await self._write(key, value, fence, ttl)
            else:  # a name without a blob is a deleted key that keeps its fence
                await log.ask(c.Put(log.new_id(), self.name, key, "", 0, fence, KEY_MEMORY_S))

    def _get_many(self, keys: list[str]) -> dict[str, bytes]:
        return self._call("get_many", self._read_many, keys)

    async def _read_many(self, keys: builtins.list[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for start in range(0, len(keys), _AT_ONCE):
            few = keys[start : start + _AT_ONCE]
            values = await asyncio.gather(*(self._value(key) for key in few))
            found |= {key: value for key, value in zip(few, values, strict=True) if value is not None}
        return found

    def _scan(self, prefix: str, limit: int, after: str | None, reverse: bool) -> builtins.list[tuple[str, bytes]]:
        return self._call("scan", self._scan_page, prefix, limit, after, reverse)

    async def _scan_page(
        self, prefix: str, limit: int, after: str | None, reverse: bool
    ) -> builtins.list[tuple[str, bytes]]:
        keys = await self._keys(prefix, sys.maxsize, None if reverse else after)
        if reverse:
            keys = [key for key in reversed(keys) if after is None or key < after]
        page: builtins.list[tuple[str, bytes]] = []
        for start in range(0, min(limit, len(keys)), _AT_ONCE):
            found = await self._read_many(keys[start : min(limit, start + _AT_ONCE)])
            page += found.items()
            if sum(len(value) for _, value in page) >= MAX_SCAN_BYTES:
                break
        return page_of(page)

    def _call(self, operation: str, work: Callable[..., Coroutine[Any, Any, T]], *values: Any) -> T:
        return self.engine.call(operation, work, *values, lost=EngineUnavailableError)


_AT_ONCE = 64
"""The values of one call that are written or read at the same time."""
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


class NatsEngine(CheckedEngine):
    """Opening it connects, checks the server, makes the streams, and folds the log."""

    appends_in_one_step = True
    """The entry is that step (`entry_parts`)."""
    has_own_clock = True
    handles = HandleTypes(NatsMailbox, NatsJournal, NatsElection, NatsStore, NatsConsumer)
    refusals = REFUSALS

    def __init__(
        self, settings: NatsSettings, clock: Clock, random: Random | None = None, *, shared: bool = False
    ) -> None:
        """With `shared` it may use one log together with other engines of this process."""
        self.url = settings.shown
        self.clock = clock
        self.settings = settings
        self.metrics = OperationMetrics("nats")
        self.names = Names(settings.namespace)
        self.closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._latest = 0.0
        self._mailboxes: WeakSet[NatsPolls] = WeakSet()
        self._journals: WeakSet[NatsJournal] = WeakSet()
        """Closed with the engine."""
        self._background = background.enter()
        try:
            self._background.run(self._open(random or fresh_random(), shared))
        except BaseException:
            background.leave(self._background)
            raise

    async def _open(self, random: Random, shared: bool) -> None:
        self._process = await logs_of(self._background).enter(self.settings, self.clock, random, shared=shared)
        self.link, self.blobs, self.log = self._process.link, self._process.blobs, self._process.log

    def now(self) -> float:
        answer = self.call("now", self._now, lost=EngineUnavailableError)
        with self._lock:
            self._latest = max(self._latest, answer)
            return self._latest

    async def _now(self) -> float:
        return await self.log.catch_up()

    def clock_shows(self) -> float:
        return self.call("now", self._shows, lost=EngineUnavailableError)

    async def _shows(self) -> float:
        return await self.log.server_time()

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
        for journal in journals:
            self.soon(journal.polls.close)
        self._background.run(self._close(journals))
        background.leave(self._background)

    async def _close(self, journals: list[NatsJournal]) -> None:
        for journal in journals:
            await journal.stop()
        await logs_of(self._background).leave(self._process)

    # What its handles use

    def enlist(self, handle: NatsPolls | NatsJournal) -> None:
        """Closes the handle with the engine."""
        with self._lock:
            if isinstance(handle, NatsJournal):
                self._journals.add(handle)
            else:
                self._mailboxes.add(handle)

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

    def _send_across(self, batches: list[tuple[Any, list[CheckedMessage]]]) -> list[Sent]:
        return send_across(self, batches)

    def _acknowledges(self, message: Any) -> bool:
        return isinstance(message, NatsMessage) and message.is_of(self)

    def _append_with(
        self, journal: Any, events: list[bytes], place: EntryPlace, batches: list[Any], acknowledges: list[Any]
    ) -> Appended:
        seq, done = journal.append_with(events, place, entry_parts_of(batches, acknowledges))
        sent = [Sent(message, None if refused is None else str(refused)) for message, refused in done.sent]
        for message in acknowledges:
            message.given_up = "it was acknowledged"
        return Appended(seq, sent, [acknowledges[place] for place in done.lost])

    async def timed(self, operation: str, work: Awaitable[T]) -> T:
        begun = self.clock.monotonic()
        try:
            answer = await work
        except EngineError as error:
            self.metrics.failed(operation, error)
            raise
        self.metrics.took(operation, self.clock.monotonic() - begun)
        return answer


def open_nats(url: str, clock: Clock, *, shared: bool = False) -> NatsEngine:
    return NatsEngine(read_url(url), clock, shared=shared)
