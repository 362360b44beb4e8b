"""Turns each event into a sentence that a tired person understands: what happened, and what it was concluded from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tenure.jobs.arguments import call_text
from tenure.jobs.attempt_results import AttemptFailed, ResultRefused, WorkflowCompleted
from tenure.jobs.attempts import Dispatched, ProgressRecorded, Withdrawn, WorkflowStarted
from tenure.jobs.catalogue import WorkflowsForgotten, WorkflowsRegistered
from tenure.jobs.deadlines import LeaderElected, LocalTimeoutReported
from tenure.jobs.decisions import Event, Evidence, Rule
from tenure.jobs.endings import Forgotten, JobArchived, JobCleaned, JobEnded, ResultsExpired, TombstoneSet
from tenure.jobs.extensions import ExtensionDenied, ExtensionGranted, ExtensionsReset
from tenure.jobs.formats import FormatRaised
from tenure.jobs.gate_decisions import GateJobEnded, GateJobSteered, GlobalDecisionMade
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
from tenure.jobs.model import JobSubmission, wall
from tenure.jobs.outages import OutageDeclared, OutageEnded, OutageMoved
from tenure.jobs.queues import QueueChanged
from tenure.jobs.reason_text import CAUSES, SPUN, is_spinning, seconds
from tenure.jobs.schedules import CronFired, InstantsSkipped, ScheduleRemoved, ScheduleSet
from tenure.jobs.settings import MOST_EXTENSIONS
from tenure.jobs.states import MADE_WAY, AttemptCause
from tenure.jobs.steering import JobPaused, JobResumed, JobRetimed, MoveAsked, OrderSeen
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.topics import decode_any_event
from tenure.jobs.undo import TELL as UNDO_WORDS
from tenure.jobs.unsigned_results import UnsignedRefused
from tenure.jobs.waits import ChildEnded, SignalReceived, Suspended, Woken, words_of_suspension
from tenure.jobs.workers import WorkerDrained, WorkerEvicted, WorkerForgotten, WorkerJudged


def leader_name(candidate: str) -> str:
    """Returns the name of a leader. A candidate is its name and where it listens, `m-1@10.0.0.1:8470`."""
    return candidate.partition("@")[0] or candidate


def who(event: Any) -> str:
    return f"{event.workflow!r}, attempt {event.attempt}"


def allowed(timeout_seconds: float | None) -> str:
    """Returns a job's deadline as people say it."""
    allowed_s = wall(timeout_seconds)
    return seconds(allowed_s) if allowed_s < math.inf else "no deadline"


def attempt_failed(event: AttemptFailed) -> str:
    if event.cause in MADE_WAY:
        return made_way(event)
    text = f"{who(event)}, failed"
    if event.worker:
        text += f" on {event.worker}"
    said = str(event.evidence.get("cause", ""))
    text += f": {SPUN if is_spinning(event.cause, event.error) else CAUSES.get(said) or CAUSES[event.cause]}"
    if event.error:
        text += f" ({event.error.removeprefix(f'{said}: ')})"
    if place := event.evidence.get("place"):
        text += f" at {place}"
    if silent := event.evidence.get("silent_for"):
        text += f"; the last beat was {seconds(silent)} before"
    if event.dump_key:
        text += f"; stack dump: {event.dump_key}"
    if event.uncharged:
        return f"{text}; {event.waits_on} is down, so it is not charged, and rests until that is back"
    if event.next_attempt:
        rest = event.not_before - event.at
        text += f". Attempt {event.next_attempt}" + (
            "" if event.spent is not None else f" of {event.evidence['max_attempts']}"
        )
        text += f" follows after {seconds(round(rest, 1))}" if rest > 0 else " follows at once"
        text += f" ({asked})" if (asked := event.evidence.get("decision")) else ""
        text += charge(event)
        return text + (f"; {event.worker} leaves it to others while there are any" if event.exclude else "")
    if decision := event.evidence.get("decision"):
        return f"{text}. No further attempt: {decision}"
    return f"{text}. No further attempt{charge(event)}"


def made_way(event: AttemptFailed) -> str:
    """Says how an attempt ended that was paused or moved."""
    on = f" on {event.worker}" if event.worker else ""
    text = f"{who(event)}, ended{on}, as it was asked to: {CAUSES[event.cause]}"
    elsewhere = " elsewhere" if event.cause is AttemptCause.MOVED else ""
    saved = "from its last checkpoint" if event.mark else "from the start: it had saved no checkpoint"
    return f"{text}. It is not charged; attempt {event.next_attempt} goes on{elsewhere} {saved}{event.lost_words}"


def charge(event: AttemptFailed) -> str:
    """Returns what an attempt costs, in words: retries are earned by saved work."""
    most, said = event.evidence.get("max_attempts", 1), event.evidence
    if "max_restarts" in said and (event.spent or 0) < most:
        return f": {said['max_restarts']} restarts are the most, whatever was saved"
    # Where nothing could be tried again anyway, the count explains nothing.
    if event.spent is None or most == 1 or (event.spent < most and not event.next_attempt):
        return ""
    if event.spent == 0:
        return f": it had saved new work, so none of {most} tries is used"
    return f": {event.spent} of {most} tries without new saved work are used"


