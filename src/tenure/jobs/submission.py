"""Submissions: everything that is wrong with one raises here, before anything is written, and each is accepted once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.attempt_data import HandedResult
from tenure.backoff import Retry
from tenure.bound_checks import check
from tenure.errors import ConfigurationError, LimitError, SubmissionConflictError
from tenure.jobs import budget
from tenure.jobs.attempts import move
from tenure.jobs.budget import encoded_bytes, fits_a_snapshot
from tenure.jobs.catalogue import in_force
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.door import Origins, enter, with_settings
from tenure.jobs.endings import JobEnded, end
from tenure.jobs.model import (
    NO_DEADLINE_S,
    AcceptedJob,
    JobInfo,
    JobSubmission,
    TimeoutTrackingState,
    Tombstone,
    WorkflowSpec,
    wall,
)
from tenure.jobs.queues import QueueRecord
from tenure.jobs.result_flow import first_record
from tenure.jobs.settings import LEAST_GRACE_S, LIMITS, NEAR_SHARE, STUCK_THRESHOLD_S, JobLimits, JobSettings
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.timeout import strategy_type
from tenure.jobs.undo_rules import check_not_kept, check_undo, note_undo
from tenure.jobs.unique_jobs import RETRY_OF, Duplicate, digest, find_duplicate, unique_name

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.fold import JournalFold

_encode = msgspec.json.Encoder(order="sorted").encode


class FormerJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the book has forgotten, and the store has not."""

    job_id: str
    digest: str


class SubmitJob(Command, frozen=True, kw_only=True):
    submission: JobSubmission
    lenient: bool = False
    """True for a run of a schedule: what nobody serves waits, and is not refused."""
    taken: dict[str, HandedResult] = msgspec.field(default_factory=dict)
    """The results of the finished workflows of the job that this one repeats. Only a manager fills it, from its own records."""
    forked: tuple[str, ...] = ()
    """The workflows that begin with steps of that job, which the manager has put into the store."""
    former: FormerJob | None = None
    """The job that the same id or key made before, where only the store knows it. Only a manager fills it."""


