"""Folds each event into the book: one function per event, and a table of them.

Only the folds write to `JobInfo`; `JobBook` adds its history. They decide nothing: `decide` judged everything before the event was
written. They assert what must hold, so that a wrong decision stops here and does no harm in a user's job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tenure.jobs import events as e
from tenure.jobs import queues
from tenure.jobs.fold_schedules import SCHEDULE_FOLDS
from tenure.jobs.fold_workers import WORKER_FOLDS, progressed
from tenure.jobs.model import (
    ArchivedJob,
    Job,
    JobInfo,
    JobSubmission,
    TimeoutTrackingState,
    Tombstone,
    Workflow,
    left_a_message,
)
from tenure.jobs.settings import STUCK_THRESHOLD_S
from tenure.jobs.states import (
    JobState,
    OnFailure,
    StrategyType,
    WorkflowState,
    check_job_transition,
    check_workflow_transition,
)

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

_DONE = (WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED)


def move(book: JobBook, info: JobInfo, workflow: Workflow, new: WorkflowState) -> None:
    """Changes the state of a workflow. It is the only code that does, so table, counters and indexes change together."""
    old = workflow.state
    check_workflow_transition(info.id, workflow.spec.name, old, new)
    workflow.state = new
    if old is WorkflowState.WAITING:
        info.waiting_workflows -= 1
    elif old is WorkflowState.RUNNING:
        info.running_workflows -= 1
        book.left_worker(workflow.worker, (info.id, workflow.spec.name))
    if new is WorkflowState.RUNNING:
        info.running_workflows += 1
    elif new in _DONE:
        info.open_workflows -= 1
        if new is WorkflowState.COMPLETED:
            info.completed_workflows += 1
        elif new is WorkflowState.FAILED:
            info.failed_workflows += 1
    book.moved(info, workflow, old)


def leader_elected(book: JobBook, event: e.LeaderElected) -> None:
    state = book.state
    state.epoch, state.leader, state.elected_at = event.epoch, event.leader, event.at
    for info in state.jobs.values():
        if not info.state.terminal:
            tracking = info.timeout_tracking
            # The higher token fences decisions of the gate that answer the last leader. The stuck clock starts at the takeover,
            # because progress that the last leader did not journal is lost.
            tracking.timeout_fence_token += 1
            tracking.resumed_at = event.at


def job_submitted(book: JobBook, event: e.JobSubmitted) -> None:
    submission = event.submission
    begins = event.at + submission.delay
    info = JobInfo(
        job=Job(submission, event.at),
        workflows={spec.name: Workflow(spec=spec) for spec in submission.workflows},
        timeout_tracking=start_tracking(submission, begins),
        digest=event.digest,
        waiting_workflows=len(submission.workflows),
        open_workflows=len(submission.workflows),
    )
    book.jobs[event.job_id] = info
    book.size.job_came(info)
    book.size.tombstone_left(event.job_id, book.state.tombstones.pop(event.job_id, None))
    if submission.idempotency_key:
        book.keys[submission.idempotency_key] = event.job_id
    for workflow in info.workflows.values():
        if not workflow.spec.after:
            workflow.not_before = begins
            move(book, info, workflow, WorkflowState.PENDING)


def start_tracking(submission: JobSubmission, begins: float) -> TimeoutTrackingState:
    """Returns the tracking of a new job. `gate_addr` alone chooses the strategy, with no configuration (document 002, part 1)."""
    gate = submission.gate_addr
    return TimeoutTrackingState(
        strategy_type=StrategyType.LOCAL_AUTHORITY if gate is None else StrategyType.GATE_COORDINATED,
        gate_addr=gate,
        started_at=begins,
        last_progress_at=begins,
        timeout_seconds=submission.timeout_seconds,
        stuck_threshold=submission.stuck_threshold or STUCK_THRESHOLD_S,
        timeout_fence_token=1,
        gate_epoch=submission.gate_epoch,
    )


def dispatched(book: JobBook, event: e.Dispatched) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    workflow.dispatched_at = event.at
    if record := book.state.queues.get(info.job.submission.queue):
        queues.note_dispatch(record, event.at)
    if workflow.state is WorkflowState.PENDING:  # the start may have been recorded first
        move(book, info, workflow, WorkflowState.QUEUED)


def workflow_started(book: JobBook, event: e.WorkflowStarted) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    move(book, info, workflow, WorkflowState.RUNNING)
    workflow.worker, workflow.incarnation = event.worker, event.incarnation
    workflow.delivery, workflow.started_at, workflow.steps = event.delivery, event.at, 0
    book.on_worker.setdefault(event.worker, {})[(event.job_id, event.workflow)] = None
    if info.state is JobState.PENDING:
        info.state, info.started_at = JobState.RUNNING, event.at
    progressed(info, event.at)


def progress_recorded(book: JobBook, event: e.ProgressRecorded) -> None:
    info = book.job(event.job_id)
    if event.workflow:
        workflow = info.workflows[event.workflow]
        workflow.steps = max(workflow.steps, event.steps)
        if event.fraction is not None:
            workflow.fraction = event.fraction
    progressed(info, event.at)


def workflow_completed(book: JobBook, event: e.WorkflowCompleted) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    move(book, info, workflow, WorkflowState.COMPLETED)
    workflow.ended_at, workflow.result, workflow.result_key = event.at, event.result, event.result_key
    workflow.worker = event.worker or workflow.worker
    progressed(info, event.at)
    release_followers(book, info, event.at)


def attempt_failed(book: JobBook, event: e.AttemptFailed) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    if event.exclude and event.worker and event.worker not in workflow.excluded:
        workflow.excluded.append(event.worker)
    final = event.next_attempt == 0
    workflow.not_before = event.not_before
    move(book, info, workflow, WorkflowState.FAILED if final else WorkflowState.PENDING)
    workflow.cause, workflow.error = event.cause, event.error
    workflow.redelivered += event.redelivered
    if final:
        workflow.ended_at = event.at
        workflow.worker = event.worker or workflow.worker
        if workflow.spec.on_failure is OnFailure.CONTINUE:
            release_followers(book, info, event.at)
    else:
        assert event.next_attempt > workflow.attempt, "an attempt only grows"
        workflow.attempt = event.next_attempt
        # The fence is (attempt, delivery): the deliveries of a new attempt count from the start.
        workflow.worker, workflow.incarnation, workflow.delivery, workflow.steps = "", "", 0, 0


def release_followers(book: JobBook, info: JobInfo, at: float) -> None:
    """Makes each waiting workflow pending when all workflows that it comes after have ended."""
    if not info.waiting_workflows:
        return
    for workflow in info.workflows.values():
        if workflow.state is WorkflowState.WAITING and all(
            info.workflows[name].state.terminal for name in workflow.spec.after
        ):
            workflow.not_before = at
            move(book, info, workflow, WorkflowState.PENDING)


def result_refused(book: JobBook, event: e.ResultRefused) -> None:
    info = book.jobs.get(event.job_id)
    if info is not None and event.workflow in info.workflows:
        info.workflows[event.workflow].refused.append((event.attempt, event.delivery, event.worker))


def job_ended(book: JobBook, event: e.JobEnded) -> None:
    info = book.job(event.job_id)
    check_job_transition(event.job_id, info.state, event.state)
    info.state, info.reason, info.ended_at = event.state, event.reason, event.at
    see_gate_epoch(info, event.gate_epoch)
    info.ended_by_gate = event.by_gate
    tracking = info.timeout_tracking
    if event.state is JobState.TIMED_OUT:
        tracking.timeout_reason = tracking.timeout_reason or event.reason
        tracking.globally_timed_out = event.rule is e.Rule.GLOBAL_TIMEOUT
        if not tracking.globally_timed_out:
            tracking.locally_timed_out = True
    if tracking.gate_addr is None:
        info.gate_acked = True
    for workflow in info.workflows.values():
        if workflow.state not in _DONE:
            if workflow.state is not WorkflowState.WAITING:
                info.cleaned = False  # it may have a live message in the engine
            move(book, info, workflow, WorkflowState.CANCELLED)
            workflow.ended_at = event.at
        elif left_a_message(workflow):
            info.cleaned = False
    book.ended[event.job_id] = None
    if submission_ttl := info.job.submission.result_ttl:
        book.expiring.set(event.job_id, event.at + submission_ttl)
    if not info.cleaned:
        book.uncleaned[event.job_id] = None


def job_cleaned(book: JobBook, event: e.JobCleaned) -> None:
    book.job(event.job_id).cleaned = True
    book.uncleaned.pop(event.job_id, None)


def tombstone_set(book: JobBook, event: e.TombstoneSet) -> None:
    stone = Tombstone(at=event.at, state=event.state, reason=event.reason, by=event.by, gate_epoch=event.gate_epoch)
    book.state.tombstones[event.job_id] = stone
    book.size.tombstone_came(event.job_id, stone)


def local_timeout_reported(book: JobBook, event: e.LocalTimeoutReported) -> None:
    tracking = book.job(event.job_id).timeout_tracking
    if not tracking.locally_timed_out:
        tracking.locally_timed_out = True
        tracking.first_reported_at = event.at
        tracking.timeout_reason = event.reason
        tracking.reported_reason = event.reason
    tracking.reported_token = event.token
    tracking.last_report_at = event.at


def global_decision_refused(book: JobBook, event: e.GlobalDecisionRefused) -> None:
    info = book.job(event.job_id)
    info.timeout_tracking.last_refused = (event.fence_token, event.gate_epoch)
    see_gate_epoch(info, event.gate_epoch)


def gate_epoch_seen(book: JobBook, event: e.GateEpochSeen) -> None:
    see_gate_epoch(book.job(event.job_id), event.gate_epoch)


def gate_acknowledged(book: JobBook, event: e.GateAcknowledged) -> None:
    info = book.job(event.job_id)
    info.gate_acked = True
    see_gate_epoch(info, event.gate_epoch)


def see_gate_epoch(info: JobInfo, epoch: int) -> None:
    tracking = info.timeout_tracking
    tracking.gate_epoch = max(tracking.gate_epoch, epoch)


def queue_changed(book: JobBook, event: e.QueueChanged) -> None:
    book.state.queues[event.queue] = queues.changed(book.state.queues.get(event.queue), event)


def results_expired(book: JobBook, event: e.ResultsExpired) -> None:
    info = book.job(event.job_id)
    info.results_expired = True
    book.expiring.cancel(event.job_id)
    for workflow in info.workflows.values():
        workflow.result, workflow.result_key = None, ""


def job_archived(book: JobBook, event: e.JobArchived) -> None:
    info = book.state.jobs.pop(event.job_id)
    book.size.job_left(info)
    book.ended.pop(event.job_id, None)
    book.uncleaned.pop(event.job_id, None)
    book.expiring.cancel(event.job_id)
    tracking = info.timeout_tracking
    archived = ArchivedJob(
        state=info.state,
        ended_at=info.ended_at,
        archived_at=event.at,
        digest=info.digest,
        idempotency_key=info.job.submission.idempotency_key,
        fence_token=tracking.timeout_fence_token,
        gate_epoch=tracking.gate_epoch,
        ended_by_gate=info.ended_by_gate,
    )
    book.state.archive[event.job_id] = archived
    book.size.archived_came(event.job_id, archived)
    for job_id in event.forget:
        drop_archived(book, job_id)
        book.state.forgotten_early += 1


def drop_archived(book: JobBook, job_id: str) -> None:
    archived = book.state.archive.pop(job_id)
    book.size.archived_left(job_id, archived)
    if book.keys.get(archived.idempotency_key) == job_id:
        del book.keys[archived.idempotency_key]


def forgotten(book: JobBook, event: e.Forgotten) -> None:
    # Both dictionaries are in the order of time, so this costs only what it removes.
    archive, stones = book.state.archive, book.state.tombstones
    while archive and archive[job_id := next(iter(archive))].archived_at <= event.until:
        drop_archived(book, job_id)
    while stones and stones[job_id := next(iter(stones))].at <= event.until:
        book.size.tombstone_left(job_id, stones.pop(job_id))


FOLD: Mapping[type[e.Event], Callable[[JobBook, Any], None]] = {
    **WORKER_FOLDS,
    **SCHEDULE_FOLDS,
    e.LeaderElected: leader_elected,
    e.JobSubmitted: job_submitted,
    e.Dispatched: dispatched,
    e.WorkflowStarted: workflow_started,
    e.ProgressRecorded: progress_recorded,
    e.WorkflowCompleted: workflow_completed,
    e.AttemptFailed: attempt_failed,
    e.ResultRefused: result_refused,
    e.JobEnded: job_ended,
    e.JobCleaned: job_cleaned,
    e.TombstoneSet: tombstone_set,
    e.LocalTimeoutReported: local_timeout_reported,
    e.GlobalDecisionRefused: global_decision_refused,
    e.GateEpochSeen: gate_epoch_seen,
    e.GateAcknowledged: gate_acknowledged,
    e.QueueChanged: queue_changed,
    e.ResultsExpired: results_expired,
    e.JobArchived: job_archived,
    e.Forgotten: forgotten,
}