def started(event: WorkflowStarted) -> str:
    """Says of a second delivery whose lease was lost before it, and how long that worker had been silent."""
    text = f"{who(event)}, started on {event.worker}"
    if event.delivery <= 1:
        return text
    return f"{text} (delivery {event.delivery}: {lost_lease(event)})"


def lost_lease(event: WorkflowStarted) -> str:
    """Says whose lease ran out before this delivery, and how long that worker had been silent."""
    before, silent = event.evidence.get("previous_worker"), event.evidence.get("silent_for")
    if not before:
        return "the lease of an earlier one ran out before anybody reported its start"
    text = f"{before} lost the lease of delivery {event.evidence['previous_delivery']}"
    return text + (f", and was last heard {seconds(silent)} before" if silent is not None else "")


def progress(event: ProgressRecorded) -> str:
    if not event.workflow:
        return f"it advanced: {event.note}"
    text = f"{who(event)}, was at step {event.steps}"  # a step may be a beat without anything new
    text += f" ({event.fraction:.0%})" if event.fraction else ""  # work that reports no fraction sends 0, too
    return text + (f": {event.note}" if event.note else "")


def refused_result(event: ResultRefused) -> str:
    current = event.evidence
    text = f"a result of {who(event)}, was refused"
    if event.worker:
        text = f"a result of {who(event)}, from {event.worker} was refused"
    if event.rule is Rule.UNSIGNED:
        return f"{text}: it was not signed with a key that counts"
    if event.rule is Rule.STALE_ATTEMPT:
        return f"{text}: attempt {current['current_attempt']} is the one that counts"
    if event.rule is Rule.STALE_DELIVERY:
        return f"{text}: its lease was lost, and delivery {current['current_delivery']} of the same attempt runs"
    return f"{text}: the job had ended ({current['job']})"


def refused_unsigned(event: UnsignedRefused) -> str:
    by = f", from {event.worker or 'the engine'}"
    return f"a result of {who(event)}{by} was refused: {event.why}. The leader looks whether the engine still has its message"


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
    text += f" plus {seconds(extended)} granted" if extended else ", nothing granted"
    return text + (f", {seconds(evidence['paused'])} of it paused" if evidence.get("paused") else "")


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


def extension_granted(event: ExtensionGranted) -> str:
    if event.job_count:
        return (
            f"{event.worker} asked for more time and the job was granted {seconds(event.seconds)} past its deadline "
            f"(grant {event.job_count} of {MOST_EXTENSIONS}, {event.job_total:g} of {event.bound:g} s in all): {advance(event)}"
        )
    words = f"its work advances ({event.progress:.0%})" if event.count > 1 else "the first of a series needs no proof"
    what = f"{event.worker} was granted {seconds(event.seconds)} (grant {event.count}, {seconds(event.total)} in all)"
    return f"{what}: {words}" + (" of progress" if event.count == 1 else "")


def extension_denied(event: ExtensionDenied) -> str:
    if not event.denial:
        return f"{event.worker} was denied more time: {event.reason}"
    said = f"{event.worker} asked for more time for the job and was denied it: {event.reason}"
    return f"{said} ({event.evidence['progress']:.0%} done)" if event.evidence.get("progress") else said


def advance(event: ExtensionGranted) -> str:
    """Returns the progress by which a job earned time, in words."""
    evidence = event.evidence
    text = "it advanced since " + ("its last grant" if event.job_count > 1 else "its deadline came near")
    text += f", to {evidence['progress']:.0%}" if evidence["progress"] else ""
    if until := evidence.get("estimated_completion"):
        text += f"; at its pace it needs {seconds(round(max(0.0, until - event.at)))} more"
    return text


def reported(event: DatacenterReported) -> str:
    if event.status.terminal:
        return f"{event.datacenter} said: {event.status}" + (f" ({event.reason})" if event.reason else "")
    if event.rule is Rule.TAKEOVER:
        return f"{event.datacenter} has a new leader, token {event.token}"
    text = f"{event.datacenter} said: running, token {event.token}" + ("; it advances" if event.progressed else "")
    return text + (f"; {seconds(event.extensions)} are granted there so far" if event.extensions else "")


def _asked(event: Any, did: str) -> str:
    """Returns who did something, and why, in words."""
    return f"{event.by or 'somebody who gave no name'} {did}" + (f": {event.reason}" if event.reason else "")


def paused(event: JobPaused) -> str:
    running = f"; {', '.join(event.workflows[:5])} is asked to end with its checkpoint" if event.workflows else ""
    return _asked(event, "paused the job") + f"{running}. Nothing of it starts, and none of its clocks runs"


def resumed(event: JobResumed) -> str:
    lasted = event.evidence.get("paused_for")
    moved = f". Its deadline moves by the {seconds(round(lasted, 1))} of the pause" if lasted else ""
    return _asked(event, "let the job go on") + moved


