"""Builds the views and rows in which managers and gates show a job, with the time that is left on its grants. Pure.

This is the one place that fills the fields of `JobView`, `WorkflowView` and `JobRow`. A manager fills them from its record of the job. A gate passes on the
view of a datacenter and replaces what it knows better, so a new field comes through by itself. The grants here only show time that others decide on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from tenure.beat.proof import UNPROVEN
from tenure.control.messages.jobs import DatacenterJob, JobRow, JobView, WorkflowView
from tenure.control.messages.wire import Grant, GrantKind, shifted
from tenure.control.messages.workers import AttemptReport
from tenure.jobs.deadlines import NEVER, deadline, stuck_at
from tenure.jobs.door import DEFAULT_QUEUE
from tenure.jobs.endings import results_expire_at
from tenure.jobs.eta import Eta
from tenure.jobs.model import GateJobTrackingInfo, JobInfo, JobSubmission, WorkflowRecord
from tenure.jobs.settings import MOST_EXTENSIONS
from tenure.jobs.shown_arguments import SecretsOf, no_secrets, shown
from tenure.jobs.states import JobState, WorkflowState

SAME_TIME_S = 1.0
"""Clocks that differ by less are taken for equal: the difference may as well be the time that the answer travelled."""

Live = Callable[[str, str], AttemptReport | None]
"""Returns the newest report of a (job, workflow) that runs, which is more recent than the journal. Only a leader gets reports."""


WaitsFor = Callable[[JobInfo, WorkflowRecord], str]
"""Returns what a parked workflow waits for; nothing for another (`JobBook.waits_for`)."""


def not_parked(info: JobInfo, workflow: WorkflowRecord) -> str:
    return ""


class Granted(NamedTuple):
    """Asks a leader for the times that are not in the journal. A standby has none of them."""

    attempt: Callable[[str, str, int], tuple[Grant, ...]]
    """Returns the grants of a workflow's running attempt, and of the worker that runs it."""
    progress_at: Callable[[str], float]
    """Returns the time at which a job was last seen to advance; 0 when it never was."""
    eta: Callable[[str, str, float | None], Eta | None]
    """Returns when a running workflow will be done at its rate."""


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
) -> JobView:
    """Returns the view of a job by its record. A leader gives `live` and `granted`, which know more than the journal."""
    submission, ended = info.job.submission, info.state.terminal
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
        workflows=tuple(
            workflow_view(
                info.id,
                name,
                one,
                live,
                () if ended else workflow_grants(info.id, name, one, now, granted),
                waits_for(info, one),
                granted,
                secrets,
            )
            for name, one in info.workflows.items()
        ),
        queue=submission.queue,
        labels=submission.labels,
        submitted_by=submission.submitted_by,
        results_expired=info.results_expired or results_expire_at(info) <= now,
        grants=job_grants(info, granted),
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
) -> WorkflowView:
    newest = newest_report(job_id, name, workflow, live)
    fraction = newest.fraction if newest else workflow.fraction
    if workflow.state is WorkflowState.COMPLETED:
        fraction = 1.0
    return WorkflowView(
        name=name,
        function=workflow.spec.called,
        state=workflow.state,
        attempt=workflow.attempt,
        max_attempts=workflow.spec.policy.max_attempts,
        worker=workflow.worker,
        steps=newest.steps if newest else workflow.steps,
        fraction=fraction,
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
    )


def share(job_id: str, name: str, workflow: WorkflowRecord, live: Live | None) -> float:
    """Returns the fraction of a workflow that is done, by the newest report or else the journal; 0.0 when neither holds one."""
    if workflow.state is WorkflowState.COMPLETED:
        return 1.0
    if workflow.state is not WorkflowState.RUNNING:
        return 0.0
    newest = newest_report(job_id, name, workflow, live)
    return (newest.fraction if newest else workflow.fraction) or 0.0


def large_results(info: JobInfo) -> list[tuple[str, str]]:
    """Returns (workflow, key in the store) for each result that is kept in the store and not in the record."""
    return [(name, one.result_key) for name, one in info.workflows.items() if one.result_key]


