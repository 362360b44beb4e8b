"""Shows the time that is left on the grants of a job, its workflows and their workers. Pure: others decide on that time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tenure.control.messages.wire import Grant, GrantKind
from tenure.control.messages.workers import AttemptReport
from tenure.jobs.deadlines import NEVER, deadline, stuck_at
from tenure.jobs.eta import Eta
from tenure.jobs.model import GateJobTrackingInfo, JobInfo, WorkflowRecord
from tenure.jobs.settings import MOST_EXTENSIONS
from tenure.jobs.states import WorkflowState


class Granted(NamedTuple):
    """Asks a leader for the times that are not in the journal. A standby has none of them."""

    attempt: Callable[[str, str, int], tuple[Grant, ...]]
    """Returns the grants of a workflow's running attempt, and of the worker that runs it."""
    progress_at: Callable[[str], float]
    """Returns the time at which a job was last seen to advance; 0 when it never was."""
    eta: Callable[[str, str, float | None], Eta | None]
    """Returns when a running workflow will be done at its rate."""


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
