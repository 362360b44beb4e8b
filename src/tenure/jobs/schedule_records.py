"""Defines schedules as plain data: what somebody set, and the record that the leader keeps of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tenure import bounds as b
from tenure.jobs.model import JobSubmission


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
