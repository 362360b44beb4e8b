"""Finds suspended work by the time at which its wait ends, and by the jobs that it waits for. Derived from the state, like every index of the book."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tenure.jobs.model import WorkflowRecord
from tenure.jobs.states import WorkflowState
from tenure.jobs.timers import Timers

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
