"""Answers `why(job)` with the chain of decisions that brought a job to its state, as data and as text.

It reads the job's own history in the book, so the answer survives snapshots and truncated journals. The answer states how many
events were left out to keep memory bounded. The record of an archived job holds its answer; the shell writes that record into the store
before `ArchiveJob` lets the job leave memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tenure.errors import EngineCorruptError
from tenure.jobs.answer import answer, gate_answer
from tenure.jobs.attempt_evidence import AttemptEvidence, evidence_lines
from tenure.jobs.book import JobBook
from tenure.jobs.decisions import Event, Rule
from tenure.jobs.event_text import allowed, seconds, tell
from tenure.jobs.fair_lanes import waits_for_turn
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import GateJobTrackingInfo, JobInfo
from tenure.jobs.result_flow import flow_words
from tenure.jobs.rule_text import RULES
from tenure.jobs.states import JobState, WorkflowState
from tenure.suspension import pairs_in_words


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of the chain."""

    at: float
    after: float
    """Seconds since the job was submitted."""
    what: str
    kind: str
    by: str = ""
    rule: str = ""
    evidence: dict[str, Any] = {}


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `why`. `str()` of it is for people, `msgspec.to_builtins` of it for programs."""

    job_id: str
    state: str
    summary: str
    submitted_at: float
    links: tuple[Link, ...]
    elided: int = 0
    answer: str = ""
    """Says in one sentence who ended it, or what it waits for."""
    next_step: str = ""
    found: tuple[AttemptEvidence, ...] = ()
    """The evidence of the attempts that failed last. The shell reads it from the store."""

    def __str__(self) -> str:
        lines = [f"job {self.job_id}: {self.summary}"]
        if self.answer:
            lines += [f"{self.answer}.", f"Next: {self.next_step}."]
        for one in self.found:
            lines += ["", *evidence_lines(one)]
        lines += ["", f"The story, from {utc(self.submitted_at)} on:"]
        width = max((len(clock(link.after)) for link in self.links), default=0)
        rest = "\n" + " " * (width + 4)  # what others wrote over several lines cannot pass for a line of the story
        lines += [f"  {clock(link.after):>{width}}  {link.what.replace(chr(10), rest)}" for link in self.links]
        if self.elided:
            lines.append(f"  ({self.elided} lines of routine were left out)")
        last = next((link for link in reversed(self.links) if link.kind in DECISIVE), None)
        if last is not None and last.rule in RULES_WORTH_SAYING:
            lines += ["", f"The rule: {RULES[Rule(last.rule)]}."]
        return "\n".join(lines) + "\n"


MOST_ATTEMPTS_SHOWN = 3
DECISIVE = frozenset({"JobEnded", "GlobalDecisionMade"})
RULES_WORTH_SAYING = frozenset(
    {
        Rule.OVERALL_TIMEOUT,
        Rule.STUCK,
        Rule.GLOBAL_TIMEOUT,
        Rule.GLOBAL_CANCEL,
        Rule.FALLBACK,
        Rule.FAILED_FOR_GOOD,
        Rule.NOTHING_DONE,
        Rule.TOMBSTONE,
        Rule.ANY_DATACENTER,
        Rule.ALL_STUCK,
        Rule.REBUILT,
    }
)


def why(book: JobBook, job_id: str) -> Why:
    """Returns the chain of decisions about a job in memory; raises `UnknownJobError`. An archived job's answer is in its record."""
    info = book.job(job_id)
    begun = info.job.submitted_at
    submission = info.job.submission
    names = ", ".join(spec.name for spec in submission.workflows[:5])
    more = f" and {len(submission.workflows) - 5} more" if len(submission.workflows) > 5 else ""
    authority = "the gate decides on its time" if submission.gate_addr else "its manager decides on its time"
    first = Link(
        at=begun,
        after=0.0,
        kind="JobSubmitted",
        what=f"submitted with {allowed(submission.timeout_seconds)} for: {names}{more}; {authority}"
        + whose(info)
        + flow_words(info),
        by=submission.submitted_by,
        rule=Rule.ASKED,
    )
    history = list(book.history(job_id))
    said = answer(info, history, lambda one: book.waits_for(info, one), lambda one: waits_for_turn(book, info, one))
    return Why(
        job_id=job_id,
        state=info.state,
        summary=summary(info, [*parked_words(book, info), *exposed_words(info)]),
        submitted_at=begun,
        links=(first, *(link(event, begun) for event in history)),
        elided=info.elided,
        answer=said.sentence,
        next_step=said.next_step,
    )


def attempts_to_look_at(info: JobInfo) -> list[tuple[str, int, str]]:
    """Returns (workflow, attempt, worker) of the attempts whose evidence explains the job: the last failed one of each workflow, a few of them."""
    found = []
    for name, one in info.workflows.items():
        if one.state is WorkflowState.FAILED:
            found.append((name, one.attempt, one.worker))
        elif one.attempt > 1 and one.state is not WorkflowState.COMPLETED:
            found.append((name, one.attempt - 1, one.excluded[-1] if one.excluded else ""))
    # Those that failed for good come first: they are why the job failed.
    found.sort(key=lambda key: info.workflows[key[0]].state is not WorkflowState.FAILED)
    return found[:MOST_ATTEMPTS_SHOWN]


