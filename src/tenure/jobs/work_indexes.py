"""Finds work that waits, off its record: what it needs of a worker, when a suspended one wakes, and what it waits for. Derived from the state, like
every index of the book.

A leader asks what waiting work needs when a worker comes or goes, and after each election. The records of a million jobs are packed (decision 0581),
and to unpack them for that takes half a minute and gigabytes. So the needs are kept beside the key. Jobs with the same needs share one object.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tenure.jobs.catalogue import ServedKey, served_key
from tenure.jobs.door import DEFAULT_QUEUE
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.states import WorkflowState
from tenure.timers import Timers

WorkflowKey = tuple[str, str]
"""(job id, workflow name)."""
Lane = tuple[str, int]
"""(queue, priority)."""
MOST_SHARED = 10_000
"""The needs that are remembered so that jobs share them. Beyond that they are begun anew: that costs memory, and nothing else."""


class WorkNeeds(NamedTuple):
    """None of it changes during the life of a workflow."""

    served: ServedKey
    by_workflow: bool
    """True when its message is in the mailbox of its workflow."""
    has_own_key: bool
    """True when it names a concurrency key itself, whatever its queue does."""

    @property
    def lane(self) -> Lane:
        return self.served[:2]

    @property
    def function(self) -> str:
        return self.served[2]


def lane_of(info: JobInfo) -> Lane:
    """Returns the lane of a job. A job of an earlier release that left queue or priority out has the defaults of then."""
    submission = info.job.submission
    return submission.queue or DEFAULT_QUEUE, submission.priority or 0


class NeedsTable:
    """Gives the same object for the same needs."""

    def __init__(self) -> None:
        self._known: dict[tuple[Lane, str, str, bool, bool], WorkNeeds] = {}

    def of(self, lane: Lane, workflow: WorkflowRecord) -> WorkNeeds:
        spec = workflow.spec
        limit, by_workflow = spec.concurrency, workflow.by_workflow
        has_own_key = limit is not None and bool(limit.key)
        place = (lane, spec.called, workflow.version, by_workflow, has_own_key)
        found = self._known.get(place)
        if found is None:
            if len(self._known) > MOST_SHARED:
                self._known.clear()
            found = self._known[place] = WorkNeeds(served_key(lane, workflow), by_workflow, has_own_key)
        return found

    def shared(self, needs: WorkNeeds) -> WorkNeeds:
        """Returns the object that stands for equal needs here."""
        place = (needs.lane, needs.function, needs.served[3], needs.by_workflow, needs.has_own_key)
        return self._known.setdefault(place, needs)


class RestingAttempt(NamedTuple):
    """Sorts by what comes first: no two have the same ticket."""

    due: float
    place: int
    ticket: int
    """Sorts those of earlier releases, whose records have no place."""
    key: WorkflowKey
    needs: WorkNeeds


class RestingWork:
    """Attempts that are decided and not recorded as sent, until their time comes, with their needs.

    Those that are due at one instant come in the order of their places, which are in their records: so a leader that lived through it all and one that
    has read it back send them in one order.
    """

    __slots__ = ("_heap", "_held", "_tickets")

    def __init__(self) -> None:
        self._held: dict[WorkflowKey, RestingAttempt] = {}
        self._heap: list[RestingAttempt] = []
        """Entries that `_held` does not hold were left behind. They are dropped when they come up."""
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._held)

    def keys(self) -> Iterator[WorkflowKey]:
        return iter(self._held)

    def put(self, key: WorkflowKey, needs: WorkNeeds, due: float, place: int = 0) -> None:
        self._tickets += 1
        entry = RestingAttempt(due, place, self._tickets, key, needs)
        heapq.heappush(self._heap, entry)  # first: an attempt that is noted and has no entry would never come up
        self._held[key] = entry
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._held):
            self._heap = list(self._held.values())
            heapq.heapify(self._heap)

    def cancel(self, key: WorkflowKey) -> None:
        self._held.pop(key, None)

    def due(self, key: WorkflowKey) -> float:
        """Returns when the attempt is due; infinity when it does not rest."""
        entry = self._held.get(key)
        return math.inf if entry is None else entry.due

    def next_due(self) -> float:
        """Returns when the first attempt is due; infinity when there is none."""
        heap = self._heap
        while heap and self._held.get(heap[0].key) is not heap[0]:
            heapq.heappop(heap)
        return heap[0].due if heap else math.inf

    def pop_work(self, now: float) -> list[tuple[WorkflowKey, WorkNeeds]]:
        """Removes and returns the attempts that are due, earliest first."""
        popped: list[tuple[WorkflowKey, WorkNeeds]] = []
        while self.next_due() <= now and self._heap:
            entry = heapq.heappop(self._heap)
            del self._held[entry.key]
            popped.append((entry.key, entry.needs))
        return popped


class WaitingWork:
    """Attempts of one kind that wait, oldest first, with their needs.

    A workflow that is named as its function, as that of nearly every job, is kept under the id of its job: a pair for each key, and a name
    in each pair, were 130 bytes of every queued job.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str | WorkflowKey, WorkNeeds] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[WorkflowKey]:
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[WorkflowKey, WorkNeeds]]:
        for held, needs in self._held.items():
            yield ((held, needs.function) if isinstance(held, str) else held), needs

    def put(self, key: WorkflowKey, needs: WorkNeeds) -> None:
        held, job_id = self._held, key[0]
        # Of two workflows that are named as their functions, the first has the id of their job.
        if key[1] == needs.function and key not in held and held.setdefault(job_id, needs).function == key[1]:
            held[job_id] = needs
        else:
            held[key] = needs

    def put_all(self, job_ids: Sequence[str], name: str, needs: WorkNeeds) -> None:
        """Puts the workflow `name` of each of these jobs, which has no other and is not here yet."""
        keys: Iterable[str | WorkflowKey] = job_ids if name == needs.function else [(one, name) for one in job_ids]
        self._held.update(dict.fromkeys(keys, needs))

    def pop(self, key: WorkflowKey) -> WorkNeeds | None:
        """Removes the attempt, and returns its needs; None where it does not wait here."""
        if not self._by_id(key):
            return self._held.pop(key, None)
        return self._held.pop(key[0])

    def __contains__(self, key: WorkflowKey) -> bool:
        return key in self._held or self._by_id(key)

    def _by_id(self, key: WorkflowKey) -> bool:
        needs = self._held.get(key[0])
        return needs is not None and needs.function == key[1]


