"""The end of an attempt: a result or a failure, the retry that follows, and the refusal of results that came too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tenure.attempt_data import AttemptSilence
from tenure.jobs import budget
from tenure.jobs.attempt_rest import is_new_mark, joined_marks, note_dependency, rest_before_next, restarted
from tenure.jobs.attempts import AttemptCommand, charged, find, move, progressed, stale, unknown
from tenure.jobs.budget import encoded_bytes, text_bytes
from tenure.jobs.decisions import Decides, Decision, Event, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.endings import JobEnded, end
from tenure.jobs.learned_gaps import learn_gaps
from tenure.jobs.learned_rates import learn
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.reason_text import CAUSES
from tenure.jobs.result_flow import check_result, release_followers
from tenure.jobs.state_records import note_departure
from tenure.jobs.states import AttemptCause, AttemptStop, JobState, OnFailure, Undoes, WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

EXCLUDING = frozenset({AttemptCause.STALL, AttemptCause.CRASH, AttemptCause.LOST_LEASE, AttemptCause.EVICTED})
"""The causes for which the worker may be to blame, or by which the work may harm the worker. The next attempt goes elsewhere."""


_SAID_BY = {AttemptCause.DEAD_LETTER: Rule.ENGINE_SAID, AttemptCause.EVICTED: Rule.HEALTH}
LOOK_AROUND_S = 5.0
"""The least rest after a failure on something that the attempt named."""
FINAL = frozenset({AttemptCause.DEAD_LETTER})
"""The causes after which nothing is tried again: the engine has delivered as often as it may."""


class RecordResult(AttemptCommand, frozen=True, kw_only=True):
    worker: str = ""
    delivery: int = 0
    """0 when it is not known. Otherwise a delivery below the one that was started last is stale."""
    result: Any = None
    result_key: str = ""
    exposed: dict[str, Any] = msgspec.field(default_factory=dict)
    enqueued_at: float = 0.0
    silence: AttemptSilence | None = None
    undoes: Undoes = Undoes.NONE


class RecordFailure(AttemptCommand, frozen=True, kw_only=True):
    cause: AttemptCause
    worker: str = ""
    delivery: int = 0
    error: str = ""
    dump_key: str = ""
    retryable: bool = True
    enqueued_at: float = 0.0
    redelivered: int = 0
    """The number of times that the engine had delivered this attempt before. Only the engine knows it: a worker that dies reports nothing."""
    mark: int | None = None
    """Names the work that is saved now; None where the reporter does not know, 0 where nothing is saved."""
    waits_on: str = ""
    """The name of what the attempt failed on, where it named it."""
    rest_s: float | None = None
    """The rest that the work asked for; None leaves it to the retry policy."""
    asked: bool = False
    """True when the attempt ended because it was asked to."""
    uncharged: bool = False
    """True when the attempt ended for something that neither the work nor its worker did."""
    exposed: dict[str, Any] = msgspec.field(default_factory=dict)
    silence: AttemptSilence | None = None
    undoes: Undoes = Undoes.NONE


class WorkflowCompleted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The attempt gave a result: here, or in the store under `result_key`."""

    workflow: str
    attempt: int
    worker: str = ""
    result: Any = None
    result_key: str = ""
    exposed: dict[str, Any] = msgspec.field(default_factory=dict)
    silence: AttemptSilence | None = None  # the silences between its proofs, where they were measured
    undoes: Undoes = Undoes.NONE

    def growth(self) -> int:
        return text_bytes(self.worker, self.result_key) + encoded_bytes(self.result, self.exposed)


