"""Builds the views and rows in which managers and gates show a job, with the time that is left on its grants. Pure.

This is the one place that fills the fields of `JobView`, `WorkflowView` and `JobRow`. A manager fills them from its record of the job. A gate passes on the
view of a datacenter and replaces what it knows better, so a new field comes through by itself. The grants here only show time that others decide on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from tenure.attempt_data import exposed_values
from tenure.beat.proof import UNPROVEN
from tenure.control.messages.jobs import DatacenterJob, JobRow, JobView, WhyReply, WorkflowView
from tenure.control.messages.wire import Grant, shifted
from tenure.control.messages.workers import AttemptReport
from tenure.jobs.arguments import SecretsOf, no_secrets, shown
from tenure.jobs.deadlines import NEVER, deadline
from tenure.jobs.door import DEFAULT_QUEUE
from tenure.jobs.endings import results_expire_at
from tenure.jobs.model import GateJobTrackingInfo, JobInfo, JobSubmission, WorkflowRecord
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.why_answer import AttemptRun
from tenure.nodes.grant_views import Granted, gate_grants, job_grants, soonest_grants, workflow_grants

SAME_TIME_S = 1.0
"""Clocks that differ by less are taken for equal: the difference may as well be the time that the answer travelled."""

Live = Callable[[str, str], AttemptReport | None]
"""Returns the newest report of a (job, workflow) that runs, which is more recent than the journal. Only a leader gets reports."""


WaitsFor = Callable[[JobInfo, WorkflowRecord], str]
"""Returns what a parked workflow waits for; nothing for another (`JobBook.waits_for`)."""


ShapeOf = Callable[[WorkflowRecord], dict[str, Any] | None]
"""Returns the declared shape of the signal that a suspended workflow waits for."""


def no_shape(workflow: WorkflowRecord) -> None:
    return None


def not_parked(info: JobInfo, workflow: WorkflowRecord) -> str:
    return ""


class WorkflowCounts(NamedTuple):
    """The workflows of a job, counted for one row."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    running: int = 0
    attempts: int = 0


# A manager's jobs


def manager_view(
    info: JobInfo,
    now: float,
    live: Live | None = None,
    granted: Granted | None = None,
    waits_for: WaitsFor = not_parked,
    secrets: SecretsOf = no_secrets,
    shape: ShapeOf = no_shape,
) -> JobView:
    """Returns the view of a job by its record. A leader gives `live` and `granted`, which know more than the journal."""
    submission, ended = info.job.submission, info.state.terminal

    def shown_workflow(name: str, one: WorkflowRecord) -> WorkflowView:
        grants = () if ended else workflow_grants(info.id, name, one, now, granted)
        return workflow_view(info.id, name, one, live, grants, waits_for(info, one), granted, secrets, shape)

    return JobView(
        job_id=submission.job_id,
        name=submission.name,
        state=info.state,
        reason=info.reason,
        submitted_at=info.job.submitted_at,
        started_at=info.started_at,
        ended_at=info.ended_at,
        deadline=_shown(deadline(info.timeout_tracking)),
        now=now,
        workflows=tuple(shown_workflow(name, one) for name, one in info.workflows.items()),
        queue=submission.queue,
        labels=submission.labels,
        submitted_by=submission.submitted_by,
        results_expired=info.results_expired or results_expire_at(info) <= now,
        grants=job_grants(info, granted),
        pause=None if ended else info.timeout_tracking.pause,
    )


