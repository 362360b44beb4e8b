"""A journal is a stream of its own: one append is one message, its sequence is the stream's, and the expected last one is the fence.

The last entry is never removed from the stream, even when it was truncated: it says which epoch wrote last. How far a journal was truncated
stands beside its snapshot, in a pointer that only moves by compare-and-swap.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tenure.engines.checked_handles import CheckedJournal
from tenure.engines.checks import EntryPlace
from tenure.engines.contracts import Entry, Head, Snapshot
from tenure.engines.long_poll import HandlePolls
from tenure.engines.nats import address as faults
from tenure.engines.nats import streams
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.consumers import DeliveredParts
from tenure.engines.nats.entry_parts import CarriedParts, EntryDeliveries, EntryParts, encode_parts
from tenure.engines.nats.journal_records import (
    Found,
    Line,
    Mark,
    decode_mark,
    encode_line,
    encode_mark,
    entry_of,
    line_of,
)
from tenure.engines.nats.pending_commands import LogPoll
from tenure.engines.nats.streams import BlobGoneError, Follower, unix
from tenure.errors import (
    EngineCorruptError,
    EngineUnavailableError,
    LimitError,
    StaleEpochError,
    StaleSnapshotError,
    Truncated,
)
from tenure.randomness import new_id

if TYPE_CHECKING:
    from tenure.engines.nats.engine import NatsEngine

T = TypeVar("T")
_PAGE_BYTES = 4_194_304


class NatsJournal(CheckedJournal):
    engine: NatsEngine

    def __init__(self, engine: NatsEngine, name: str) -> None:
        super().__init__(engine, name)
        self._stream = engine.names.journal_stream(name)
        self._subject = engine.names.journal_subject(name)
        self._pointer = f"journal-{streams.token(name)}"
        self.polls: HandlePolls[LogPoll] = HandlePolls()
        self._made = False
        self._head: Head | None = None  # as we last saw it: what we appended ourselves need not be asked for
        self._tail: Follower | None = None
        self._starting = asyncio.Lock()
        self._rung: set[Any] = set()
        self._identity = ""
        self._deliveries = EntryDeliveries(engine, lambda: self._identity, self._carried, self._complete)
        engine.enlist(self)

    # Appending

    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        return self._call("append", self._write, events, epoch, expect, append_id)

    def append_with(self, events: list[bytes], place: EntryPlace, parts: EntryParts) -> tuple[int, DeliveredParts]:
        """Appends an entry that brings messages and acknowledges deliveries. Its outcomes are empty where they are not known."""
        return self._call("append_with", self._write_with, events, place, parts)

    async def _write_with(
        self, events: list[bytes], place: EntryPlace, parts: EntryParts
    ) -> tuple[int, DeliveredParts]:
        carried = encode_parts(parts)
        size, most = len(carried) + sum(len(event) + 5 for event in events), self.engine.link.max_payload - streams.ROOM
        if size > most:
            raise LimitError("an append with its messages", f"{size:,} bytes", f"at most {most:,} bytes")
        try:
            seq = await self._write(events, *place, carried)
        except EngineUnavailableError:
            self._deliveries.finish_later()
            raise
        told = await self._deliveries.deliver(seq, parts)
        return seq, told or DeliveredParts([], [])

    async def _write(self, events: list[bytes], epoch: int, expect: int, append_id: str, parts: bytes = b"") -> int:
        head = self._head
        if head is None or head.seq != expect or epoch < head.epoch:
            head = await self._find_head()
        if epoch < head.epoch or expect != head.seq:
            self.refuse_append(epoch, expect, head.epoch, head.seq)
        await self._deliveries.catch_up(head.seq)  # who wrote last may have died before it sent what its entries bring
        writer = new_id()
        payload = encode_line(Line(epoch, append_id, writer, events, parts))
        headers = {"Nats-Msg-Id": writer, "Nats-Expected-Last-Sequence": str(expect)}
        self._head = None
        try:
            seq = await self.engine.link.write(self._stream, self._subject, payload, headers)
        except ApiError as error:
            if error.number not in faults.WRONG_LAST_SEQUENCE:
                raise
            seq = await self._refused(epoch, expect, writer)
        self._head = Head(seq, epoch)
        self._deliveries.seen = seq
        return seq

    async def _refused(self, epoch: int, expect: int, writer: str) -> int:
        """Somebody was faster; or it was ourselves, and the first answer was lost."""
        found = await self._message({"seq": expect + 1})
        if found is None or (line := line_of(found.data)) is None or line.writer != writer:
            head = await self._find_head()
            self.refuse_append(epoch, expect, head.epoch, head.seq)
        return expect + 1

    async def _complete(self) -> None:
        await self._deliveries.catch_up((await self._find_head()).seq)

    async def _carried(self, after: int, last: int) -> AsyncIterator[CarriedParts]:
        """Yields what entries bring. One that is missing or damaged brings nothing."""
        mark = await self._mark()
        after = max(after, mark[0].truncated if mark else 0)
        while after < last:
            page = await self._page(after, last)
            if not page and (found := await self._message({"seq": after + 1})) is not None:
                page = [found]
            for found in page:
                if (line := line_of(found.data)) is not None and line.parts:
                    yield CarriedParts(found.seq, line.parts)
            after = page[-1].seq if page else after + 1

    # Reading

    def head(self) -> Head:
        return self._call("head", self._find_head)

    async def _find_head(self) -> Head:
        await self._make()
        found = await self._message({"last_by_subj": self._subject})
        self._head = Head(0, 0) if found is None else Head(found.seq, await self._epoch_at(found))
        return self._head

    async def _epoch_at(self, last: Found) -> int:
        """The epoch that wrote the last entry. If that entry is damaged: the highest one that anything before it shows.

        A term of the same epoch cannot be won twice, because the election counts for itself; so this keeps a journal with a damaged end
        readable, and lets nobody else write there.
        """
        if (line := line_of(last.data)) is not None:
            return line.epoch
        mark = await self._mark()
        seq, floor = last.seq - 1, mark[0].truncated if mark else 0
        while seq > floor:
            found = await self._message({"seq": seq})
            if found is not None and (line := line_of(found.data)) is not None:
                return line.epoch
            seq -= 1
        return mark[0].epoch if mark else 0

    def _read(self, after: int, limit: int) -> list[Entry]:
        return self._call("read", self._entries, after, limit)

    async def _entries(self, after: int, limit: int) -> list[Entry]:
        await self._make()
        info, mark = await asyncio.gather(self._info(), self._mark())
        first = mark[0].truncated + 1 if mark else 1
        if after < first - 1:
            raise Truncated(after, first)
        last = min(info["state"]["last_seq"], after + limit)
        found: list[Entry] = []
        while after < last:
            page = [entry_of(*one) for one in await self._page(after, last)]
            if not page:  # a replica that is behind answered, or somebody truncated it under our hands
                mark = await self._mark()
                if mark and after < mark[0].truncated:
                    raise Truncated(after, mark[0].truncated + 1)
                entry = await self._entry(after + 1)
                page = [entry]
            found += page
            after = page[-1].seq
        return found

    async def _page(self, after: int, last: int) -> list[Found]:
        """Several messages with one request, from whichever replica answers: consecutive ones, perhaps not all."""
        link, entries = self.engine.link, list[Found]()
        done = asyncio.get_running_loop().create_future()

        async def on_message(message: Any) -> None:
            headers = message.headers or {}
            if "Status" in headers or "Nats-Sequence" not in headers:
                if not done.done():
                    done.set_result(None)
                return
            entries.append(Found(int(headers["Nats-Sequence"]), message.data, unix(headers["Nats-Time-Stamp"])))

        inbox = link.client.new_inbox()
        subscription = await link.client.subscribe(inbox, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0)
        try:
            ask = {"seq": after + 1, "batch": last - after, "max_bytes": _PAGE_BYTES}
            await link.client.publish(f"$JS.API.DIRECT.GET.{self._stream}", json.dumps(ask).encode(), reply=inbox)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(2.0, link.settings.timeout_s)):
                    await done
        finally:
            with contextlib.suppress(Exception):  # the connection was lost: the subscription with it
                await subscription.unsubscribe()
        consecutive: list[Found] = []
        for entry in entries:
            if entry.seq != after + 1 + len(consecutive) or entry.seq > last:
                break
            consecutive.append(entry)
        return consecutive

    async def _entry(self, seq: int) -> Entry:
        found = await self._message({"seq": seq})
        if found is None:
            mark = await self._mark()
            if mark and seq <= mark[0].truncated:
                raise Truncated(seq - 1, mark[0].truncated + 1)
            return Entry(seq, 0, "", 0.0, (), f"it is missing in the stream {self._stream}")
        return entry_of(*found)

    async def _message(self, which: dict[str, Any]) -> Found | None:
        """From the stream's leader."""
        try:
            answer = await self.engine.link.ask(f"STREAM.MSG.GET.{self._stream}", which)
        except ApiError as error:
            if error.number == 10037:
                return None
            raise
        message = answer["message"]
        return Found(message["seq"], base64.b64decode(message.get("data", "")), unix(message["time"]))

    async def _info(self) -> dict[str, Any]:
        return await self.engine.link.ask(f"STREAM.INFO.{self._stream}")

    # Following

    def _follow(self, after: int, wait_s: float) -> list[Entry]:
        return self._call("follow", self._wait_for, after, wait_s)

    async def _wait_for(self, after: int, wait: float) -> list[Entry]:
        clock = self.engine.clock
        end = clock.monotonic() + wait
        found = await self._entries(after, 1_000)
        poll = LogPoll()
        if found or not wait or not self.polls.begin(poll):
            return found
        self._rung.add(poll)
        try:
            await self._start_tail(after)
            while not found and not poll.over and (left := end - clock.monotonic()) > 0:
                if self._tail is not None and self._tail.after <= after:
                    await poll.wait(left)
                if not poll.over:
                    found = await self._entries(after, 1_000)
            return found
        finally:
            self._rung.discard(poll)
            self.polls.end(poll)

    async def _start_tail(self, after: int) -> None:
        """One follower per handle, begun by the first follow that waits."""
        async with self._starting:
            if self._tail is None:
                tail = Follower(self.engine.link, self._stream, self._on_entry, headers_only=True)
                await tail.start(after)
                self._tail = tail

    def _on_entry(self, _seq: int, _at: float, _data: bytes) -> bool:
        asyncio.get_running_loop().call_soon(self._ring)  # after the follower has taken note of it
        return True

    def _ring(self) -> None:
        for poll in self._rung:
            poll.ring()

    def wake(self) -> None:
        self.engine.check_open()
        self.engine.soon(self.polls.wake)

    async def stop(self) -> None:
        if self._tail is not None:
            await self._tail.stop()

    # Snapshots

    def _snapshot(self, state: bytes, seq: int, epoch: int) -> None:
        self._call("snapshot", self._keep, state, seq, epoch)

    async def _keep(self, state: bytes, seq: int, epoch: int) -> None:
        blobs = self.engine.blobs
        blob = f"{self._pointer}-{seq}-{new_id()}"
        chunks = 0
        try:
            while True:
                head, found = await self._find_head(), await self._mark()
                self._check_snapshot(seq, epoch, head, Head(found[0].seq, found[0].epoch) if found else None)
                chunks = chunks or await blobs.write(blob, state)
                mark = Mark(seq, epoch, blob, chunks, found[0].truncated if found else 0)
                if await blobs.move(self._pointer, encode_mark(mark), found[1] if found else 0):
                    break
        except (StaleEpochError, StaleSnapshotError, LimitError):
            if chunks:
                await blobs.delete(blob)
            raise
        if found is not None:
            await blobs.delete(found[0].blob)

    def latest_snapshot(self) -> Snapshot | None:
        return self._call("latest_snapshot", self._latest_snapshot)

    async def _latest_snapshot(self) -> Snapshot | None:
        before: Mark | None = None
        while (found := await self._mark()) is not None:
            mark = found[0]
            try:
                return Snapshot(mark.seq, mark.epoch, await self.engine.blobs.read(mark.blob, mark.chunks))
            except BlobGoneError:  # a newer one replaced it meanwhile
                if mark == before:
                    raise self._lost("its snapshot is gone") from None
                before = mark
        return None

    async def _mark(self) -> tuple[Mark, int] | None:
        pointer = await self.engine.blobs.pointer(self._pointer)
        if pointer is None:
            return None
        try:
            return decode_mark(pointer.data), pointer.revision
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._lost(f"the place of its snapshot cannot be read: {error}") from error

    def _lost(self, why: str) -> EngineCorruptError:
        return EngineCorruptError(f"journal {self.name!r} in NATS: {why}", remedy="Restore the streams from a backup")

    def truncate(self, seq: int) -> None:
        self._call("truncate", self._truncate, seq)

    async def _truncate(self, seq: int) -> None:
        await self._complete()  # before the messages that entries bring are gone with them
        while True:
            found = await self._mark()
            if found is None:
                return
            mark, revision = found
            upto = min(seq, mark.seq)
            if upto <= mark.truncated:
                return
            moved = encode_mark(msgspec.structs.replace(mark, truncated=upto))
            if await self.engine.blobs.move(self._pointer, moved, revision):
                break
        last = (await self._find_head()).seq
        await self.engine.link.ask(f"STREAM.PURGE.{self._stream}", {"seq": min(upto, last - 1) + 1})

    # The stream

    async def _make(self) -> None:
        if not self._made:
            config = streams.wanted(self._stream, [self._subject], self.engine.settings.replicas)
            info = await streams.ensure(self.engine.link, config)
            # A stream that is made anew begins at 1 again: what the fold knows of the entries of the old one does not concern it.
            self._identity = f"{self.name}@{info['created']}"
            self._made = True

    def _call(self, operation: str, work: Callable[..., Coroutine[Any, Any, T]], *values: Any) -> T:
        return self.engine.call(operation, work, *values, lost=EngineUnavailableError)
