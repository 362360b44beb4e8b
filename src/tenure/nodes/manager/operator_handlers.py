"""Answers requests about nodes and queues: lists managers and workers and drains workers; lists queues, sets their limits, and shows, replays and
discards their dead letters.

Managers describe themselves in the engine's store, so that each can list the others. The list is for people: no code decides by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from tenure.client.transactions import SUBMISSIONS
from tenure.clock import Clock
from tenure.control.claims import scope
from tenure.control.messages.jobs import Done
from tenure.control.messages.nodes import DrainNode, ListNodes, ManagerNode, NodeList, UndrainNode
from tenure.control.messages.queues import (
    MAX_DEAD_LETTERS,
    ChangeQueue,
    DeadLetterList,
    DeadLetterRow,
    DeadLetterView,
    DiscardDeadLetter,
    GetDeadLetter,
    KeyView,
    LetterDone,
    ListDeadLetters,
    ListQueues,
    PauseQueue,
    QueueList,
    QueueView,
    ReplayDeadLetter,
    ResumeQueue,
)
from tenure.control.messages.wire import Handlers, Problem, ProblemKind, Reply
from tenure.control.messages.workflows import ListThresholds, ListWorkflows
from tenure.engines.aio import Calls
from tenure.engines.checks import check_name
from tenure.engines.contracts import DeadLetter, DeadLetters, Engine, Mailbox, Store
from tenure.errors import ConfigurationError, EngineError, EngineUnavailableError
from tenure.jobs import JobBook, Outcome
from tenure.jobs.catalogue import lane_named
from tenure.jobs.fair_lanes import busiest_keys
from tenure.jobs.mailbox_names import mailbox_name, work_mailbox
from tenure.jobs.queues import QueueRecord, SetQueue, settings_of
from tenure.jobs.work_indexes import Lane
from tenure.jobs.workers import DrainWorker
from tenure.nodes.gossip_pool import MANAGERS, NODES
from tenure.nodes.job_listing import workflow_list
from tenure.nodes.manager.manager_health import MANAGER
from tenure.nodes.manager.operator_views import threshold_list, with_drained

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager


class NodeHandlers:
    """Part of a manager. Only the leader answers: workers report to no other."""

    def __init__(self, manager: Manager, engine: Engine, calls: Calls) -> None:
        self._manager, self._store, self._calls = manager, engine.store(NODES), calls
        self.handlers: Handlers = {
            ListNodes: self._list,
            DrainNode: self._drain,
            UndrainNode: self._undrain,
        }

    async def _drain(self, request: DrainNode) -> Reply:
        departures, now = self._manager.worker_reports.departures, self._manager.now()
        before = departures.words(request.node, now)
        command = DrainWorker(worker=request.node, reason=request.reason, by=request.by, within_s=request.within_s)
        reply = await self._manager.write(command)
        return replace(reply, reason=before) if isinstance(reply, Done) and not reply.reason else reply

    async def _undrain(self, request: UndrainNode) -> Reply:
        return await self._manager.write(DrainWorker(worker=request.node, drained=False, by=request.by))

    async def _list(self, request: ListNodes) -> Reply:
        reports, now = self._manager.worker_reports, self._manager.now()
        drained = await self._manager.ledger.read(lambda book: dict(book.state.drained))
        records = await self._manager.ledger.read(
            lambda book: {name: one.since for name, one in book.state.workers.items()}
        )
        running = reports.reported.running() if request.attempts else {}
        here = [
            replace(
                reports.departures.shown(one, now),
                since=records.get(one.name, 0.0),
                attempts=tuple(running.get(one.name, ())),
                grants=(reports.health_of(one.name),),
            )
            for one in self._manager.workers()
        ]
        workers = with_drained(here, {name: one for name, one in drained.items() if not name.startswith(MANAGER)})
        return NodeList(managers=await managers(self._store, self._calls, now), workers=workers, now=now)


SAY_EVERY_S = 10.0
FORGET_AFTER_S = 35.0
"""The time to live of an entry: three writes in a row may fail before the manager drops out of the list."""
FIRST_LOOK_S = 0.2


class ManagerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's description of itself, and the engine's time at which it wrote it."""

    node: ManagerNode
    at: float
    gossip: str = ""
    """Where it gossips, as host:port, so that others find its pool; empty where it does not."""


