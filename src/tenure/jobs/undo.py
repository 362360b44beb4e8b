"""Compensations of a job that did not complete: they are run by a job of their own, `JOB~undo`, which is decided once and names its origin.

A job ends once, and stays ended. So what is to be undone is other work, with attempts, deadlines and evidence of its own. Which workflows registered
compensations is in the engine's store; the leader reads it when it has revoked the messages of the ended job, because from then on no attempt can register
any. The functions and arguments never come here: workers read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tenure.attempt_data import PARENT
from tenure.backoff import Retry
from tenure.jobs.budget import text_bytes
from tenure.jobs.catalogue import in_force
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.endings import JobEnded
from tenure.jobs.model import NO_DEADLINE_S, JobInfo, JobSubmission, UndoRecord, WorkflowSpec
from tenure.jobs.states import JobState, OnFailure
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.undo_rules import UNDO_OF, undo_id
from tenure.jobs.unique_jobs import RETRY_OF, digest

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

UNDO_RETRY = Retry(max_attempts=10, delay=1.0, max_delay=300.0)
"""Failures in a row of one compensation, over about a quarter of an hour. Each that was run starts the count anew."""


class StartUndo(Command, frozen=True, kw_only=True):
    """The store has compensations of these workflows of an ended job."""

    job_id: str
    workflows: tuple[str, ...]


class UndoStarted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The job did not complete, and has compensations: another job runs them. Its submission is in the same append."""

    undo_id: str
    workflows: tuple[str, ...]

    def growth(self) -> int:
        return text_bytes(self.undo_id, *self.workflows) + 40


class UndoEnded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The job that ran the compensations has ended. It is in the same append as that end."""

    undo_id: str
    state: JobState
    failed: int = 0
    """The workflows some of whose compensations failed for good."""


def start_undo(book: JobBook, command: StartUndo, now: float, rules: Rules) -> Decision:
    info = book.jobs.get(command.job_id)
    if info is None or not info.state.terminal or info.state is JobState.COMPLETED:
        return Decision([], Outcome.NOTHING, Rule.FOLLOWED, "nothing of it is to be undone", command.job_id)
    named = undo_id(info.id)
    if info.undo is not None or book.known_digest(named) is not None:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "its compensations are run already", info.id)
    workflows = tuple(name for name in info.workflows if name in command.workflows)
    if not workflows:
        return Decision([], Outcome.NOTHING, Rule.FOLLOWED, "it has no such workflows", info.id)
    submission = undo_submission(info, workflows)
    started = UndoStarted(
        at=now, by=command.by, rule=Rule.FOLLOWED, job_id=info.id, undo_id=submission.job_id, workflows=workflows
    )
    submitted = JobSubmitted(
        at=now,
        by=command.by,
        rule=Rule.FOLLOWED,
        job_id=submission.job_id,
        submission=submission,
        digest=digest(submission),
        by_workflow=in_force(book),
        stuck_chosen=info.timeout_tracking.stuck_chosen,
    )
    return Decision([started, submitted], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)


def undo_submission(info: JobInfo, workflows: tuple[str, ...]) -> JobSubmission:
    """Returns the job that runs the compensations: what came later is undone first, and one that fails for good does not keep the others from running."""
    origin = info.job.submission
    labels = {key: value for key, value in origin.labels.items() if key not in (PARENT, RETRY_OF)}
    specs = []
    for name in workflows:
        one = info.workflows[name]
        later = tuple(other for other in workflows if name in _before(info, other))
        specs.append(_undo_spec(one.spec, one.version, later))
    return JobSubmission(
        job_id=undo_id(info.id),
        workflows=tuple(specs),
        timeout_seconds=NO_DEADLINE_S,
        stuck_threshold=info.timeout_tracking.stuck_threshold,
        name=f"compensations of {origin.name or info.id}"[:200],
        queue=origin.queue,
        priority=origin.priority,
        submitted_by=origin.submitted_by,
        labels={**labels, UNDO_OF: info.id},
        undo_of=info.id,
    )


def _undo_spec(spec: WorkflowSpec, version: str, later: tuple[str, ...]) -> WorkflowSpec:
    return WorkflowSpec(
        name=spec.name,
        function=spec.called,
        version=version,
        after=later,
        on_failure=OnFailure.CONTINUE,
        retry=UNDO_RETRY,
        stall=spec.stall,
    )


def _before(info: JobInfo, name: str) -> set[str]:
    """Returns the workflows that one comes after, also through others."""
    found: set[str] = set()
    left = list(info.workflows[name].spec.after)
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left.extend(info.workflows[one].spec.after)
    return found


def undo_started(book: JobBook, event: UndoStarted) -> None:
    book.job(event.job_id).undo = UndoRecord(job_id=event.undo_id, workflows=event.workflows)


def undo_ended(book: JobBook, event: UndoEnded) -> None:
    """Changes nothing: the event is only part of the job's history."""


def ends_of_undos(book: JobBook, ended: Iterable[Event]) -> list[Event]:
    """Returns what the ends of jobs that ran compensations mean to the jobs of these, for the same append."""
    told: list[Event] = []
    for event in ended:
        origin = book.undoing.get(event.job_id) if isinstance(event, JobEnded) else None
        if isinstance(event, JobEnded) and origin is not None and origin in book.jobs:
            failed = int(event.evidence.get("failed", 0))
            told.append(UndoEnded(at=event.at, job_id=origin, undo_id=event.job_id, state=event.state, failed=failed))
    return told


def words_of_start(event: UndoStarted) -> str:
    many = f"{len(event.workflows)} workflows have" if len(event.workflows) > 1 else f"{event.workflows[0]} has"
    return f"{many} compensations: job {event.undo_id} runs them, the last first"


def words_of_end(event: UndoEnded) -> str:
    if event.state is JobState.COMPLETED and not event.failed:
        return f"its compensations were run by job {event.undo_id}"
    return (
        f"its compensations were not all run: job {event.undo_id} {event.state}, {event.failed} of its workflows failed"
    )


TELL: Mapping[type[Event], Callable[[Any], str]] = {UndoStarted: words_of_start, UndoEnded: words_of_end}
DECIDE: Decides = {StartUndo: start_undo}
FOLD: Folds = {UndoStarted: undo_started, UndoEnded: undo_ended}
