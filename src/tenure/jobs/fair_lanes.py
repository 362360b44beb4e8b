"""Keys of work, such as its tenant: how a key is read off the work, whose turn it is, and how much of a key may be under way.

Keys of one lane take turns by stride scheduling: each dispatch moves its key ahead by one part in its weight, and the key that is furthest behind
goes next. A key that comes anew starts beside the one that went last, so it waits for nobody's backlog. The turns are an index over the state: a
new leader begins a new round, and reads how much of each key is under way off the attempts that are dispatched or running.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from heapq import heappop, heappush, nlargest
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.jobs.model import JobInfo, WorkflowRecord

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.work_indexes import Lane, WorkflowKey, WorkNeeds

LONGEST_KEY = 200
MOST_KEYS_SHOWN = 20
LEAST_WINDOW = 4
"""The attempts of a queue with keys that may be in the engine where no worker's slots are known."""
Turn = tuple[float, int, str]
"""(place, order, key): the lowest place goes first, then who queued up first."""
_encode = msgspec.json.Encoder(order="sorted").encode


def key_of(book: JobBook, info: JobInfo, workflow: WorkflowRecord) -> str | None:
    """Returns the key of a workflow; None where neither it nor its queue has one."""
    limit = workflow.spec.concurrency
    expression = limit.key if limit is not None else ""
    if not expression:
        record = book.state.queues.get(info.job.submission.queue)
        if record is None or not record.concurrency_key:
            return None
        expression = record.concurrency_key
    return _value_at(expression, workflow.spec.arguments, info.job.submission.labels)


def _value_at(expression: str, arguments: dict[str, Any], labels: dict[str, str]) -> str:
    """Returns the value as text; empty where there is none. All work without a value shares one turn."""
    kind, _, path = expression.partition(".")
    if kind == "labels":
        return labels.get(path, "")[:LONGEST_KEY]
    value: Any = arguments
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ""
    text = value if isinstance(value, str) else _encode(value).decode()
    if len(text) <= LONGEST_KEY:
        return text
    return text[:150] + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def key_room(book: JobBook, queue: str, key: str, workflow: WorkflowRecord) -> float:
    """Returns the number of attempts of a key that may be sent beside those that are under way."""
    most = key_limit(book, queue, workflow)
    return float("inf") if most is None else most - book.turns.load.get((queue, key), 0)


def key_limit(book: JobBook, queue: str, workflow: WorkflowRecord) -> int | None:
    own, record = workflow.spec.concurrency, book.state.queues.get(queue)
    if own is not None and own.most is not None:
        return own.most
    return record.max_per_key if record is not None else None


def waits_for_turn(book: JobBook, info: JobInfo, workflow: WorkflowRecord) -> str:
    """Returns why a workflow that could go waits, in words, where its key is the reason; else nothing."""
    queue = info.job.submission.queue
    lane = book.turns.lanes.get((queue, info.job.submission.priority or 0))
    key = key_of(book, info, workflow)
    if lane is None or key is None or (info.id, workflow.spec.name) not in lane:
        return ""
    load, most = book.turns.load.get((queue, key), 0), key_limit(book, queue, workflow)
    if most is not None and load >= most:
        return f"others of its key {key!r}: {load} are under way in queue {queue!r}, and {most} may be"
    return f"its turn: {lane.waiting_of(key)} of its key {key!r} wait in queue {queue!r}, where {len(lane.keys())} keys take turns"


def key_weight(book: JobBook, queue: str, key: str) -> int:
    """Returns the turns of a key where others have one."""
    record = book.state.queues.get(queue)
    return 1 if record is None else record.weights.get(key, 1)


def window(slots: int) -> int:
    """Returns the most attempts of a queue with keys that may be in the engine or running. What is there is out of turn (RULINGS 17)."""
    return max(LEAST_WINDOW, 2 * slots)


