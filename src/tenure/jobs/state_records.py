"""Defines the records of schedules and workers in a book's state, and schedules as people set them, as plain data."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from tenure import bounds as b
from tenure.jobs.model import JobSubmission

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


class Missed(StrEnum):
    """Sets what becomes of instants that passed while no manager led."""

    LATEST = "latest"  # only the newest runs
    ALL = "all"  # each runs, up to the newest hundred
    SKIP = "skip"  # none runs that is more than `grace_s` late


class Overlap(StrEnum):
    """Sets what becomes of an instant while the run before it goes on."""

    SKIP = "skip"
    ALLOW = "allow"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A job to submit at each instant of `cron` or of `every_s`. The ids of its runs are `name/instant`."""

    name: b.ScheduleName
    job: JobSubmission
    """The template; its `job_id` is not used."""
    cron: b.CronText = ""
    every_s: b.EverySeconds = 0.0
    """Fires at multiples of this since 1970, so that every leader computes the same instants."""
    zone: b.ZoneName = "UTC"
    missed: Missed = Missed.LATEST
    grace_s: b.Seconds = 60.0
    overlap: Overlap = Overlap.SKIP
    paused: bool = False
    until: b.UnixTime | None = None
    """Unix time after which nothing fires."""


class ScheduleRecord(msgspec.Struct, kw_only=True):
    """Holds a schedule, and what became of its instants."""

    schedule: Schedule
    since: float
    """Only instants after this time count: a new schedule owes no run of the past."""
    last_instant: float = 0.0
    last_job: str = ""
    fired: int = 0
    skipped: int = 0
    last_skipped: str = ""
    trouble: str = ""
    """The error for which the leader paused it. Empty again once a user sets the schedule anew."""

    @property
    def done_until(self) -> float:
        return max(self.since, self.last_instant)


EVICTED = "evict"
"""The verdict on an evicted worker. Its attempts have failed, and the leader has issued them anew."""


class WorkerRecord(msgspec.Struct, kw_only=True):
    """Holds what the journal knows of a worker, so that a new leader neither forgets a verdict nor grants a second series of extensions."""

    incarnation: str = ""
    verdict: str = "route"
    reason: str = ""
    since: float = 0.0
    extension_count: int = 0
    total_extended: float = 0.0
    last_progress: float = 0.0
    last_counter: int | None = None
    deadline: float = 0.0
    """The time until which its last extension reaches. Reports since then may have moved its deadline further."""


class DrainRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Records that an operator drained a worker."""

    at: float
    by: str = ""
    reason: str = ""
    until: float = 0.0
    """The time by which what runs there has to leave; 0 where it may run to its end."""
    moved: int = 0
    """The attempts that left since."""
    lost_s: float = 0.0
    """The seconds of work that these did since they last saved, and that are done again."""


def note_departure(book: JobBook, worker: str, lost_s: float) -> None:
    """Notes that an attempt left a worker, where that worker is drained."""
    if (record := book.state.drained.get(worker)) is not None:
        book.state.drained[worker] = msgspec.structs.replace(
            record, moved=record.moved + 1, lost_s=record.lost_s + lost_s
        )
