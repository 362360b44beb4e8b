"""The parts that a leader of a datacenter may have beside its own loops, and the small ones: the format of the state, traces, the children of jobs.

Others are with their topic: reports to gates, notices, metrics, submissions through the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from tenure import tracing
from tenure.attempt_data import PARENT
from tenure.jobs import Decision, JobBook
from tenure.jobs.decisions import Event
from tenure.jobs.endings import CancelJob, JobEnded
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.states import JobState
from tenure.jobs.submission import JobSubmitted

if TYPE_CHECKING:
    from tenure.nodes.manager.leader import DatacenterLeader

Follower = Callable[[Decision, Iterable[str]], None]
"""Takes note of a decision that is durable, about these jobs."""


class LeaderPart:
    """Something more that a leader does during one term, such as reporting to gates. A subclass overrides what it needs."""

    heeds: ClassVar[frozenset[type[Event]] | None] = frozenset()
    """The events of which `note` takes note; None: all."""

    async def run(self) -> None:
        """Runs until cancelled, and raises `DeposedError` like every loop of a leader. By default it returns at once."""

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        """Takes note of a decision about these jobs, with an event that the part heeds. The decision is durable."""


class FormatRaise(LeaderPart):
    """Raises the format in which the state is saved: at once for a new datacenter, else when an operator says so (RULINGS.md, 13).

    An earlier release cannot read the journal afterwards.
    """

    def __init__(self, always: bool, leader: DatacenterLeader) -> None:
        """With `always`, it raises the format of any datacenter; otherwise only of one that never had another leader."""
        self._always, self._leader = always, leader

    async def run(self) -> None:
        book = self._leader.book
        if book.pages is None and (self._always or book.epoch == 1):
            await self._leader.commit(RaiseFormat(by="leader"))


class JobTraces(LeaderPart):
    """Tells a tracer of each job. The manager that leads when a job ends records the whole span, also for the terms before its own."""

    heeds = frozenset({JobEnded})

    def __init__(self, leader: DatacenterLeader) -> None:
        self._leader = leader

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        for event in decision.events:
            if isinstance(event, JobEnded):
                self._tell(event.job_id)

    def _tell(self, job_id: str) -> None:
        info = self._leader.ledger.book.jobs.get(job_id)
        parent = info.job.submission.labels.get(tracing.LABEL, "") if info is not None else ""
        if info is None or not parent:
            return
        attributes = {
            "tenure.job": job_id,
            "tenure.state": info.state.value,
            "tenure.queue": info.job.submission.queue,
            "tenure.attempts": sum(one.attempt for one in info.workflows.values()),
            "tenure.epoch": self._leader.ledger.epoch,
        }
        tracing.record(
            f"job {job_id}",
            attributes,
            parent=parent,
            begun=info.job.submitted_at,
            ended=info.ended_at,
            error="" if info.state is JobState.COMPLETED else info.reason or info.state.value,
        )


class ChildJobs(LeaderPart):
    """Knows which live jobs have a parent, and cancels those whose parent ended without completing.

    A parent's slot may be killed at any moment, so the leader does it; after a takeover the new leader looks for orphans that the last one left.
    """

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
        if parent not in self._children or (ended := ended_as(self._leader.ledger.book, parent)) is None:
            return
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