class AttemptFailed(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An attempt ended without a result; `next_attempt` is 0 when it was the last."""

    workflow: str
    attempt: int
    cause: AttemptCause
    worker: str = ""
    error: str = ""
    next_attempt: int = 0
    not_before: float = 0.0
    exclude: bool = False
    dump_key: str = ""
    """The key in the store of the stack dump that was taken before a kill."""
    redelivered: int = 0
    """The number of times that the engine had delivered this attempt before, without any outcome. Each counts as an attempt."""
    spent: int | None = None
    """The attempts that now count against max_attempts: 0 where work was saved since the last charge. None in journals of earlier releases."""
    mark: int = 0
    waits_on: str = ""
    """The name of what the attempt failed on, where it named it."""
    uncharged: bool = False
    """True when it failed on something that is down: it does not count as an attempt."""
    exposed: dict[str, Any] = msgspec.field(default_factory=dict)
    silence: AttemptSilence | None = None
    undoes: Undoes = Undoes.NONE
    lost_s: float = 0.0  # of one that was asked to leave its worker: the seconds of work since it last saved

    @property
    def lost_words(self) -> str:
        return f"; {self.lost_s:.0f} s of work were lost" if self.lost_s else ""

    def growth(self) -> int:
        # The worker is in the workflow, and among its excluded workers.
        return text_bytes(self.worker, self.worker, self.error, self.waits_on) + encoded_bytes(self.exposed)


class ResultRefused(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A result or a failure came too late to count. The leader records each delivery's once."""

    workflow: str
    attempt: int
    delivery: int = 0
    worker: str = ""

    def growth(self) -> int:
        return text_bytes(self.worker) + 30


def why_not(
    info: JobInfo, workflow: WorkflowRecord, command: RecordResult | RecordFailure, now: float
) -> tuple[Rule, str] | None:
    """Returns why an outcome does not count: nobody can hold an attempt that still rests, and an outcome is good from its holder only."""
    if workflow.state is WorkflowState.PENDING and workflow.not_before > now and command.attempt == workflow.attempt:
        return Rule.STALE_ATTEMPT, f"attempt {command.attempt} was not sent yet"
    return stale(info, workflow, command.attempt, command.delivery, command.worker)


def record_result(book: JobBook, command: RecordResult, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if workflow.state is WorkflowState.COMPLETED and workflow.attempt == command.attempt:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "already recorded", info.id)
    if why := why_not(info, workflow, command, now):
        return refuse(info, workflow, command, command.delivery, command.worker, why, now)
    check_result(command.workflow, command.result)
    done = WorkflowCompleted(
        at=now,
        by=command.worker,
        rule=Rule.WORKER_SAID,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        worker=command.worker,
        result=command.result,
        result_key=command.result_key,
        exposed=command.exposed,
        silence=command.silence,
        undoes=command.undoes,
        evidence={"enqueued_at": command.enqueued_at} if command.enqueued_at else {},
    )
    events: list[Event] = [done]
    if info.open_workflows == 1:
        events.append(finish(info, now, completed=info.completed_workflows + 1, failed=info.failed_workflows))
    return Decision(events, Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)


def finish(info: JobInfo, now: float, *, completed: int, failed: int) -> JobEnded:
    """Returns the end of a job whose workflows have all ended. When none completed the job fails, whatever `on_failure` its workflows have."""
    stood = {"completed": completed, "failed": failed, "running": 0}
    if completed:
        reason = f"all {len(info.workflows)} workflows ended, {failed} failed" if failed else "all workflows completed"
        return end(info, now, JobState.COMPLETED, Rule.ALL_DONE, reason, evidence=stood)
    return end(info, now, JobState.FAILED, Rule.NOTHING_DONE, f"all {failed} workflows failed", evidence=stood)


def refuse(
    info: JobInfo,
    workflow: WorkflowRecord,
    command: AttemptCommand,
    delivery: int,
    worker: str,
    why: tuple[Rule, str],
    now: float,
) -> Decision:
    """Refuses a result, and records the refusal once for each delivery, however often its message comes."""
    rule, reason = why
    if (command.attempt, delivery, worker) in workflow.refused or len(workflow.refused) >= 20:
        return Decision([], Outcome.REFUSED, rule, reason, info.id)
    event = ResultRefused(
        at=now,
        by=worker,
        rule=rule,
        job_id=info.id,
        workflow=workflow.spec.name,
        attempt=command.attempt,
        delivery=delivery,
        worker=worker,
        evidence={"current_attempt": workflow.attempt, "current_delivery": workflow.delivery, "job": info.state},
    )
    return Decision([event], Outcome.REFUSED, rule, reason, info.id)


def record_failure(book: JobBook, command: RecordFailure, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if workflow.state is WorkflowState.FAILED and workflow.attempt == command.attempt:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "already recorded", info.id)
    if why := why_not(info, workflow, command, now):
        return refuse(info, workflow, command, command.delivery, command.worker, why, now)
    if workflow.stop is not None and command.asked:
        failed = stopped(workflow, workflow.stop, command, now)
    else:
        failed = failed_attempt(book, workflow, command, now)
    events: list[Event] = [failed]
    if ended := consequence(info, workflow, failed):
        events.append(ended)
    return Decision(events, Outcome.ACCEPTED, failed.rule, "", info.id)


def failed_attempt(book: JobBook, workflow: WorkflowRecord, command: RecordFailure, now: float) -> AttemptFailed:
    """Returns the end of an attempt, and what comes next: another attempt after its rest, or none."""
    # Retries are earned (RULINGS, 20): saved work that is new since the last charge starts the count anew. `max_restarts` bounds the sum.
    retry, outage = workflow.spec.policy, book.state.outages.get(command.waits_on)
    excused = outage is not None or command.uncharged
    uncharged = excused and command.retryable and command.cause not in FINAL
    # Deliveries that ended with their worker, which only the engine saw, are charged as attempts are.
    spent = charged(workflow) + (0 if uncharged else 1 + command.redelivered)
    spent = 0 if is_new_mark(command.mark, workflow.mark) else spent
    too_often = not uncharged and restarted(workflow) + command.redelivered > retry.restarts
    bounded = {"max_restarts": retry.restarts} if too_often else {}
    used_up = too_often or (spent >= retry.max_attempts and not uncharged)
    upcoming = 0 if command.cause in FINAL or not command.retryable or used_up else workflow.attempt + 1
    rest = rest_before_next(command.job_id, workflow, command.cause, command.rest_s, spent)
    if command.waits_on:
        # Whether that is down is seen from others who wait for it; what is down is tried again when it is back.
        rest = max(rest, LOOK_AROUND_S) if outage is None else outage.until - now
    return AttemptFailed(
        at=now,
        by=command.by or command.worker,
        rule=_SAID_BY.get(command.cause, Rule.WORKER_SAID),
        job_id=command.job_id,
        workflow=workflow.spec.name,
        attempt=command.attempt,
        cause=command.cause,
        worker=command.worker or workflow.worker,
        error=command.error[: budget.max_error_chars(book)],
        next_attempt=upcoming,
        not_before=now + rest if upcoming else 0.0,
        exclude=command.cause in EXCLUDING,
        dump_key=command.dump_key,
        redelivered=command.redelivered,
        spent=spent,
        mark=joined_marks(command.mark, workflow.mark),
        waits_on=command.waits_on if upcoming else "",
        uncharged=uncharged,
        exposed=command.exposed,
        silence=command.silence,
        undoes=_undoes(command),
        evidence={"max_attempts": retry.max_attempts, "steps": workflow.steps, **bounded, **command.evidence},
    )


def _undoes(command: RecordFailure) -> Undoes:
    unsaid = command.redelivered or command.cause in EXCLUDING or command.cause in FINAL
    return max(command.undoes, Undoes.UNKNOWN if unsaid else Undoes.NONE)


def stopped(workflow: WorkflowRecord, stop: AttemptStop, command: RecordFailure, now: float) -> AttemptFailed:
    """Returns the end of an attempt that somebody paused or moved: it is not charged, and the next one goes on from its checkpoint."""
    saved = is_new_mark(command.mark, workflow.mark)
    return AttemptFailed(
        at=now,
        by=stop.by or command.worker,
        rule=Rule.ASKED,
        job_id=command.job_id,
        workflow=workflow.spec.name,
        attempt=command.attempt,
        cause=stop.cause,
        worker=command.worker or workflow.worker,
        next_attempt=workflow.attempt + 1,
        not_before=now,
        exclude=stop.cause is AttemptCause.MOVED,
        spent=0 if saved else charged(workflow),
        mark=joined_marks(command.mark, workflow.mark),
        uncharged=True,
        exposed=command.exposed,
        lost_s=round(stop.lost_s(command.mark, now), 1),
        undoes=command.undoes,
        evidence={"steps": workflow.steps, "beats": command.evidence.get("beats", 0), "reason": stop.reason},
    )


def consequence(
    info: JobInfo, workflow: WorkflowRecord, failed: AttemptFailed, failed_here: int = 0
) -> JobEnded | None:
    """Returns the end of the job when this failed attempt ends it, otherwise None.

    `failed_here` counts the workflows of the job that failed for good earlier in the same decision: the record does not have them yet.
    """
    if failed.next_attempt:
        return None
    failed_here += 1
    if workflow.spec.on_failure is OnFailure.FAIL:
        # The worker's word says more than the leader's: `timeout` where the leader has `error`, `memory` where it has `crash`.
        said = str(failed.evidence.get("cause", ""))
        cause = CAUSES.get(said) or CAUSES[failed.cause]
        reason = f"workflow {workflow.spec.name!r} failed for good at attempt {failed.attempt}: {cause}"
        stood = {"failed": info.failed_workflows + failed_here, "running": max(0, info.running_workflows - failed_here)}
        return end(info, failed.at, JobState.FAILED, Rule.FAILED_FOR_GOOD, reason, evidence=stood)
    if info.open_workflows == failed_here:
        return finish(info, failed.at, completed=info.completed_workflows, failed=info.failed_workflows + failed_here)
    return None


def workflow_completed(book: JobBook, event: WorkflowCompleted) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    move(book, info, workflow, WorkflowState.COMPLETED)
    workflow.ended_at, workflow.result, workflow.result_key = event.at, event.result, event.result_key
    workflow.undoes = max(workflow.undoes, event.undoes)
    workflow.worker = event.worker or workflow.worker
    workflow.exposed = event.exposed or workflow.exposed
    if workflow.started_at:  # short work ends before its first report
        learn(book, workflow, workflow.worker, event.at - workflow.started_at)
    learn_gaps(book, workflow.spec.called, event, event.silence)
    progressed(info, event.at)
    release_followers(book, info, event.at)


def attempt_failed(book: JobBook, event: AttemptFailed) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    if event.exclude and event.worker and event.worker not in workflow.excluded:
        workflow.excluded.append(event.worker)
    final = event.next_attempt == 0
    workflow.not_before = event.not_before
    move(book, info, workflow, WorkflowState.FAILED if final else WorkflowState.PENDING)
    workflow.cause, workflow.error = event.cause, event.error
    workflow.undoes = max(workflow.undoes, event.undoes)
    workflow.exposed = event.exposed or workflow.exposed
    if event.spent is not None:
        workflow.spent, workflow.mark = event.spent, event.mark
    elif workflow.spent is not None:
        workflow.spent += 1 + event.redelivered
    workflow.redelivered += event.redelivered
    workflow.stalled += event.cause is AttemptCause.STALL
    if event.cause is AttemptCause.MOVED:
        note_departure(book, event.worker, event.lost_s)
    learn_gaps(book, workflow.spec.called, event, event.silence, event.cause)
    note_dependency(workflow, event)
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


def result_refused(book: JobBook, event: ResultRefused) -> None:
    info = book.jobs.get(event.job_id)
    if info is not None and event.workflow in info.workflows:
        info.workflows[event.workflow].refused.append((event.attempt, event.delivery, event.worker))


DECIDE: Decides = {RecordResult: record_result, RecordFailure: record_failure}
FOLD: Folds = {
    WorkflowCompleted: workflow_completed,
    AttemptFailed: attempt_failed,
    ResultRefused: result_refused,
}