def retimed(event: JobRetimed) -> str:
    before = allowed(event.evidence.get("before"))
    return _asked(event, f"gave the job {allowed(event.timeout_seconds)} (before: {before}), counted from its start")


def steered(event: GateJobSteered) -> str:
    words = []
    if pause := event.evidence.get("pause"):
        words.append("paused the job everywhere" if pause == "begins" else "let the job go on everywhere")
    if "before" in event.evidence:
        words.append(f"gave the job {allowed(event.timeout_seconds)} (before: {allowed(event.evidence['before'])})")
    return _asked(event, " and ".join(words) or "changed nothing") + f" (order {event.number})"


TELL: Mapping[type[Event], Callable[[Any], str]] = {
    LeaderElected: lambda x: (
        f"{leader_name(x.leader)} became the leader (epoch {x.epoch}); deadlines go on, stuck clocks restart"
    ),
    CronFired: lambda x: f"schedule {x.schedule!r} fired, {seconds(round(x.evidence['late_by'], 1))} after its time",
    Dispatched: lambda x: f"{who(x)}, was queued{x.threshold_words}",
    Suspended: lambda x: f"{who(x)}, {words_of_suspension(x)}",
    ChildEnded: lambda x: f"{x.workflow!r}: job {x.child}, for which it waits, has ended",
    Woken: lambda x: (
        f"{who(x)}, goes on: {'workers serve other versions now' if x.version_came else 'its time has come'}"
    ),
    SignalReceived: lambda x: f"signal {x.name!r} came from {x.by or 'somebody'}",
    Withdrawn: lambda x: (
        f"{x.workflow} was taken back from the engine: "
        + ("the job is paused" if x.paused else "nobody serves it, and it waits for a worker that does")
    ),
    WorkflowStarted: started,
    ProgressRecorded: progress,
    WorkflowCompleted: lambda x: f"{who(x)}, completed" + (f" on {x.worker}" if x.worker else ""),
    AttemptFailed: attempt_failed,
    ResultRefused: refused_result,
    UnsignedRefused: refused_unsigned,
    JobEnded: ended,
    JobCleaned: lambda _: "its messages were withdrawn: nothing of it can be claimed any more",
    ResultsExpired: lambda _: "its results were let go: they were kept for as long as it asked",
    LocalTimeoutReported: local_timeout,
    GlobalDecisionRefused: refused_decision,
    GateEpochSeen: lambda x: f"a newer gate is in charge (epoch {x.gate_epoch})",
    GateAcknowledged: lambda _: "the gate knows how it ended here",
    ExtensionGranted: extension_granted,
    ExtensionDenied: extension_denied,
    WorkerJudged: lambda x: (
        f"the verdict on {x.worker} is now {x.verdict!r} (before: {x.evidence.get('previous', 'unknown')}): {x.reason}"
    ),
    WorkerEvicted: lambda x: f"{x.worker} was evicted: {x.reason}",
    WorkerForgotten: lambda x: f"{x.worker} is expected no more: {x.reason}",
    JobPaused: paused,
    JobResumed: resumed,
    JobRetimed: retimed,
    MoveAsked: lambda x: _asked(
        x,
        f"{x.verb} {who(x)}, away from {x.worker}{x.unsaved}; it is asked to end, and goes on {x.place} from its checkpoint",
    ),
    GateJobSteered: steered,
    OutageDeclared: lambda x: (
        f"{x.name}, which it waits for, is down: {x.reason}. No clock of this job runs, and nothing is charged, "
        f"for {seconds(x.until - x.at)} at most"
    ),
    OutageMoved: lambda x: f"{x.name}: {x.phase}, because {x.reason}",
    OutageEnded: lambda x: f"the hold on {x.name} is over: {x.reason}. Clocks run again",
    GateElected: lambda x: f"{x.gate} became the leading gate (epoch {x.epoch}); deadlines go on, stuck clocks restart",
    GateJobAccepted: lambda x: (
        f"submitted with {allowed(x.submission.timeout_seconds)} to {', '.join(x.target_datacenters)}"
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
    **UNDO_WORDS,
}


UNTOLD: frozenset[type[Event]] = frozenset(
    {
        JobSubmitted,  # the first line of every answer
        TombstoneSet,  # there is no job yet that it could be told of
        ExtensionsReset,
        FormatRaised,  # about the journal, not about a job
        QueueChanged,
        WorkerDrained,
        WorkflowsRegistered,  # about workers, not about a job
        WorkflowsForgotten,
        ScheduleSet,  # schedules have a list of their own; a job knows only that it was fired
        ScheduleRemoved,
        InstantsSkipped,
        JobArchived,
        Forgotten,
        OrderSeen,  # it changed nothing
    }
)
"""The events that no answer about a job tells."""


def tell(event: Event) -> str:
    """Returns one event as a sentence."""
    return TELL.get(type(event), lambda one: type(one).__name__)(event)


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
    words, more = [call_text(spec) for spec in submission.workflows[:3]], len(submission.workflows) - 3
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")