class JobSubmitted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A job was accepted, with its submission as settled: nothing of it is left to defaults that may change."""

    submission: JobSubmission
    digest: str
    origins: Origins = msgspec.field(default_factory=dict)
    """Whose each setting is that the submission left out (`door.with_settings`)."""
    by_workflow: bool = False
    """True when its messages go to the mailboxes of their workflows; in an earlier release all workflows of a lane shared one. It is decided
    once for the life of the job, because a key fences in one mailbox only: a leader that sends a message again, not knowing that the last one
    had sent it, must use the same mailbox, also when the catalogue came into force in between."""
    taken: dict[str, HandedResult] = msgspec.field(default_factory=dict)
    """The results of workflows that completed in the job which this one repeats: they are not run again."""
    forked: tuple[str, ...] = ()
    """The workflows that begin with steps of that job, which are in the store."""
    stuck_chosen: bool = False
    """True when the stuck threshold was asked for, and not derived. An earlier release compared the two, so one that was asked for and equal was taken for derived."""


def validate(submission: JobSubmission, limits: JobLimits) -> None:
    """Raise `ConfigurationError` or `LimitError`, naming the field, the value and the remedy.

    A submission may come from a client, in a batch, by a schedule, from a gate or from a workflow. For each of them this checks every
    field against the bounds of its type, then the fields against each other.
    """
    check(submission, field="submission")
    check_not_kept(submission.job_id)
    for spec in submission.workflows:
        check_arguments(spec, limits)
        check_retry(spec.name, spec.policy)
    check_order(submission)
    check_ladder(submission)
    check_grace(submission)
    size = len(_encode(submission))
    if size > limits.max_submission_bytes:
        raise LimitError(
            "submission",
            f"{size:,} bytes",
            f"at most {limits.max_submission_bytes:,} bytes",
            remedy="Put large inputs into the store, or split the job",
        )


def check_arguments(spec: WorkflowSpec, limits: JobLimits) -> None:
    size = len(_encode(spec.arguments))
    if size > limits.max_arguments_bytes:
        raise LimitError(
            f"arguments of {spec.name!r}",
            f"{size:,} bytes",
            f"at most {limits.max_arguments_bytes:,} bytes",
            remedy="Submit it with a client: a manager stores large arguments; in a transaction of yours they have to be small",
        )
    if not fits_a_snapshot(spec.arguments):
        raise LimitError(
            f"an integer in the arguments of {spec.name!r}",
            "beyond 64 bits",
            f"between {-(2**63):,} and {2**64 - 1:,}",
            remedy="Pass it as a string",
        )


def check_retry(name: str, retry: Retry) -> None:
    if retry.delay > retry.max_delay:
        raise LimitError(f"retry delay of {name!r}", retry.delay, f"at most max_delay ({retry.max_delay:g} s)")


def check_order(submission: JobSubmission) -> None:
    """Raises unless names are unique, `after` names workflows of this job, and no workflow waits for itself."""
    specs = {spec.name: spec for spec in submission.workflows}
    if len(specs) != len(submission.workflows):
        names = [spec.name for spec in submission.workflows]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ConfigurationError(f"workflow names must be unique: {', '.join(map(repr, twice))} appears twice")
    for spec in submission.workflows:
        for name in spec.after:
            if name not in specs:
                raise ConfigurationError(
                    f"workflow {spec.name!r} comes after {name!r}, which is not in this job",
                    remedy=f"Its workflows are: {', '.join(sorted(specs))}",
                )
    done: set[str] = set()
    left = dict(specs)
    while left:
        free = [name for name, spec in left.items() if done.issuperset(spec.after)]
        if not free:
            raise ConfigurationError(f"workflows wait for each other in a circle: {', '.join(sorted(left))}")
        done.update(free)
        for name in free:
            del left[name]


def check_grace(submission: JobSubmission) -> None:
    """Raises where the time in which a job's deadline is near would be too short for its worker to ask (RULINGS, 23)."""
    grace = submission.grace_s
    if grace and grace < LEAST_GRACE_S:
        near = grace * NEAR_SHARE
        raise ConfigurationError(
            f"the ladder of time does not stand upright: 3 x report interval of a worker 3 s <= grace / 3 {near:g} s does not hold",
            remedy=f"Give a grace of {LEAST_GRACE_S:g} s or more, or 0 for a deadline past which nothing can be earned",
        )


def _top_rung(submission: JobSubmission) -> list[tuple[str, float | None]]:
    """Returns the deadline as the top rung of the ladder; nothing for a job without one."""
    timeout = wall(submission.timeout_seconds)
    return [("timeout_seconds", timeout)] if timeout < math.inf else []


def check_ladder(submission: JobSubmission) -> None:
    """Raises unless stall < stuck < timeout, wherever both were given (DESIGN.md: the ladder must stand upright)."""
    stuck, timeout = submission.stuck_threshold, wall(submission.timeout_seconds)
    above: list[tuple[str, float | None]] = [("stuck_threshold", stuck), *_top_rung(submission)]
    rungs: list[tuple[str, float | None]] = [
        (f"stall of {spec.name!r}", spec.stall) for spec in submission.workflows if spec.stall is not None
    ]
    for name, stall in rungs:
        if stall is not None and stall >= (stuck if stuck is not None else timeout):
            raise ladder_error([(name, stall), *above])
    if stuck is not None and stuck >= timeout:
        raise ladder_error([*rungs, *above])


def ladder_error(rungs: list[tuple[str, float | None]]) -> ConfigurationError:
    drawn = " < ".join(f"{name} {'(derived)' if value is None else f'{value:g} s'}" for name, value in rungs)
    return ConfigurationError(
        f"the ladder of time does not stand upright: {drawn} does not hold",
        remedy="Each rung must be shorter than the next; leave a value out to have it derived",
    )


