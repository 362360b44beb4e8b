"""Keeps beside each attempt that waits what it needs of a worker, so that nobody has to look at its record.

A leader asks it of all waiting work when a worker comes or goes, and after each election. The records of a million jobs are packed (decision 0581), and
to unpack them for that takes half a minute and gigabytes. So the indexes of a book keep the needs beside the key. Jobs with the same needs share one object.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tenure.jobs.catalogue import ServedKey, served_key
from tenure.jobs.model import WorkflowRecord
from tenure.jobs.timers import Timers

if TYPE_CHECKING:
    from tenure.jobs.book import Lane, WorkflowKey

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


class RestingWork(Timers["WorkflowKey"]):
    """Attempts that are decided and not recorded as sent, until their time comes, with their needs."""

    __slots__ = ("_needs",)

    def __init__(self) -> None:
        super().__init__()
        self._needs: dict[WorkflowKey, WorkNeeds] = {}

    def put(self, key: WorkflowKey, needs: WorkNeeds, due: float) -> None:
        self.set(key, due)
        self._needs[key] = needs

    def cancel(self, key: WorkflowKey) -> None:
        super().cancel(key)
        self._needs.pop(key, None)

    def pop_work(self, now: float, limit: int | None = None) -> list[tuple[WorkflowKey, WorkNeeds]]:
        """Removes and returns the attempts that are due, earliest first."""
        return [(key, self._needs.pop(key)) for key in self.pop_due(now, limit)]


class QueuedWork(dict["Lane", "dict[WorkflowKey, WorkNeeds]"]):
    """Attempts in the engine that no worker has started, oldest first in each lane."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[WorkNeeds] = Counter()
        """Maps needs to the number of attempts that have them."""

    def put(self, key: WorkflowKey, needs: WorkNeeds) -> None:
        waiting = self.get(needs.lane)
        if waiting is None:
            waiting = self[needs.lane] = {}
        waiting[key] = needs
        self.counts[needs] = self.counts.get(needs, 0) + 1

    def drop(self, key: WorkflowKey, lane: Lane) -> None:
        needs = self.get(lane, {}).pop(key, None)
        if needs is not None:
            self.counts[needs] -= 1
            if not self.counts[needs]:
                del self.counts[needs]
