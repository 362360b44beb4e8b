"""Turns each event into a sentence that a tired person understands: what happened, and what it was concluded from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tenure.jobs.attempt_results import AttemptFailed, ResultRefused, WorkflowCompleted
from tenure.jobs.attempts import Dispatched, ProgressRecorded, WorkflowStarted
from tenure.jobs.deadlines import LeaderElected, LocalTimeoutReported
from tenure.jobs.decisions import Event, Evidence, Rule
from tenure.jobs.endings import Forgotten, JobArchived, JobCleaned, JobEnded, ResultsExpired, TombstoneSet
from tenure.jobs.extensions import ExtensionDenied, ExtensionGranted, ExtensionsReset
from tenure.jobs.gate_decisions import GateJobEnded, GlobalDecisionMade
from tenure.jobs.gate_exchange import GateAcknowledged, GateEpochSeen, GlobalDecisionRefused
from tenure.jobs.gate_jobs import (
    GateElected,
    GateForgotten,
    GateJobAccepted,
    GateJobArchived,
    GateJobRebuilt,
    GateTombstoneSet,
)
from tenure.jobs.gate_reports import DatacenterReported, DatacenterTimedOut
from tenure.jobs.model import JobSubmission
from tenure.jobs.queues import QueueChanged
from tenure.jobs.schedules import CronFired, InstantsSkipped, ScheduleRemoved, ScheduleSet
from tenure.jobs.states import AttemptCause
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.topics import decode_any_event
from tenure.jobs.workers import WorkerDrained, WorkerEvicted, WorkerForgotten, WorkerJudged

CAUSES: Mapping[AttemptCause, str] = {
    AttemptCause.ERROR: "it raised an error",
    AttemptCause.STALL: "it gave no beat within its stall threshold, and its slot was killed",
    AttemptCause.CRASH: "its process died",
    AttemptCause.LOST_LEASE: "its lease was lost, so its result would have been refused",
    AttemptCause.EVICTED: "its worker was evicted",
    AttemptCause.DEAD_LETTER: "the engine gave up on its message",
}

RULES: Mapping[Rule, str] = {
    Rule.ASKED: "somebody asked for it",
    Rule.FOLLOWED: "it follows from what was decided before",
    Rule.TAKEOVER: "a new leader took over",
    Rule.WORKER_SAID: "the worker said so",
    Rule.ENGINE_SAID: "the engine said so",
    Rule.HEALTH: "the health of its worker",
    Rule.ALL_DONE: "every workflow has ended",
    Rule.NOTHING_DONE: "a job in which nothing completed has not completed",
    Rule.FAILED_FOR_GOOD: "the final failure of a workflow fails its job",
    Rule.TOMBSTONE: "it was ended before it was known here",
    Rule.OVERALL_TIMEOUT: "a job may take timeout_seconds plus the time that it was granted",
    Rule.STUCK: "while something runs, something must advance within the stuck threshold",
    Rule.REPORT_AGAIN: "a new leader reports with its own token what the last one may have reported in vain",
    Rule.GLOBAL_TIMEOUT: "the gate decides for all datacenters",
    Rule.GLOBAL_CANCEL: "the gate decides for all datacenters",
    Rule.FALLBACK: "a gate that does not answer does not keep a job alive",
    Rule.STALE_TOKEN: "it was concluded from what an earlier leader said",
    Rule.STALE_GATE: "it came from a gate that is no longer in charge",
    Rule.STALE_ATTEMPT: "only the newest attempt counts",
    Rule.STALE_DELIVERY: "only the newest delivery of an attempt counts",
    Rule.JOB_ENDED: "an ended job stays as it ended",
    Rule.ALREADY_RECORDED: "it was recorded before",
    Rule.RETENTION: "old jobs leave memory",
    Rule.ANY_DATACENTER: "time that ran out in one datacenter has run out in all",
    Rule.ALL_STUCK: "nothing advances in any datacenter",
    Rule.REBUILT: "the gate lost its journal, and learned it back from a datacenter",
    Rule.DATACENTER_SAID: "the datacenter said so",
    Rule.PRODUCT_FAILED: "a fault of Tenure itself ends the one thing that it concerns, and nothing else",
}


def who(event: Any) -> str:
    return f"{event.workflow!r}, attempt {event.attempt}"


def seconds(value: float) -> str:
    """Returns a span of time as people say it."""
    if value < 120:
        return f"{value:g} s" if value == round(value, 1) else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def attempt_failed(event: AttemptFailed) -> str:
    text = f"{who(event)}, failed"
    if event.worker:
        text += f" on {event.worker}"
    text += f": {CAUSES[event.cause]}"
    if event.error:
        text += f" ({event.error})"
    if silent := event.evidence.get("silent_for"):
        text += f"; the last beat was {seconds(silent)} before"
    if event.dump_key:
        text += f"; stack dump: {event.dump_key}"
    if event.next_attempt:
        rest = event.not_before - event.at
        text += f". Attempt {event.next_attempt} of {event.evidence['max_attempts']}"
        text += f" follows after {seconds(round(rest, 1))}" if rest > 0 else " follows at once"
        return text + (f"; {event.worker} leaves it to others while there are any" if event.exclude else "")
    return text + ". No further attempt"


def progress(event: ProgressRecorded) -> str:
    if not event.workflow:
        return f"it advanced: {event.note}"
    text = f"{who(event)}, advanced to step {event.steps}"
    if event.fraction:  # work that reports no fraction sends 0, too
        text += f" ({event.fraction:.0%})"
    return text + (f": {event.note}" if event.note else "")


def refused_result(event: ResultRefused) -> str:
    current = event.evidence
    text = f"a result of {who(event)}, was refused"
    if event.worker:
        text = f"a result of {who(event)}, from {event.worker} was refused"
    if event.rule is Rule.STALE_ATTEMPT:
        return f"{text}: attempt {current['current_attempt']} is the one that counts"
    if event.rule is Rule.STALE_DELIVERY:
        return f"{text}: its lease was lost, and delivery {current['current_delivery']} of the same attempt runs"
    return f"{text}: the job had ended ({current['job']})"


def refused_decision(event: GlobalDecisionRefused) -> str:
    if event.rule is Rule.STALE_TOKEN:
        return (
            f"a global timeout was refused: it echoes token {event.fence_token}, and this leader's is "
            f"{event.evidence['own_token']}; the gate was told, and says it again"
        )
    seen = event.evidence["highest_gate_epoch"]
    return f"a decision of gate epoch {event.gate_epoch} was refused: epoch {seen} is in charge"


def local_timeout(event: LocalTimeoutReported) -> str:
    if event.rule is Rule.REPORT_AGAIN:
        return f"the new leader reports the timeout ({event.reason}) to the gate again, with token {event.token}"
    return f"time ran out here ({event.reason}): {timeout_numbers(event.evidence)}; reported to the gate with token {event.token}"


def timeout_numbers(evidence: Evidence) -> str:
    if "silent" in evidence and "stuck_threshold" in evidence and not isinstance(evidence["silent"], dict):
        return (
            f"no progress for {seconds(evidence['silent'])} with {evidence['running']} running; "
            f"{seconds(evidence['stuck_threshold'])} is allowed"
        )
    extended = evidence.get("total_extensions_granted", evidence.get("extensions", 0.0))
    text = f"{seconds(evidence['elapsed'])} of {seconds(evidence['timeout_seconds'])}"
    return text + (f" plus {seconds(extended)} granted" if extended else ", nothing granted")


def ended(event: JobEnded) -> str:
    text = f"the job ended: {event.state}. {event.reason[:1].upper()}{event.reason[1:]}"
    stood = event.evidence
    if "total" in stood:
        text += f" ({stood['completed']} of {stood['total']} workflows completed"
        text += f", {stood['failed']} failed" if stood["failed"] else ""
        text += f", {stood['running']} cancelled while running)" if stood["running"] else ")"
    return text


def decided(event: GlobalDecisionMade) -> str:
    text = f"the gate decided for every datacenter: {event.state}. {event.reason[:1].upper()}{event.reason[1:]}"
    if "timeout_seconds" in event.evidence:
        text += f" ({timeout_numbers(event.evidence)})"
    return text


def reported(event: DatacenterReported) -> str:
    if event.status.terminal:
        return f"{event.datacenter} said: {event.status}" + (f" ({event.reason})" if event.reason else "")
    if event.rule is Rule.TAKEOVER:
        return f"{event.datacenter} has a new leader, token {event.token}"
    return f"{event.datacenter} said: running, token {event.token}" + ("; it advances" if event.progressed else "")


TELL: Mapping[type[Event], Callable[[Any], str]] = {
    LeaderElected: lambda x: f"{x.leader} became the leader (epoch {x.epoch}); deadlines go on, stuck clocks restart",
    CronFired: lambda x: f"schedule {x.schedule!r} fired, {seconds(round(x.evidence['late_by'], 1))} after its time",
    Dispatched: lambda x: f"{who(x)}, was queued",
    WorkflowStarted: lambda x: (
        f"{who(x)}, started on {x.worker}" + (f" (delivery {x.delivery})" if x.delivery > 1 else "")
    ),
    ProgressRecorded: progress,
    WorkflowCompleted: lambda x: f"{who(x)}, completed" + (f" on {x.worker}" if x.worker else ""),
    AttemptFailed: attempt_failed,
    ResultRefused: refused_result,
    JobEnded: ended,
    JobCleaned: lambda _: "its messages were withdrawn: nothing of it can be claimed any more",
    ResultsExpired: lambda _: "its results were let go: they were kept for as long as it asked",
    LocalTimeoutReported: local_timeout,
    GlobalDecisionRefused: refused_decision,
    GateEpochSeen: lambda x: f"a newer gate is in charge (epoch {x.gate_epoch})",
    GateAcknowledged: lambda _: "the gate knows how it ended here",
    ExtensionGranted: lambda x: (
        f"{x.worker} was granted {seconds(x.seconds)} (grant {x.count}, {seconds(x.total)} in all): "
        f"its work advances ({x.progress:.0%})"
    ),
    ExtensionDenied: lambda x: f"{x.worker} was denied more time: {x.reason}",
    WorkerJudged: lambda x: (
        f"the verdict on {x.worker} is now {x.verdict!r} (before: {x.evidence.get('previous', 'unknown')}): {x.reason}"
    ),
    WorkerEvicted: lambda x: f"{x.worker} was evicted: {x.reason}",
    WorkerForgotten: lambda x: f"{x.worker} is expected no more: {x.reason}",
    GateElected: lambda x: f"{x.gate} became the leading gate (epoch {x.epoch}); deadlines go on, stuck clocks restart",
    GateJobAccepted: lambda x: (
        f"submitted with {seconds(x.submission.timeout_seconds)} to {', '.join(x.target_datacenters)}"
    ),
    GateTombstoneSet: lambda x: f"cancelled before it was known: {x.reason}",
    GateJobArchived: lambda _: "the gate archived it",
    GateForgotten: lambda _: "the gate forgot the ids of jobs that ended long ago",
    GateJobRebuilt: lambda x: f"the gate lost its journal and learned of the job from {x.by}",
    DatacenterReported: reported,
    DatacenterTimedOut: lambda x: (
        f"{x.datacenter} reported a timeout ({x.reason}) after {seconds(x.evidence['elapsed'])}, token {x.token}"
    ),
    GlobalDecisionMade: decided,
    GateJobEnded: lambda x: f"the job has ended everywhere: {x.state} ({x.reason})",
}


UNTOLD: frozenset[type[Event]] = frozenset(
    {
        JobSubmitted,  # the first line of every answer
        TombstoneSet,  # there is no job yet that it could be told of
        ExtensionsReset,
        QueueChanged,
        WorkerDrained,
        ScheduleSet,  # schedules have a list of their own; a job knows only that it was fired
        ScheduleRemoved,
        InstantsSkipped,
        JobArchived,
        Forgotten,
    }
)
"""The events that no answer about a job tells."""


def tell(event: Event) -> str:
    """Returns one event as a sentence."""
    words = TELL.get(type(event))
    return words(event) if words else type(event).__name__


def words_of(event: Any) -> str:
    """Returns an event in words; for an event of a newer version, its name."""
    try:
        known = decode_any_event(msgspec.json.encode(event))
    except msgspec.ValidationError:
        return f"{event.get('type', 'something')} (of a newer version)"
    if isinstance(known, GateJobAccepted):
        return f"submitted to {', '.join(known.target_datacenters)}: {call_of(known.submission)}"
    return f"submitted: {call_of(known.submission)}" if isinstance(known, JobSubmitted) else tell(known)


def call_of(submission: JobSubmission) -> str:
    """Returns a submission as the calls that one would write in code; at most three of them."""
    words = []
    for spec in submission.workflows[:3]:
        given = ", ".join(f"{key}={value!r}" for key, value in spec.arguments.items())
        words.append(f"{spec.called}({given[:80]})")
    more = len(submission.workflows) - 3
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")
