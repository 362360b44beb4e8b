"""Makes the notices of a datacenter: alarms that began and ended, and jobs that ended."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from tenure.errors import UnknownJobError
from tenure.jobs import Decision
from tenure.jobs.alarms import Alarm
from tenure.jobs.endings import JobEnded
from tenure.jobs.why import why
from tenure.nodes.hooks import HookEvent, HookNotice, Hooks
from tenure.nodes.manager.leader import DatacenterLeader
from tenure.nodes.manager.leader_parts import LeaderPart

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

LOOK_BACK_S = 300.0
"""A new leader tells again of jobs that ended so shortly before its term: the last leader may have died with its queue."""
MOST_LOOKED_BACK = 1_000


class HookNotices:
    """Part of a manager: `alarm` is called by its observer, and `lead` makes the part of each term."""

    def __init__(self, hooks: Hooks, datacenter: str, manager: str) -> None:
        self._hooks, self._datacenter, self._manager = hooks, datacenter, manager

    @property
    def wanted(self) -> bool:
        return bool(self._hooks.senders)

    def alarm(self, alarm: Alarm, since: float, over: bool) -> None:
        event = HookEvent.ALARM_OVER if over else HookEvent.ALARM
        content: dict[str, Any] = {
            "datacenter": self._datacenter,
            "manager": self._manager,
            "kind": alarm.kind.value,
            "subject": alarm.subject,
            "reason": alarm.reason,
            "next_step": alarm.remedy,
            "since": since,
        }
        name = f"{self._datacenter}/{event}/{alarm.kind}/{alarm.subject}/{since:.3f}"
        self._hooks.tell(HookNotice(name, event, since, lambda: content))

    def lead(self, leader: DatacenterLeader) -> LeaderPart:
        return EndNotices(leader, self._hooks, self._datacenter)


class EndNotices(LeaderPart):
    """Tells of each end of a job, once it is durable."""

    heeds = frozenset({JobEnded})

    def __init__(self, leader: DatacenterLeader, hooks: Hooks, datacenter: str) -> None:
        self._leader, self._hooks, self._datacenter = leader, hooks, datacenter

    async def run(self) -> None:
        book = self._leader.book
        since = book.state.elected_at - LOOK_BACK_S
        for job_id in list(islice(reversed(book.ended), MOST_LOOKED_BACK)):
            info = book.jobs.get(job_id)
            if info is not None and since <= info.ended_at <= book.state.elected_at:
                self._tell(job_id, info.ended_at)

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        for event in decision.events:
            if isinstance(event, JobEnded):
                self._tell(event.job_id, event.at)

    def _tell(self, job_id: str, at: float) -> None:
        book = self._leader.book
        info = book.jobs.get(job_id)
        if info is None:
            return
        event, queue = HookEvent(info.state.value), info.job.submission.queue
        name = f"{self._datacenter}/{job_id}/{event}"
        self._hooks.tell(HookNotice(name, event, at, lambda: end_content(book, job_id, self._datacenter, event), queue))


def end_content(book: JobBook, job_id: str, datacenter: str, state: HookEvent) -> dict[str, Any]:
    """Returns what is told of a job that ended: the first sentence of `why`, and the next step. Arguments and results are not told."""
    about: dict[str, Any] = {"datacenter": datacenter, "job_id": job_id, "state": state.value}
    try:
        told = why(book, job_id)
    except UnknownJobError:
        return about  # it has left memory since
    submission = book.job(job_id).job.submission
    return {
        **about,
        "name": submission.name,
        "queue": submission.queue,
        "labels": submission.labels,
        "reason": told.answer,
        "next_step": told.next_step,
        "submitted_at": told.submitted_at,
    }
