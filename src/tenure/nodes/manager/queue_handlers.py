"""Answers requests about queues: lists their contents, sets the limits that operators give them, and lists, shows, replays and discards their dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.control.messages.jobs import Problem, ProblemKind
from tenure.control.messages.queues import (
    MAX_DEAD_LETTERS,
    ChangeQueue,
    DeadLetterList,
    DeadLetterRow,
    DeadLetterView,
    DiscardDeadLetter,
    GetDeadLetter,
    LetterDone,
    ListDeadLetters,
    ListQueues,
    PauseQueue,
    QueueList,
    QueueView,
    ReplayDeadLetter,
    ResumeQueue,
)
from tenure.control.messages.wire import Handlers, Reply
from tenure.engines.aio import Calls
from tenure.engines.checks import check_name
from tenure.engines.contracts import DeadLetter, DeadLetters, Engine, Mailbox
from tenure.errors import ConfigurationError
from tenure.jobs import JobBook, Outcome
from tenure.jobs.book import Lane
from tenure.jobs.model import QueueRecord
from tenure.jobs.outbox import mailbox_name
from tenure.jobs.queues import SetQueue

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager


class QueueHandlers:
    """Part of a manager. Any manager lists queues; only the leader changes them."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.handlers: Handlers = {
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
    return [*(mailbox_name(queue, priority) for queue, priority in lanes), UNMANAGED]


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
