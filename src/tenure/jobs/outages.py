"""Outages: what many attempts wait for is down, their clocks stop, and they are released at a bounded rate when it is back (decision 0366).

A *hold* of a name stops the clocks of stall, stuck and lease of those that wait for it. An attempt that fails on it is not charged, and rests.
After a while one attempt of each worker may try: the canaries. When one comes through, the rest follows at the set rate. `next_step` decides
all of that from the record, what the canaries met, and the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.health.outage import DependencyWatch, Met, OutageEvidence, OutageSettings
from tenure.jobs import budget
from tenure.jobs.attempt_rest import queue_up
from tenure.jobs.attempts import charged
from tenure.jobs.budget import text_bytes
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, Outcome, Rule, Rules
from tenure.jobs.states import WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.model import WorkflowRecord

LEADER = "leader"
CANARIES_THROUGH = 3
"""This many calls in a row that come through show that it is back."""
LATELY_S = 120.0
"""A failure this long before an outage was seen is part of it."""
MOST_OUTAGES = 100
MOST_JOBS_TOLD = 1_000
"""An outage is in the history of this many of the jobs that wait for it; more would fill the journal."""


class OutagePhase(StrEnum):
    HELD = "held"  # nobody tries
    PROBING = "probing"  # one attempt of each worker tries
    RELEASING = "releasing"  # more and more try, at the set rate


class OutageRecord(msgspec.Struct, kw_only=True):
    """The state of one outage."""

    since: float
    until: float
    """The hold ends then, whatever is down."""
    phase: OutagePhase = OutagePhase.HELD
    changed_at: float = 0.0
    rate: float = 5.0
    """Attempts a second that are released."""
    workers: tuple[str, ...] = ()
    """Those among which a release is shared out."""
    by: str = ""
    reason: str = ""


class HoldDependency(Command, frozen=True, kw_only=True):
    """Most of those that wait for `name` are in trouble, or an operator says that it is down."""

    name: str
    most_s: float
    rate: float
    reason: str = ""
    jobs: tuple[str, ...] = ()


class MoveOutage(Command, frozen=True, kw_only=True):
    """The canaries may try, or came through."""

    name: str
    phase: OutagePhase
    workers: tuple[str, ...] = ()
    reason: str = ""


class EndOutage(Command, frozen=True, kw_only=True):
    name: str
    reason: str = ""


class OutageDeclared(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Something that these jobs wait for is down: their clocks stop, and nothing is charged."""

    name: str
    until: float
    rate: float
    reason: str = ""
    jobs: tuple[str, ...] = ()

    def growth(self) -> int:
        return text_bytes(self.name, self.by, self.reason) + 200