def derived_stuck(submission: JobSubmission, settings: JobSettings) -> float:
    """Returns the stuck threshold of a submission that has none: the leader's, or twice the longest stall. An operator's explicit one wins.

    Raises `ConfigurationError` with the ladder where a stall of the submission is not below an explicit threshold.
    """
    stuck = settings.stuck_threshold
    stalls = [(spec.name, spec.stall) for spec in submission.workflows if spec.stall is not None]
    if not settings.stuck_is_explicit:
        return max([stuck, *(2 * stall for _, stall in stalls)])
    for name, stall in stalls:
        if stall >= stuck:
            rungs: list[tuple[str, float | None]] = [(f"stall of {name!r}", stall), ("--stuck of the manager", stuck)]
            raise ladder_error([*rungs, *_top_rung(submission)])
    return stuck


def settled(submission: JobSubmission, settings: JobSettings, queue: QueueRecord | None) -> JobSubmission:
    """Returns the submission as it is journaled. What it left open is derived here, once: its stuck threshold, and its queue's deadline."""
    changes: dict[str, float] = {}
    if wall(submission.timeout_seconds) == math.inf:
        chosen = queue.job_timeout if queue is not None else None
        changes["timeout_seconds"] = NO_DEADLINE_S if chosen is None else chosen
    if submission.stuck_threshold is None:
        changes["stuck_threshold"] = derived_stuck(submission, settings)
    return msgspec.structs.replace(submission, **changes) if changes else submission


def submit_job(book: JobBook, command: SubmitJob, now: float, rules: Rules) -> Decision:
    submission = command.submission
    validate(submission, LIMITS)
    check_undo(book, submission)
    job_id, contents = submission.job_id, digest(submission)
    if known := submitted_before(book, submission, contents, command.former):
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, known.how, known.job_id)
    if not command.lenient and submission.gate_addr is None:
        enter(book, submission, now)
    submission, origins = with_settings(book, submission, now)
    check_ladder(submission)
    same = Duplicate() if command.lenient else find_duplicate(book, submission, now)
    if same.kept:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "an equal job was submitted before", same.kept)
    # The state holds each workflow twice (in the submission and in its record), and its outcome.
    budget.check_room(book, budget.SMALL_RECORD_BYTES + 2 * encoded_bytes(submission) + encoded_bytes(command.taken))
    submitted = JobSubmitted(
        at=now,
        by=command.by or submission.submitted_by,
        rule=Rule.ASKED,
        job_id=job_id,
        submission=settled(submission, book.settings, book.state.queues.get(submission.queue)),
        digest=contents,
        origins=origins,
        by_workflow=in_force(book),
        taken=command.taken,
        forked=command.forked,
        stuck_chosen=submission.stuck_threshold is not None,
    )
    events: list[Event] = [*_replaced(book, same.replaced, command, now), submitted]
    # A cancel or a timeout may have come before the submission: then the job ends in the append that accepts it.
    if (stone := book.state.tombstones.get(job_id)) is None:
        return Decision(events, Outcome.ACCEPTED, Rule.ASKED, "", job_id)
    return Decision(
        [*events, _ended_before(stone, job_id, now)], Outcome.ACCEPTED, Rule.TOMBSTONE, stone.reason, job_id
    )


def _ended_before(stone: Tombstone, job_id: str, now: float) -> JobEnded:
    return JobEnded(
        at=now,
        by=stone.by,
        rule=Rule.TOMBSTONE,
        job_id=job_id,
        state=stone.state,
        reason=stone.reason,
        gate_epoch=stone.gate_epoch,
        evidence={"decided_at": stone.at},
    )


def _replaced(book: JobBook, job_id: str, command: SubmitJob, now: float) -> list[JobEnded]:
    if not job_id:
        return []
    reason = f"replaced by job {command.submission.job_id}, which is equal and was submitted later"
    return [end(book.jobs[job_id], now, JobState.CANCELLED, Rule.ASKED, reason, by=command.by)]


class KnownJob(NamedTuple):
    """The job that the same contents made before, and by which of its names it was recognised."""

    job_id: str
    how: str