class QueuedWork(dict[Lane, WaitingWork]):
    """Attempts in the engine that no worker has started, oldest first in each lane."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[WorkNeeds] = Counter()
        """Maps needs to the number of attempts that have them."""

    def put(self, key: WorkflowKey, needs: WorkNeeds) -> None:
        self._lane(needs).put(key, needs)
        self.counts[needs] = self.counts.get(needs, 0) + 1

    def put_all(self, job_ids: Sequence[str], name: str, needs: WorkNeeds) -> None:
        """As `WaitingWork.put_all`."""
        self._lane(needs).put_all(job_ids, name, needs)
        self.counts[needs] = self.counts.get(needs, 0) + len(job_ids)

    def _lane(self, needs: WorkNeeds) -> WaitingWork:
        waiting = self.get(needs.lane)
        if waiting is None:
            waiting = self[needs.lane] = WaitingWork()
        return waiting

    def drop(self, key: WorkflowKey, lane: Lane) -> None:
        waiting = self.get(lane)
        needs = waiting.pop(key) if waiting is not None else None
        if needs is not None:
            self.counts[needs] -= 1
            if not self.counts[needs]:
                del self.counts[needs]


Key = tuple[str, str]
"""A job and one of its workflows."""


class WaitIndex:
    """Its book calls `moved` when a workflow was suspended, or goes on."""

    def __init__(self) -> None:
        self.sleeping: Timers[Key] = Timers()
        """Suspended workflows whose wait ends at a time."""
        self.on_job: dict[str, dict[Key, None]] = {}
        """Maps each job to the suspended workflows that wait for its end."""
        self.untimed: dict[Key, float] = {}
        """Maps suspended workflows that no time wakes to the time since which they wait, in the order in which they were suspended."""
        self.on_version: dict[str, dict[Key, None]] = {}
        """Maps each function to the suspended workflows of it that no version of now fits."""

    def moved(self, key: Key, workflow: WorkflowRecord, old: WorkflowState) -> None:
        if WorkflowState.SUSPENDED not in (old, workflow.state):
            return
        waits = workflow.state is WorkflowState.SUSPENDED
        self.sleeping.set(key, workflow.wakes_at if waits and workflow.wakes_at else math.inf)
        self.untimed.pop(key, None)
        if waits and not workflow.wakes_at:
            self.untimed[key] = workflow.waits_since
        for job_id in workflow.waits.jobs if workflow.waits is not None else ():
            if waits:
                self.on_job.setdefault(job_id, {})[key] = None
            else:
                self.drop(key, job_id)
        if workflow.waits is not None and workflow.waits.version:
            self._misfit(key, workflow, waits=waits, read_back=old is WorkflowState.WAITING)

    def _misfit(self, key: Key, workflow: WorkflowRecord, *, waits: bool, read_back: bool) -> None:
        function = workflow.spec.called
        if not waits:
            found = self.on_version.get(function, {})
            found.pop(key, None)
            if not found:
                self.on_version.pop(function, None)
            return
        self.on_version.setdefault(function, {})[key] = None
        if read_back:  # the last leader may have died between a registration and the wake-ups that follow from it
            self.sleeping.set(key, workflow.waits_since)

    def versions_came(self, functions: Iterable[str], at: float) -> None:
        """Workers offer these functions in a way that is new: the work that fitted no version is tried again."""
        for function in functions:
            for key in self.on_version.get(function, ()):
                self.sleeping.set(key, at)

    def drop(self, key: Key, job_id: str) -> None:
        """A workflow does not wait for this job any more."""
        if found := self.on_job.get(job_id):
            found.pop(key, None)
            if not found:
                del self.on_job[job_id]
