"""Collects the time that is left on every grant, for people. Pure: from the book and the reports of workers to grants.

Other code decides when time is over (`jobs.deadlines`, `fleet`, the worker's own clock). This module only shows it, by the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tenure.control.messages.grants import Grant, GrantKind
from tenure.control.messages.workers import AttemptReport
from tenure.jobs.deadlines import NEVER, deadline, stuck_at
from tenure.jobs.model import JobInfo, Workflow
from tenure.jobs.states import WorkflowState


class Granted(NamedTuple):
    """Asks a leader for the times that are not in the journal. A standby has none of them."""

    attempt: Callable[[str, str, int], tuple[Grant, ...]]
    """Returns the grants of a workflow's running attempt, and of the worker that runs it."""
    progress_at: Callable[[str], float]
    """Returns the time at which a job was last seen to advance; 0 when it never was."""


def of_report(one: AttemptReport, heard_at: float) -> tuple[Grant, ...]:
    """Returns the grants in a worker's report of one attempt. The worker counts seconds by its own clock; they run from when we got the report."""
    found = []
    if one.lease_s:
        found.append(Grant(kind=GrantKind.LEASE, until=heard_at + one.lease_s))
    if one.stall_s:
        left = one.stall_s - one.silent_s
        found.append(Grant(kind=GrantKind.STALL, until=heard_at + left, span_s=one.stall_s))
    return tuple(found)


def of_worker(left_s: float, extensions_left: int, healthcheck_s: float, now: float) -> Grant:
    words = "1 extension left" if extensions_left == 1 else f"{extensions_left} extensions left"
    return Grant(kind=GrantKind.HEALTHCHECK, until=now + left_s, span_s=healthcheck_s, note=words)


def of_workflow(job_id: str, name: str, workflow: Workflow, now: float, granted: Granted | None) -> tuple[Grant, ...]:
    if workflow.state is WorkflowState.RUNNING and granted is not None:
        return granted.attempt(job_id, name, workflow.attempt)
    if workflow.state is WorkflowState.PENDING and workflow.not_before > now:
        return (Grant(kind=GrantKind.REST, until=workflow.not_before, note=f"attempt {workflow.attempt}"),)
    return ()


def of_job(info: JobInfo, granted: Granted | None) -> tuple[Grant, ...]:
    """Returns the grants of the job as a whole. A standby does not know when the job last advanced, and so shows no stuck deadline."""
    if info.state.terminal:
        return ()
    tracking, found = info.timeout_tracking, []
    stuck = stuck_at(info, granted.progress_at(info.id)) if granted is not None else NEVER
    if stuck < NEVER:
        found.append(Grant(kind=GrantKind.STUCK, until=stuck, span_s=tracking.stuck_threshold))
    extended = tracking.total_extensions_granted
    note = f"{extended:.0f} s of it earned by extensions" if extended else ""
    span = tracking.timeout_seconds + extended
    return (*found, Grant(kind=GrantKind.DEADLINE, until=deadline(tracking), span_s=span, note=note))


def of_all(info: JobInfo, now: float, granted: Granted | None) -> tuple[Grant, ...]:
    """Returns, for one line of a list, the grant of each kind that runs out first."""
    if info.state.terminal:
        return ()
    every = [of_job(info, granted)]
    every += [of_workflow(info.id, name, one, now, granted) for name, one in info.workflows.items()]
    return soonest(grant for grants in every for grant in grants)


def soonest(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    first: dict[GrantKind, Grant] = {}
    for grant in grants:
        if grant.kind not in first or grant.until < first[grant.kind].until:
            first[grant.kind] = grant
    return tuple(first[kind] for kind in GrantKind if kind in first)
