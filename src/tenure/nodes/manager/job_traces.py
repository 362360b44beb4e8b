"""Tells a tracer of each job from its submission to its end."""

from __future__ import annotations

from collections.abc import Iterable

from tenure import tracing
from tenure.jobs import Decision
from tenure.jobs.endings import JobEnded
from tenure.jobs.states import JobState
from tenure.nodes.manager.leader import DatacenterLeader
from tenure.nodes.manager.leader_parts import LeaderPart


class JobTraces(LeaderPart):
    """The manager that leads when a job ends records the whole span, also for the terms before its own."""

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
