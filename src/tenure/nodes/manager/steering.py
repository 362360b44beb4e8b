"""Acts on running work: turns the requests of people into commands, and asks attempts to leave a drained worker or to make way for urgent work.

`Departures` is the shell around the rule of least loss (decision 0486), `Preemptions` the one around preemption by priority (decision 0570). Both ask by
a `MoveJob`, with what the attempt saved last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenure.control.messages.jobs import MoveRunningJob, PauseRunningJob, ResumePausedJob, SignalJob, SteeringRequest
from tenure.control.messages.nodes import WorkerNode
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.errors import ConfigurationError
from tenure.health.least_loss import MarkWatch, Saved
from tenure.jobs import JobBook
from tenure.jobs.mailbox_names import mailbox_name
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.outbox import message_key
from tenure.jobs.preemption import Preemption, Running, choose, may_give_way, overdue
from tenure.jobs.reason_text import seconds
from tenure.jobs.state_records import DrainRecord
from tenure.jobs.states import WorkflowState
from tenure.jobs.steering import MoveJob, PauseJob, ResumeJob, RetimeJob
from tenure.jobs.waits import SendSignal
from tenure.jobs.work_indexes import WorkflowKey, lane_of
from tenure.nodes.fleet.fleet import Fleet
from tenure.nodes.fleet.member import ReportedAttempts
from tenure.nodes.loop_keeper import FailedOn, ProductFailures
from tenure.nodes.manager.ledger import JobLedger

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager


def command_of(request: SteeringRequest) -> PauseJob | ResumeJob | RetimeJob | MoveJob | SendSignal:
    if isinstance(request, PauseRunningJob):
        return PauseJob(by=request.by, job_id=request.job_id, reason=request.reason)
    if isinstance(request, ResumePausedJob):
        return ResumeJob(by=request.by, job_id=request.job_id, reason=request.reason)
    if isinstance(request, MoveRunningJob):
        return MoveJob(by=request.by, job_id=request.job_id, workflow=request.workflow, reason=request.reason)
    if isinstance(request, SignalJob):
        return SendSignal(
            by=request.by,
            job_id=request.job_id,
            name=request.name,
            signal_id=request.signal_id,
            payload=request.payload,
        )
    return RetimeJob(
        by=request.by,
        job_id=request.job_id,
        timeout_seconds=request.timeout_seconds,
        add_s=request.add_s,
        reason=request.reason,
    )


def check_goal(manager: Manager, request: SteeringRequest) -> None:
    """Raises `ConfigurationError` for a move when no other worker could take the work: it would only begin again where it is."""
    if not isinstance(request, MoveRunningJob):
        return
    book, fleet = manager.ledger.book, manager.worker_reports.fleet
    info = book.jobs.get(request.job_id)
    for name, one in info.workflows.items() if info is not None else ():
        if one.state is not WorkflowState.RUNNING or request.workflow not in ("", name):
            continue
        assert info is not None
        if not able_workers(fleet, book, info, one) - {one.worker}:
            raise ConfigurationError(
                f"{name!r} of job {request.job_id!r} cannot leave {one.worker}: no other worker that takes work serves it",
                remedy="Start another worker, or undrain one (tenure nodes), then move it",
            )


def able_workers(fleet: Fleet, book: JobBook, info: JobInfo, workflow: WorkflowRecord) -> set[str]:
    """Returns the workers that take this work, were a slot free."""
    return {worker for worker in fleet.able(mailbox_name(*lane_of(info))) if serves(book, worker, workflow)}


def serves(book: JobBook, worker: str, workflow: WorkflowRecord) -> bool:
    """Returns True when a worker registered this workflow. One that registered nothing, as those of the first release, may serve anything."""
    known = book.state.registered.get(worker)
    offer = book.state.offers.get(known.offer) if known is not None else None
    if offer is None:
        return True
    offered, wanted = (*offer.workflows, *offer.takes_over), workflow.version
    return any(name == workflow.spec.called and wanted in ("", version) for name, version in offered)


ROOM_S = 10.0
"""An attempt is asked this long before the limit at the latest: it has its grace, and its result must be recorded. At most a quarter of the time."""

Key = tuple[str, str, int, int]


class Departures:
    """Part of a leader, and gone with its term: reports tell the marks anew. A new leader knows no time between marks, and waits for the next one."""

    def __init__(self, ledger: JobLedger, reported: ReportedAttempts, failures: ProductFailures) -> None:
        self._ledger, self._reported, self._failures = ledger, reported, failures
        self.marks: MarkWatch[Key] = MarkWatch()
        """The durable marks of everything that runs."""

    def heard(self, report: WorkerReport, now: float) -> None:
        """Takes a report."""
        for one in report.attempts:
            self.marks.look(one.name, one.mark, now, self._began(one))

    def _began(self, one: AttemptReport) -> float | None:
        info = self._ledger.book.jobs.get(one.job_id)
        known = info.workflows.get(one.workflow) if info is not None else None
        return known.started_at or None if known is not None else None

    def loss_s(self, report: WorkerReport, now: float) -> float:
        """Returns the work that would be lost if everything on a worker ended now."""
        return sum(self.marks.loss_s(one.name, now) for one in report.attempts)

    def words(self, worker: str, now: float) -> str:
        """Returns what the end of a worker would cost now, for whoever drains it; empty where it runs nothing."""
        found = [report for report in self._reported.reports() if report.worker == worker and report.attempts]
        count, loss = sum(len(one.attempts) for one in found), sum(self.loss_s(one, now) for one in found)
        return f"{count} attempts run there, with {seconds(round(loss))} of work since they last saved" if found else ""

    def shown(self, worker: WorkerNode, now: float) -> WorkerNode:
        """Returns a worker's line with what its end would cost now, and what its drain has cost so far."""
        heard = self._reported.report(worker.incarnation)
        record = self._ledger.book.state.drained.get(worker.name)
        return replace(
            worker,
            loss_s=round(self.loss_s(heard.report, now), 1) if heard is not None else 0.0,
            leaves_by=record.until if record is not None else 0.0,
            moved=record.moved if record is not None else 0,
            lost_s=round(record.lost_s, 1) if record is not None else 0.0,
        )

    async def look(self, now: float) -> None:
        """Asks those attempts to leave whose time has come."""
        reports = list(self._reported.reports())
        self.marks.keep({one.name for report in reports for one in report.attempts})
        for report in reports:
            record = self._ledger.book.state.drained.get(report.worker)
            if record is None or not record.until:
                continue
            running = [one.name for one in report.attempts if self._may_leave(one, report.worker)]
            last_call = record.until - min(ROOM_S, (record.until - record.at) / 4)
            for name in self.marks.leaving(running, now, last_call):
                # An error of one job is noted: the others shall leave in time.
                with self._failures.noted(FailedOn.JOB, name[0], "asking it to leave its worker"):
                    await self.ask(name, report.worker, record)

    def _may_leave(self, one: AttemptReport, worker: str) -> bool:
        info = self._ledger.book.jobs.get(one.job_id)
        known = info.workflows.get(one.workflow) if info is not None else None
        running = known is not None and known.state is WorkflowState.RUNNING and known.attempt == one.attempt
        return running and known is not None and known.worker == worker and known.stop is None

    async def ask(self, name: Key, worker: str, record: DrainRecord) -> None:
        """Asks for one workflow to leave this worker after what it saved last."""
        reason = f"{worker} is drained" + (f": {record.reason}" if record.reason else "")
        await self._ledger.commit(_move(name[:2], self.marks.saved(name), reason, by=record.by or "operator"))


