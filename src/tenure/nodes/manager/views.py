"""Builds the replies in which a manager shows its jobs. Pure: from the book to the replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tenure.control.messages.grants import Grant
from tenure.control.messages.jobs import JobRow, JobView, WorkflowView
from tenure.control.messages.workers import AttemptReport
from tenure.jobs.book import results_expire_at
from tenure.jobs.deadlines import deadline
from tenure.jobs.model import JobInfo, Workflow
from tenure.jobs.states import WorkflowState
from tenure.nodes.manager.granting import Granted, of_all, of_job, of_workflow

Live = Callable[[str, str], AttemptReport | None]
"""Returns the newest report of a (job, workflow) that runs, which is more recent than the journal. Only a leader gets reports."""


def job_view(info: JobInfo, now: float, live: Live | None = None, granted: Granted | None = None) -> JobView:
    return JobView(
        job_id=info.id,
        name=info.job.submission.name,
        state=info.state,
        reason=info.reason,
        submitted_at=info.job.submitted_at,
        started_at=info.started_at,
        ended_at=info.ended_at,
        deadline=deadline(info.timeout_tracking),
        now=now,
        workflows=tuple(
            workflow_view(
                info.id, name, one, live, () if info.state.terminal else of_workflow(info.id, name, one, now, granted)
            )
            for name, one in info.workflows.items()
        ),
        queue=info.job.submission.queue,
        labels=info.job.submission.labels,
        submitted_by=info.job.submission.submitted_by,
        results_expired=info.results_expired or results_expire_at(info) <= now,
        grants=of_job(info, granted),
    )


def workflow_view(
    job_id: str, name: str, workflow: Workflow, live: Live | None, grants: tuple[Grant, ...] = ()
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
        max_attempts=workflow.spec.retry.max_attempts,
        worker=workflow.worker,
        steps=newest.steps if newest else workflow.steps,
        fraction=fraction,
        started_at=workflow.started_at,
        ended_at=workflow.ended_at,
        cause=workflow.cause or "",
        error=workflow.error,
        result=workflow.result,
        note=newest.note if newest else "",
        grants=grants,
    )


def newest_report(job_id: str, name: str, workflow: Workflow, live: Live | None) -> AttemptReport | None:
    """Returns the worker's newest report if it is about the attempt that counts, else None."""
    said = live(job_id, name) if live and workflow.state is WorkflowState.RUNNING else None
    return said if said is not None and said.attempt == workflow.attempt else None


def row(info: JobInfo, live: Live | None = None, now: float = 0.0, granted: Granted | None = None) -> JobRow:
    workflows = info.workflows.values()
    return JobRow(
        job_id=info.id,
        name=info.job.submission.name or ", ".join(one.spec.called for one in list(workflows)[:3]),
        state=info.state,
        submitted_at=info.job.submitted_at,
        ended_at=info.ended_at,
        total=len(info.workflows),
        completed=info.completed_workflows,
        failed=info.failed_workflows,
        running=info.running_workflows,
        attempts=sum(one.attempt for one in workflows if one.state is not WorkflowState.WAITING),
        progress=sum(share(info.id, name, one, live) for name, one in info.workflows.items()) / len(info.workflows),
        reason=info.reason,
        queue=info.job.submission.queue,
        labels=info.job.submission.labels,
        grants=of_all(info, now, granted),
    )


def share(job_id: str, name: str, workflow: Workflow, live: Live | None) -> float:
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