def workflow_view(
    job_id: str,
    name: str,
    workflow: WorkflowRecord,
    live: Live | None,
    grants: tuple[Grant, ...] = (),
    waits_for: str = "",
    granted: Granted | None = None,
    secrets: SecretsOf = no_secrets,
    shape: ShapeOf = no_shape,
) -> WorkflowView:
    newest = newest_report(job_id, name, workflow, live)
    fraction = newest.fraction if newest else workflow.fraction
    return WorkflowView(
        name=name,
        function=workflow.spec.called,
        state=workflow.state,
        attempt=workflow.attempt,
        max_attempts=workflow.spec.policy.max_attempts,
        worker=workflow.worker,
        steps=newest.steps if newest else workflow.steps,
        fraction=1.0 if workflow.state is WorkflowState.COMPLETED else fraction,
        started_at=workflow.started_at,
        ended_at=workflow.ended_at,
        cause=workflow.cause or "",
        error=workflow.error,
        result=workflow.result,
        note=newest.note if newest else "",
        proof=UNPROVEN if newest is not None and newest.unproven else "",
        grants=grants,
        waits_for=waits_for,
        eta=granted.eta(job_id, name, newest.fraction) if granted is not None and newest is not None else None,
        arguments=shown(workflow.spec, secrets(workflow.spec.called)),
        after=workflow.spec.after,
        taken_from=workflow.taken_from,
        signal=workflow.waits.event if workflow.state is WorkflowState.SUSPENDED and workflow.waits is not None else "",
        signal_shape=shape(workflow),
        version=workflow.version,
        exposed=(exposed_values(newest.exposed) if newest is not None else {}) or workflow.exposed,
    )


def newest_report(job_id: str, name: str, workflow: WorkflowRecord, live: Live | None) -> AttemptReport | None:
    """Returns the worker's newest report if it is about the attempt that counts, else None."""
    said = live(job_id, name) if live and workflow.state is WorkflowState.RUNNING else None
    return said if said is not None and said.attempt == workflow.attempt else None


def manager_row(
    info: JobInfo,
    live: Live | None = None,
    now: float = 0.0,
    granted: Granted | None = None,
    waits_for: WaitsFor = not_parked,
) -> JobRow:
    submission, workflows = info.job.submission, info.workflows
    return JobRow(
        job_id=submission.job_id,
        name=submission.name or ", ".join(one.spec.called for one in list(workflows.values())[:3]),
        state=info.state,
        submitted_at=info.job.submitted_at,
        ended_at=info.ended_at,
        total=len(workflows),
        completed=info.completed_workflows,
        failed=info.failed_workflows,
        running=info.running_workflows,
        attempts=info.attempts,
        progress=sum(share(info.id, name, one, live) for name, one in workflows.items()) / len(workflows),
        reason=info.reason,
        queue=submission.queue,
        labels=submission.labels,
        waits_for=next((words for one in workflows.values() if (words := waits_for(info, one))), ""),
        grants=soonest_grants(info, now, granted),
        paused=not info.state.terminal and info.timeout_tracking.pause is not None,
    )


def share(job_id: str, name: str, workflow: WorkflowRecord, live: Live | None) -> float:
    """Returns the fraction of a workflow that is done, by the newest report or else the journal; 0.0 when neither holds one."""
    if workflow.state is WorkflowState.COMPLETED:
        return 1.0
    if workflow.state is not WorkflowState.RUNNING:
        return 0.0
    newest = newest_report(job_id, name, workflow, live)
    return (newest.fraction if newest else workflow.fraction) or 0.0


# A gate's jobs


def gate_view(
    info: GateJobTrackingInfo,
    until: float,
    now: float,
    answers: Mapping[str, JobView | None],
    health: Callable[[str], str],
) -> JobView:
    """Returns the view of a job in all its datacenters: their answers (None for one that does not answer), and what the gate itself decides."""
    heard = [answer for answer in answers.values() if answer is not None]
    prefixes = {name: f"{name}/" if len(answers) > 1 else "" for name in answers}
    workflows = [
        msgspec.structs.replace(one, name=f"{prefixes[name]}{one.name}", datacenter=name)
        for name, answer in answers.items()
        if answer is not None
        for one in answer.workflows
    ]
    return msgspec.structs.replace(
        heard[0] if heard else _unanswered(info),
        state=info.state,
        reason=gate_reason(info),
        submitted_at=info.submitted_at,
        started_at=min((one.started_at for one in heard if one.started_at), default=0.0),
        ended_at=info.ended_at,
        deadline=_shown(until),
        now=now,
        workflows=tuple(workflows),
        results_expired=any(one.results_expired for one in heard),
        datacenters=tuple(
            DatacenterJob(
                name=name,
                state=info.dc_status[name],
                health=health(name),
                heard=info.dc_heard[name],
                answers=answer is not None,
            )
            for name, answer in answers.items()
        ),
        grants=gate_grants(info, until),
        pause=None if info.state.terminal else info.pause,
    )


