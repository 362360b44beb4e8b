"""Answers `why(job)` with the chain of decisions that brought a job to its state, as data and as text.

It reads the job's own history in the book, so the answer survives snapshots and truncated journals. The answer states how many
events were left out to keep memory bounded.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenure.attempt_data import pairs_in_words
from tenure.jobs.answer import answer, gate_answer
from tenure.jobs.attempt_results import AttemptFailed, WorkflowCompleted
from tenure.jobs.attempts import WorkflowStarted
from tenure.jobs.book import JobBook
from tenure.jobs.decisions import Event, Rule
from tenure.jobs.endings import JobEnded
from tenure.jobs.event_text import allowed, tell
from tenure.jobs.fair_lanes import waits_for_turn
from tenure.jobs.gate_decisions import GlobalDecisionMade
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import GateJobTrackingInfo, JobInfo
from tenure.jobs.reason_text import seconds
from tenure.jobs.result_flow import flow_words
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.waits import Suspended
from tenure.jobs.why_answer import AttemptRun, Link, Why

LOST_LEASE, JOB_ENDED = "lost its lease", "ended with its job"


def runs_of(history: Iterable[Event]) -> tuple[AttemptRun, ...]:
    """Returns the runs in the order in which they started. A long history has lost its middle: then runs are missing, too."""
    ended: list[AttemptRun] = []
    running: dict[str, AttemptRun] = {}

    def end(workflow: str, at: float, outcome: str, before: AttemptRun | None = None) -> None:
        one = running.pop(workflow, before)
        if one is not None:
            ended.append(msgspec.structs.replace(one, ended_at=at, outcome=outcome))

    for event in history:
        if isinstance(event, WorkflowStarted):
            end(event.workflow, event.at, LOST_LEASE)
            running[event.workflow] = AttemptRun(
                workflow=event.workflow,
                attempt=event.attempt,
                worker=event.worker,
                started_at=event.at,
                delivery=event.delivery,
            )
        elif isinstance(event, (WorkflowCompleted, AttemptFailed, Suspended)):
            end(event.workflow, event.at, _outcome(event), _unreported(event))
        elif isinstance(event, JobEnded):
            for workflow in list(running):
                end(workflow, event.at, JOB_ENDED)
    return tuple(sorted([*ended, *running.values()], key=lambda one: one.started_at))


def _outcome(event: WorkflowCompleted | AttemptFailed | Suspended) -> str:
    if isinstance(event, AttemptFailed):
        return str(event.evidence.get("cause", "")) or event.cause.value
    return "completed" if isinstance(event, WorkflowCompleted) else "suspended"


def _unreported(event: WorkflowCompleted | AttemptFailed | Suspended) -> AttemptRun | None:
    """Returns the run of an attempt that ended before its worker first reported it: its start is known only by how long it took."""
    if not event.worker:
        return None
    took = event.evidence.get("seconds", 0.0)
    begun = event.at - took if isinstance(took, (int, float)) else event.at
    return AttemptRun(workflow=event.workflow, attempt=event.attempt, worker=event.worker, started_at=begun)


MOST_ATTEMPTS_SHOWN = 3


def why(book: JobBook, job_id: str, now: float = 0.0) -> Why:
    """Returns the chain of decisions about a job in memory; raises `UnknownJobError`. An archived job's answer is in its record."""
    info = book.job(job_id)
    begun = info.job.submitted_at
    submission = info.job.submission
    names = ", ".join(spec.name for spec in submission.workflows[:5])
    more = f" and {len(submission.workflows) - 5} more" if len(submission.workflows) > 5 else ""
    authority = "the gate decides on its time" if submission.gate_addr else "its manager decides on its time"
    first = Link(
        at=begun,
        after=0.0,
        kind="JobSubmitted",
        what=f"submitted with {allowed(submission.timeout_seconds)} for: {names}{more}; {authority}"
        + whose(info)
        + flow_words(info),
        by=submission.submitted_by,
        rule=Rule.ASKED,
    )
    history = list(book.history(job_id))
    said = answer(
        info, history, lambda one: book.waits_for(info, one, now), lambda one: waits_for_turn(book, info, one)
    )
    return Why(
        job_id=job_id,
        state=info.state,
        summary=summary(info, [*parked_words(book, info, now), *exposed_words(info)]),
        submitted_at=begun,
        links=(first, *(link(event, begun) for event in history)),
        elided=info.elided,
        answer=said.sentence,
        next_step=said.next_step,
        runs=runs_of(history),
    )


