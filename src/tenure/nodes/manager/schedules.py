"""Fires the schedules of a datacenter that are due, on the leader, and answers requests about schedules, on any manager."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from tenure.attempt_data import LIVE_TTL_S
from tenure.clock import zone
from tenure.control.claims import scope
from tenure.control.messages.queues import (
    DropSchedule,
    ListSchedules,
    ScheduleList,
    ScheduleView,
    SetSchedule,
    TriggerSchedule,
)
from tenure.control.messages.wire import Handlers, Reply
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import ConfigurationError, DatacenterFullError, UnknownScheduleError
from tenure.jobs import Decision, JobBook
from tenure.jobs.arguments import check_not_stored, schedule_owner
from tenure.jobs.cron import Zone, due, next_instant
from tenure.jobs.decisions import Event
from tenure.jobs.schedules import (
    CronFired,
    FireCron,
    InstantsSkipped,
    PauseSchedule,
    PutSchedule,
    RemoveSchedule,
    RunSchedule,
    ScheduleRemoved,
    ScheduleSet,
    SkipInstants,
)
from tenure.jobs.state_records import ScheduleRecord
from tenure.logs import NodeLog
from tenure.nodes.loop_keeper import FailedOn, ProductFailures, concerns_all
from tenure.nodes.manager.ledger import JobLedger
from tenure.nodes.stored_values import StoredArguments, stored_keys
from tenure.timers import Timers

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager

AGAIN_S = 1.0
"""The seconds after which a schedule is tried again on which our own code failed once."""


SCHEDULE_EVENTS: frozenset[type[Event]] = frozenset({ScheduleSet, ScheduleRemoved, CronFired, InstantsSkipped})
"""The events that `Clockwork.heard` heeds."""


class Clockwork:
    """The alarm clock of a leader: it knows which schedule is due next, and fires it. Everything that must last is in the book."""

    def __init__(self, ledger: JobLedger, log: NodeLog, failures: ProductFailures) -> None:
        self._ledger, self._log, self._failures = ledger, log, failures
        self._timers: Timers[str] = Timers()
        self._failed: set[str] = set()
        """Schedules on which our own code has just failed. A second failure in a row pauses the schedule."""

    def arm_all(self) -> None:
        """Sets the timer of every schedule in the book."""
        for name in list(self._ledger.book.state.schedules):
            self._arm(name)

    def next_due(self) -> float:
        return self._timers.next_due() if self._ledger.book.state.schedules else math.inf

    def heard(self, decision: Decision) -> None:
        """Sets the timers of the schedules that a decision changed."""
        for event in decision.events:
            if isinstance(event, ScheduleSet):
                self._arm(event.schedule.name)
            elif isinstance(event, (ScheduleRemoved, CronFired, InstantsSkipped)):
                self._arm(event.schedule)

    async def tend(self, now: float) -> None:
        """Fires the schedules that are due, oldest first. One that fails stays due: an instant is done when the journal says so.

        A schedule on which our own code fails twice in a row is paused: it must not keep the others from firing.
        """
        if not self._ledger.book.state.schedules:
            return
        for name in self._timers.pop_due(now):
            self._timers.set(name, now)  # until the journal says otherwise: an exception must not lose it
            try:
                await self._fire(name, now)
                self._failed.discard(name)
            except Exception as error:
                if concerns_all(error):
                    raise
                await self._set_back(name, now, error)

    async def _fire(self, name: str, now: float) -> None:
        record = self._ledger.book.state.schedules.get(name)
        local = self._zone(record) if record is not None else None
        if record is None or local is None:
            self._timers.cancel(name)
            return
        skip, fire = due(record, now, local)
        if skip:
            reason = (
                f"{now - skip[-1]:.0f} s late, and of missed runs the schedule wants {record.schedule.missed.value!r}"
            )
            skipped = SkipInstants(by="leader", schedule=name, until=skip[-1], count=len(skip), reason=reason)
            await self._ledger.commit(skipped)
        try:
            for instant in fire:
                await self._ledger.commit(FireCron(by="leader", schedule=name, instant=instant))
        except DatacenterFullError as error:
            # The instant stays due. When there is room again, the schedule's rule for missed runs decides on it.
            self._log.warning(f"schedule {name!r} waits for room: {error}")
            self._timers.set(name, now + error.retry_after_s)
            return
        record = self._ledger.book.state.schedules.get(name)  # as the commits left it
        self._timers.set(name, next_instant(record, local) if record is not None else math.inf)

    async def _set_back(self, name: str, now: float, error: Exception) -> None:
        failed = self._failures.note(FailedOn.SCHEDULE, name, "firing a schedule", error)
        if name not in self._failed:
            self._failed.add(name)
            self._timers.set(name, now + AGAIN_S)
            return
        self._timers.cancel(name)
        what = f"{type(error).__name__}: {error}"
        with self._failures.noted(FailedOn.SCHEDULE, name, "pausing it; it rests until another leader takes over"):
            await self._ledger.commit(PauseSchedule(by="leader", schedule=name, error=what, trace=failed.trace))
            self._failed.discard(name)

    def _arm(self, name: str) -> None:
        """Sets the timer of a schedule. One whose next instant cannot be computed is due now: firing it raises the reason."""
        try:
            record = self._ledger.book.state.schedules.get(name)
            local = self._zone(record) if record is not None else None
            at = next_instant(record, local) if record is not None and local is not None else math.inf
        except Exception:
            at = 0.0
        self._timers.set(name, at)

    def _zone(self, record: ScheduleRecord) -> Zone | None:
        try:
            return zone(record.schedule.zone)
        except ConfigurationError as error:
            self._log.warning(f"schedule {record.schedule.name!r} cannot fire from here: {error}")
            return None


class ScheduleHandlers:
    """Part of a manager. Any manager lists schedules; only the leader changes them."""

    def __init__(self, manager: Manager, engine: Engine, calls: Calls) -> None:
        self._manager, self._arguments = manager, StoredArguments(engine, calls)
        self.handlers: Handlers = {
            SetSchedule: self._set,
            DropSchedule: self._drop,
            TriggerSchedule: self._trigger,
            ListSchedules: self._list,
        }

    async def _check_bounds(self, name: str, *, new: bool = False) -> None:
        """Raises `UnknownScheduleError` for a schedule that is out of the caller's bounds, as for one that does not exist; `ConfigurationError` where
        it keeps the caller from making a `new` one of its name."""
        within = scope()
        found = await self._manager.ledger.read(lambda book: book.state.schedules.get(name)) if within.scoped else None
        if found is None or within.covers(found.schedule.job):
            return
        if new:
            raise ConfigurationError(
                f"the name {name!r} is taken, by a schedule of others", remedy="Choose another name"
            )
        raise UnknownScheduleError(name)

    async def _set(self, request: SetSchedule) -> Reply:
        await self._check_bounds(request.schedule.name, new=True)
        zone(request.schedule.zone)  # raises for an unknown time zone, before the schedule is written
        schedule, name = request.schedule, request.schedule.name
        before = await self._stored_of(name)
        check_not_stored(schedule.job, before)  # one that was read from a list may be set again
        kept = await self._arguments.kept(schedule.job, schedule_owner(name), ttl=None)
        try:
            reply = await self._manager.write(
                PutSchedule(schedule=msgspec.structs.replace(schedule, job=kept), by=request.by)
            )
        finally:
            now = await self._stored_of(name)
            await self._arguments.keep_for([one for one in {*before, *stored_keys(kept)} if one not in now], LIVE_TTL_S)
        return reply

    async def _drop(self, request: DropSchedule) -> Reply:
        await self._check_bounds(request.name)
        before = await self._stored_of(request.name)
        reply = await self._manager.write(RemoveSchedule(schedule=request.name, by=request.by))
        await self._arguments.keep_for(before, LIVE_TTL_S)  # what runs goes on, and reads them
        return reply

    async def _stored_of(self, name: str) -> list[str]:
        """Returns the keys of the large arguments of a schedule as it is now."""

        def look(book: JobBook) -> list[str]:
            record = book.state.schedules.get(name)
            return stored_keys(record.schedule.job) if record is not None else []

        return await self._manager.ledger.read(look)

    async def _trigger(self, request: TriggerSchedule) -> Reply:
        await self._check_bounds(request.name)
        return await self._manager.write(RunSchedule(schedule=request.name, job_id=request.job_id, by=request.by))

    async def _list(self, request: ListSchedules) -> Reply:
        now, within = self._manager.now(), scope()

        def look(book: JobBook) -> ScheduleList:
            found = [one for one in book.state.schedules.values() if within.covers(one.schedule.job)]
            return ScheduleList(schedules=tuple(map(schedule_view, found)), now=now)

        return await self._manager.ledger.read(look)


def schedule_view(record: ScheduleRecord) -> ScheduleView:
    problem, next_at = record.trouble, math.inf
    try:
        next_at = next_instant(record, zone(record.schedule.zone))
    except Exception as error:
        problem = str(error)  # shown for this schedule: one that cannot be computed must not hide the others
    return ScheduleView(
        schedule=record.schedule,
        next_at=next_at if next_at < math.inf else None,
        last_instant=record.last_instant,
        last_job=record.last_job,
        fired=record.fired,
        skipped=record.skipped,
        last_skipped=record.last_skipped,
        problem=problem,
    )
