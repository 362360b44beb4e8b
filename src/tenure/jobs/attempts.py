"""Attempts: they are dispatched, start and advance. How they end is in `attempt_results.py`.

The fence of a delivery is (attempt, delivery). It only grows, so a report with a lower one is about a delivery that was replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.errors import LimitError
from tenure.jobs.attempt_rest import queue_up
from tenure.jobs.budget import text_bytes
from tenure.jobs.decisions import Command, Decides, Decision, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.queues import note_dispatch
from tenure.jobs.states import AttemptCause, AttemptStop, JobState, WorkflowState, check_workflow_transition

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

DONE = (WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED)
UNFENCED = -1
"""The delivery of a result whose fence is not one that the engine gives to this attempt. It never counts."""


class AttemptCommand(Command, frozen=True, kw_only=True):
    """A command about one attempt of one workflow."""

    job_id: str
    workflow: str
    attempt: int


class RecordDispatched(AttemptCommand, frozen=True, kw_only=True):
    """The engine has the message. It may have refused it now because it had it already."""

    learned_s: float | None = None
    """The learned stall threshold that it was sent with; None where the work asks for none, or none may hold."""
    threshold: str = ""
    """Why it has a learned threshold, or has none though its work asks for one."""


class RecordWithdrawn(AttemptCommand, frozen=True, kw_only=True):
    """The leader took the message back from the engine: nobody serves it any more, or its job is paused."""


class RecordStarted(AttemptCommand, frozen=True, kw_only=True):
    worker: str
    incarnation: str = ""
    delivery: int = 1
    generation: int = 0  # 0: not known


class RecordProgress(AttemptCommand, frozen=True, kw_only=True):
    """A worker reports on an attempt that it runs: the counter, which only grows, and the fraction beside it."""

    worker: str
    steps: int
    fraction: float | None = None
    incarnation: str = ""
    delivery: int = 1
    generation: int = 0
    note: str = ""


class Dispatched(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The attempt is in the engine. Without this event a new leader sends it again, which is safe."""

    workflow: str
    attempt: int
    learned_s: float | None = None
    """The learned stall threshold that it was sent with."""
    threshold: str = ""

    @property
    def threshold_words(self) -> str:
        """Returns which stall threshold holds for it and why, where its work asks for a learned one."""
        if self.learned_s is not None:
            return f". It may be silent for {self.learned_s:g} s: {self.threshold}"
        return f". The set stall threshold holds: {self.threshold}" if self.threshold else ""


