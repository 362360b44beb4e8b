"""Suspended work: it waits for a time, a signal or its children, and holds no slot, lease or clock meanwhile.

Suspending loses no wake-up (RULINGS 19): the decision on `Suspended` looks at the job's signals and at the children, that on a signal or on the end of a
job looks at who waits. Each makes the work pending by the same append. What one job means to another is an event of the other's own (`ChildEnded`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.attempt_data import AttemptSilence, Signal, WaitsFor
from tenure.errors import LimitError, UnknownJobError
from tenure.jobs.attempt_rest import is_new_mark, joined_marks
from tenure.jobs.attempts import UNFENCED, AttemptCommand, find, move, progressed, stale, unknown
from tenure.jobs.budget import encoded_bytes, fits_a_snapshot, text_bytes
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.door import check_payload
from tenure.jobs.endings import JobEnded
from tenure.jobs.learned_gaps import learn_gaps
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.states import Undoes, WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.work_indexes import WorkflowKey

MOST_SIGNALS = 1_000
"""The most signals that one job keeps."""
MOST_SIGNAL_BYTES = 256 << 10
"""The most bytes that their payloads have together: every dispatch carries them."""
FREE_SUSPENSIONS = 100
"""So often a workflow may suspend for something that is there already and go on at once. After that it rests for a second each time."""


class RecordSuspended(AttemptCommand, frozen=True, kw_only=True):
    """An attempt ended because its work waits."""

    waits: WaitsFor
    worker: str = ""
    delivery: int = 0
    mark: int | None = None
    version: str = ""
    enqueued_at: float = 0.0
    exposed: dict[str, Any] = msgspec.field(default_factory=dict)
    silence: AttemptSilence | None = None
    undoes: Undoes = Undoes.NONE


class WakeSleeper(Command, frozen=True, kw_only=True):
    """The time has come at which a wait ends."""

    job_id: str
    workflow: str


class SendSignal(Command, frozen=True, kw_only=True):
    """Somebody sends a signal to a job. The same id again is the same signal."""

    job_id: str
    name: str
    signal_id: str
    payload: Any = None


class Suspended(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An attempt ended because its work waits. That is no failure, and counts as no attempt."""

    workflow: str
    attempt: int
    waits: WaitsFor
    worker: str = ""
    until: float = 0.0
    """The time at which it goes on in any case; 0 for never."""
    mark: int = 0
    version: str = ""
    """The version that ran."""
    over: bool = False
    """True when what it waits for was there already."""
    exposed: dict[str, Any] = msgspec.field(default_factory=dict)
    """The values that it shows."""
    silence: AttemptSilence | None = None
    undoes: Undoes = Undoes.NONE

    def growth(self) -> int:
        return (
            text_bytes(self.waits.step, self.waits.event, self.version, self.waits.misfit, *self.waits.jobs)
            + encoded_bytes(self.exposed)
            + 100
        )


