"""Steering: somebody pauses a job that runs, lets it go on, gives it another deadline, or moves an attempt to another worker (decision 0450).

To pause or to move, the attempt is asked to end, as a cancel asks it. It ends with its own last words and its checkpoint, is not charged, and the
next attempt goes on from there. A result that comes first counts. While a job is paused no clock of it runs; the time of the pause moves its deadline.

The time of a gate's job is the gate's to decide, so only orders of the gate (`ObeyOrder`) pause or retime it here. Each order has a number and is
the whole wanted state: one that was lost is made good by the next.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from tenure.jobs.attempt_rest import due_from
from tenure.jobs.budget import text_bytes
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.gate_exchange import GateEpochSeen, GlobalWord, correction, why_stale
from tenure.jobs.messages import Identity, JobOrder, JobStatusCorrection
from tenure.jobs.model import NO_DEADLINE_S, JobInfo, TimeoutTrackingState, WorkflowRecord, wall
from tenure.jobs.states import AttemptCause, AttemptStop, JobState, PauseRecord, WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

STOP_BYTES = 100
"""The bytes of an `AttemptStop` without its strings."""


class PauseJob(Command, frozen=True, kw_only=True):
    job_id: str
    reason: str = ""


class ResumeJob(Command, frozen=True, kw_only=True):
    job_id: str
    reason: str = ""


class RetimeJob(Command, frozen=True, kw_only=True):
    """Somebody gives a job another deadline: `timeout_seconds` from its start, None for no deadline; or so many seconds more."""

    job_id: str
    timeout_seconds: float | UnsetType | None = UNSET
    add_s: float = 0.0
    reason: str = ""


class MoveJob(Command, frozen=True, kw_only=True):
    """Somebody wants what runs of a job, or one workflow of it, to go on elsewhere."""

    job_id: str
    workflow: str = ""
    reason: str = ""
    saved_at: float = 0.0
    """When the attempt had saved last; 0 where nobody watched."""
    mark: int = 0
    for_work: str = ""
    """The urgent work that shall have its slot (`preemption.py`); its worker is then not excluded."""


class ObeyOrder(Command, frozen=True, kw_only=True):
    message: JobOrder
    identity: Identity


class JobPaused(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Somebody paused the job: nothing of it starts, what runs is asked to end with its checkpoint, and no clock of it runs."""

    reason: str = ""
    workflows: tuple[str, ...] = ()
    """Those that ran, and were asked to end."""
    steered: int = 0
    """The number of the gate's order; 0 where no gate ordered it."""

    def growth(self) -> int:
        return text_bytes(self.by, self.reason) + STOP_BYTES * (len(self.workflows) + 1)