def whose(info: JobInfo) -> str:
    """Returns whose settings a job has, where the submission left them to a function."""
    by: dict[str, list[str]] = {}
    for setting, author in info.origins.items():
        by.setdefault(author, []).append(setting)
    return "".join(f"; {', '.join(settings)} as {author} sets it" for author, settings in by.items())


def why_everywhere(tracker: GateJobTracker, job_id: str) -> Why:
    """Returns the chain as the gate knows it: every datacenter's reports and the gate's decisions. Raises `UnknownJobError`."""
    info = tracker.job(job_id)
    stand = ", ".join(f"{dc} {status}" for dc, status in info.dc_status.items())
    first = Link(
        at=info.submitted_at,
        after=0.0,
        kind="GateJobAccepted",
        what=f"submitted with {allowed(info.timeout_seconds)} to {', '.join(info.target_datacenters)}",
        rule=Rule.ASKED,
    )
    said = gate_answer(info)
    told = [link(event, info.submitted_at) for event in tracker.history(job_id)]
    if info.resumed_at > info.submitted_at:
        told.append(taken_over(info))
    return Why(
        job_id=job_id,
        state=info.state,
        summary=f"{info.state} ({stand})" + decision_in_words(info),
        submitted_at=info.submitted_at,
        links=(first, *sorted(told, key=lambda one: one.at)),
        elided=info.elided,
        answer=said.sentence,
        next_step=said.next_step,
    )


def taken_over(info: GateJobTrackingInfo) -> Link:
    """Returns the link of the last takeover. Elections are not in each job's history: one would cost a line in each of 100,000 jobs."""
    return Link(
        at=info.resumed_at,
        after=round(info.resumed_at - info.submitted_at, 3),
        kind="GateElected",
        what="another gate took over, from the same start",
    )


def decision_in_words(info: GateJobTrackingInfo) -> str:
    if info.decided is None:
        return ""
    if info.state.terminal and info.state is not info.decided:
        return f"; the gate had decided {info.decided} ({info.decided_reason}), and it had ended before that was heard"
    return f": {info.decided_reason}"


def link(event: Event, begun: float) -> Link:
    return Link(
        at=event.at,
        after=round(event.at - begun, 3),
        kind=type(event).__name__,
        what=tell(event),
        by=event.by,
        rule=event.rule,
        evidence=event.evidence,
    )


def parked_words(book: JobBook, info: JobInfo) -> list[str]:
    """Returns a sentence for each workflow of a job that is parked, or suspended."""
    found = ((one, book.waits_for(info, one)) for one in info.workflows.values())
    return [
        f"{one.spec.name} is {'suspended' if one.state is WorkflowState.SUSPENDED else 'parked'}: it waits for {words}"
        for one, words in found
        if words
    ]


def exposed_words(info: JobInfo) -> list[str]:
    """Returns what the workflows of a job that goes on show (`ctx.expose`), as their last attempts left it."""
    shown = ((one.spec.name, one.exposed) for one in info.workflows.values() if one.exposed)
    return [f"{name} shows {pairs_in_words(values)}" for name, values in shown]


def summary(info: JobInfo, parked: Iterable[str] = ()) -> str:
    if not info.state.terminal:
        done = f"{info.completed_workflows} of {len(info.workflows)} workflows completed"
        state = f"paused ({info.state})" if info.timeout_tracking.pause is not None else info.state
        return f"{state}, {done}, {info.running_workflows} running" + "".join(f"; {one}" for one in parked)
    took = seconds(round(info.ended_at - info.job.submitted_at, 1))
    reason = "" if info.state is JobState.COMPLETED and not info.failed_workflows else f": {info.reason}"
    return f"{info.state} after {took}{reason}"


def clock(after: float) -> str:
    """Returns the time since the submission, as +h:mm:ss or +m:ss."""
    whole = int(after)
    hours, rest = divmod(whole, 3_600)
    return f"+{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"+{rest // 60}:{rest % 60:02}"


def utc(moment: float) -> str:
    """Returns a Unix time as a date, without asking the machine for a calendar (H. Hinnant's civil_from_days)."""
    days, rest = divmod(int(moment), 86_400)
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (month <= 2)
    return f"{year:04}-{month:02}-{day:02} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02} UTC"


class ArchiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds everything that is kept of an archived job."""

    info: JobInfo
    why: Why


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ArchiveRecord)


def archive_record(book: JobBook, job_id: str) -> bytes:
    """Returns the record of a job that is in memory; raises `UnknownJobError`. The history is in `why`, in words and as data."""
    return _encode(ArchiveRecord(info=msgspec.structs.replace(book.job(job_id), history=[]), why=why(book, job_id)))


def read_record(record: bytes) -> ArchiveRecord:
    """Returns the record as it was written; raises `EngineCorruptError` for anything else."""
    try:
        return _decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineCorruptError(f"the record of an archived job cannot be read: {error}") from error
