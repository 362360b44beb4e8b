"""Defines the answer of `why`, as data and as text. It is apart from `why.py`, which makes the answer from the book: clients read it and need no book."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.jobs.attempt_evidence import AttemptEvidence, evidence_lines
from tenure.jobs.decisions import Rule
from tenure.jobs.rule_text import RULES

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