class JobResumed(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A paused job goes on. Its deadline moves by the time of the pause."""

    reason: str = ""
    steered: int = 0


class JobRetimed(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Somebody gave the job another deadline, counted from its start."""

    timeout_seconds: float
    """A year for a job that has no deadline any more."""
    reason: str = ""
    steered: int = 0


class MoveAsked(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Somebody wants an attempt to go on elsewhere: its worker asks it to end, and the next one starts from its checkpoint."""

    workflow: str
    attempt: int
    worker: str
    reason: str = ""
    saved_at: float = 0.0
    """When it had saved last: work since then may be lost. 0 where nobody watched."""
    mark: int = 0
    """Names what it had saved then."""
    for_work: str = ""
    """The urgent work, as `job/workflow`, that shall have its slot. Empty for a move."""

    @property
    def verb(self) -> str:
        return "preempts" if self.for_work else "moves"

    @property
    def place(self) -> str:
        return "later" if self.for_work else "elsewhere"

    @property
    def unsaved(self) -> str:
        """Returns how much of its work was not saved, in words; empty where nobody watched."""
        return f", {max(0.0, self.at - self.saved_at):.0f} s after it last saved" if self.saved_at else ""

    def growth(self) -> int:
        return text_bytes(self.worker, self.by, self.reason, self.for_work) + STOP_BYTES


class OrderSeen(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An order of the gate changed nothing here. Its number counts: what the gate hears of this datacenter is younger than the order."""

    steered: int


def refused(info_or_id: JobInfo | str, reason: str) -> Decision:
    job_id = info_or_id if isinstance(info_or_id, str) else info_or_id.id
    return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, reason, job_id)


def live_job(book: JobBook, job_id: str) -> JobInfo | Decision:
    """Returns the job, or the refusal for one that has ended. Raises `UnknownJobError`."""
    if archived := book.state.archive.get(job_id):
        return refused(job_id, f"it has ended: {archived.state}")
    info = book.job(job_id)
    return refused(info, f"it has ended: {info.state}") if info.state.terminal else info


def own_job(book: JobBook, job_id: str) -> JobInfo | Decision:
    """Returns a live job whose time is this datacenter's to decide."""
    info = live_job(book, job_id)
    if isinstance(info, JobInfo) and (gate := info.timeout_tracking.gate_addr) is not None:
        return refused(info, f"its time is decided at its gate: ask {gate[0]}:{gate[1]}")
    return info


def pause_job(book: JobBook, command: PauseJob, now: float, rules: Rules) -> Decision:
    info = own_job(book, command.job_id)
    if isinstance(info, Decision):
        return info
    if info.timeout_tracking.pause is not None:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is paused already", info.id)
    return accepted(info, [paused(info, now, command.by, command.reason)], "paused")


def resume_job(book: JobBook, command: ResumeJob, now: float, rules: Rules) -> Decision:
    info = own_job(book, command.job_id)
    if isinstance(info, Decision):
        return info
    if info.timeout_tracking.pause is None:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not paused", info.id)
    return accepted(info, [resumed(info, now, command.by, command.reason)], "resumed")


def retime_job(book: JobBook, command: RetimeJob, now: float, rules: Rules) -> Decision:
    info = own_job(book, command.job_id)
    if isinstance(info, Decision):
        return info
    tracking = info.timeout_tracking
    begun = tracking.started_at + tracking.paused_s + tracking.total_extensions_granted
    wanted = new_timeout(tracking.timeout_seconds, command.timeout_seconds, command.add_s)
    if isinstance(wanted, str):
        return refused(info, wanted)
    if tracking.pause is None and (why := over_already(begun, wanted, now)):
        return refused(info, why)
    if wall(wanted) == wall(tracking.timeout_seconds):
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it has that deadline", info.id)
    return accepted(info, [retimed(info, now, wanted, command.by, command.reason)], "retimed")


def new_timeout(now_s: float | None, wanted: float | UnsetType | None, add_s: float) -> float | str:
    """Returns the seconds that a job may take from now on; the reason where there are none. `add_s` counts where none are `wanted`."""
    if wanted is UNSET:
        had = wall(now_s)
        return min(had + add_s, NO_DEADLINE_S) if had < math.inf else "it has no deadline that could be extended"
    assert not isinstance(wanted, UnsetType)
    return NO_DEADLINE_S if wanted is None else wanted


def over_already(begun: float, timeout_seconds: float, now: float) -> str:
    """Returns why a job cannot get this deadline; empty where it can."""
    due = begun + wall(timeout_seconds)
    return f"that deadline would have passed {now - due:.0f} s ago; to end it, cancel it" if due <= now else ""


def move_job(book: JobBook, command: MoveJob, now: float, rules: Rules) -> Decision:
    info = live_job(book, command.job_id)
    if isinstance(info, Decision):
        return info
    if command.workflow and command.workflow not in info.workflows:
        return refused(info, f"it has no workflow {command.workflow!r}; it has {', '.join(list(info.workflows)[:20])}")
    named = [info.workflows[command.workflow]] if command.workflow else list(info.workflows.values())
    running = [one for one in named if one.state is WorkflowState.RUNNING]
    if not running:
        return refused(info, "nothing of it runs now, so there is nothing to move")
    fresh = [one for one in running if one.stop is None]
    if not fresh:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it was asked to end already", info.id)
    events: list[Event] = [
        MoveAsked(
            at=now,
            by=command.by,
            rule=Rule.ASKED,
            job_id=info.id,
            workflow=one.spec.name,
            attempt=one.attempt,
            worker=one.worker,
            reason=command.reason,
            saved_at=command.saved_at,
            mark=command.mark,
            for_work=command.for_work,
        )
        for one in fresh
    ]
    return accepted(info, events, f"leaves {', '.join(dict.fromkeys(one.worker for one in fresh))}")


def accepted(info: JobInfo, events: list[Event], words: str) -> Decision:
    return Decision(events, Outcome.ACCEPTED, Rule.ASKED, words, info.id)


def paused(info: JobInfo, now: float, by: str, reason: str, steered: int = 0) -> JobPaused:
    running = tuple(name for name, one in info.workflows.items() if one.state is WorkflowState.RUNNING)
    return JobPaused(at=now, by=by, rule=Rule.ASKED, job_id=info.id, reason=reason, workflows=running, steered=steered)


def resumed(info: JobInfo, now: float, by: str, reason: str, steered: int = 0) -> JobResumed:
    pause = info.timeout_tracking.pause
    lasted = {"paused_for": round(now - pause.at, 3)} if pause is not None else {}
    return JobResumed(
        at=now, by=by, rule=Rule.ASKED, job_id=info.id, reason=reason, steered=steered, evidence={**lasted}
    )


def retimed(info: JobInfo, now: float, timeout_s: float, by: str, reason: str, steered: int = 0) -> JobRetimed:
    tracking = info.timeout_tracking
    before = tracking.timeout_seconds if wall(tracking.timeout_seconds) < math.inf else NO_DEADLINE_S
    return JobRetimed(
        at=now,
        by=by,
        rule=Rule.ASKED,
        job_id=info.id,
        timeout_seconds=timeout_s,
        reason=reason,
        steered=steered,
        evidence={"before": before, "elapsed": round(now - tracking.started_at, 3)},
    )


# Orders of a gate


def obey_order(book: JobBook, command: ObeyOrder, now: float, rules: Rules) -> Decision:
    """Makes the job as the gate's order wants it. One that came before, or is of a gate that was replaced, changes nothing."""
    order, identity = command.message, command.identity
    info = book.jobs.get(order.job_id)
    if info is None or rules.is_final(info.state):
        reply = ended_reply(book, order, identity)
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, "it has ended, or is not known", order.job_id, reply)
    tracking = info.timeout_tracking
    word = GlobalWord(order.job_id, info.state, Rule.ASKED, order.reason, 0, order.gate_epoch)
    stale = why_stale(info, word, rules)
    seen = max(tracking.gate_epoch, order.gate_epoch)
    reply = correction(identity, info.id, info.state, tracking.timeout_fence_token, seen, accepted=stale is None)
    if stale is not None:
        return Decision([], Outcome.REFUSED, *stale, info.id, reply)
    obeyed = max(order.number, tracking.steered)
    reply = msgspec.structs.replace(reply, steered=obeyed)
    if order.number <= tracking.steered:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "obeyed before", info.id, reply)
    events: list[Event] = []
    if order.paused and tracking.pause is None:
        events.append(paused(info, now, order.by, order.reason, order.number))
    elif not order.paused and tracking.pause is not None:
        events.append(resumed(info, now, order.by, order.reason, order.number))
    if wall(order.timeout_seconds) != wall(tracking.timeout_seconds):
        wanted = NO_DEADLINE_S if order.timeout_seconds is None else order.timeout_seconds
        events.append(retimed(info, now, wanted, order.by, order.reason, order.number))
    if order.gate_epoch > tracking.gate_epoch:  # from now on, orders of the gate before are refused
        events.append(GateEpochSeen(at=now, by="gate", job_id=info.id, gate_epoch=order.gate_epoch))
    if not any(isinstance(event, (JobPaused, JobResumed, JobRetimed)) for event in events):
        events.append(OrderSeen(at=now, by="gate", job_id=info.id, steered=order.number))
    return Decision(events, Outcome.ACCEPTED, Rule.ASKED, order.reason, info.id, reply)


