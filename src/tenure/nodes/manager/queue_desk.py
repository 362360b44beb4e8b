"""Answers requests about queues: lists their contents, and sets the limits that operators give them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tenure.control.messages.queues import ChangeQueue, ListQueues, PauseQueue, QueueList, QueueView, ResumeQueue
from tenure.control.messages.wire import Reply, Request
from tenure.jobs import JobBook
from tenure.jobs.book import Lane
from tenure.jobs.model import QueueRecord
from tenure.jobs.queues import SetQueue

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager


class QueueDesk:
    """Part of a manager. Any manager lists queues; only the leader changes them."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.handlers: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {
            PauseQueue: self._pause,
            ResumeQueue: self._resume,
            ChangeQueue: self._change,
            ListQueues: self._list,
        }

    async def _pause(self, request: PauseQueue) -> Reply:
        return await self._manager.write(SetQueue(queue=request.queue, paused=True, by=request.by))

    async def _resume(self, request: ResumeQueue) -> Reply:
        return await self._manager.write(SetQueue(queue=request.queue, paused=False, by=request.by))

    async def _change(self, request: ChangeQueue) -> Reply:
        return await self._manager.write(
            SetQueue(
                queue=request.queue,
                paused=request.paused,
                max_running=request.max_running,
                rate=request.rate,
                burst=request.burst,
                by=request.by,
            )
        )

    async def _list(self, request: ListQueues) -> Reply:
        now = self._manager.now()
        return await self._manager.ledger.read(lambda book: queue_list(book, now))


def queue_list(book: JobBook, now: float) -> QueueList:
    """Returns all queues, read off the book's indexes: the cost grows with the lanes, not with the jobs."""
    book.wake(now)  # attempts whose rest is over enter their lanes; on a standby nothing else moves them
    names = {queue for queue, _ in (*book.ready, *book.queued)} | set(book.in_queue) | set(book.state.queues)
    return QueueList(queues=tuple(queue_view(book, name, now) for name in sorted(names)), now=now)


def queue_view(book: JobBook, name: str, now: float) -> QueueView:
    record = book.state.queues.get(name, QueueRecord())
    lanes: list[Lane] = [lane for lane in dict.fromkeys((*book.ready, *book.queued)) if lane[0] == name]
    queued = sum(len(book.queued.get(lane, ())) for lane in lanes)
    return QueueView(
        name=name,
        paused=record.paused,
        max_running=record.max_running,
        rate=record.rate,
        burst=record.burst,
        held=sum(len(book.ready.get(lane, ())) for lane in lanes),
        queued=queued,
        running=max(0, book.in_queue.get(name, 0) - queued),
        oldest_s=max((_age(book, lane, now) for lane in lanes), default=0.0),
        priorities=tuple(sorted((priority for _, priority in lanes), reverse=True)),
    )


def _age(book: JobBook, lane: Lane, now: float) -> float:
    """Returns the age of the lane's first queued attempt, which was sent first; 0.0 when none is queued."""
    for job_id, workflow in book.queued.get(lane, ()):
        return max(0.0, now - book.jobs[job_id].workflows[workflow].dispatched_at)
    return 0.0