class OutageMoved(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Some that wait may try again: the canaries, then all at a bounded rate."""

    name: str
    phase: OutagePhase
    workers: tuple[str, ...] = ()
    reason: str = ""

    def growth(self) -> int:
        return text_bytes(self.name, self.reason, *self.workers)


class OutageEnded(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The hold is over. Clocks start anew, and attempts that rest are sent at the set rate."""

    name: str
    reason: str = ""
    jobs: tuple[str, ...] = ()


class Hold(NamedTuple):
    """The word to one worker about one name."""

    canaries: int
    released: int


def hold_of(record: OutageRecord, worker: str, now: float) -> Hold:
    """Returns how many attempts of a worker may try: canaries at a time, and released ones in all. The rate holds over all workers."""
    if record.phase is OutagePhase.HELD:
        return Hold(0, 0)
    if record.phase is OutagePhase.PROBING:
        return Hold(1, 0)
    total = int(record.rate * max(0.0, now - record.changed_at))
    each, rest = divmod(total, max(1, len(record.workers)))
    # A worker that came since the release began gets as much as the one with the least.
    return Hold(0, each + (worker in record.workers[:rest]))


class Seen(NamedTuple):
    """The leader's view of one name that is held."""

    workers: tuple[str, ...]
    """Everybody that reports."""
    waited_on: int
    """The workers on which attempts wait for it."""
    held: int
    """Attempts that wait and may not try."""
    met: Met


def next_step(name: str, record: OutageRecord, seen: Seen, now: float, settings: OutageSettings) -> Command | None:
    """Returns the next decision about an outage, or None while it stays as it is."""
    if now >= record.until:
        return EndOutage(name=name, reason=f"held for {now - record.since:.0f} s, the longest time that is allowed")
    if record.phase is OutagePhase.HELD:
        if now - record.changed_at < settings.probe_after_s:
            return None
        return MoveOutage(name=name, phase=OutagePhase.PROBING, reason="one attempt of each worker tries it")
    if record.phase is OutagePhase.PROBING:
        if seen.met.streak >= min(CANARIES_THROUGH, max(1, seen.waited_on)):
            words = f"{seen.met.streak} calls in a row came through"
            return MoveOutage(name=name, phase=OutagePhase.RELEASING, workers=seen.workers, reason=words)
        if not seen.waited_on and now - record.changed_at >= settings.window_s:
            return EndOutage(name=name, reason="nobody waits for it any more")
        return None
    if seen.met.failures >= settings.least_waiters and seen.met.failures > seen.met.successes:
        return MoveOutage(name=name, phase=OutagePhase.HELD, reason=f"{seen.met.failures} calls failed again")
    if not seen.held and now - record.changed_at >= 1.0:
        return EndOutage(name=name, reason="everybody that waited for it was released")
    return None


def outage_commands(outages: Mapping[str, OutageRecord], watch: DependencyWatch, now: float) -> list[Command]:
    """Returns every decision that is due: what is newly down, and the next step of each outage."""
    commands: list[Command] = [
        _held_by(watch, name, trouble) for name, trouble in watch.down(now).items() if name not in outages
    ]
    for name, record in outages.items():
        waiting = watch.waiters(name)
        held = sum(one.held for some in waiting.values() for one in some)
        seen = Seen(tuple(sorted(watch.workers)), len(waiting), held, watch.met(name))
        step = next_step(name, record, seen, now, watch.settings)
        if step is not None:
            commands.append(step)
    return commands


def _held_by(watch: DependencyWatch, name: str, trouble: OutageEvidence) -> HoldDependency:
    jobs = [one.key[0] for some in watch.waiters(name).values() for one in some]
    words = f"{trouble.in_trouble} of {trouble.waiters} that wait for it are in trouble, on {trouble.workers} workers"
    return HoldDependency(
        by=LEADER,
        name=name,
        most_s=watch.settings.most_s,
        rate=watch.settings.rate,
        reason=words,
        jobs=tuple(dict.fromkeys(jobs)),
        evidence=trouble.evidence(),
    )


def hold_dependency(book: JobBook, command: HoldDependency, now: float, rules: Rules) -> Decision:
    outages = book.state.outages
    if command.name in outages:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is held already")
    if len(outages) >= MOST_OUTAGES:
        return Decision([], Outcome.REFUSED, Rule.OUTAGE, f"{MOST_OUTAGES} names are held, which is the most")
    budget.check_reserve(book)
    event = OutageDeclared(
        at=now,
        by=command.by,
        rule=Rule.OUTAGE if command.by == LEADER else Rule.ASKED,
        name=command.name,
        until=now + command.most_s,
        rate=command.rate,
        reason=command.reason[:1_000],
        jobs=command.jobs[:MOST_JOBS_TOLD],
        evidence=command.evidence,
    )
    return Decision([event], Outcome.ACCEPTED, event.rule)


def move_outage(book: JobBook, command: MoveOutage, now: float, rules: Rules) -> Decision:
    record = book.state.outages.get(command.name)
    if record is None or record.phase is command.phase:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not held" if record is None else "")
    event = OutageMoved(
        at=now,
        by=command.by,
        rule=Rule.OUTAGE,
        name=command.name,
        phase=command.phase,
        workers=command.workers,
        reason=command.reason,
        evidence=command.evidence,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.OUTAGE)


def end_outage(book: JobBook, command: EndOutage, now: float, rules: Rules) -> Decision:
    if command.name not in book.state.outages:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not held")
    jobs = tuple(dict.fromkeys(job_id for job_id, _ in resting_on(book, command.name)))
    event = OutageEnded(
        at=now, by=command.by, rule=Rule.OUTAGE, name=command.name, reason=command.reason, jobs=jobs[:MOST_JOBS_TOLD]
    )
    return Decision([event], Outcome.ACCEPTED, Rule.OUTAGE)


def resting_on(book: JobBook, name: str) -> list[tuple[str, str]]:
    """Returns the workflows that rest because an attempt failed on `name`, in the order of their jobs."""
    return [
        (info.id, workflow.spec.name)
        for info in book.jobs.objects()
        for workflow in info.workflows.values()
        if workflow.held_on == name and workflow.state is WorkflowState.PENDING and not info.state.terminal
    ]


def failed_lately(book: JobBook, name: str, since: float) -> list[tuple[str, WorkflowRecord]]:
    """Returns the jobs and workflows whose attempts failed on `name` since then, and were charged for it."""
    return [
        (info.id, workflow)
        for info in book.jobs.objects()
        for workflow in info.workflows.values()
        if workflow.held_on == name
        and workflow.failed_on[0]
        and workflow.failed_on[1] >= since
        and not info.state.terminal
    ]


def outage_declared(book: JobBook, event: OutageDeclared) -> None:
    book.state.outages[event.name] = OutageRecord(
        since=event.at,
        until=event.until,
        changed_at=event.at,
        rate=event.rate,
        by=event.by,
        reason=event.reason,
    )
    # Attempts that failed on it just before are not charged either, and those that have not begun again rest.
    for job_id, record in failed_lately(book, event.name, event.at - LATELY_S):
        changed(book, job_id)
        record.uncharged += record.failed_on[0]
        record.spent = max(0, charged(record) - record.failed_on[0])
        record.failed_on = (0, event.at)
    for job_id, workflow in resting_on(book, event.name):
        rest(book, job_id, workflow, event.until)


def outage_moved(book: JobBook, event: OutageMoved) -> None:
    record = book.state.outages[event.name]
    record.phase, record.changed_at = event.phase, event.at
    record.workers = event.workers or record.workers


def outage_ended(book: JobBook, event: OutageEnded) -> None:
    record = book.state.outages.pop(event.name)
    for place, (job_id, workflow) in enumerate(resting_on(book, event.name)):
        book.jobs[job_id].workflows[workflow].held_on = ""
        rest(book, job_id, workflow, event.at + place / record.rate)


def changed(book: JobBook, job_id: str) -> None:
    """Notes that the page of a job is to be saved again: the event names only the first jobs that it changes, and none where an operator gave the word."""
    if book.pages is not None:
        book.pages.sections["jobs"].changed(job_id, book.position)


def rest(book: JobBook, job_id: str, workflow: str, until: float) -> None:
    """Lets a pending workflow rest until then."""
    info = book.jobs[job_id]
    record = info.workflows[workflow]
    changed(book, job_id)
    record.not_before = until
    queue_up(book, record)
    # `moved` with the same state takes it out of the index, and puts it back with its new time; one that is paused stays out.
    book.moved(info, record, WorkflowState.PENDING)


DECIDE: Decides = {HoldDependency: hold_dependency, MoveOutage: move_outage, EndOutage: end_outage}
FOLD: Folds = {OutageDeclared: outage_declared, OutageMoved: outage_moved, OutageEnded: outage_ended}
