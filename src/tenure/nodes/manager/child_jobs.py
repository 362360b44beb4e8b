"""Cancels the jobs that the workflows of a job submitted, when that job ended without completing.

A parent's slot may be killed at any moment, so the leader does it; after a takeover the new leader looks for orphans that the last one left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tenure.attempt_data import PARENT
from tenure.jobs import Decision, JobBook
from tenure.jobs.endings import CancelJob, JobEnded
from tenure.jobs.states import JobState
from tenure.jobs.submission import JobSubmitted
from tenure.nodes.manager.leader import DatacenterLeader
from tenure.nodes.manager.leader_parts import LeaderPart


class ChildJobs(LeaderPart):
    """Knows which live jobs have a parent, and cancels those whose parent ended without completing."""

    heeds = frozenset({JobSubmitted, JobEnded})

    def __init__(self, leader: DatacenterLeader) -> None:
        self._leader = leader
        self._children: dict[str, set[str]] = {}
        self._orphans: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    async def run(self) -> None:
        self._children.clear()
        for job_id in list(self._leader.ledger.book.attended):
            self._know(job_id)
        for parent in list(self._children):
            self._look_at_parent(parent)
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._orphans:
                child, parent = self._orphans.pop()
                reason = f"the job {parent} that submitted it did not complete"
                cancel = CancelJob(by="leader", job_id=child, reason=reason)
                # A child that cannot be cancelled is failed: it would run on, and keep the others from being cancelled.
                await self._leader.strikes.commit_all([cancel], "cancelling it with the job that submitted it")

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._know(job_id)
            self._look_at_parent(job_id)

    def _know(self, job_id: str) -> None:
        info = self._leader.ledger.book.jobs.look(job_id)
        parent = info.job.submission.labels.get(PARENT, "") if info is not None else ""
        if info is None or not parent:
            return
        if info.state.terminal:
            family = self._children.get(parent, set())
            family.discard(job_id)
            if not family:
                self._children.pop(parent, None)
        else:
            self._children.setdefault(parent, set()).add(job_id)
            self._look_at_parent(parent)  # the parent may have ended before its child was known

    def _look_at_parent(self, parent: str) -> None:
        ended = ended_as(self._leader.ledger.book, parent)
        if ended is not None and parent in self._children:
            family = self._children.pop(parent)
            if ended is not JobState.COMPLETED:
                self._orphans += [(child, parent) for child in sorted(family)]
                self._changed.set()


def ended_as(book: JobBook, job_id: str) -> JobState | None:
    """Returns the state in which a job ended; None while it lives, or when this datacenter does not know it: it may be another's."""
    info = book.jobs.look(job_id)
    if info is not None:
        return info.state if info.state.terminal else None
    archived = book.state.archive.get(job_id)
    return archived.state if archived is not None else None
