"""Schedules: jobs that come again. An instant fires once or is skipped once, also when the leader changes.

`cron.due` returns the instants that have come since the last one; the leader fires or skips them, each with one append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tenure.bound_checks import check
from tenure.errors import ConfigurationError, LimitError, UnknownScheduleError
from tenure.jobs import budget
from tenure.jobs.budget import encoded_bytes
from tenure.jobs.cron import Cron
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, Outcome, Rule, Rules
from tenure.jobs.door import enter
from tenure.jobs.model import JobSubmission, as_recorded
from tenure.jobs.settings import LIMITS, MOST_TRACE_CHARS
from tenure.jobs.state_records import Missed, Overlap, Schedule, ScheduleRecord
from tenure.jobs.submission import SubmitJob, submit_job, validate

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

LEAST_EVERY_S = 1.0


MOST_SCHEDULES = 10_000


class PutSchedule(Command, frozen=True, kw_only=True):
    """A user sets a new schedule, or replaces the one of that name."""

    schedule: Schedule


class RemoveSchedule(Command, frozen=True, kw_only=True):
    """A user removes a schedule. It fires no more; runs that have begun go on."""

    schedule: str


class FireCron(Command, frozen=True, kw_only=True):
    """An instant of a schedule has come."""

    schedule: str
    instant: float


class RunSchedule(Command, frozen=True, kw_only=True):
    """A user wants a run now, beside those of the schedule's instants. The same `job_id` again is the same run."""

    schedule: str
    job_id: str


class SkipInstants(Command, frozen=True, kw_only=True):
    """These instants have come, and by the schedule's rule for missed ones they do not run."""

    schedule: str
    until: float
    count: int
    reason: str


class PauseSchedule(Command, frozen=True, kw_only=True):
    """The leader's own code raised while it handled this schedule: it fires no more until a user sets it anew."""

    schedule: str
    error: str
    trace: str = ""


