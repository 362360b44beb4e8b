"""Lists a gate's jobs, with the filters and pages of a manager's list. Pure."""

from __future__ import annotations

from tenure.control.messages.grants import Grant, GrantKind
from tenure.control.messages.jobs import JobList, JobRow, ListJobs
from tenure.jobs.gate_tracker import GateJobTracker, GateJobTrackingInfo
from tenure.jobs.states import JobState
from tenure.nodes.gate.tally import Counts, Tally
from tenure.nodes.manager.listing import Place, parse_place


def gate_list(tracker: GateJobTracker, now: float, request: ListJobs, tally: Tally | None) -> JobList:
    """Returns a page of the jobs that fit the request, newest first. Archived jobs are not listed; callers ask for them by their id."""
    begin = parse_place(request.after) if request.after else None
    fitting = sorted((info for info in tracker.jobs.values() if fits(info, request)), key=place_of, reverse=True)
    left = [info for info in fitting if begin is None or place_of(info) < begin]
    page = left[: request.limit]
    return JobList(
        jobs=tuple(row(info, tally, tracker.deadline(info)) for info in page),
        known=len(fitting),
        now=now,
        next=str(place_of(page[-1])) if len(left) > len(page) else "",
    )


def place_of(info: GateJobTrackingInfo) -> Place:
    return Place(info.submitted_at, info.job_id)


def fits(info: GateJobTrackingInfo, request: ListJobs) -> bool:
    """Returns True when a job fits the filters. A job that was rebuilt from reports has no name, queue or labels, and fits no filter on them."""
    submission = info.submission
    if request.state is not None and info.state is not request.state:
        return False
    if info.submitted_at < request.since or (request.until is not None and info.submitted_at >= request.until):
        return False
    if request.name and not (
        info.job_id.startswith(request.name) or (submission is not None and submission.name.startswith(request.name))
    ):
        return False
    if submission is None:
        return not (request.queue or request.function or request.label)
    if request.queue and submission.queue != request.queue:
        return False
    if request.function and all(spec.called != request.function for spec in submission.workflows):
        return False
    key, equals, value = request.label.partition("=")
    return not key or (key in submission.labels and (not equals or submission.labels[key] == value))


def global_grants(info: GateJobTrackingInfo, deadline: float) -> tuple[Grant, ...]:
    """Returns the one grant of time that the gate itself keeps for a job: its global deadline. The datacenters keep the others."""
    if info.state.terminal:
        return ()
    return (
        Grant(kind=GrantKind.DEADLINE, until=deadline, span_s=deadline - info.submitted_at, note="in all datacenters"),
    )


def row(info: GateJobTrackingInfo, tally: Tally | None, deadline: float) -> JobRow:
    counts = tally.of(info.job_id, info.target_datacenters) if tally else Counts()
    targets = len(info.target_datacenters)
    each = len(info.submission.workflows) if info.submission else 0
    total = max(counts.total, targets * each)
    ended = sum(status.terminal for status in info.dc_status.values())
    return JobRow(
        job_id=info.job_id,
        name=(info.submission.name if info.submission else "") or f"in {', '.join(info.target_datacenters[:3])}",
        state=info.state,
        submitted_at=info.submitted_at,
        ended_at=info.ended_at,
        total=total,
        completed=counts.completed,
        failed=counts.failed,
        running=counts.running,
        attempts=0,
        progress=max(counts.completed / total if total else 0.0, ended / targets if targets else 0.0),
        reason=reason_of(info),
        grants=global_grants(info, deadline),
    )


def reason_of(info: GateJobTrackingInfo) -> str:
    """Returns the reason of the gate's decision, where it ended the job or is ending it; else the reason that the datacenters reported."""
    if info.decided is not None and info.state in (info.decided, JobState.RUNNING):
        return info.decided_reason
    return info.reason