def ended_reply(book: JobBook, order: JobOrder, identity: Identity) -> JobStatusCorrection:
    """Returns how a job ended here. Of one that this datacenter does not know it only says that the order was heard."""
    known = (
        book.jobs.get(order.job_id) or book.state.archive.get(order.job_id) or book.state.tombstones.get(order.job_id)
    )
    state = known.state if known is not None else JobState.RUNNING
    reply = correction(identity, order.job_id, state, 0, order.gate_epoch)
    return msgspec.structs.replace(reply, steered=order.number)


# The state


def job_paused(book: JobBook, event: JobPaused) -> None:
    info = book.job(event.job_id)
    tracking = info.timeout_tracking
    tracking.pause = PauseRecord(at=event.at, by=event.by, reason=event.reason)
    see_order(tracking, event.steered)
    for workflow in info.workflows.values():
        if workflow.state is WorkflowState.RUNNING:
            workflow.stop = AttemptStop(cause=AttemptCause.PAUSED)
    book.hold_back(info)


def job_resumed(book: JobBook, event: JobResumed) -> None:
    info = book.job(event.job_id)
    tracking = info.timeout_tracking
    if tracking.pause is not None:
        tracking.paused_s += max(0.0, event.at - tracking.pause.at)
    tracking.pause = None
    tracking.last_progress_at = max(tracking.last_progress_at, event.at)  # the stuck clock stood still, and starts anew
    see_order(tracking, event.steered)
    due_from(book, info, event.at)
    book.let_go(info)