class ScheduleSet(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A schedule is new, or was changed: only instants after this count."""

    schedule: Schedule


class ScheduleRemoved(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A schedule fires no more; runs that have begun go on."""

    schedule: str


class CronFired(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An instant fired. The leader writes it in one append with the `JobSubmitted` that it caused, so an instant fires once."""

    schedule: str
    instant: float
    job_id: str


class InstantsSkipped(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Instants that came and will not run."""

    schedule: str
    until: float
    """The newest of the instants."""
    count: int
    reason: str


def check_schedule(schedule: Schedule) -> None:
    """Raises for a schedule that cannot work, before it is written. The caller also checks its job as a submission, under the id of a run."""
    check(
        msgspec.structs.replace(schedule, job=msgspec.structs.replace(schedule.job, job_id=schedule.job.job_id or "-"))
    )
    if bool(schedule.cron) == bool(schedule.every_s):
        raise ConfigurationError(
            f"schedule {schedule.name!r} has {'both' if schedule.cron else 'neither'} of cron and every_s",
            remedy="Give one of them: cron='0 6 * * *', or every_s=3600",
        )
    if schedule.cron:
        cron = Cron.parse(schedule.cron)
        if cron.next_after(0) is None:
            raise ConfigurationError(f"the cron expression {schedule.cron!r} is never due", remedy="Mind its day")
    elif schedule.every_s < LEAST_EVERY_S:
        raise LimitError("every_s", schedule.every_s, f"at least {LEAST_EVERY_S:g} s")
    if schedule.missed is Missed.ALL and schedule.overlap is Overlap.SKIP:
        raise ConfigurationError(
            f"schedule {schedule.name!r} makes up for all missed runs, and skips a run while another goes on",
            remedy="Say overlap='allow' with missed='all': what is made up for starts at once",
        )


def _check_is_of_its_own(schedule: Schedule) -> None:
    """Raises where each run would take up another job: no run of such a schedule could be submitted."""
    job = schedule.job
    if job.undo_of or job.retry_from:
        what = f"runs the compensations of {job.undo_of!r}" if job.undo_of else f"begins again from {job.retry_from!r}"
        raise ConfigurationError(
            f"the job of schedule {schedule.name!r} {what}, which one job can do, and no schedule",
            remedy="Leave undo_of and retry_from out; tenure retry JOB does both",
        )


def cron_job_id(schedule: str, instant: float) -> str:
    """Returns `name/instant`. An instant that fires twice, also under two leaders, has one id and so is one job."""
    return f"{schedule}/{int(instant)}"


def run_of(schedule: Schedule, instant: float) -> JobSubmission:
    """Returns the submission for one instant: the template under the id of the instant. The id makes every firing of it the same job."""
    return msgspec.structs.replace(
        schedule.job,
        job_id=cron_job_id(schedule.name, instant),
        name=schedule.job.name or schedule.name,
        labels={**schedule.job.labels, "schedule": schedule.name},
    )


def put_schedule(book: JobBook, command: PutSchedule, now: float, rules: Rules) -> Decision:
    schedule = msgspec.structs.replace(command.schedule, job=as_recorded(command.schedule.job))
    check_schedule(schedule)
    validate(run_of(schedule, now), LIMITS)
    enter(book, schedule.job, now)
    if schedule.job.idempotency_key:
        raise ConfigurationError(
            f"the job of schedule {schedule.name!r} has an idempotency key, so it could run only once",
            remedy="Leave it out: each instant has an id of its own",
        )
    _check_is_of_its_own(schedule)
    known = book.state.schedules.get(schedule.name)
    if known is not None and known.schedule == schedule:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it stands so already")
    if known is None and len(book.state.schedules) >= MOST_SCHEDULES:
        raise ConfigurationError(
            f"there are {MOST_SCHEDULES:,} schedules already", remedy="Remove some that are not used"
        )
    budget.check_schedules(book, budget.SMALL_RECORD_BYTES + encoded_bytes(schedule))
    event = ScheduleSet(at=now, by=command.by, rule=Rule.ASKED, schedule=schedule)
    return Decision([event], Outcome.ACCEPTED, Rule.ASKED, "changed" if known else "new")


def remove_schedule(book: JobBook, command: RemoveSchedule, now: float, rules: Rules) -> Decision:
    if command.schedule not in book.state.schedules:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "there is no such schedule")
    event = ScheduleRemoved(at=now, by=command.by, rule=Rule.ASKED, schedule=command.schedule)
    return Decision([event], Outcome.ACCEPTED, Rule.ASKED)


def fire_cron(book: JobBook, command: FireCron, now: float, rules: Rules) -> Decision:
    job_id = cron_job_id(command.schedule, command.instant)
    record = book.state.schedules.get(command.schedule)
    if record is None:
        raise UnknownScheduleError(command.schedule)
    if command.instant <= record.last_instant:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "this instant has fired", job_id)
    if busy := still_running(book, record):
        reason = f"the run before it, {busy}, goes on"
        return skip_instants(
            book, SkipInstants(schedule=command.schedule, until=command.instant, count=1, reason=reason), now, rules
        )
    by = f"schedule {command.schedule}"
    decision = submit_job(
        book, SubmitJob(by=by, submission=run_of(record.schedule, command.instant), lenient=True), now, rules
    )
    fired = CronFired(
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


def run_schedule(book: JobBook, command: RunSchedule, now: float, rules: Rules) -> Decision:
    record = book.state.schedules.get(command.schedule)
    if record is None:
        raise UnknownScheduleError(command.schedule)
    submission = msgspec.structs.replace(run_of(record.schedule, now), job_id=command.job_id)
    return submit_job(book, SubmitJob(by=command.by, submission=submission), now, rules)


def pause_schedule(book: JobBook, command: PauseSchedule, now: float, rules: Rules) -> Decision:
    """Pauses a schedule without the checks of `put`: a fault that this version finds in it may be the reason to pause it."""
    record = book.state.schedules.get(command.schedule)
    if record is None or record.schedule.paused:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it does not fire")
    event = ScheduleSet(
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


def skip_instants(book: JobBook, command: SkipInstants, now: float, rules: Rules) -> Decision:
    record = book.state.schedules.get(command.schedule)
    if record is None:
        raise UnknownScheduleError(command.schedule)
    if command.until <= record.last_instant:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "they have fired or were skipped")
    event = InstantsSkipped(
        at=now,
        by=command.by,
        schedule=command.schedule,
        until=command.until,
        count=command.count,
        reason=command.reason,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.FOLLOWED, command.reason)


def cron_fired(book: JobBook, event: CronFired) -> None:
    if record := book.state.schedules.get(event.schedule):
        book.size.left("schedules", event.schedule, record)
        record.last_instant = max(event.instant, record.last_instant)
        record.last_job, record.fired = event.job_id, record.fired + 1
        book.size.came("schedules", event.schedule, record)


def schedule_set(book: JobBook, event: ScheduleSet) -> None:
    name = event.schedule.name
    record = book.state.schedules.get(name)
    if record is None:
        record = book.state.schedules[name] = ScheduleRecord(schedule=event.schedule, since=event.at)
    else:
        book.size.left("schedules", name, record)
        record.schedule, record.since = event.schedule, event.at
        record.trouble = str(event.evidence.get("error", ""))
    book.size.came("schedules", name, record)


def schedule_removed(book: JobBook, event: ScheduleRemoved) -> None:
    book.size.left("schedules", event.schedule, book.state.schedules.pop(event.schedule))


def instants_skipped(book: JobBook, event: InstantsSkipped) -> None:
    record = book.state.schedules[event.schedule]
    book.size.left("schedules", event.schedule, record)
    record.last_instant = max(event.until, record.last_instant)
    record.skipped, record.last_skipped = record.skipped + event.count, event.reason
    book.size.came("schedules", event.schedule, record)


DECIDE: Decides = {
    PutSchedule: put_schedule,
    RemoveSchedule: remove_schedule,
    FireCron: fire_cron,
    RunSchedule: run_schedule,
    SkipInstants: skip_instants,
    PauseSchedule: pause_schedule,
}
FOLD: Folds = {
    ScheduleSet: schedule_set,
    ScheduleRemoved: schedule_removed,
    CronFired: cron_fired,
    InstantsSkipped: instants_skipped,
}
