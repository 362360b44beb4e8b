"""Gives the events of a node's journal to listeners: page by page, or as a stream for as long as they listen.

It queues nothing for a listener. Each listener has a cursor and reads the events after it: from the newest entries, which are in memory once
for all listeners, or from the journal. A slow listener only falls behind. A listener whose events the journal has truncated gets a `gap`, with
the state that the missing events led to. Every node serves them, leader or not, so a lost leader costs a listener a connection and no event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tenure.clock import Clock
from tenure.control.claims import Scope, scope
from tenure.control.messages.events import (
    MAX_EVENTS,
    Cursor,
    EventGap,
    EventLine,
    EventPage,
    GetEvents,
    ProgressLine,
    parse_cursor,
)
from tenure.control.streams import StreamItem
from tenure.engines.aio import Calls
from tenure.engines.contracts import Entry, Journal
from tenure.engines.long_poll import LoopWaiter
from tenure.errors import Truncated
from tenure.jobs.arguments import masked_event
from tenure.jobs.model import JobSubmission

BEAT_S = 10.0
"""The seconds after which a stream without events sends a beat, with its cursor."""
FOLLOW_S = 10.0
READ_ENTRIES = 20
"""The most entries of one read from the journal, because an entry may be half a megabyte."""
KEPT_ENTRIES = 2_000
KEPT_BYTES = 8 << 20
_KNOWN_QUEUES = 10_000
CARRIES_ARGUMENTS = frozenset({"JobSubmitted", "GateJobAccepted", "ScheduleSet"})
PROGRESS_S = 1.0
"""A listener gets the progress of a workflow at most this often."""


class SubmittedQueue(msgspec.Struct, frozen=True):
    queue: str = "default"
    labels: dict[str, str] = {}


class Glance(msgspec.Struct, frozen=True):
    """The fields of an event that filters look at. Decoding skips all others, so events of a newer version pass, too."""

    type: str
    job_id: str = ""
    jobs: tuple[str, ...] = ()
    queue: str = ""
    submission: SubmittedQueue | None = None


_glance = msgspec.json.Decoder(Glance)


Progress = Callable[[GetEvents], tuple[ProgressLine, ...]]
"""Returns how the work that a request asks about stands now. Raises `DeposedError` where only another node knows."""
State = Callable[[GetEvents], Awaitable[tuple[int, Any]]]
"""Returns the state from which a listener that missed events begins, after a sequence that the state certainly covers."""


class EventFeed:
    """The events of one journal. It follows the journal only while there are listeners."""

    def __init__(
        self,
        journal: Journal,
        calls: Calls,
        *,
        clock: Clock,
        state: State,
        submission_of: Callable[[str], JobSubmission | None],
        keep: Callable[[str, Callable[[], Coroutine[Any, Any, None]]], Coroutine[Any, Any, None]],
        progress: Progress | None = None,
        masked: Callable[[bytes], bytes] = masked_event,
    ) -> None:
        """`keep` runs a loop for as long as the node runs, whatever it raises (`LoopKeeper.keep`). `progress`: where workers report to this node."""
        self._keep_loop, self._progress, self._masked = keep, progress, masked
        self._journal, self._calls, self._clock, self._state = journal, calls, clock, state
        self._submission_of = submission_of
        self._kept: deque[tuple[Entry, int]] = deque()
        self._kept_bytes = 0
        self._kept_after = 0
        """All entries above this sequence, up to `_tail`, are in `_kept`."""
        self._tail = 0
        self._submitted: dict[str, SubmittedQueue] = {}
        self._listeners = 0
        self._following: asyncio.Task[None] | None = None
        self._waiters: set[LoopWaiter] = set()
        self._closed = False

    @property
    def listeners(self) -> int:
        return self._listeners

    def close(self) -> None:
        """Ends every stream, because the node stops. Listeners resume at another node."""
        self._closed = True
        if self._following is not None:
            self._following.cancel()
        self._ring()

    # Pages and streams

    async def page(self, request: GetEvents) -> EventPage:
        """Returns events after the cursor. Waits up to `wait_s` for the first one."""
        shown = self._shown(request)
        until = self._clock.monotonic() + (min(request.wait_s, PROGRESS_S) if shown else request.wait_s)
        gap: EventGap | None = None
        async with self._listening():
            position = await self._begin(request)
            # Ask for the head: a caller whose write has just been acknowledged must find it, even if `_follow` has not read it yet.
            end = (await self._calls.run(self._journal.head)).seq
            while True:
                try:
                    lines, position = await self._take(position, request, request.limit, end)
                except Truncated as error:
                    gap = await self._gap(request, position, error)
                    position = parse_cursor(gap.cursor)
                    continue
                if lines or gap is not None:
                    break
                if position.seq >= max(end, self._tail):
                    left = until - self._clock.monotonic()
                    if left <= 0 or self._closed:
                        break
                    await self._more(position.seq, left)
        events = tuple(EventLine(cursor=line.cursor, event=msgspec.Raw(line.data)) for line in lines)
        return EventPage(events=events, cursor=str(position), gap=gap, progress=self._shown(request))

    def _shown(self, request: GetEvents) -> tuple[ProgressLine, ...]:
        if not request.progress or self._progress is None:
            return ()
        within, found = scope(), []
        for line in self._progress(request):
            job = self._submission_of(line.job_id)
            if job is not None and request.queue in ("", job.queue) and within.covers_job(job.queue, job.labels):
                found.append(line)
        return tuple(found)

    async def stream(self, request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        """Yields all events after the cursor, until the node stops or the listener leaves."""
        shown = _ShownProgress(self._clock, self._shown)
        async with self._listening():
            position = await self._begin(request)
            yield [*shown.news(request, position), StreamItem("beat", str(position))]
            beat_at = self._clock.monotonic() + BEAT_S
            while not self._closed:
                try:
                    lines, position = await self._take(position, request, MAX_EVENTS)
                except Truncated as error:
                    gap = await self._gap(request, position, error)
                    position = parse_cursor(gap.cursor)
                    yield [StreamItem("gap", gap.cursor, data=msgspec.json.encode(gap))]
                    continue
                if lines := [*lines, *shown.news(request, position)]:
                    yield lines
                now = self._clock.monotonic()
                if lines:
                    beat_at = now + BEAT_S
                elif now >= beat_at:
                    # The cursor is also past events that did not match, so a listener that resumes from here skips them.
                    yield [StreamItem("beat", str(position))]
                    beat_at = now + BEAT_S
                elif position.seq >= self._tail:
                    await self._more(position.seq, min(beat_at - now, PROGRESS_S if request.progress else beat_at))

    # Where to begin, and what is missing

    async def _begin(self, request: GetEvents) -> Cursor:
        if request.after is None:
            return Cursor((await self._calls.run(self._journal.head)).seq)
        return parse_cursor(request.after)

    async def _gap(self, request: GetEvents, position: Cursor, missing: Truncated) -> EventGap:
        while True:
            seq, state = await self._state(request)
            if seq >= missing.first - 1 or self._closed:
                return EventGap(after=str(position), cursor=str(Cursor(seq)), reason=missing.fact, state=state)
            # The book of a standby may itself be behind the truncation. Wait until it has caught up, or the state would leave a gap.
            await self._clock.async_sleep(0.1)

    # Events after a cursor

    async def _take(
        self, position: Cursor, request: GetEvents, most: int, end: int = 0
    ) -> tuple[list[StreamItem], Cursor]:
        """Returns the matching events after the cursor, and the cursor behind the last event that was looked at. Raises `Truncated`."""
        found: list[StreamItem] = []
        for entry in await self._entries(position, max(end, self._tail)):
            size = len(entry.events)
            begin = position.seen if position.seen is not None and entry.seq == position.seq else 0
            for index in range(min(begin, size), size):
                whole = index + 1 == size
                position = Cursor(entry.seq, None if whole else index + 1)
                data = entry.events[index]
                name = self._matches(request, data)
                if name:
                    shown = self._masked(data) if name in CARRIES_ARGUMENTS else data
                    found.append(StreamItem("event", str(position), name, shown))
                    if len(found) >= most:
                        return found, position
            position = Cursor(entry.seq)
        return found, position

    async def _entries(self, position: Cursor, end: int) -> list[Entry]:
        before = position.before
        if before >= end:
            head = await self._calls.run(self._journal.head) if before > end else None
            if head is not None and before > head.seq:
                # The cursor is of another datacenter, or the engine lost acknowledged writes: the listener saw events that are not in this journal.
                raise Truncated(before, head.seq + 1)
            return []
        if self._kept_after <= before < self._tail:
            # Search, because an engine may leave out sequences; from the end, because most listeners are near it.
            skip = len(self._kept)
            while skip and self._kept[skip - 1][0].seq > before:
                skip -= 1
            return [self._kept[at][0] for at in range(skip, min(len(self._kept), skip + READ_ENTRIES))]
        return await self._calls.run(self._journal.read, before, limit=READ_ENTRIES)

    def _matches(self, request: GetEvents, data: bytes) -> str:
        """Returns the type of an event; empty where the request does not ask for it, or it is damaged. The ledger reports damage, not this feed."""
        try:
            event = _glance.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
        if event.submission is not None:
            if len(self._submitted) >= _KNOWN_QUEUES:
                self._submitted.clear()
            self._submitted[event.job_id] = event.submission
        if request.kind and event.type not in request.kind:
            return ""
        if request.job_id and event.job_id != request.job_id and request.job_id not in event.jobs:
            return ""
        if request.queue and request.queue not in self._queues_of(event):
            return ""
        within = scope()
        if within.scoped and not self._is_in(within, event):
            return ""
        return event.type

    def _queues_of(self, event: Glance) -> set[str]:
        return {event.queue, *(one.queue for one in self._submissions_of(event) if one is not None)} - {""}

    def _submissions_of(self, event: Glance) -> list[SubmittedQueue | JobSubmission | None]:
        names = {event.job_id, *event.jobs} - {""}
        return [self._submitted.get(name) or self._submission_of(name) for name in names]

    def _is_in(self, within: Scope, event: Glance) -> bool:
        """Returns True for an event that is about jobs, all of them within the caller's bounds."""
        found = self._submissions_of(event)
        return bool(found) and all(one is not None and within.covers_job(one.queue, one.labels) for one in found)

    # The newest entries, once for all listeners

    @asynccontextmanager
    async def _listening(self) -> AsyncGenerator[None, None]:
        self._listeners += 1
        try:
            await self._begin_to_follow()
            yield
        finally:
            self._listeners -= 1
            if self._listeners == 0 and self._following is not None:
                self._following.cancel()
                self._following = None
                self._forget()

    async def _begin_to_follow(self) -> None:
        if self._following is None and not self._closed:
            head = (await self._calls.run(self._journal.head)).seq
            if self._following is None and self._listeners:  # other listeners may have come or gone during the call
                self._tail = self._kept_after = head
                self._following = asyncio.create_task(self._keep_loop("event feed", self._follow))

    async def _follow(self) -> None:
        while True:
            await self._follow_on()

    async def _follow_on(self) -> None:
        try:
            entries = await self._calls.run(self._journal.follow, self._tail, FOLLOW_S)
        except Truncated:
            # The journal was truncated above `_tail`, so the entries in memory would leave a gap before the next ones.
            self._forget()
            self._tail = self._kept_after = (await self._calls.run(self._journal.head)).seq
            self._ring()
            return
        for entry in entries:
            self._keep(entry)
        if entries:
            self._ring()

    @property
    def kept_entries(self) -> int:
        """Returns how many entries of the journal are in memory for listeners; none while nobody listens."""
        return len(self._kept)

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def _keep(self, entry: Entry) -> None:
        size = sum(map(len, entry.events))
        self._kept.append((entry, size))
        self._kept_bytes += size
        self._tail = entry.seq
        while len(self._kept) > KEPT_ENTRIES or self._kept_bytes > KEPT_BYTES:
            oldest, bytes_ = self._kept.popleft()
            self._kept_bytes -= bytes_
            self._kept_after = oldest.seq

    async def _more(self, seq: int, seconds: float) -> None:
        """Waits until there are entries above this sequence, for `seconds` at most."""
        if self._tail > seq or self._closed:
            return
        waiter = LoopWaiter()
        self._waiters.add(waiter)
        try:
            await waiter.wait(self._clock, max(0.0, seconds))
        finally:
            self._waiters.discard(waiter)

    def _ring(self) -> None:
        for waiter in self._waiters:
            waiter.ring()


class _ShownProgress:
    """Remembers the progress that one stream has shown, so that it shows only what is new, and that not too often."""

    def __init__(self, clock: Clock, look: Progress) -> None:
        self._clock, self._look = clock, look
        self._due = 0.0
        self._before: dict[tuple[str, str], tuple[int, int, float | None, str]] = {}

    def news(self, request: GetEvents, position: Cursor) -> list[StreamItem]:
        now = self._clock.monotonic()
        if not request.progress or now < self._due:
            return []
        self._due = now + PROGRESS_S
        lines = self._look(request)
        stand = {(one.job_id, one.workflow): (one.attempt, one.steps, one.fraction, one.note) for one in lines}
        fresh = [
            one for one in lines if stand[one.job_id, one.workflow] != self._before.get((one.job_id, one.workflow))
        ]
        self._before = stand
        return [StreamItem("progress", str(position), data=msgspec.json.encode(one)) for one in fresh]