def busiest_keys(book: JobBook, queue: str) -> list[tuple[str, int, int]]:
    """Returns (key, under way, waiting for a turn) of the keys of a queue that have most of both."""
    found: dict[str, list[int]] = {key: [load, 0] for (where, key), load in book.turns.load.items() if where == queue}
    for lane, fair in book.turns.lanes.items():
        for key in fair.keys() if lane[0] == queue else ():
            found.setdefault(key, [0, 0])[1] += fair.waiting_of(key)
    return nlargest(
        MOST_KEYS_SHOWN, ((key, load, held) for key, (load, held) in found.items()), key=lambda one: one[1] + one[2]
    )


class FairLane:
    """The work of one lane that is ready, by key, and the order in which keys have their turns."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[WorkflowKey, None]] = {}
        self._keys: dict[WorkflowKey, str] = {}
        self._reached: dict[str, float] = {}
        """Maps each key to where its turns have brought it. Kept for a key without work while it is ahead, or it would gain by coming piece by piece."""
        self._now = 0.0
        """Where the key stood that went last."""
        self._turns: list[Turn] = []
        """A heap of (place, order, key). An entry counts while `_turn` holds it; others are dropped when they are met."""
        self._turn: dict[str, Turn] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, work: WorkflowKey) -> bool:
        return work in self._keys

    def keys(self) -> list[str]:
        """Returns the keys that have work here."""
        return list(self._waiting)

    def key_of(self, work: WorkflowKey) -> str:
        return self._keys[work]

    def waiting_of(self, key: str) -> int:
        return len(self._waiting.get(key, ()))

    def add(self, work: WorkflowKey, key: str) -> None:
        self._keys[work] = key
        waiting = self._waiting.setdefault(key, {})
        waiting[work] = None
        if len(waiting) == 1:
            self._queue_up(key)

    def remove(self, work: WorkflowKey) -> None:
        key = self._keys.pop(work, None)
        if key is None:
            return
        waiting = self._waiting[key]
        del waiting[work]
        if not waiting:
            del self._waiting[key]
            self._turn.pop(key, None)
            if len(self._reached) > 2 * len(self._waiting) + 64:
                self._reached = {one: place for one, place in self._reached.items() if place > self._now}

    def sent(self, work: WorkflowKey, weight: int) -> None:
        """Moves the key of work that was dispatched ahead. Call it before `remove`."""
        key = self._keys.get(work)
        if key is not None:
            place = max(self._reached.get(key, 0.0), self._now)
            self._now, self._reached[key] = place, place + 1 / weight
            self._queue_up(key)

    def freed(self, key: str) -> None:
        """Gives a key its turn again that was at its limit."""
        if key in self._waiting and key not in self._turn:
            self._queue_up(key)

    def _queue_up(self, key: str) -> None:
        self._order += 1
        entry = (max(self._reached.get(key, 0.0), self._now), self._order, key)
        self._turn[key] = entry
        heappush(self._turns, entry)

    def pick(
        self,
        most: int,
        room: Callable[[str, WorkflowKey], float],
        weight: Callable[[str], int],
        skip: Container[str] = (),
        beside: Mapping[str, int] | None = None,
    ) -> list[WorkflowKey]:
        """Returns the work that goes next, at most `most`, without taking it out. `room` tells how many of its key may go for this work to be one of them.

        A key whose next work has no room loses its place until `freed` gives it back. Work of jobs in `skip` is passed over. `beside` tells how many of
        each key go with the same look and are counted nowhere yet: they take room, but no place, because they may still fail to go.
        """
        found: list[WorkflowKey] = []
        tried: list[Turn] = []
        ahead: list[Turn] = []  # further turns of the keys that this look has picked from
        left: dict[str, Iterator[WorkflowKey]] = {}
        going = Counter(beside or {})
        while len(found) < most and (entry := self._next(ahead)) is not None:
            place, _, key = entry
            first = key not in left
            if first:
                left[key] = (work for work in self._waiting[key] if work[0] not in skip)
            work = next(left[key], None)
            # Each work is asked for: functions and submissions have limits of their own, so those of one key may differ.
            free = 0.0 if work is None else room(key, work)
            if first and work is not None and free <= 0:
                del self._turn[key]
                continue
            if first:
                tried.append(entry)
            if work is not None and free > going[key]:
                found.append(work)
                going[key] += 1
                # As `sent` will queue it up: among keys at one place, it is the last.
                heappush(ahead, (place + 1 / weight(key), self._order + len(found), key))
        for entry in tried:
            heappush(self._turns, entry)
        return found

    def _next(self, ahead: list[Turn]) -> Turn | None:
        """Takes out the turn that is next, of `ahead` or of all, and drops turns that no longer count."""
        while self._turns and self._turn.get(self._turns[0][2]) != self._turns[0]:
            heappop(self._turns)
        if not self._turns or (ahead and ahead[0] < self._turns[0]):
            return heappop(ahead) if ahead else None
        return heappop(self._turns)


class Turns:
    """The keys of a book's work: an index beside its lanes of ready work. A lane is in it while some of its work has a key."""

    def __init__(self, book: JobBook) -> None:
        self._book = book
        self.lanes: dict[Lane, FairLane] = {}
        self.load: dict[tuple[str, str], int] = {}
        """Maps (queue, key) to the number of its attempts that are in the engine or running."""

    def put(self, work: WorkflowKey, needs: WorkNeeds) -> None:
        """Takes note of work that is ready."""
        lane, key = needs.lane, self._key(work, needs)
        if lane in self.lanes:
            self.lanes[lane].add(work, key or "")
        elif key is not None:
            self._sort(lane)

    def remove(self, lane: Lane, work: WorkflowKey, *, sent: bool) -> None:
        """Takes note of work that is ready no more; `sent` says that it was dispatched."""
        fair = self.lanes.get(lane)
        if fair is None or work not in fair:
            return
        if sent:
            fair.sent(work, key_weight(self._book, lane[0], fair.key_of(work)))
        fair.remove(work)
        if not fair:
            del self.lanes[lane]

    def count(self, info: JobInfo, workflow: WorkflowRecord, by: int) -> None:
        """Counts an attempt that is under way now, or no more."""
        key, queue = key_of(self._book, info, workflow), info.job.submission.queue
        if key is None:
            return
        load = self.load[queue, key] = self.load.get((queue, key), 0) + by
        if not load:
            del self.load[queue, key]
        if by < 0:
            for lane, fair in self.lanes.items():
                if lane[0] == queue:
                    fair.freed(key)

    def queue_changed(self, queue: str) -> None:
        """Reads the keys of a queue's work anew, because an operator changed the queue. The cost grows with the work of all queues."""
        book = self._book
        self.load = {place: load for place, load in self.load.items() if place[0] != queue}
        for lane in [lane for lane in self.lanes if lane[0] == queue]:
            del self.lanes[lane]
        running = (work for held in book.on_worker.values() for work in held)
        queued = (
            work
            for lane, waiting in book.queued.items()
            if lane[0] == queue
            for work, needs in waiting.items()
            if self._may_have_key(needs)
        )
        for work in (*running, *queued):
            info = book.jobs.look(work[0])
            if info is not None and info.job.submission.queue == queue:
                self.count(info, info.workflows[work[1]], 1)
        for lane, waiting in book.ready.items():
            if lane[0] == queue and any(self._key(work, needs) is not None for work, needs in waiting.items()):
                self._sort(lane)

    def _sort(self, lane: Lane) -> None:
        fair = self.lanes[lane] = FairLane()
        for work, needs in self._book.ready[lane].items():
            fair.add(work, self._key(work, needs) or "")

    def _key(self, work: WorkflowKey, needs: WorkNeeds) -> str | None:
        info = self._book.jobs.look(work[0]) if self._may_have_key(needs) else None
        return None if info is None else key_of(self._book, info, info.workflows[work[1]])

    def _may_have_key(self, needs: WorkNeeds) -> bool:
        """Returns False where neither the work nor its queue has a key: then no record is looked at."""
        record = self._book.state.queues.get(needs.lane[0])
        return needs.has_own_key or (record is not None and bool(record.concurrency_key))
