"""Decides about schedules: an instant fires once or is skipped once, also when the leader changes."""

from __future__ import annotations

import msgspec

from tenure.errors import ConfigurationError, UnknownScheduleError
from tenure.jobs import budget
from tenure.jobs import commands as c
from tenure.jobs import events as e
from tenure.jobs.book import JobBook
from tenure.jobs.commands import Decision, Outcome
from tenure.jobs.decide_jobs import LIMITS, MOST_TRACE_CHARS, submit
from tenure.jobs.events import Rule
from tenure.jobs.model import JobSubmission
from tenure.jobs.rules import Rules
from tenure.jobs.schedule import Overlap, Schedule, ScheduleRecord
from tenure.jobs.schedule import validate as check_schedule
from tenure.jobs.submission import encoded_size
from tenure.jobs.submission import validate as check_submission

MOST_SCHEDULES = 10_000


def run_of(schedule: Schedule, instant: float) -> JobSubmission:
    """Returns the submission for one instant: the template under the id of the instant. The id makes every firing of it the same job."""
    return msgspec.structs.replace(
        schedule.job,
        job_id=c.cron_job_id(schedule.name, instant),
        name=schedule.job.name or schedule.name,
        labels={**schedule.job.labels, "schedule": schedule.name},
    )


def put(book: JobBook, command: c.PutSchedule, now: float, rules: Rules) -> Decision:
    schedule = command.schedule
    check_schedule(schedule)
    check_submission(run_of(schedule, now), LIMITS)
    if schedule.job.idempotency_key:
        raise ConfigurationError(
            f"the job of schedule {schedule.name!r} has an idempotency key, so it could run only once",
            remedy="Leave it out: each instant has an id of its own",
        )
    known = book.state.schedules.get(schedule.name)
    if known is not None and known.schedule == schedule:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it stands so already")
    if known is None and len(book.state.schedules) >= MOST_SCHEDULES:
        raise ConfigurationError(
            f"there are {MOST_SCHEDULES:,} schedules already", remedy="Remove some that are not used"
        )
    budget.check_schedules(book, budget.SMALL_RECORD_BYTES + encoded_size(schedule))
    event = e.ScheduleSet(at=now, by=command.by, rule=Rule.ASKED, schedule=schedule)
    return Decision([event], Outcome.ACCEPTED, Rule.ASKED, "changed" if known else "new")


def remove(book: JobBook, command: c.RemoveSchedule, now: float, rules: Rules) -> Decision:
    if command.schedule not in book.state.schedules:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "there is no such schedule")
    event = e.ScheduleRemoved(at=now, by=command.by, rule=Rule.ASKED, schedule=command.schedule)
    return Decision([event], Outcome.ACCEPTED, Rule.ASKED)


def fire(book: JobBook, command: c.FireCron, now: float, rules: Rules) -> Decision:
    job_id = c.cron_job_id(command.schedule, command.instant)
    record = book.state.schedules.get(command.schedule)
    if record is None:
        raise UnknownScheduleError(command.schedule)
    if command.instant <= record.last_instant:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "this instant has fired", job_id)
    if busy := still_running(book, record):
        reason = f"the run before it, {busy}, goes on"
        return skip(
            book, c.SkipInstants(schedule=command.schedule, until=command.instant, count=1, reason=reason), now, rules
        )
    by = f"schedule {command.schedule}"
    decision = submit(book, c.SubmitJob(by=by, submission=run_of(record.schedule, command.instant)), now, rules)
    fired = e.CronFired(
        at=now,
        by=command.by,
        rule=Rule.ASKED,
        schedule=command.schedule,
        instant=command.instant,
        job_id=job_id,
        evidence={"late_by": now - command.instant},
    )
    # The job's own events come first: the fold keeps `CronFired` in the history of the job, which must exist by then.
    return decision._replace(events=[*decision.events, fired])


def run_now(book: JobBook, command: c.RunSchedule, now: float, rules: Rules) -> Decision:
    record = book.state.schedules.get(command.schedule)
    if record is None:
        raise UnknownScheduleError(command.schedule)
    submission = msgspec.structs.replace(run_of(record.schedule, now), job_id=command.job_id)
    return submit(book, c.SubmitJob(by=command.by, submission=submission), now, rules)


def pause(book: JobBook, command: c.PauseSchedule, now: float, rules: Rules) -> Decision:
    """Pauses a schedule without the checks of `put`: a fault that this version finds in it may be the reason to pause it."""
    record = book.state.schedules.get(command.schedule)
    if record is None or record.schedule.paused:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it does not fire")
    event = e.ScheduleSet(
        at=now,
        by=command.by,
        rule=Rule.PRODUCT_FAILED,
        schedule=msgspec.structs.replace(record.schedule, paused=True),
        evidence={"error": command.error[: LIMITS.max_error_chars], "traceback": command.trace[-MOST_TRACE_CHARS:]},
    )
    return Decision([event], Outcome.ACCEPTED, Rule.PRODUCT_FAILED, command.error)


def still_running(book: JobBook, record: ScheduleRecord) -> str:
    """Returns the id of the last run while it goes on and the schedule allows no other beside it; otherwise an empty string."""
    if record.schedule.overlap is Overlap.ALLOW:
        return ""
    last = book.jobs.get(record.last_job)
    return record.last_job if last is not None and not last.state.terminal else ""


def skip(book: JobBook, command: c.SkipInstants, now: float, rules: Rules) -> Decision:
    record = book.state.schedules.get(command.schedule)
    if record is None:
        raise UnknownScheduleError(command.schedule)
    if command.until <= record.last_instant:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "they have fired or were skipped")
    event = e.InstantsSkipped(
        at=now,
        by=command.by,
        schedule=command.schedule,
        until=command.until,
        count=command.count,
        reason=command.reason,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.FOLLOWED, command.reason)