def job_retimed(book: JobBook, event: JobRetimed) -> None:
    tracking = book.job(event.job_id).timeout_tracking
    tracking.timeout_seconds = event.timeout_seconds
    see_order(tracking, event.steered)


def see_order(tracking: TimeoutTrackingState, steered: int) -> None:
    """Notes an order. A local timeout that was reported before it is about a time that does not hold any more; the next check finds it anew."""
    tracking.steered = max(tracking.steered, steered)
    tracking.locally_timed_out, tracking.timeout_reason = False, ""
    tracking.reported_reason, tracking.reported_token, tracking.first_reported_at = None, 0, 0.0


def move_asked(book: JobBook, event: MoveAsked) -> None:
    workflow = book.job(event.job_id).workflows[event.workflow]
    workflow.stop = AttemptStop(
        cause=AttemptCause.PREEMPTED if event.for_work else AttemptCause.MOVED,
        worker=event.worker,
        by=event.by,
        reason=event.reason,
        saved_at=event.saved_at,
        mark=event.mark,
        for_work=event.for_work,
    )


def order_seen(book: JobBook, event: OrderSeen) -> None:
    tracking = book.job(event.job_id).timeout_tracking
    tracking.steered = max(tracking.steered, event.steered)


def stop_words(info: JobInfo, workflow: WorkflowRecord, worker: str) -> str:
    """Returns why this worker must end its attempt, in words; empty where it need not."""
    stop = workflow.stop
    if stop is None or workflow.state is not WorkflowState.RUNNING:
        return ""
    if stop.cause is not AttemptCause.PAUSED:
        doing = "gives its slot to urgent work" if stop.for_work else "moves it to another worker"
        moved = f"{stop.by or 'somebody'} {doing}" + (f": {stop.reason}" if stop.reason else "")
        return moved if worker in ("", stop.worker) else ""
    pause = info.timeout_tracking.pause
    words = f"{pause.by or 'somebody'} paused it" if pause is not None else "its job was paused"
    return words + (f": {pause.reason}" if pause is not None and pause.reason else "")


DECIDE: Decides = {
    PauseJob: pause_job,
    ResumeJob: resume_job,
    RetimeJob: retime_job,
    MoveJob: move_job,
    ObeyOrder: obey_order,
}
FOLD: Folds = {
    JobPaused: job_paused,
    JobResumed: job_resumed,
    JobRetimed: job_retimed,
    MoveAsked: move_asked,
    OrderSeen: order_seen,
}