def _unanswered(info: GateJobTrackingInfo) -> JobView:
    """Returns the view of a job of which no datacenter says anything: what the gate itself knows of it."""
    submission = _submission(info)
    return JobView(
        job_id=info.job_id,
        name=submission.name,
        state=info.state,
        reason="",
        submitted_at=info.submitted_at,
        started_at=0.0,
        ended_at=info.ended_at,
        deadline=None,
        now=0.0,
        workflows=(),
        queue=submission.queue or DEFAULT_QUEUE,
        labels=submission.labels,
        submitted_by=submission.submitted_by,
    )


def _submission(info: GateJobTrackingInfo) -> JobSubmission:
    """Returns the submission of a gate's job; an empty one where the gate rebuilt the job from the reports of datacenters."""
    return info.submission or JobSubmission(job_id=info.job_id, workflows=())


def gate_reason(info: GateJobTrackingInfo) -> str:
    """Returns the reason of the gate's decision, where it ended the job or is ending it; else the reason that the datacenters reported."""
    decided = info.decided is not None and info.state in (info.decided, JobState.RUNNING)
    return info.decided_reason if decided else info.reason


def gate_row(info: GateJobTrackingInfo, counts: WorkflowCounts, until: float) -> JobRow:
    """Returns the row of a job by the newest reports of its datacenters, which `counts` sums up. No datacenter is asked for a list."""
    submission, targets = _submission(info), len(info.target_datacenters)
    total = max(counts.total, targets * len(submission.workflows))
    done = sum(status is JobState.COMPLETED for status in info.dc_status.values())
    # A gate that started anew has no report of what had completed before. Workflows whose failure was tolerated count as well then.
    unheard = info.state is JobState.COMPLETED and not counts.total
    return JobRow(
        job_id=info.job_id,
        name=submission.name or f"in {', '.join(info.target_datacenters[:3])}",
        state=info.state,
        submitted_at=info.submitted_at,
        ended_at=info.ended_at,
        total=total,
        completed=total if unheard else counts.completed,
        failed=counts.failed,
        running=counts.running,
        attempts=counts.attempts,
        progress=max(counts.completed / total if total else 0.0, done / targets if targets else 0.0),
        reason=gate_reason(info),
        queue=submission.queue or DEFAULT_QUEUE,
        labels=submission.labels,
        grants=gate_grants(info, until),
        paused=not info.state.terminal and info.pause is not None,
    )


def in_our_time(view: JobView, now: float) -> JobView:
    """Returns the view with all times in the gate's clock. A datacenter's clock may be an hour off, and people compare its times with the gate's."""
    ahead = view.now - now
    if abs(ahead) < SAME_TIME_S:
        return view

    def ours(at: float) -> float:
        return at - ahead if at else 0.0

    workflows = [
        msgspec.structs.replace(
            one, started_at=ours(one.started_at), ended_at=ours(one.ended_at), grants=shifted(one.grants, -ahead)
        )
        for one in view.workflows
    ]
    return msgspec.structs.replace(
        view,
        submitted_at=ours(view.submitted_at),
        started_at=ours(view.started_at),
        ended_at=ours(view.ended_at),
        deadline=None if view.deadline is None else ours(view.deadline),
        now=now,
        workflows=tuple(workflows),
        grants=shifted(view.grants, -ahead),
        pause=msgspec.structs.replace(view.pause, at=ours(view.pause.at)) if view.pause is not None else None,
    )


def runs_in_our_time(there: WhyReply, now: float, prefix: str) -> list[AttemptRun]:
    """Returns the runs of a datacenter's answer in the gate's clock, each named as the gate names its workflow and its worker."""
    ahead = there.now - now if there.now else 0.0
    if abs(ahead) < SAME_TIME_S:
        ahead = 0.0
    return [
        msgspec.structs.replace(
            one,
            workflow=f"{prefix}{one.workflow}",
            worker=f"{prefix}{one.worker}",
            started_at=one.started_at - ahead,
            ended_at=None if one.ended_at is None else one.ended_at - ahead,
        )
        for one in there.why.runs
    ]


def _shown(until: float) -> float | None:
    """Returns a deadline as a view has it: JSON has no infinity."""
    return None if until == NEVER else until