def submitted_before(
    fold: JournalFold[Any, Any], submission: JobSubmission, contents: str, former: FormerJob | None = None
) -> KnownJob | None:
    """Returns the job that this submission made before; None for a new one. Raises when the id or the key belongs to other contents.

    A job that a gate rebuilt from reports has no digest: its contents were lost with the journal, so any contents match it.
    """
    job_id, key = submission.job_id, submission.idempotency_key
    known = fold.known_digest(job_id)
    if known is not None:
        if not _same(known, submission, contents):
            raise SubmissionConflictError("job id", job_id, job_id)
        return KnownJob(job_id, "this job was submitted before")
    if key and (other := fold.keys.get(key)):
        if not _same(fold.known_digest(other), submission, contents):
            raise SubmissionConflictError("idempotency key", key, other)
        return KnownJob(other, "its idempotency key was used before")
    if former is None:
        return None
    same_id = former.job_id == job_id
    if not _same(former.digest, submission, contents):
        named = ("job id", job_id) if same_id else ("idempotency key", key)
        raise SubmissionConflictError(*named, former.job_id)
    return KnownJob(
        former.job_id, "this job was submitted before" if same_id else "its idempotency key was used before"
    )


FORMER_TIMEOUT_S = 3_600.0
"""The deadline that earlier releases gave to a submission without one."""


def _same(known: str | None, submission: JobSubmission, contents: str) -> bool:
    if known in ("", contents):
        return True
    # A program that submitted this under an earlier release, without a deadline, and now repeats it, means the same job.
    former = msgspec.structs.replace(submission, timeout_seconds=FORMER_TIMEOUT_S)
    if wall(submission.timeout_seconds) == math.inf and known == digest(former):
        return True
    if RETRY_OF not in submission.labels or submission.stuck_threshold is not None:
        return False
    # An earlier release gave the derived threshold of the old job to its retry.
    derived = float(derived_stuck(submission, JobSettings()))
    return known == digest(msgspec.structs.replace(submission, stuck_threshold=derived))


def job_submitted(book: JobBook, event: JobSubmitted) -> None:
    submission = event.submission
    begins = event.at + submission.delay
    info = JobInfo(
        job=AcceptedJob(submission, event.at),
        workflows={
            spec.name: first_record(spec, event, by_workflow=event.by_workflow) for spec in submission.workflows
        },
        timeout_tracking=start_tracking(submission, begins, stuck_chosen=event.stuck_chosen),
        digest=event.digest,
        origins=event.origins,
        waiting_workflows=len(submission.workflows) - len(event.taken),
        open_workflows=len(submission.workflows) - len(event.taken),
        completed_workflows=len(event.taken),
    )
    book.jobs[info.id] = (
        info  # indexes hold the id of the submission: the one of the event would be in memory beside it
    )
    book.job_came(info)
    note_undo(book, info)
    if book.state.tombstones:
        book.drop_tombstone(event.job_id)
    if submission.idempotency_key:
        book.keys[submission.idempotency_key] = info.id
    book.unique.note(unique_name(submission), event.job_id, event.at)
    for workflow in info.workflows.values():
        if workflow.state is WorkflowState.WAITING and event.taken.keys() >= set(workflow.spec.after):
            workflow.not_before = begins
            move(book, info, workflow, WorkflowState.PENDING)


def start_tracking(submission: JobSubmission, begins: float, *, stuck_chosen: bool) -> TimeoutTrackingState:
    """Returns the tracking of a new job. `gate_addr` alone chooses the strategy, with no configuration (document 002, part 1)."""
    gate = submission.gate_addr
    return TimeoutTrackingState(
        strategy_type=strategy_type(submission),
        gate_addr=gate,
        started_at=begins,
        last_progress_at=begins,
        timeout_seconds=submission.timeout_seconds,
        stuck_threshold=submission.stuck_threshold or STUCK_THRESHOLD_S,
        timeout_fence_token=1,
        gate_epoch=submission.gate_epoch,
        stuck_chosen=stuck_chosen,
    )


DECIDE: Decides = {SubmitJob: submit_job}
FOLD: Folds = {JobSubmitted: job_submitted}