class Withdrawn(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The attempt was taken back from the engine, unstarted: nobody serves it any more, so it waits for a worker that does; or its job is paused."""

    workflow: str
    attempt: int
    paused: bool = False


class WorkflowStarted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker has started the attempt. A later delivery of the same attempt starts it again."""

    workflow: str
    attempt: int
    worker: str
    incarnation: str = ""
    delivery: int = 1

    def growth(self) -> int:
        return text_bytes(self.worker, self.incarnation) + 60  # a start of a paused job is asked to end


class ProgressRecorded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The counter of an attempt rose. The leader journals it at most once in a quarter of the stuck threshold."""

    workflow: str = ""
    """Empty when the report was about the job as a whole."""
    attempt: int = 0
    worker: str = ""
    steps: int = 0
    fraction: float | None = None
    note: str = ""


def find(book: JobBook, command: AttemptCommand) -> tuple[JobInfo, WorkflowRecord] | None:
    info = book.jobs.get(command.job_id)
    workflow = info.workflows.get(command.workflow) if info else None
    return (info, workflow) if info and workflow else None


def unknown(book: JobBook, command: AttemptCommand) -> Decision:
    archived = book.state.archive.get(command.job_id)
    if archived:
        return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, f"its job is archived as {archived.state}", command.job_id)
    return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, "no such job or workflow", command.job_id)


def record_dispatched(book: JobBook, command: RecordDispatched, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if workflow.attempt != command.attempt or workflow.state is not WorkflowState.PENDING:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"it is {workflow.state}", info.id)
    event = Dispatched(
        at=now,
        by=command.by,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        learned_s=command.learned_s,
        threshold=command.threshold,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)


def held_by_another(workflow: WorkflowRecord, delivery: int, worker: str) -> bool:
    """Returns True when the journal has another worker as the one that started this delivery: two workers never hold the same one."""
    started = workflow.state is WorkflowState.RUNNING and workflow.delivery == delivery
    return started and bool(worker) and worker != workflow.worker


def record_withdrawn(book: JobBook, command: RecordWithdrawn, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if workflow.attempt != command.attempt or workflow.state is not WorkflowState.QUEUED:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"it is {workflow.state}", info.id)
    event = Withdrawn(
        at=now,
        by=command.by,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        paused=info.timeout_tracking.pause is not None,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)


def stale(
    info: JobInfo, workflow: WorkflowRecord, attempt: int, delivery: int, worker: str, generation: int = 0
) -> tuple[Rule, str] | None:
    """Returns why a report about this attempt does not count, or None when it does.

    A delivery whose start was never reported counts whoever sends it: short work ends before its first report.
    """
    if workflow.state is WorkflowState.WAITING or attempt > workflow.attempt:
        return Rule.STALE_ATTEMPT, f"attempt {attempt} was never issued"
    if attempt < workflow.attempt:
        return Rule.STALE_ATTEMPT, f"attempt {attempt} was replaced by attempt {workflow.attempt}"
    if workflow.state is WorkflowState.SUSPENDED:
        return Rule.STALE_DELIVERY, "it is suspended, so nobody holds it"
    if generation and generation != workflow.generation:
        return Rule.STALE_DELIVERY, f"generation {generation} was replaced by generation {workflow.generation}"
    if delivery == UNFENCED:
        return Rule.STALE_DELIVERY, f"its fence is none that attempt {attempt} was given"
    if held_by_another(workflow, delivery, worker):
        return Rule.STALE_DELIVERY, f"delivery {delivery} is held by another worker than {worker!r}"
    # Delivery 0: the reporter does not know it, so only the attempt fences.
    if delivery and delivery < workflow.delivery:
        return Rule.STALE_DELIVERY, f"delivery {delivery} was replaced by delivery {workflow.delivery}"
    if info.state.terminal:
        return Rule.JOB_ENDED, f"the job had ended: {info.state}"
    if workflow.state.terminal:
        return Rule.ALREADY_RECORDED, f"the workflow had ended: {workflow.state}"
    return None


def record_started(book: JobBook, command: RecordStarted, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if why := stale(info, workflow, command.attempt, command.delivery, command.worker, command.generation):
        return Decision([], Outcome.REFUSED, *why, info.id)
    if workflow.state is WorkflowState.RUNNING and workflow.delivery == command.delivery:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "", info.id)
    return Decision([start_event(workflow, command, now)], Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)


def start_event(workflow: WorkflowRecord, command: RecordStarted | RecordProgress, now: float) -> WorkflowStarted:
    """Returns the start. That of a later delivery says whose delivery came before: its lease was lost, or there would be no second one."""
    before = (
        {"previous_worker": workflow.worker, "previous_delivery": workflow.delivery, **command.evidence}
        if workflow.state is WorkflowState.RUNNING and command.delivery > workflow.delivery
        else {}
    )
    return WorkflowStarted(
        at=now,
        by=command.worker,
        rule=Rule.WORKER_SAID,
        job_id=command.job_id,
        workflow=command.workflow,
        attempt=command.attempt,
        worker=command.worker,
        incarnation=command.incarnation,
        delivery=command.delivery,
        evidence=before,
    )


def record_progress(book: JobBook, command: RecordProgress, now: float, rules: Rules) -> Decision:
    """Records progress, for each job at most once in a quarter of its stuck threshold. `ProgressWatch` holds the rest."""
    check_progress(command)
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if why := stale(info, workflow, command.attempt, command.delivery, command.worker, command.generation):
        return Decision([], Outcome.REFUSED, *why, info.id)
    if workflow.state is not WorkflowState.RUNNING or workflow.delivery != command.delivery:
        # The report of its start was lost. A progress report holds the whole state of the attempt, so it records the start, too.
        return Decision([start_event(workflow, command, now)], Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)
    if command.steps <= workflow.steps:
        return Decision([], Outcome.NOTHING, Rule.WORKER_SAID, "the counter has not risen", info.id)
    if not journal_due(book, info, now):
        return Decision([], Outcome.NOTHING, Rule.WORKER_SAID, "progress was journaled a short while ago", info.id)
    event = ProgressRecorded(
        at=now,
        by=command.worker,
        rule=Rule.WORKER_SAID,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        worker=command.worker,
        steps=command.steps,
        fraction=command.fraction,
        note=command.note[:200],
    )
    return Decision([event], Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)


def journal_due(book: JobBook, info: JobInfo, now: float) -> bool:
    tracking = info.timeout_tracking
    return now - tracking.last_progress_at >= tracking.stuck_threshold * book.settings.progress_share


def check_progress(command: RecordProgress) -> None:
    if command.steps < 0:
        raise LimitError("steps", command.steps, "0 or more")
    if command.fraction is not None and not 0 <= command.fraction <= 1:  # NaN fails both comparisons
        raise LimitError("fraction", command.fraction, "between 0 and 1")


def charged(workflow: WorkflowRecord) -> int:
    """Returns the attempts and redeliveries that count against max_attempts."""
    return workflow.attempt - 1 + workflow.redelivered if workflow.spent is None else workflow.spent


def move(book: JobBook, info: JobInfo, workflow: WorkflowRecord, new: WorkflowState) -> None:
    """Changes the state of a workflow. It is the only code that does, so table, counters and indexes change together."""
    old = workflow.state
    check_workflow_transition(info.id, workflow.spec.name, old, new)
    workflow.state = new
    if old is WorkflowState.WAITING:
        info.waiting_workflows -= 1
    elif old is WorkflowState.RUNNING:
        info.running_workflows -= 1
        book.left_worker(workflow.worker, (info.id, workflow.spec.name))
        if new is not WorkflowState.RUNNING:
            workflow.stop = None
    workflow.place = 0
    if new is WorkflowState.PENDING:
        queue_up(book, workflow)
    elif new is WorkflowState.RUNNING:
        info.running_workflows += 1
    elif new in DONE:
        info.open_workflows -= 1
        if new is WorkflowState.COMPLETED:
            info.completed_workflows += 1
        elif new is WorkflowState.FAILED:
            info.failed_workflows += 1
    book.moved(info, workflow, old)


def dispatched(book: JobBook, event: Dispatched) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    workflow.dispatched_at = event.at
    if record := book.state.queues.get(info.job.submission.queue):
        note_dispatch(record, event.at)
    if workflow.state is WorkflowState.PENDING:  # the start may have been recorded first
        move(book, info, workflow, WorkflowState.QUEUED)


def withdrawn(book: JobBook, event: Withdrawn) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    workflow.withdrawn += 1
    move(book, info, workflow, WorkflowState.PENDING)


def workflow_started(book: JobBook, event: WorkflowStarted) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    move(book, info, workflow, WorkflowState.RUNNING)
    if info.timeout_tracking.pause is not None:  # its message was claimed before the leader could take it back
        workflow.stop = AttemptStop(cause=AttemptCause.PAUSED)
    elif workflow.stop is not None and workflow.stop.worker not in ("", event.worker):
        workflow.stop = None  # another worker has it now: it has moved
    workflow.worker, workflow.incarnation = event.worker, event.incarnation
    workflow.delivery, workflow.started_at, workflow.steps = event.delivery, event.at, 0
    book.on_worker.setdefault(event.worker, {})[(event.job_id, event.workflow)] = None
    if info.state is JobState.PENDING:
        info.state, info.started_at = JobState.RUNNING, event.at
    progressed(info, event.at)


def progress_recorded(book: JobBook, event: ProgressRecorded) -> None:
    info = book.job(event.job_id)
    if event.workflow:
        workflow = info.workflows[event.workflow]
        workflow.steps = max(workflow.steps, event.steps)
        if event.fraction is not None:
            workflow.fraction = event.fraction
    progressed(info, event.at)


def progressed(info: JobInfo, at: float) -> None:
    tracking = info.timeout_tracking
    if at > tracking.last_progress_at:
        tracking.last_progress_at = at


DECIDE: Decides = {
    RecordDispatched: record_dispatched,
    RecordWithdrawn: record_withdrawn,
    RecordStarted: record_started,
    RecordProgress: record_progress,
}
FOLD: Folds = {
    Dispatched: dispatched,
    Withdrawn: withdrawn,
    WorkflowStarted: workflow_started,
    ProgressRecorded: progress_recorded,
}