class Woken(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The time has come at which suspended work goes on."""

    workflow: str
    attempt: int
    version_came: bool = False
    """True when it fitted no version that workers served, and they serve others now."""


class ChildEnded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A job has ended that suspended work waits for. It is in the same append as that end."""

    workflow: str
    attempt: int
    child: str


class SignalReceived(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Somebody sent a signal to the job. It is kept until the job ends."""

    name: str
    signal_id: str
    payload: Any = None

    def growth(self) -> int:
        return text_bytes(self.name, self.signal_id, self.by) + encoded_bytes(self.payload) + 60


def record_suspended(book: JobBook, command: RecordSuspended, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if command.delivery == UNFENCED and workflow.suspensions:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it was recorded, and has gone on since", info.id)
    if why := stale(info, workflow, command.attempt, command.delivery, command.worker):
        return Decision([], Outcome.REFUSED, *why, info.id)
    after_s = command.waits.after_s
    still = tuple(job_id for job_id in command.waits.jobs if is_open(book, job_id))
    event = Suspended(
        at=now,
        by=command.worker,
        rule=Rule.WORKER_SAID,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        waits=msgspec.structs.replace(command.waits, jobs=still),
        over=is_over(info, command.waits, still),
        worker=command.worker,
        until=0.0 if after_s is None else (command.enqueued_at or now) + after_s,
        mark=joined_marks(command.mark, workflow.mark),
        version=command.version,
        exposed=command.exposed,
        silence=command.silence,
        undoes=command.undoes,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)


def wake_sleeper(book: JobBook, command: WakeSleeper, now: float, rules: Rules) -> Decision:
    info = book.jobs.get(command.job_id)
    workflow = info.workflows.get(command.workflow) if info is not None else None
    if info is None or workflow is None or workflow.state is not WorkflowState.SUSPENDED:
        return Decision([], Outcome.NOTHING, Rule.FOLLOWED, "it does not wait", command.job_id)
    misfit = workflow.waits is not None and bool(workflow.waits.version)
    if not misfit and (not workflow.wakes_at or workflow.wakes_at > now):
        return Decision([], Outcome.NOTHING, Rule.FOLLOWED, "its time has not come", command.job_id)
    event = Woken(
        at=now,
        by=command.by,
        job_id=info.id,
        workflow=command.workflow,
        attempt=workflow.attempt,
        version_came=misfit,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)


def send_signal(book: JobBook, command: SendSignal, now: float, rules: Rules) -> Decision:
    info = book.jobs.get(command.job_id)
    if info is None:
        if command.job_id in book.state.archive:
            return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, "the job has ended, and is archived", command.job_id)
        raise UnknownJobError(command.job_id)
    if any(one.id == command.signal_id for one in info.signals):
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "a signal of this id is there", info.id)
    if info.state.terminal:
        return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, f"the job had ended: {info.state}", info.id)
    _check_room(info, command)
    check_payload(book, info, command.name, command.payload, now)
    event = SignalReceived(
        at=now,
        by=command.by,
        rule=Rule.ASKED,
        job_id=info.id,
        name=command.name,
        signal_id=command.signal_id,
        payload=command.payload,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.ASKED, "", info.id)


def _check_room(info: JobInfo, command: SendSignal) -> None:
    if not fits_a_snapshot(command.payload):
        raise LimitError(
            f"an integer in the payload of signal {command.name!r}",
            "beyond 64 bits",
            f"between {-(2**63):,} and {2**64 - 1:,}",
            remedy="Send it as a string",
        )
    size = encoded_bytes(command.payload)
    held = sum(encoded_bytes(one.payload) for one in info.signals)
    if len(info.signals) >= MOST_SIGNALS or held + size > MOST_SIGNAL_BYTES:
        raise LimitError(
            f"signals of job {info.id}",
            f"{len(info.signals) + 1:,} signals of {held + size:,} bytes",
            f"at most {MOST_SIGNALS:,} signals of {MOST_SIGNAL_BYTES:,} bytes",
            remedy="Send addresses of large payloads, and a new job its own signals",
        )


def suspended(book: JobBook, event: Suspended) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    if is_new_mark(event.mark, workflow.mark) and workflow.spent is not None:
        workflow.spent = 0
    workflow.mark = event.mark
    workflow.exposed = event.exposed or workflow.exposed
    workflow.suspensions += 1
    workflow.undoes = max(workflow.undoes, event.undoes)
    workflow.withdrawn += 1  # the next dispatch has a generation of its own
    workflow.waits = event.waits
    workflow.wakes_at, workflow.waits_since = event.until, event.at
    # Work that fits no version has not begun to go on: the time that had come for it is not over.
    workflow.woken_by_time = workflow.woken_by_time and bool(event.waits.version)
    move(book, info, workflow, WorkflowState.SUSPENDED)  # first: it takes the work off the worker that it still names
    # The fence is (generation, delivery): the deliveries of a new generation count from the start.
    workflow.worker, workflow.incarnation, workflow.delivery, workflow.steps = "", "", 0, 0
    workflow.suspended_in = event.version  # after the move: until then its place is under the version that it had
    learn_gaps(book, workflow.spec.called, event, event.silence)
    progressed(info, event.at)
    if event.over:
        wake(book, info, workflow, event.at)


def is_open(book: JobBook, job_id: str) -> bool:
    """Returns True for a job that has not ended. One that is not in memory was archived: its parent submitted it before it waited."""
    child = book.jobs.get(job_id)
    return child is not None and not child.state.terminal


def is_over(info: JobInfo, waits: WaitsFor, still: tuple[str, ...]) -> bool:
    if waits.jobs:
        return not still
    return bool(waits.event) and sum(one.name == waits.event for one in info.signals) > waits.seen


def wake(book: JobBook, info: JobInfo, workflow: WorkflowRecord, at: float, *, by_time: bool = False) -> None:
    """Lets suspended work go on. It is dispatched like any other."""
    workflow.woken_by_time = by_time
    workflow.not_before = at + (1.0 if workflow.suspensions > FREE_SUSPENSIONS and not by_time else 0.0)
    move(book, info, workflow, WorkflowState.PENDING)


def woken(book: JobBook, event: Woken) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    wake(book, info, workflow, event.at, by_time=workflow.woken_by_time if event.version_came else True)


def signal_received(book: JobBook, event: SignalReceived) -> None:
    info = book.job(event.job_id)
    signal = Signal(name=event.name, id=event.signal_id, payload=event.payload, at=event.at, by=event.by)
    info.signals.append(signal)
    for workflow in info.workflows.values():
        if workflow.state is WorkflowState.SUSPENDED and workflow.waits is not None:
            waits = workflow.waits
            if waits.event == event.name and is_over(info, waits, ()):
                wake(book, info, workflow, event.at)


def child_ended(book: JobBook, event: ChildEnded) -> None:
    info = book.job(event.job_id)
    workflow = info.workflows[event.workflow]
    if workflow.state is not WorkflowState.SUSPENDED or workflow.waits is None:
        return
    before = workflow.waits
    book.waits.drop((info.id, event.workflow), event.child)
    workflow.waits = msgspec.structs.replace(before, jobs=tuple(one for one in before.jobs if one != event.child))
    if before.jobs and not workflow.waits.jobs:
        wake(book, info, workflow, event.at)


def ends_of_children(book: JobBook, ended: Iterable[Event]) -> list[Event]:
    """Returns what the ends of jobs mean to those that wait for them, for the same append."""
    return [
        ChildEnded(at=event.at, job_id=job_id, workflow=name, attempt=_attempt(book, job_id, name), child=event.job_id)
        for event in ended
        if isinstance(event, JobEnded)
        for job_id, name in book.waits.on_job.get(event.job_id, ())
    ]


def _attempt(book: JobBook, job_id: str, name: str) -> int:
    return book.jobs[job_id].workflows[name].attempt


def to_wake(book: JobBook, now: float, *, limit: int = 1_000) -> list[WorkflowKey]:
    """Returns the sleepers whose time has come. They stay due until `Woken` is folded."""
    due = book.waits.sleeping.pop_due(now, limit)
    for key in due:
        book.waits.sleeping.set(key, now)
    return due


def seconds_in_words(value: float) -> str:
    """Returns a span as people say it: the two largest units."""
    days, rest = divmod(round(value), 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, left = divmod(rest, 60)
    units = ((days, "d"), (hours, "h"), (minutes, "min"), (left, "s"))
    return " ".join(f"{count} {unit}" for count, unit in units if count) or "0 s"


def words_of_suspension(event: Suspended) -> str:
    """Returns what became of an attempt that was suspended, for its history."""
    if event.waits.version:
        return (
            f"waits for version {event.waits.version!r} of its code, or one that fits its steps: {event.waits.misfit}"
        )
    most = f", {seconds_in_words(event.until - event.at)} at most" if event.until else ""
    began = f", in version {event.version!r}" if event.version else ""
    return f"waits for {event.waits.step}{most}{began}; it holds no slot meanwhile"


def in_words_of_wait(workflow: WorkflowRecord) -> str:
    """Returns what suspended work waits for; nothing for other work."""
    if workflow.state is not WorkflowState.SUSPENDED or workflow.waits is None:
        return ""
    waits, found = workflow.waits, []
    if waits.version:
        function = workflow.spec.called
        return f"version {waits.version!r} of {function!r}, or one that fits its steps: {waits.misfit}"
    if waits.event:
        found.append(f"signal {waits.event!r}")
    if waits.jobs:
        more = f" and {len(waits.jobs) - 1} more" if len(waits.jobs) > 1 else ""
        found.append(f"job {waits.jobs[0]}{more}")
    if workflow.wakes_at:
        span = seconds_in_words(workflow.wakes_at - workflow.waits_since)
        found.append(f"at most {span} in all" if found else f"{span} in all")
    return ", ".join(found)


DECIDE: Decides = {RecordSuspended: record_suspended, WakeSleeper: wake_sleeper, SendSignal: send_signal}
FOLD: Folds = {Suspended: suspended, Woken: woken, ChildEnded: child_ended, SignalReceived: signal_received}
