"""The log and its fold in this process: ask by appending a command, and be told what came of it when it is folded.

Everything in here runs on the background loop, so the ledger needs no lock. A command is durable and decided once it comes back through the
stream. Appending it again when it did not come is harmless: the fold drops the second by its id. A claim whose asker is gone is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Coroutine
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.clock import Clock
from tenure.engines.nats import commands as c
from tenure.engines.nats import streams
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.connection import NatsConnection, end
from tenure.engines.nats.ledger import DUPLICATE, Ledger
from tenure.engines.nats.ledger_records import Delivery, held_by_mailbox
from tenure.engines.nats.pending_commands import LogPoll, PendingCommands, StandingClaims, TimerWatch
from tenure.engines.nats.streams import BlobGoneError, Blobs, Follower, Names, unix
from tenure.engines.nats.write_errors import write_error
from tenure.errors import (
    EngineClosedError,
    EngineCorruptError,
    EngineUnavailableError,
    EngineVersionError,
    EngineWentBackError,
    TenureError,
)
from tenure.randomness import new_id

if TYPE_CHECKING:
    from tenure.engines.nats.polls import NatsPolls

log = logging.getLogger("tenure.engines.nats")

POINTER = "log"
_ORPHAN_S = 3_600.0


class CommandLog:
    def __init__(self, link: NatsConnection, names: Names, blobs: Blobs) -> None:
        self._link, self._names, self._blobs = link, names, blobs
        self.clock: Clock = link.clock
        self._prefix = f"{new_id()[:16]}."
        self._number = 0
        self.ledger = Ledger()
        self.waiters = TimerWatch(self.next_due)
        self.standing = StandingClaims(self)
        self.lingering: set[LogPoll] = set()
        """Long polls that have left no claim yet: they look whenever something may have become visible."""
        self.riding: set[NatsPolls] = set()
        """Handles whose claim waits for another command to leave with. It waits no longer when there is something for it."""
        self._outstanding = PendingCommands(link, names.log_subject, self._prefix, self._why_unanswered)
        self._catching_up: list[tuple[int, asyncio.Future[None]]] = []
        self._offset = -inf  # engine time minus our boot time, as the promptest message has it
        self._created = ""
        self._last_seq = 0
        """Where the stream ended when the follower last began."""
        self._broken: TenureError | None = None
        self._compacting = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._follower = Follower(link, names.log_stream, self._take)
        self._follower.before_start = self._look_before

    # Opening and closing

    async def open(self) -> None:
        config = streams.wanted(self._names.log_stream, [self._names.log_subject], self._link.settings.replicas)
        await streams.ensure(self._link, config)
        await self._outstanding.open()
        self._follower.on_trouble = self._on_trouble
        await self._follower.start(0)
        self._link.watchers.append(self._on_link)
        self._spawn(self._outstanding.look_after())
        seq = -1
        while (
            seq < self.ledger.seq < self._last_seq
        ):  # a long log on a busy machine: it takes as long as it takes, while it goes on
            seq = self.ledger.seq
            with contextlib.suppress(EngineUnavailableError):
                await self._until_folded(self._last_seq)
        await self.catch_up()

    async def close(self) -> None:
        self._broken = EngineClosedError(f"the engine {self._link.settings.shown} was closed", remedy="Open it again")
        self._fail_all(self._broken)
        await self._follower.stop()
        await end(list(self._tasks))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let it run beside; what it fails with is logged."""
        self._spawn(self._quietly(work))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Asking

    def new_id(self) -> str:
        """Names a command, and if that is a claim, its receipt."""
        self._number += 1
        return f"{self._prefix}{self._number}"

    async def ask(self, command: c.AnyCommand, *, rides: bool = False) -> Any:
        """Append it; what the fold makes of it. After `EngineUnavailableError` the outcome is unknown.

        One that `rides` leaves in one message with the next command of this process, or by itself a moment later.
        """
        if self._broken is not None:
            raise self._broken
        return await self._outstanding.ask(command, rides=rides)

    # Folding

    def _take(self, seq: int, at: float, data: bytes) -> bool:
        ledger = self.ledger
        if seq <= ledger.seq:
            return True
        if seq != ledger.seq + 1:
            return False  # others have compacted what we had not read: start again from the snapshot
        self._set_clock(at)
        try:
            found = c.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._break(
                EngineVersionError(
                    f"entry {seq} of {self._names.log_stream} cannot be read: {error}",
                    remedy="A newer Tenure wrote it: upgrade this one",
                )
            )
            return False
        size = len(data)
        for place, command in enumerate(found.commands if isinstance(found, c.Several) else (found,)):
            before = ledger.bytes_since
            try:
                result = ledger.apply(command, seq, at, 0 if place else size, place)
            except TenureError as error:
                self._outstanding.fail(command.id, error)
            else:
                told = result is DUPLICATE or self._outstanding.answer(command.id, result)
                if not told and self.is_ours(command.id):
                    self._nobody_waits(command, result)
            self._after(command, before)
        return True

    def _nobody_waits(self, command: c.AnyCommand, result: Any) -> None:
        """The caller has given up: its deliveries go back."""
        if isinstance(command, c.Claim):
            self.give_back(command.id, result)
        elif isinstance(command, c.ConsumerExchange) and command.most and result is not None:
            self.give_back(command.id, result.deliveries)
            if not result.deliveries:
                self.withdraw("", command.id)
        elif isinstance(command, c.Await):
            self.give_back(command.id, result.deliveries)
            if not result.deliveries:
                self.withdraw(command.box, command.id)

    def give_back(self, receipt: str, deliveries: list[Delivery]) -> None:
        for box, held in held_by_mailbox(receipt, deliveries).items():
            self.spawn(self.ask(c.Release(self.new_id(), box, held)))

    def withdraw(self, box: str, receipt: str) -> None:
        """Nobody waits for it, and usually another claim takes the place of this one at once: it rides with that."""
        self.spawn(self.ask(c.Withdraw(self.new_id(), box, receipt), rides=True))

    async def flush(self) -> None:
        """Sends what waits for another command."""
        await self._outstanding.flush()

    def is_ours(self, name: str) -> bool:
        """A command's id, or a receipt."""
        return name.startswith(self._prefix)

    def _after(self, command: c.AnyCommand, before: int) -> None:
        ledger = self.ledger
        if ledger.handed or ledger.dropped:
            self.standing.told(ledger.handed, ledger.dropped)
        if ledger.stirred:
            for name in ledger.stirred:
                self.waiters.stir(name)
            ledger.stirred.clear()
            for poll in self.lingering:
                poll.ring()
            if any(self.may_hold(*handle.watched()) for handle in self.riding):
                self.riding.clear()
                self.spawn(self.flush())
        if ledger.values.unnamed:
            if self.is_ours(command.id):
                for value in ledger.values.unnamed:
                    self.spawn(self._blobs.delete(value.blob))
            ledger.values.unnamed.clear()
        while self._catching_up and self._catching_up[0][0] <= ledger.seq:
            _, future = self._catching_up.pop(0)
            if not future.done():
                future.set_result(None)
        step = max(self._link.settings.compact_bytes, 2 * ledger.kept_bytes)
        # One command crosses the mark: whoever asked for it compacts. If that one dies, the next mark comes.
        if before // step < ledger.bytes_since // step and self.is_ours(command.id):
            self.spawn(self.compact())

    def _set_clock(self, at: float) -> None:
        offset = at - self.clock.boottime()
        # A message is late by what it took to get here, so the largest is the best; far less is another server's clock.
        if offset > self._offset or offset < self._offset - 1.0:
            self._offset = offset

    def about_now(self) -> float:
        """Engine time as far as we can tell without asking."""
        return self.clock.boottime() + self._offset

    # Being current

    async def catch_up(self) -> float:
        """Fold everything that was appended before this call; the engine's time."""
        if self._broken is not None:
            raise self._broken
        await self._outstanding.settle_riders()
        now, last = await self._head()
        self._set_clock(now)
        if last > self.ledger.seq:
            await self._until_folded(last)
        return max(now, self.ledger.now)

    async def server_time(self) -> float:
        """Returns what the clock of the stream's leader shows. It may be before the time of the last message."""
        return (await self._head())[0]

    async def _head(self) -> tuple[float, int]:
        try:
            info = await self._link.ask(f"STREAM.INFO.{self._names.log_stream}")
        except ApiError as error:
            raise self._link.told(error, f"asking {self._link.settings.shown}") from error
        return unix(info["ts"]), info["state"]["last_seq"]

    async def _why_unanswered(self) -> TenureError | None:
        """Returns what keeps the server from appending to the log. What it appended before that is folded then, so whoever still waits was not heard."""
        error = await write_error(self._link, self._names.log_stream)
        try:
            if error is not None and (last := (await self._head())[1]) > self.ledger.seq:
                await self._until_folded(last)
        except TenureError:
            return None
        return error

    async def _until_folded(self, last: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._catching_up.append((last, future))
        self._catching_up.sort(key=lambda one: one[0])
        try:
            async with asyncio.timeout(self._link.settings.timeout_s):
                await future
        except TimeoutError:
            raise EngineUnavailableError(
                f"{self._link.settings.shown}: the log is at {last}, and only {self.ledger.seq} arrived within "
                f"{self._link.settings.timeout_s:g} s"
            ) from None

    @property
    def usable(self) -> bool:
        """Returns False when every call is refused for good: the log was closed, went back or cannot be read."""
        return self._broken is None

    @property
    def alive(self) -> bool:
        return self._follower.alive

    def may_hold(self, *names: str) -> bool:
        """Returns True when a claim would find a message in one of them, as far as the fold knows."""
        now, boxes = self.about_now(), self.ledger.boxes
        known = (boxes[name] for name in names if name in boxes)
        return any(box.ready_count > 0 or box.next_due() <= now for box in known)

    def next_due(self, name: str) -> float:
        """Returns when something becomes visible there, as far as the fold knows."""
        box = self.ledger.boxes.get(name)
        return inf if box is None else box.next_due()

    async def _look_before(self) -> None:
        """Before each start of the follower: is the stream the one that we know, and is what we lack still there?"""
        info = await self._link.ask(f"STREAM.INFO.{self._names.log_stream}")
        state, created = info["state"], info["created"]
        if self._created and (created != self._created or state["last_seq"] < self.ledger.seq):
            self._break(
                EngineWentBackError(
                    f"{self._names.log_stream} ends at {state['last_seq']} and was made at {created}; we have seen "
                    f"{self.ledger.seq} of one made at {self._created}",
                    remedy="The servers lost acknowledged data: find out why before starting again",
                )
            )
        self._created, self._last_seq = created, state["last_seq"]
        if state["first_seq"] > self.ledger.seq + 1 or (state["messages"] == 0 and state["last_seq"] > self.ledger.seq):
            await self._load_snapshot()
        self._follower.after = self.ledger.seq

    async def _load_snapshot(self) -> None:
        for _ in range(10):
            pointer = await self._blobs.pointer(POINTER)
            if pointer is None:
                break
            where = json.loads(pointer.data)
            try:
                data = await self._blobs.read(str(where["blob"]), int(where["chunks"]))
            except BlobGoneError:
                continue  # compacted again meanwhile
            try:
                self.ledger = Ledger.restored(data)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise EngineVersionError(
                    f"the snapshot of {self._names.log_stream} cannot be read: {error}", remedy="Upgrade this Tenure"
                ) from error
            self.standing.doubt()
            return
        raise EngineCorruptError(
            f"the beginning of {self._names.log_stream} is gone and no snapshot replaces it",
            remedy="Restore both streams, or remove both to start empty",
        )

    # Compacting

    async def compact(self) -> None:
        """Keep the state as a snapshot and let go of the log before it."""
        if self._compacting:
            return
        self._compacting = True
        try:
            data, seq = self.ledger.keep(), self.ledger.seq
            old = await self._blobs.pointer(POINTER)
            if old is not None and int(json.loads(old.data)["seq"]) >= seq:
                return
            blob = f"log-{seq}-{new_id()[:8]}"
            chunks = await self._blobs.write(blob, data)
            where = json.dumps({"seq": seq, "blob": blob, "chunks": chunks}).encode()
            if not await self._blobs.move(POINTER, where, old.revision if old else 0):
                await self._blobs.delete(blob)
                return
            await self.ask(c.Compacted(self.new_id(), seq, len(data)))
            await self._link.ask(f"STREAM.PURGE.{self._names.log_stream}", {"seq": seq + 1})
            await self._collect(seq)
        finally:
            self._compacting = False

    async def _collect(self, seq: int) -> None:
        """Delete older snapshots, and values that nothing names: their writer died before it named them, or after."""
        named = {value.blob for values in self.ledger.values.stores.values() for value in values.values()}
        for blob in await self._blobs.names() - named:
            kind, _, rest = blob.partition("-")
            number = rest.partition("-")[0]
            if not number.isdecimal():
                continue
            # A value may be on its way to its name for as long as a call lasts; an hour is far more.
            if (kind == "log" and int(number) < seq) or (kind == "store" and int(number) < self.ledger.now - _ORPHAN_S):
                await self._blobs.delete(blob)

    # Trouble

    async def _quietly(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (TenureError, ApiError) as error:
            log.info("%s: left undone: %s", self._link.settings.shown, error)

    def _on_link(self, up: bool) -> None:
        self.standing.doubt()
        if up:
            self._outstanding.send_again()

    def _on_trouble(self, error: Exception) -> None:
        if isinstance(error, EngineCorruptError | EngineVersionError | EngineWentBackError):
            self._break(error)

    def _break(self, error: TenureError) -> None:
        self._broken = error
        self._fail_all(error)

    def _fail_all(self, error: TenureError) -> None:
        self._outstanding.fail_all(error)
        for _, future in self._catching_up:
            if not future.done():
                future.set_exception(error)
        self.standing.doubt()