class Presence:
    """Writes the entry of one manager again and again while it runs."""

    def __init__(
        self,
        engine: Engine,
        calls: Calls,
        clock: Clock,
        *,
        node: Callable[[], ManagerNode],
        now: Callable[[], float],
        gossip: str = "",
    ) -> None:
        self._gossip = gossip
        self._store, self._calls, self._clock, self._node, self._now = engine.store(NODES), calls, clock, node, now

    async def run(self) -> None:
        """Writes the entry until cancelled, then deletes it. Raises while the engine is out of reach."""
        key = ""
        try:
            while True:
                try:
                    node = self._node()
                except EngineUnavailableError:
                    # The leadership has not read the engine's time yet: it does so within its first campaign.
                    await self._clock.async_sleep(FIRST_LOOK_S)
                    continue
                key = f"{MANAGERS}{node.name}"[:500]
                said = msgspec.json.encode(ManagerEntry(node=node, at=self._now(), gossip=self._gossip))
                await self._calls.run(self._store.put, key, said, ttl=FORGET_AFTER_S)
                await self._clock.async_sleep(SAY_EVERY_S)
        finally:
            if key:
                with contextlib.suppress(EngineError):
                    await self._calls.run(self._store.delete, key)


async def managers(store: Store, calls: Calls, now: float) -> tuple[ManagerNode, ...]:
    """Returns the managers whose entries have not expired."""
    found = []
    for key in await calls.run(store.list, MANAGERS):
        data = await calls.run(store.get, key)
        if data is None:
            continue
        try:
            said = msgspec.json.decode(data, type=ManagerEntry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # another program's value, or a damaged one: the other managers are listed all the same
        found.append(msgspec.structs.replace(said.node, heard_s_ago=max(0.0, now - said.at)))
    return tuple(found)


class QueueHandlers:
    """Part of a manager. Any manager lists queues; only the leader changes them."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.handlers: Handlers = {
            PauseQueue: self._pause,
            ResumeQueue: self._resume,
            ChangeQueue: self._change,
            ListQueues: self._list,
            ListWorkflows: self._list_workflows,
            ListThresholds: self._list_thresholds,
        }

    async def _pause(self, request: PauseQueue) -> Reply:
        return await self._manager.write(SetQueue(queue=request.queue, paused=True, by=request.by))

    async def _resume(self, request: ResumeQueue) -> Reply:
        return await self._manager.write(SetQueue(queue=request.queue, paused=False, by=request.by))

    async def _change(self, request: ChangeQueue) -> Reply:
        return await self._manager.write(SetQueue(queue=request.queue, by=request.by, **settings_of(request)))

    async def _list(self, request: ListQueues) -> Reply:
        now, within = self._manager.now(), scope()
        found = await self._manager.ledger.read(lambda book: queue_list(book, now))
        return replace(found, queues=tuple(one for one in found.queues if within.covers_queue(one.name)))

    async def _list_workflows(self, request: ListWorkflows) -> Reply:
        return await self._manager.ledger.read(lambda book: workflow_list(book, request.name, self._manager.now()))

    async def _list_thresholds(self, request: ListThresholds) -> Reply:
        return await self._manager.ledger.read(lambda book: threshold_list(book, request.name, self._manager.now()))


def queue_list(book: JobBook, now: float) -> QueueList:
    """Returns all queues, read off the book's indexes: the cost grows with the lanes, not with the jobs."""
    book.wake(now)  # attempts whose rest is over enter their lanes; on a standby nothing else moves them
    names = (
        {queue for queue, *_ in (*book.ready, *book.queued)}
        | {queue for queue, *_ in book.parked}
        | set(book.in_queue)
        | set(book.state.queues)
    )
    return QueueList(queues=tuple(queue_view(book, name, now) for name in sorted(names)), now=now)


def queue_view(book: JobBook, name: str, now: float) -> QueueView:
    record = book.state.queues.get(name, QueueRecord())
    lanes: list[Lane] = [lane for lane in dict.fromkeys((*book.ready, *book.queued)) if lane[0] == name]
    queued = sum(len(book.queued.get(lane, ())) for lane in lanes)
    return QueueView(
        name=name,
        **settings_of(record),
        keys=tuple(KeyView(key=key, under_way=load, held=held) for key, load, held in busiest_keys(book, name)),
        parked=sum(len(waiting) for key, waiting in book.parked.items() if key[0] == name),
        held=sum(len(book.ready.get(lane, ())) for lane in lanes),
        queued=queued,
        running=max(0, book.in_queue.get(name, 0) - queued),
        oldest_s=max((oldest_s(book, lane, now) for lane in lanes), default=0.0),
        priorities=tuple(sorted((priority for _, priority in lanes), reverse=True)),
    )


def oldest_s(book: JobBook, lane: Lane, now: float) -> float:
    """Returns the age of the lane's first queued attempt, which was sent first; 0.0 when none is queued."""
    for job_id, workflow in book.queued.get(lane, ()):
        return max(0.0, now - book.jobs[job_id].workflows[workflow].dispatched_at)
    return 0.0


UNMANAGED = "work"
"""The default mailbox of workers that run without managers."""
_MOST_TEXT = 65_536


class DeadLetterHandlers:
    """Part of a manager. It needs no lead: it asks the engine itself."""

    def __init__(self, manager: Manager, engine: Engine, calls: Calls) -> None:
        self._manager, self._engine, self._calls = manager, engine, calls
        self._mailboxes: dict[str, Mailbox[Any, Any]] = {}
        self.handlers: Handlers = {
            ListDeadLetters: self._list,
            GetDeadLetter: self._get,
            ReplayDeadLetter: self._replay,
            DiscardDeadLetter: self._discard,
        }

    async def _list(self, request: ListDeadLetters) -> Reply:
        if request.after and not request.mailbox:
            raise ConfigurationError("after is given without a mailbox", remedy="Each mailbox has pages of its own")
        names = [request.mailbox] if request.mailbox else await self._manager.ledger.read(_known)
        letters: list[DeadLetterRow] = []
        count = 0
        for name in names:
            letters_of = self._letters(name)
            found = await self._calls.run(letters_of.list, limit=request.limit, after=request.after or None)
            letters += [_row(name, letter) for letter in found]
            count += await self._calls.run(letters_of.count)
        return DeadLetterList(letters=tuple(letters), count=count)

    async def _get(self, request: GetDeadLetter) -> Reply:
        letters, after = self._letters(request.mailbox), None
        while page := await self._calls.run(letters.list, limit=MAX_DEAD_LETTERS, after=after):
            for letter in page:
                if letter.id == request.id:
                    return _view(request.mailbox, letter)
            if len(page) < MAX_DEAD_LETTERS:
                break
            after = page[-1].id
        return Problem(kind=ProblemKind.UNKNOWN, fact=f"there is no dead letter {request.id!r} in {request.mailbox!r}")

    async def _replay(self, request: ReplayDeadLetter) -> Reply:
        return await self._done(request, self._letters(request.mailbox).replay)

    async def _discard(self, request: DiscardDeadLetter) -> Reply:
        return await self._done(request, self._letters(request.mailbox).delete)

    async def _done(self, request: ReplayDeadLetter | DiscardDeadLetter, act: Callable[[str], bool]) -> LetterDone:
        found = await self._calls.run(act, request.id)
        return LetterDone(
            mailbox=request.mailbox,
            id=request.id,
            outcome=Outcome.ACCEPTED if found else Outcome.NOTHING,
            reason="" if found else "there is no such dead letter any more",
        )

    def _letters(self, name: str) -> DeadLetters:
        mailbox = self._mailboxes.get(check_name(name, "mailbox"))
        if mailbox is None:
            if len(self._mailboxes) >= 1_000:
                self._mailboxes.clear()  # callers choose the names: what is kept must not grow without end
            mailbox = self._mailboxes[name] = self._engine.mailbox(name)
        return mailbox.dead_letters


def _known(book: JobBook) -> list[str]:
    lanes = sorted({*book.queued, *book.ready, ("default", 0)})
    served = (
        work_mailbox(*lane_named(lane), name, kind)
        for offer in book.state.offers.values()
        for lane in offer.lanes
        for name, version in (*offer.workflows, *offer.takes_over)
        for kind in (version, "")
    )
    # Each mailbox is asked for its dead letters. One beyond so many has to be named.
    return [
        *(mailbox_name(queue, priority) for queue, priority in lanes),
        UNMANAGED,
        SUBMISSIONS,
        *islice(dict.fromkeys(served), 500),
    ]


def _row(mailbox: str, letter: DeadLetter) -> DeadLetterRow:
    return DeadLetterRow(
        id=letter.id,
        mailbox=mailbox,
        cause=letter.cause,
        reason=letter.reason,
        died_at=letter.died_at,
        enqueued_at=letter.enqueued_at,
        deliveries=letter.delivery_count,
        key=letter.key or "",
        generation=letter.generation,
    )


def _view(mailbox: str, letter: DeadLetter) -> DeadLetterView:
    try:
        return DeadLetterView(letter=_row(mailbox, letter), body=msgspec.json.decode(letter.body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = letter.body[:_MOST_TEXT].decode(errors="replace")
        return DeadLetterView(letter=_row(mailbox, letter), text=text)