PATIENCE_S = 30.0
"""Work for which a slot was emptied asks for no other one for so long: its worker has to end the attempt, claim the work and report it."""


class Preemptions:
    """Part of a leader, and gone with its term."""

    def __init__(
        self,
        ledger: JobLedger,
        fleet: Fleet,
        reported: ReportedAttempts,
        marks: MarkWatch[Key],
        failures: ProductFailures,
    ) -> None:
        self._ledger, self._fleet, self._reported = ledger, fleet, reported
        self._marks, self._failures = marks, failures
        self._asked: dict[WorkflowKey, float] = {}
        """Maps urgent work to the time at which an attempt was last asked to make way for it."""

    async def look(self, now: float) -> None:
        """Asks those attempts to end whose slots urgent work needs. Without a queue that preempts it costs nothing."""
        if not any(one.preempt_after is not None for one in self._ledger.book.state.queues.values()):
            return
        self._asked = {key: at for key, at in self._asked.items() if now - at < PATIENCE_S}
        reports = {one.worker: one for one in self._reported.reports()}
        # The book may be ahead of the journal. That does no harm: `MoveJob` is decided anew on what is durable when it is committed.
        waiting = [one for one in overdue(self._ledger.book, now, self._able) if one.key not in self._asked]
        if not waiting:
            return
        running = [found for report in reports.values() for found in self._running(report, now)]
        for one in choose(waiting, running, lambda worker: reports[worker].free if worker in reports else 0):
            # An error of one job is noted: others may still give way.
            with self._failures.noted(FailedOn.JOB, one.victim.key[0], "asking it to give way to urgent work"):
                await self._ask(one, now)

    def _able(self, key: WorkflowKey) -> set[str]:
        info = self._ledger.book.jobs[key[0]]
        workflow = info.workflows[key[1]]
        return able_workers(self._fleet, self._ledger.book, info, workflow) - set(workflow.excluded)

    def _running(self, report: WorkerReport, now: float) -> list[Running]:
        book, found = self._ledger.book, []
        for one in report.attempts:
            key = one.job_id, one.workflow
            if may_give_way(book, key, one.attempt, report.worker, one.mark):
                priority = lane_of(book.jobs[one.job_id])[1]
                found.append(Running(key, report.worker, priority, self._marks.loss_s(one.name, now)))
        return found

    async def _ask(self, one: Preemption, now: float) -> None:
        self._asked[one.waiting.key] = now
        reported = self._reported.attempt(*one.victim.key)
        saved = self._marks.saved(reported.attempt.name) if reported is not None else None
        for_work = message_key(*one.waiting.key)
        await self._ledger.commit(_move(one.victim.key, saved, one.reason, by="leader", for_work=for_work))


def _move(key: WorkflowKey, saved: Saved | None, reason: str, *, by: str, for_work: str = "") -> MoveJob:
    """Returns the command that has a workflow go on elsewhere after what it saved last."""
    return MoveJob(
        by=by,
        job_id=key[0],
        workflow=key[1],
        reason=reason,
        saved_at=saved.since if saved is not None else 0.0,
        mark=saved.mark if saved is not None else 0,
        for_work=for_work,
    )
