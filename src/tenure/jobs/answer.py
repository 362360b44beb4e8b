"""Answers in one sentence who ended a job, or what it waits for, and what to do next. Pure: it reads the record and the history of the job.

Each way to end has its words in a table here. `why` puts the answer above the story, and the page shows it first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tenure.jobs.attempt_results import AttemptFailed
from tenure.jobs.attempts import ProgressRecorded, WorkflowStarted
from tenure.jobs.deadlines import LeaderElected, LocalTimeoutReported
from tenure.jobs.decisions import Event, Evidence, Rule
from tenure.jobs.endings import JobEnded
from tenure.jobs.event_text import leader_name, lost_lease, timeout_numbers
from tenure.jobs.gate_decisions import GlobalDecisionMade
from tenure.jobs.model import GateJobTrackingInfo, JobInfo, WorkflowRecord
from tenure.jobs.reason_text import CAUSES, is_spinning, seconds
from tenure.jobs.states import MADE_WAY, AttemptCause, JobState, WorkflowState

EventT = TypeVar("EventT", bound=Event)


class Answer(NamedTuple):
    """One sentence each."""

    sentence: str
    next_step: str


CAUSE_ANSWERS: Mapping[str, tuple[str, str]] = {
    "exception": ("Your code raised {error}", "Mend it, then run it again: {retry}"),
    "bad_arguments": (
        "Its arguments do not fit the function: {error}",
        "No attempt can succeed with them. Submit it with others; what it takes: tenure workflows",
    ),
    "bad_result": ("It gave or asked for what cannot be taken: {error}", "Mend its code, then: {retry}"),
    "unknown_workflow": (
        "The worker that took it has no such workflow: {error}",
        "Start a worker with that name and version, then: {retry}",
    ),
    "bad_message": ("Its message could not be read by any slot: {error}", "Submit it with shorter names"),
    "stall": (
        "It stopped beating, so Tenure killed it: {error}",
        "Beat in there, declare the quiet spell (ctx.silence), or allow more (stall=), then: {retry}",
    ),
    "timeout": (
        "Its own timeout for one attempt ended it: {error}",
        "Raise timeout= of the workflow, or save checkpoints so that the next attempt goes on, then: {retry}",
    ),
    "memory": (
        "The kernel killed it for memory {error}",
        "Give its worker more memory, or let it use less, then: {retry}",
    ),
    "killed": ("A signal killed its process: {error}", "The stack shows what it did last. Then: {retry}"),
    "exited": (
        "Your code ended its own process: {error}",
        "Raise an error instead of exiting; look for os._exit and sys.exit. Then: {retry}",
    ),
    "worker_died": (
        "Its worker died with it: {error}",
        "See what ended the worker (tenure nodes, the machine's log), then: {retry}",
    ),
    "lease_lost": (
        "It lost its lease, so its result would not have counted: {error}",
        "See whether its machine was stopped or out of reach, then: {retry}",
    ),
    "unsettled": (
        "It ended, and its outcome could not be handed over: {error}",
        "See whether the engine was full or away (tenure doctor), then: {retry}",
    ),
    "internal": ("Tenure itself failed on it: {error}", "This is a fault of ours: report it with `tenure why --json`"),
    "cancelled": ("It cancelled itself: {error}", "If that is not what you want: {retry}"),
    AttemptCause.EVICTED: (
        "Its worker was evicted: {error}",
        "See whether its machine is down, overloaded or out of reach (tenure nodes), then: {retry}",
    ),
    AttemptCause.DEAD_LETTER: (
        "The engine gave up on its message: {error}",
        "Look at it (tenure dlq list), then: {retry}",
    ),
}
"""Maps each cause, by the word of the worker or else of the leader, to who ended the attempt, and what to do."""
NATIVE = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")


def answer(
    info: JobInfo,
    history: Sequence[Event],
    waits_for: Callable[[WorkflowRecord], str],
    turn: Callable[[WorkflowRecord], str],
) -> Answer:
    """Returns who ended the job, or what it waits for, and the next step.

    `waits_for` names the worker that a parked workflow needs, and `turn` says what one waits for whose key is the reason that it waits.
    """
    if not info.state.terminal:
        return _still(info, history, waits_for, turn)
    return _BY_STATE[info.state](info, history)


def _last(
    kind: type[EventT], history: Sequence[Event], wanted: Callable[[EventT], bool] | None = None
) -> EventT | None:
    """Returns the newest event of a kind, or None."""
    return next((one for one in reversed(history) if isinstance(one, kind) and (wanted is None or wanted(one))), None)


def retry_command(job_id: str) -> str:
    return f"tenure retry {quoted(job_id)}"


def quoted(text: str) -> str:
    """Returns text as one word of a shell. `shlex` would do the same, but what decides imports nothing that reads streams."""
    return (
        text
        if re.fullmatch(r"[\w@%+=:,./~-]+", text, re.ASCII) and text[0] != "~"
        else "'" + text.replace("'", "'\"'\"'") + "'"
    )


def _completed(info: JobInfo, history: Sequence[Event]) -> Answer:
    words = f", and {info.failed_workflows} of its workflows failed" if info.failed_workflows else ""
    failed = _last(AttemptFailed, history)
    if failed is not None and failed.cause in MADE_WAY:
        words += f", at attempt {failed.next_attempt}. The attempt before made way: {CAUSES[failed.cause]}"
    elif failed is not None and failed.next_attempt:
        words += f", at attempt {failed.next_attempt}. The attempt before: {attempt_answer(failed, info.id).sentence}"
    elif again := _last(WorkflowStarted, history, lambda one: one.delivery > 1):
        words += f", and ran twice: {lost_lease(again)}"
    elif elected := _last(LeaderElected, history):
        words += f"; {leader_name(elected.leader)} took over the lead while it ran, and nothing was lost"
    return Answer(f"Nothing ended it early: it completed{words}", f"Its result: tenure result {quoted(info.id)}")


def _failed(info: JobInfo, history: Sequence[Event]) -> Answer:
    ended, failed = _last(JobEnded, history), _last(AttemptFailed, history, lambda one: not one.next_attempt)
    if ended is not None and ended.rule is Rule.PRODUCT_FAILED:
        return Answer(info.reason, "This is a fault of ours: report it with `tenure why --json`")
    if failed is None:
        return Answer(f"It failed: {info.reason}", f"Run it again: {retry_command(info.id)}")
    found = attempt_answer(failed, info.id)
    times = f"{failed.workflow!r}, {nth(failed.attempt, failed.evidence.get('max_attempts', failed.attempt))}"
    said = f"; no further one, because {decision}" if (decision := failed.evidence.get("decision")) else ""
    return Answer(f"{found.sentence} ({times}{_on(failed.worker)}{said})", found.next_step)


def attempt_answer(failed: AttemptFailed, job_id: str) -> Answer:
    """Returns who ended one attempt."""
    cause = str(failed.evidence.get("cause", "")) or (
        "exception" if failed.cause is AttemptCause.ERROR else _LEADERS.get(failed.cause, failed.cause)
    )
    who, what = CAUSE_ANSWERS.get(cause, (f"It ended by {cause}: {{error}}", "Run it again: {retry}"))
    # An exception without a message is its name and a colon.
    error = failed.error.removeprefix(f"{cause}: ").rstrip(": \n").strip() or "no more is known"
    for said_above in _SAID_BY_THE_TABLE:
        error = error.removeprefix(said_above)
    if cause == "exception" and error.startswith("Provider"):
        who, what = (
            "The provider of the model failed it, not your code: {error}",
            "Look at the provider's status, your key and your network, then: {retry}",
        )
    if cause == "exception" and error.startswith("MemoryError"):
        who, what = (
            "It ran out of the memory that it may have: {error}",
            "Allow its slots more (tenure worker --memory-limit), or let it use less, then: {retry}",
        )
    if is_spinning(failed.cause, failed.error):
        who, what = (
            "It beat without getting any further, so Tenure killed it: {error}",
            "Say what is new (ctx.track, completed_items=, ctx.checkpoint), declare a wait (ctx.polling), or allow more (stuck=), then: {retry}",
        )
    if cause == "killed" and any(name in error for name in NATIVE):
        who, what = (
            "Native code crashed its process: {error}",
            "The stack shows the last Python line before the crash: look at the extension that it calls. Then: {retry}",
        )
    elif cause == "killed" and "SIGKILL" in error:
        what = "Tenure did not do it: look at the kernel's log (dmesg) and at whoever may kill there. Then: {retry}"
    if trouble := failed.evidence.get("trouble"):
        error = f"{trouble}; {error}"
    if place := failed.evidence.get("place"):
        error += f"; it stood at {place}" if error.endswith("its slot was killed") else f", at {place}"
    return Answer(who.format(error=first_line(error)), what.format(retry=retry_command(job_id)))


_SAID_BY_THE_TABLE = ("its outcome could not be handed over: ", "killed by the kernel for memory ")
_LEADERS = {AttemptCause.STALL: "stall", AttemptCause.CRASH: "killed", AttemptCause.LOST_LEASE: "lease_lost"}
"""The worker's word for causes of old records, which have only the leader's."""


def first_line(text: str) -> str:
    line, rest = (*text.split("\n", 1), "")[:2]
    return f"{line[:300]} ..." if rest or len(line) > 300 else line


def _on(worker: str) -> str:
    return f", on {worker}" if worker else ""


def _cancelled(info: JobInfo, history: Sequence[Event]) -> Answer:
    ended = _last(JobEnded, history)
    by = ended.by if ended is not None else ""
    reason = info.reason.removeprefix("cancelled").removeprefix(f" by {by}").lstrip(": ")
    reason = f": {reason}" if reason else ""
    step = f"If it should run after all: {retry_command(info.id)}"
    if ended is not None and (ended.rule is Rule.GLOBAL_CANCEL or ended.by_gate):
        told = f"The gate knows who asked for it (tenure why {quoted(info.id)} --address GATE). {step}"
        return Answer(f"A cancel at the gate ended it, in every datacenter{reason}", told)
    if by == "leader":
        return Answer(f"Its leader cancelled it{reason}", "Look at the job that submitted it")
    return Answer(f"{by or 'Somebody who gave no name'} cancelled it{reason}", step)


def _timed_out(info: JobInfo, history: Sequence[Event]) -> Answer:
    ended, again = _last(JobEnded, history), retry_command(info.id)
    found = dict(ended.evidence) if ended is not None else {}
    if "elapsed" not in found and (
        reported := _last(LocalTimeoutReported, history, lambda one: "elapsed" in one.evidence)
    ):
        found = dict(reported.evidence)
    numbers = timeout_numbers(found) if "elapsed" in found else info.reason
    if "stuck_threshold" in found:
        look = f"See what it waited for (tenure logs {quoted(info.id)}), or allow more (stuck=), then: {again}"
        return Answer(f"It stood still, so {_JUDGE.get(_rule(ended), 'Tenure')} ended it: {numbers}", look)
    judge = _JUDGE.get(_rule(ended), "Tenure")
    step = more_time(info.id, found)
    return Answer(f"Its deadline passed, so {judge} ended it: {numbers}{_how_far(info, history)}", step)


def more_time(job_id: str, found: Evidence) -> str:
    """Returns what to do after a deadline. A plain retry has the same deadline and would miss it again, so the command has another one."""
    if "timeout_seconds" not in found:
        return f"Give it more time: {retry_command(job_id)} --timeout SECONDS"
    had = found["timeout_seconds"] + found.get("total_extensions_granted", found.get("extensions", 0.0))
    return f"Give it more time, twice as much for instance: {retry_command(job_id)} --timeout {math.ceil(2 * had)}"


_JUDGE = {
    Rule.GLOBAL_TIMEOUT: "the gate, for every datacenter,",
    Rule.FALLBACK: "its datacenter, whose gate did not answer,",
}


def _rule(ended: JobEnded | None) -> Rule:
    return ended.rule if ended is not None else Rule.FOLLOWED


def _how_far(info: JobInfo, history: Sequence[Event]) -> str:
    """Returns how far a job was when its time was over, and about how long it still needed at its own rate."""
    last = _last(ProgressRecorded, history, lambda one: bool(one.workflow))
    if last is None:
        return "; it had shown no progress"
    text = f"; it advanced last {seconds(round(info.ended_at - last.at, 1))} before, to step {last.steps}"
    if not last.fraction:
        return text
    took = last.at - info.workflows[last.workflow].started_at
    left = took * (1 - last.fraction) / last.fraction
    return (
        f"{text} ({last.fraction:.0%}), and at its rate needed about {seconds(round(left))} more" if took > 0 else text
    )


_BY_STATE: Mapping[JobState, Callable[[JobInfo, Sequence[Event]], Answer]] = {
    JobState.COMPLETED: _completed,
    JobState.FAILED: _failed,
    JobState.CANCELLED: _cancelled,
    JobState.TIMED_OUT: _timed_out,
}


def _step_for(info: JobInfo, waiting: WorkflowRecord) -> str:
    """Returns what a person does for a workflow that waits: for a worker, a signal, a child, or its time."""
    if waiting.state is not WorkflowState.SUSPENDED:
        return "Start such a worker (tenure worker MODULE --managed), or see what there is: tenure workflows"
    if waiting.waits is not None and waiting.waits.event:
        return f"To send it: tenure signal {quoted(info.id)} {quoted(waiting.waits.event)} PAYLOAD"
    return "Nothing: it holds no slot meanwhile, and goes on by itself"


def _still(
    info: JobInfo,
    history: Sequence[Event],
    waits_for: Callable[[WorkflowRecord], str],
    turn: Callable[[WorkflowRecord], str],
) -> Answer:
    failed = _last(AttemptFailed, history)
    before = f". The attempt before it: {attempt_answer(failed, info.id).sentence}" if failed is not None else ""
    again = _last(WorkflowStarted, history, lambda one: one.delivery > 1) if failed is None else None
    if again is not None:
        before = f". It runs for the second time, because {lost_lease(again)}"
    if (pause := info.timeout_tracking.pause) is not None:
        reason = f": {pause.reason}" if pause.reason else ""
        step = f"To let it go on: tenure resume {quoted(info.id)} --reason WHY"
        return Answer(f"Nothing has ended it: {pause.by or 'somebody'} paused it{reason}", step)
    if failed is not None and failed.cause in MADE_WAY:
        before = f". The attempt before it made way: {CAUSES[failed.cause]}"
    if waiting := next((one for one in info.workflows.values() if waits_for(one)), None):
        step = _step_for(info, waiting)
        return Answer(f"Nothing has ended it: {waiting.spec.name!r} waits for {waits_for(waiting)}{before}", step)
    running = any(one.state in (WorkflowState.RUNNING, WorkflowState.QUEUED) for one in info.workflows.values())
    if not running and (held := next((one for one in info.workflows.values() if turn(one)), None)):
        told = f"Nothing has ended it: {held.spec.name!r}, attempt {held.attempt}, waits for {turn(held)}"
        return Answer(f"{told}{before}", f"See its queue: tenure queue {info.job.submission.queue}")
    for state, words, step in _OPEN:
        some = [one for one in info.workflows.values() if one.state is state]
        if some:
            said = step.format(job=quoted(info.id))
            if again is not None:
                said = f"See whether that machine was stopped or out of reach (tenure nodes). {said}"
            return Answer(f"Nothing has ended it: {words(some[0])}{before}", said)
    return Answer(f"Nothing has ended it{before}", "Wait")


def gate_answer(info: GateJobTrackingInfo, decision: GlobalDecisionMade | None) -> Answer:
    """Returns who ended a job of a gate: the gate itself by `decision`, or the datacenters, whose own answers stand below."""
    if info.decided is not None:
        return _decided(info, decision)
    if info.state is JobState.COMPLETED:
        return Answer("Nothing ended it early: it completed", f"Its result: tenure result {quoted(info.job_id)}")
    if info.state.terminal:
        bad = [name for name, state in info.dc_status.items() if state.terminal and state is not JobState.COMPLETED]
        return Answer(f"It ended in {', '.join(bad)}: {info.reason}", "Read below what that datacenter says")
    if info.pause is not None:
        reason = f": {info.pause.reason}" if info.pause.reason else ""
        step = f"To let it go on: tenure resume {quoted(info.job_id)} --reason WHY"
        return Answer(f"Nothing has ended it: {info.pause.by or 'somebody'} paused it everywhere{reason}", step)
    waits = [name for name in info.running if not info.dc_heard[name]]
    if waits:
        return Answer(f"Nothing has ended it: {', '.join(waits)} has not answered yet", "See how it is: tenure nodes")
    follow = f"Follow it: tenure watch {quoted(info.job_id)}"
    return Answer(f"Nothing has ended it: it runs in {', '.join(info.running)}", follow)


def _decided(info: GateJobTrackingInfo, decision: GlobalDecisionMade | None) -> Answer:
    """Returns why a gate ends a job, or has ended it, in every datacenter."""
    doing = "ended it everywhere" if info.state.terminal else "is ending it everywhere"
    by = decision.by if decision is not None else ""
    found = decision.evidence if decision is not None else {}
    if info.decided is JobState.TIMED_OUT and "elapsed" in found:
        step = more_time(info.job_id, found)
        return Answer(f"Its deadline passed, so the gate {doing}: {timeout_numbers(found)}", step)
    asked = f", because {by} cancelled it" if by and info.decided is JobState.CANCELLED else ""
    step = f"If it should run after all: {retry_command(info.job_id)}"
    return Answer(f"The gate {doing}{asked}: {info.decided_reason}", step)


def _running(one: WorkflowRecord) -> str:
    return f"{one.spec.name!r}, {nth(one.attempt, one.spec.policy.max_attempts)}, runs{_on(one.worker)}"


def nth(attempt: int, most: int) -> str:
    """Returns an attempt in words. Retries that were earned by saved work go beyond `max_attempts`."""
    return f"attempt {attempt} of {most}" if attempt <= most else f"attempt {attempt}"


_OPEN: Sequence[tuple[WorkflowState, Callable[[WorkflowRecord], str], str]] = (
    (WorkflowState.RUNNING, _running, "Follow it: tenure watch {job}"),
    (
        WorkflowState.QUEUED,
        lambda one: f"{one.spec.name!r}, attempt {one.attempt}, waits in its queue for a worker that is free",
        "See whether a worker serves it: tenure nodes; and its queue: tenure queue",
    ),
    (
        WorkflowState.PENDING,
        lambda one: f"{one.spec.name!r}, attempt {one.attempt}, is to be queued",
        "It rests, or its queue is paused or at its limit: tenure queue",
    ),
    (WorkflowState.SUSPENDED, lambda one: f"{one.spec.name!r} is suspended", "See what it waits for: tenure ps {job}"),
    (WorkflowState.WAITING, lambda one: f"{one.spec.name!r} waits for others", "See them: tenure ps {job}"),
)
