"""Decides which alarms an operator on call needs. Pure: it reads the book and the workers' last reports, and returns alarms with a remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from tenure.jobs import budget
from tenure.jobs.book import JobBook
from tenure.jobs.catalogue import in_words
from tenure.jobs.mailbox_names import mailbox_name
from tenure.jobs.work_indexes import Lane

STRANDED_AFTER_S = 60.0
PARKED_AFTER_S = 30.0
PAUSED_LONG_S = 86_400.0
WAITING_LONG_S = 7 * 86_400.0
UNSIGNED_FOR_S = 3_600.0
MOST_LOOKED_AT = 10_000
MOST_NAMED = 20
"""The most things of one kind that have an alarm of their own."""
MIB = 1 << 20


class AlarmKind(StrEnum):
    """The kind of an alarm. Each is also a metric: `tenure_alarm{kind,subject}`."""

    NOTHING_CLAIMED = "queue_not_empty_nothing_claimed"
    PARKED = "work_waits_for_a_worker"
    WAITING = "suspended_for_long"
    """Suspended work waits for a signal or a job for a week or longer. No clock of it runs, so nothing else would ever tell of it."""
    MISFIT = "suspended_work_fits_no_version"
    """Steps of suspended work were recorded by a version that nobody serves, and the later one does not fit them."""
    COMPENSATION_FAILED = "compensation_failed"
    """A job did not complete, and some of its compensations failed for good: what they undo is still there."""
    NO_LEADER = "no_leader"
    ENGINE_SILENT = "engine_does_not_answer"
    NEARLY_FULL = "state_nearly_full"
    JOURNAL_DAMAGED = "journal_cannot_be_read"
    PRODUCT_FAILED = "product_failed"
    """Our own code raised, either while it handled one thing or in a loop that was started again."""
    DEPENDENCY_DOWN = "dependency_down"
    """Something that many attempts wait for is down, and their clocks stand still."""
    PAUSED = "jobs_paused_for_long"
    """Somebody paused jobs a day ago or longer. No clock of theirs runs, so nothing else would ever tell of them."""
    UNSIGNED = "unsigned_results_refused"
    """Results came in the last hour that were not signed with a key that counts: somebody forges them, or a worker has no key."""
    CLOCK_SET = "engine_clock_was_set"
    """The engine's clock and this machine's went apart: somebody set one of them. Deadlines go on as before."""
    STATE_TOO_LARGE = "state_too_large"
    """The state does not fit into a snapshot. The journal grows until it does."""


class Alarm(NamedTuple):
    """States what is wrong now, and what to do about it. An alarm ends by itself when it is no longer true."""

    kind: AlarmKind
    subject: str
    reason: str
    remedy: str

    @property
    def key(self) -> tuple[str, str]:
        return self.kind.value, self.subject

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}"


class Crew(NamedTuple):
    """Counts the workers that serve one lane, by their last reports."""

    workers: int = 0
    accepting: int = 0
    """The number of these workers that want work and that the leader lets take it."""
    free: int = 0
    """The slots without work on the accepting workers."""


def down(book: JobBook, now: float) -> list[Alarm]:
    """Returns an alarm for each outage."""
    return [
        Alarm(
            AlarmKind.DEPENDENCY_DOWN,
            name,
            f"{name} is down for those that wait for it, and {one.phase} for {now - one.changed_at:.0f} s: {one.reason}",
            f"Their clocks stand still for another {max(0.0, one.until - now):.0f} s at most; `tenure hold {name} --undo` ends that",
        )
        for name, one in book.state.outages.items()
    ]


def stranded(
    book: JobBook,
    now: float,
    started: Mapping[Lane, float],
    crew: Callable[[str], Crew],
) -> list[Alarm]:
    """Returns an alarm for each lane with work in the engine that no worker takes. `started` maps a lane to the last start of work in it.

    Work that waits because every slot is busy raises no alarm: a queue exists for that.
    """
    alarms = []
    for lane, waiting in book.queued.items():
        if not waiting:
            continue
        job_id, name = next(iter(waiting))
        oldest = book.jobs[job_id].workflows[name].dispatched_at
        quiet = now - max(oldest, started.get(lane, 0.0), book.state.elected_at)
        mailbox = mailbox_name(*lane)
        found = crew(mailbox)
        if quiet <= STRANDED_AFTER_S or (found.accepting and not found.free):
            continue
        facts = f"{len(waiting):,} waiting in {mailbox}, the oldest for {now - oldest:.0f} s, and nothing was claimed for {quiet:.0f} s"
        alarms.append(Alarm(AlarmKind.NOTHING_CLAIMED, mailbox, facts, _remedy(mailbox, found)))
    return alarms


def unserved(book: JobBook, now: float) -> list[Alarm]:
    """Returns an alarm for each kind of work that is parked: at once where nobody ever registered it, else when no worker came for a while.

    A worker that restarts parks its work for some seconds, and needs no alarm.
    """
    alarms = []
    for key, waiting in book.parked.items():
        job_id, name = next(iter(waiting))
        info, entries = book.jobs[job_id], book.state.catalogue.get(key[2], {})
        versions = [entries[key[3]]] if key[3] in entries else list(entries.values()) if not key[3] else []
        since = max((entry.gone_at for entry in versions), default=0.0)
        waited = now - max(since, info.workflows[name].not_before, book.state.elected_at)
        if versions and waited <= PARKED_AFTER_S:
            continue
        facts = (
            f"{len(waiting):,} parked, the oldest for {now - info.job.submitted_at:.0f} s: waiting for {in_words(key)}"
        )
        known = "" if versions else f"; nobody has registered it ({name!r} of job {job_id})"
        remedy = f"Start one: tenure worker MODULE --managed --queue {key[0]}; or cancel the jobs"
        alarms.append(
            Alarm(
                AlarmKind.PARKED, mailbox_name(key[0], key[1]) + f" {key[2]} {key[3]}".rstrip(), facts + known, remedy
            )
        )
    return alarms


def misfits(book: JobBook) -> list[Alarm]:
    """Returns an alarm for each function with suspended work that no version of now can go on with."""
    alarms = []
    for function, waiting in book.waits.on_version.items():
        job_id, name = next(iter(waiting))
        words = book.waits_for(book.jobs[job_id], book.jobs[job_id].workflows[name])
        facts = f"{len(waiting):,} suspended, and cannot go on: {name!r} of job {job_id} waits for {words}"
        remedy = "Start a worker with that version, or deploy one that fits; or run it again: tenure retry JOB"
        alarms.append(Alarm(AlarmKind.MISFIT, function, facts, remedy))
    return alarms


def failed_compensations(book: JobBook) -> list[Alarm]:
    """Returns an alarm for each job whose compensations failed for good, the oldest first. It is read off an index: ended jobs are many."""
    alarms = []
    for undo_id in islice(book.failed_undos, MOST_NAMED):
        info = book.jobs[undo_id]
        facts = f"compensations of job {info.job.submission.undo_of} failed for good: job {undo_id} {info.state}, {info.reason}"
        remedy = f"See why (tenure why {undo_id}), mend that, and run the rest of them: tenure retry {undo_id}"
        alarms.append(Alarm(AlarmKind.COMPENSATION_FAILED, undo_id, facts, remedy))
    return alarms


def waiting_long(book: JobBook, now: float) -> list[Alarm]:
    """Returns an alarm when suspended work has waited for so long, with no time that ends it, that somebody may have forgotten it.

    It looks at the first of very many: a book that was read back has them in the order of their jobs.
    """
    long = [
        (key, since)
        for key, since in islice(book.waits.untimed.items(), MOST_LOOKED_AT)
        if now - since > WAITING_LONG_S
    ]
    if not long:
        return []
    (job_id, name), since = min(long, key=lambda one: one[1])
    words = book.waits_for(book.jobs[job_id], book.jobs[job_id].workflows[name])
    facts = f"{len(long):,} suspended for more than {WAITING_LONG_S / 86_400:.0f} days; the first: {name!r} of job {job_id}, for {(now - since) / 86_400:.0f} days, waits for {words}"
    remedy = "Send what it waits for (tenure why JOB says how), or cancel it; `timeout=` of the wait, or of the job, bounds it"
    return [Alarm(AlarmKind.WAITING, "jobs", facts, remedy)]


def forgotten_pauses(book: JobBook, now: float) -> list[Alarm]:
    """Returns an alarm when jobs have been paused for so long that somebody may have forgotten them."""
    pauses = [(job_id, book.jobs[job_id].timeout_tracking.pause) for job_id in book.paused]
    long = [(job_id, pause) for job_id, pause in pauses if pause is not None and now - pause.at > PAUSED_LONG_S]
    if not long:
        return []
    job_id, pause = long[0]
    facts = f"{len(long):,} paused for more than {PAUSED_LONG_S / 3600:.0f} h; the first: {job_id}, by {pause.by or 'somebody'}"
    remedy = "Let them go on (tenure resume JOB --reason WHY), or cancel them"
    return [Alarm(AlarmKind.PAUSED, "jobs", facts + (f": {pause.reason}" if pause.reason else ""), remedy)]


def unsigned(book: JobBook, now: float) -> list[Alarm]:
    """Returns an alarm for some time after a result was refused for its signature."""
    if book.unsigned.last is None or now - book.unsigned.last[0] > UNSIGNED_FOR_S:
        return []
    at, job_id, name = book.unsigned.last
    facts = f"a result of {name!r} of job {job_id} was refused {now - at:.0f} s ago: it was not signed with a key that counts"
    remedy = f"Start every worker with --result-key-file; if all have it, somebody else writes to the engine. See tenure why {job_id}"
    return [Alarm(AlarmKind.UNSIGNED, "results", facts, remedy)]


def nearly_full(book: JobBook) -> list[Alarm]:
    """Returns an alarm when the state comes near its budget. At the budget the leader refuses new jobs."""
    if not budget.is_crowded(book):
        return []
    jobs, ended, most = len(book.jobs), len(book.ended), book.budget
    facts = f"{jobs:,} jobs ({ended:,} of them ended) fill {budget.claimed(book):,} of {most:,} bytes of state"
    if budget.is_full(book):
        facts += ", and new ones are refused"
    remedy = "Let jobs end or cancel some; submit smaller arguments; keep finished jobs for less long: tenure manager --keep-finished"
    return [Alarm(AlarmKind.NEARLY_FULL, "state", facts, remedy)]


def outgrown(state_bytes: int, most_bytes: int) -> list[Alarm]:
    """Returns an alarm when the state, as it was last measured, does not fit into a snapshot."""
    if state_bytes <= most_bytes:
        return []
    reason = f"the state is {state_bytes / MIB:.1f} MiB, and a snapshot may have {most_bytes / MIB:.0f} MiB: none is taken, and the journal grows"
    remedy = (
        "Let jobs end and be archived, cancel what is not needed, and submit large arguments by their key in a store"
    )
    return [Alarm(AlarmKind.STATE_TOO_LARGE, "state", reason, remedy)]


def _remedy(mailbox: str, crew: Crew) -> str:
    queue, _, priority = mailbox.rpartition(".p")
    if not crew.workers:
        return f"No worker serves it: tenure worker MODULE --managed --queue {queue} (priority {priority})"
    if not crew.accepting:
        return f"Its {crew.workers} workers take no work: `tenure nodes` says why"
    return f"{crew.free} slots are free: see the workers' logs, they may not reach the engine"