def attempts_to_look_at(info: JobInfo) -> list[tuple[str, int, str]]:
    """Returns (workflow, attempt, worker) of the attempts whose evidence explains the job: the last failed one of each workflow, a few of them."""
    found = []
    for name, one in info.workflows.items():
        if one.state is WorkflowState.FAILED:
            found.append((name, one.attempt, one.worker))
        elif one.attempt > 1 and one.state is not WorkflowState.COMPLETED:
            found.append((name, one.attempt - 1, one.excluded[-1] if one.excluded else ""))
    # Those that failed for good come first: they are why the job failed.
    found.sort(key=lambda key: info.workflows[key[0]].state is not WorkflowState.FAILED)
    return found[:MOST_ATTEMPTS_SHOWN]


def whose(info: JobInfo) -> str:
    """Returns whose settings a job has, where the submission left them to a function."""
    by: dict[str, list[str]] = {}
    for setting, author in info.origins.items():
        by.setdefault(author, []).append(setting)
    return "".join(f"; set by {author}: {', '.join(settings)}" for author, settings in by.items())


def why_everywhere(tracker: GateJobTracker, job_id: str) -> Why:
    """Returns the chain as the gate knows it: every datacenter's reports and the gate's decisions. Raises `UnknownJobError`."""
    info = tracker.job(job_id)
    stand = ", ".join(f"{dc} {status}" for dc, status in info.dc_status.items())
    first = Link(
        at=info.submitted_at,
        after=0.0,
        kind="GateJobAccepted",
        what=f"submitted with {allowed(info.timeout_seconds)} to {', '.join(info.target_datacenters)}",
        rule=Rule.ASKED,
    )
    decision = next((one for one in tracker.history(job_id) if isinstance(one, GlobalDecisionMade)), None)
    said = gate_answer(info, decision)
    told = [link(event, info.submitted_at) for event in tracker.history(job_id)]
    if info.resumed_at > info.submitted_at:
        told.append(taken_over(info))
    return Why(
        job_id=job_id,
        state=info.state,
        summary=f"{info.state} ({stand})" + decision_in_words(info),
        submitted_at=info.submitted_at,
        links=(first, *sorted(told, key=lambda one: one.at)),
        elided=info.elided,
        answer=said.sentence,
        next_step=said.next_step,
    )


def answered_there(told: Why, info: GateJobTrackingInfo, datacenter: str, there: Why) -> Why:
    """Returns the gate's answer with that of a datacenter in its place, where the job ended badly there and the gate had no part in it."""
    state = info.dc_status[datacenter]
    ended_there = (
        info.decided is None and info.state.terminal and info.state is not JobState.COMPLETED and state is info.state
    )
    if not ended_there or not there.answer or told.answer.startswith("In "):
        return told  # of several datacenters the first is enough; the others stand below
    return msgspec.structs.replace(told, answer=f"In {datacenter}: {there.answer}", next_step=there.next_step)


def taken_over(info: GateJobTrackingInfo) -> Link:
    """Returns the link of the last takeover. Elections are not in each job's history: one would cost a line in each of 100,000 jobs."""
    return Link(
        at=info.resumed_at,
        after=round(info.resumed_at - info.submitted_at, 3),
        kind="GateElected",
        what="another gate took over, from the same start",
    )


def decision_in_words(info: GateJobTrackingInfo) -> str:
    if info.decided is None:
        return ""
    if info.state.terminal and info.state is not info.decided:
        return f"; the gate had decided {info.decided} ({info.decided_reason}), and it had ended before that was heard"
    return f": {info.decided_reason}"


def link(event: Event, begun: float) -> Link:
    return Link(
        at=event.at,
        after=round(event.at - begun, 3),
        kind=type(event).__name__,
        what=tell(event),
        by=event.by,
        rule=event.rule,
        evidence=event.evidence,
    )


def parked_words(book: JobBook, info: JobInfo, now: float) -> list[str]:
    """Returns a sentence for each workflow of a job that is parked, or suspended."""
    found = ((one, book.waits_for(info, one, now)) for one in info.workflows.values())
    return [
        f"{one.spec.name} is {'suspended' if one.state is WorkflowState.SUSPENDED else 'parked'}: it waits for {words}"
        for one, words in found
        if words
    ]


def exposed_words(info: JobInfo) -> list[str]:
    """Returns what the workflows of a job that goes on show (`ctx.expose`), as their last attempts left it."""
    shown = ((one.spec.name, one.exposed) for one in info.workflows.values() if one.exposed)
    return [f"{name} shows {pairs_in_words(values)}" for name, values in shown]


def summary(info: JobInfo, parked: Iterable[str] = ()) -> str:
    if not info.state.terminal:
        done = f"{info.completed_workflows} of {len(info.workflows)} workflows completed"
        state = f"paused ({info.state})" if info.timeout_tracking.pause is not None else info.state
        return f"{state}, {done}, {info.running_workflows} running" + "".join(f"; {one}" for one in parked)
    took = seconds(round(info.ended_at - info.job.submitted_at, 1))
    reason = "" if info.state is JobState.COMPLETED and not info.failed_workflows else f": {info.reason}"
    return f"{info.state} after {took}{reason}"
