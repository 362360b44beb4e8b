"""Extensions: the time that workers earn, which counts for the jobs that advanced there (document 000, and document 002, part 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.errors import (
    LimitError,
)
from tenure.jobs.attempts import progressed
from tenure.jobs.budget import WORKER_BYTES, text_bytes
from tenure.jobs.decisions import (
    Command,
    Decides,
    Decision,
    Event,
    Folds,
    Outcome,
    Rule,
)
from tenure.jobs.model import (
    WorkerRecord,
)
from tenure.jobs.rules import Rules

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


class GrantExtension(Command, frozen=True, kw_only=True):
    """The health rules granted a worker time. `advanced` names the jobs whose workflows advanced there since the last grant."""

    worker: str
    seconds: float
    count: int
    total: float
    bound: float
    progress: float
    advanced: tuple[str, ...]
    counter: int | None = None
    deadline: float = 0.0
    """The engine's time until which the worker now has time. A new leader goes on from there."""
    reason: str = ""


class DenyExtension(Command, frozen=True, kw_only=True):
    worker: str
    reason: str


class ResetExtensions(Command, frozen=True, kw_only=True):
    worker: str
    reason: str


class ExtensionGranted(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker earned time; it counts for the jobs whose workflows advanced there."""

    worker: str
    seconds: float
    jobs: tuple[str, ...]
    count: int
    total: float
    bound: float
    """The most seconds that one worker's series can add up to. It also caps the time that a job can be given."""
    progress: float = 0.0
    counter: int | None = None
    deadline: float = 0.0

    def growth(self) -> int:
        return (text_bytes(self.worker) + 9) * (len(self.jobs) + 1) + WORKER_BYTES


class ExtensionDenied(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker asked for time and got none."""

    worker: str
    reason: str
    jobs: tuple[str, ...] = ()

    def growth(self) -> int:
        return text_bytes(self.worker) + WORKER_BYTES


class ExtensionsReset(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The worker completed something, or was healthy for a whole interval: its series starts anew."""

    worker: str

    def growth(self) -> int:
        return text_bytes(self.worker) + WORKER_BYTES


def jobs_on(book: JobBook, worker: str) -> tuple[str, ...]:
    """Returns the jobs with an attempt on this worker, each once."""
    return tuple(dict.fromkeys(job_id for job_id, _ in book.on_worker.get(worker, ())))


def grant_extension(book: JobBook, command: GrantExtension, now: float, rules: Rules) -> Decision:
    if not 0 < command.seconds <= command.bound < float("inf"):
        raise LimitError("seconds", command.seconds, f"above 0 and at most the bound ({command.bound:g} s)")
    live = tuple(
        job_id
        for job_id in dict.fromkeys(command.advanced)
        if (info := book.jobs.get(job_id)) is not None and not info.state.terminal
    )
    granted = ExtensionGranted(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        seconds=command.seconds,
        jobs=live,
        count=command.count,
        total=command.total,
        bound=command.bound,
        progress=command.progress,
        counter=command.counter,
        deadline=command.deadline,
        evidence={"reason": command.reason, **command.evidence},
    )
    return Decision([granted], Outcome.ACCEPTED, Rule.HEALTH)


def deny_extension(book: JobBook, command: DenyExtension, now: float, rules: Rules) -> Decision:
    denied = ExtensionDenied(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        reason=command.reason,
        jobs=jobs_on(book, command.worker),
        evidence=command.evidence,
    )
    return Decision([denied], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def reset_extensions(book: JobBook, command: ResetExtensions, now: float, rules: Rules) -> Decision:
    record = book.state.workers.get(command.worker)
    if record is None or record.extension_count == 0:
        return Decision([], Outcome.NOTHING, Rule.HEALTH, "it has used none")
    event = ExtensionsReset(
        at=now, by=command.by, rule=Rule.HEALTH, worker=command.worker, evidence={"reason": command.reason}
    )
    return Decision([event], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def extension_granted(book: JobBook, event: ExtensionGranted) -> None:
    record = worker_record(book, event.worker)
    record.extension_count, record.total_extended = event.count, event.total
    record.last_progress, record.last_counter = event.progress, event.counter
    record.deadline = event.deadline
    for job_id in event.jobs:
        info = book.jobs.get(job_id)
        if info is None or info.state.terminal:
            continue
        tracking = info.timeout_tracking
        given = tracking.extensions_by_worker
        given[event.worker] = min(event.bound, given.get(event.worker, 0.0) + event.seconds)
        # The maximum, not the sum: a job's deadline must not grow with the size of the fleet.
        tracking.total_extensions_granted = max(given.values())
        progressed(info, event.at)


def extension_denied(book: JobBook, event: ExtensionDenied) -> None:
    worker_record(book, event.worker)


def extensions_reset(book: JobBook, event: ExtensionsReset) -> None:
    record = worker_record(book, event.worker)
    record.extension_count, record.total_extended = 0, 0.0
    record.last_progress, record.last_counter = 0.0, None


def worker_record(book: JobBook, worker: str) -> WorkerRecord:
    record = book.state.workers.get(worker)
    if record is None:
        record = book.state.workers[worker] = WorkerRecord()
    return record


DECIDE: Decides = {
    GrantExtension: grant_extension,
    DenyExtension: deny_extension,
    ResetExtensions: reset_extensions,
}
FOLD: Folds = {
    ExtensionGranted: extension_granted,
    ExtensionDenied: extension_denied,
    ExtensionsReset: extensions_reset,
}
