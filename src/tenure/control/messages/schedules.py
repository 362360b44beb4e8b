"""Requests about schedules."""

from __future__ import annotations

import msgspec

from tenure import bounds as b
from tenure.control.messages.wire import Missing, Placed, Reply
from tenure.jobs.model import Schedule


class SetSchedule(Placed, frozen=True, kw_only=True, tag="set_schedule"):
    """A new schedule, or another one under a name that there is. The same again changes nothing. Leader only."""

    schedule: Schedule
    by: b.Person = ""


class DropSchedule(Placed, frozen=True, kw_only=True, tag="drop_schedule"):
    """Nothing more of it fires; what runs goes on. Leader only."""

    name: b.AnyName
    by: b.Person = ""


class TriggerSchedule(Placed, frozen=True, kw_only=True, tag="trigger_schedule"):
    """Run its job now, beside the runs of its instants. The same `job_id` again is the same run. Leader only."""

    name: b.AnyName
    job_id: b.JobId
    by: b.Person = ""


class ListSchedules(Placed, frozen=True, kw_only=True, tag="schedules"):
    """Every schedule, and what became of its instants."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    schedule: Schedule
    next_at: float | None
    """Unix time; None when it never fires again, or is paused."""
    last_instant: float
    last_job: str
    fired: int
    skipped: int
    last_skipped: str
    """Why the last instant that was skipped did not run."""
    problem: str = ""
    """Why it cannot fire here, if it cannot."""
    datacenter: str = ""
    """Where it fires; empty where a manager answers."""


class ScheduleList(Reply, frozen=True, kw_only=True, tag="schedule_list"):
    schedules: tuple[ScheduleView, ...]
    now: float
    missing: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that did not."""