def with_results(view: JobView, results: dict[str, Any]) -> JobView:
    """Returns the view with the results that were fetched from the store."""
    workflows = tuple(
        msgspec.structs.replace(one, result=results[one.name]) if one.name in results else one for one in view.workflows
    )
    return msgspec.structs.replace(view, workflows=workflows)


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
    ended = sum(status.terminal for status in info.dc_status.values())
    return JobRow(
        job_id=info.job_id,
        name=submission.name or f"in {', '.join(info.target_datacenters[:3])}",
        state=info.state,
        submitted_at=info.submitted_at,
        ended_at=info.ended_at,
        total=total,
        completed=counts.completed,
        failed=counts.failed,
        running=counts.running,
        attempts=counts.attempts,
        progress=max(counts.completed / total if total else 0.0, ended / targets if targets else 0.0),
        reason=gate_reason(info),
        queue=submission.queue or DEFAULT_QUEUE,
        labels=submission.labels,
        grants=gate_grants(info, until),
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
    )


def _shown(until: float) -> float | None:
    """Returns a deadline as a view has it: JSON has no infinity."""
    return None if until == NEVER else until


# Grants


def report_grants(one: AttemptReport, heard_at: float) -> tuple[Grant, ...]:
    """Returns the grants in a worker's report of one attempt. The worker counts seconds by its own clock; they run from when we got the report."""
    found = []
    if one.lease_s:
        found.append(Grant(kind=GrantKind.LEASE, until=heard_at + one.lease_s))
    if one.stall_s:
        left = one.stall_s - one.silent_s
        found.append(Grant(kind=GrantKind.STALL, until=heard_at + left, span_s=one.stall_s))
    return tuple(found)


def worker_grant(left_s: float, extensions_left: int, healthcheck_s: float, now: float) -> Grant:
    words = "1 extension left" if extensions_left == 1 else f"{extensions_left} extensions left"
    return Grant(kind=GrantKind.HEALTHCHECK, until=now + left_s, span_s=healthcheck_s, note=words)


def workflow_grants(
    job_id: str, name: str, workflow: WorkflowRecord, now: float, granted: Granted | None
) -> tuple[Grant, ...]:
    if workflow.state is WorkflowState.RUNNING and granted is not None:
        return granted.attempt(job_id, name, workflow.attempt)
    if workflow.state is WorkflowState.PENDING and workflow.not_before > now:
        return (Grant(kind=GrantKind.REST, until=workflow.not_before, note=f"attempt {workflow.attempt}"),)
    return ()


def job_grants(info: JobInfo, granted: Granted | None) -> tuple[Grant, ...]:
    """Returns the grants of the job as a whole. A standby does not know when the job last advanced, and so shows no stuck deadline."""
    if info.state.terminal:
        return ()
    tracking, found = info.timeout_tracking, []
    stuck = stuck_at(info, granted.progress_at(info.id)) if granted is not None else NEVER
    if stuck < NEVER:
        found.append(Grant(kind=GrantKind.STUCK, until=stuck, span_s=tracking.stuck_threshold))
    until = deadline(tracking)
    if until == NEVER:
        return tuple(found)
    extended, left = tracking.total_extensions_granted, MOST_EXTENSIONS - tracking.extension_count
    note = f"{extended:g} s of it earned, {left} of {MOST_EXTENSIONS} extensions left" if extended else ""
    if tracking.denied:
        note = f"{note}; " * bool(note) + f"more time was denied: {tracking.denied.replace('_', ' ')}"
    return (*found, Grant(kind=GrantKind.DEADLINE, until=until, span_s=until - tracking.started_at, note=note))


def gate_grants(info: GateJobTrackingInfo, until: float) -> tuple[Grant, ...]:
    """Returns the one grant of time that the gate itself keeps for a job: its global deadline. The datacenters keep the others."""
    if info.state.terminal or until == NEVER:
        return ()
    return (Grant(kind=GrantKind.DEADLINE, until=until, span_s=until - info.submitted_at, note="in all datacenters"),)


def soonest_grants(info: JobInfo, now: float, granted: Granted | None) -> tuple[Grant, ...]:
    """Returns, for one line of a list, the grant of each kind that runs out first."""
    if info.state.terminal:
        return ()
    every = [job_grants(info, granted)]
    every += [workflow_grants(info.id, name, one, now, granted) for name, one in info.workflows.items()]
    return soonest(grant for grants in every for grant in grants)


def soonest(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    first: dict[GrantKind, Grant] = {}
    for grant in grants:
        if grant.kind not in first or grant.until < first[grant.kind].until:
            first[grant.kind] = grant
    return tuple(first[kind] for kind in GrantKind if kind in first)
