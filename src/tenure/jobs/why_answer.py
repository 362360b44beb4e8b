"""Defines the answer of `why`, as data and as text. It is apart from `why.py`, which makes the answer from the book: clients read it and need no book.

The evidence of an attempt that ended without a result is part of it. The leader puts it together from the store, where workers keep it; nothing
is decided by it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.jobs.decisions import Rule
from tenure.jobs.reason_text import RULES, seconds

SHOWN_LOG_LINES = 8
SHOWN_STACK_LINES = 14


class AttemptEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that failed, was killed or died."""

    workflow: str
    attempt: int
    worker: str = ""
    cause: str = ""
    reason: str = ""
    place: str = ""
    """The innermost line of the user's code: `file:line, in function`."""
    traceback: str = ""
    stacks: str = ""
    """The stacks of all threads before a kill or at a fatal signal, those with the user's code first."""
    note: str = ""
    silent_s: float | None = None
    """Seconds from its last beat to its end."""
    beats: tuple[tuple[float, int], ...] = ()
    """(seconds since its start, beats so far), to its end."""
    log: tuple[str, ...] = ()
    """The last lines that it logged or printed."""
    facts: dict[str, str] = {}
    """Everything else that was found: exit code, signal, peak memory."""


def evidence_of(workflow: str, attempt: int, worker: str, kept: Any, log: tuple[str, ...]) -> AttemptEvidence:
    """Returns the evidence from a record of the store, which any release may have written; `kept` is None where there is none."""
    found = kept if isinstance(kept, dict) else {}
    facts = found.get("evidence")
    facts = {str(name): str(text) for name, text in facts.items()} if isinstance(facts, dict) else {}
    return AttemptEvidence(
        workflow=workflow,
        attempt=attempt,
        worker=worker,
        cause=str(found.get("cause", "")),
        reason=str(found.get("reason", "")),
        beats=_points(facts.pop("beats", "")),
        silent_s=_number(facts.pop("silent_s", "")),
        log=log,
        **{name: facts.pop(name, "") for name in ("place", "traceback", "stacks", "note")},
        facts=facts,
    )


def _points(text: str) -> tuple[tuple[float, int], ...]:
    try:
        return msgspec.json.decode(text, type=tuple[tuple[float, int], ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def evidence_lines(one: AttemptEvidence) -> list[str]:
    """Returns the evidence as people read it first: where it was, what it had said, how its beats came."""
    lines = [f"{one.workflow!r}, attempt {one.attempt}" + (f", on {one.worker}" if one.worker else "") + ":"]
    lines += [f"  {line}" for line in first_stack(one)]
    if one.beats:
        lines.append(f"  beats: {beats_in_words(one)}")
    if one.note:
        lines.append(f"  its last note: {one.note}")
    lines += [f"  {name.replace('_', ' ')}: {text}" for name, text in one.facts.items() if "\n" not in text]
    if one.log:
        lines += ["  the end of its log:", *(f"    {line}" for line in one.log[-SHOWN_LOG_LINES:])]
    return lines if len(lines) > 1 else []


def first_stack(one: AttemptEvidence) -> list[str]:
    """Returns the traceback, or the stack of the thread with the user's code; the middle of a long one is left out."""
    text = one.traceback or one.stacks.partition("\n\n")[0]
    lines = text.strip("\n").split("\n") if text else []
    over = len(lines) - SHOWN_STACK_LINES
    if over <= 0:
        return lines
    # A traceback ends with the error, a dump of stacks begins with the innermost call: the other end is of less use.
    keep = 3 if one.traceback else SHOWN_STACK_LINES - 1
    return [*lines[:keep], f"  ... {over + 1} lines: tenure why --json has all ...", *lines[keep + over + 1 :]]


def beats_in_words(one: AttemptEvidence) -> str:
    """Returns how the beats came, in one line."""
    took, count = one.beats[-1]
    words = f"{count} in {seconds(took)}"
    if one.silent_s is not None:
        words += f", the last one {seconds(one.silent_s)} before its end"
    steps = [f"{seconds(at)}: {beats}" for at, beats in one.beats[:: max(1, len(one.beats) // 5)]]
    return words + (f" ({', '.join(steps)})" if len(one.beats) > 2 else "")


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


class AttemptRun(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery of one attempt on one worker."""

    workflow: str
    attempt: int
    worker: str
    started_at: float
    ended_at: float | None = None
    """None while it runs."""
    outcome: str = ""
    """How it ended: `completed`, `suspended`, the cause of its failure, or in words; empty while it runs."""
    delivery: int = 1


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
    runs: tuple[AttemptRun, ...] = ()
    """Which worker ran which attempt, from when to when. A gate has those of its datacenters that answer, `datacenter/worker`."""

    def __str__(self) -> str:
        # The question comes first: who ended it, and what to do. A record of an earlier release has no answer.
        lines = [f"{self.answer}.", f"Next: {self.next_step}.", ""] if self.answer else []
        lines.append(f"job {self.job_id}: {self.summary}")
        for one in self.found:
            lines += ["", *shown] if (shown := evidence_lines(one)) else []
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
