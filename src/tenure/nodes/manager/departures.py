"""The shell around the rule of least loss: lets attempts leave a worker that an operator drained with a time limit (decision 0486)."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.control.messages.nodes import WorkerNode
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.health.least_loss import MarkWatch
from tenure.jobs.reason_text import seconds
from tenure.jobs.state_records import DrainRecord
from tenure.jobs.states import WorkflowState
from tenure.jobs.steering import MoveJob
from tenure.nodes.fleet.member import ReportedAttempts
from tenure.nodes.ledger import decided
from tenure.nodes.loop_keeper import FailedOn, ProductFailures
from tenure.nodes.manager.ledger import JobLedger
from tenure.nodes.term_leader import concerns_all

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
                try:
                    await self.ask(name, report.worker, record)
                except Exception as error:  # of this job alone: the others shall leave in time
                    if concerns_all(error):
                        raise
                    self._failures.note(FailedOn.JOB, name[0], "asking it to leave its worker", error)

    def _may_leave(self, one: AttemptReport, worker: str) -> bool:
        info = self._ledger.book.jobs.get(one.job_id)
        known = info.workflows.get(one.workflow) if info is not None else None
        running = known is not None and known.state is WorkflowState.RUNNING and known.attempt == one.attempt
        return running and known is not None and known.worker == worker and known.stop is None

    async def ask(self, name: Key, worker: str, record: DrainRecord) -> None:
        """Asks for one workflow to leave this worker after what it saved last."""
        saved = self.marks.saved(name)
        reason = f"{worker} is drained" + (f": {record.reason}" if record.reason else "")
        move = MoveJob(
            by=record.by or "operator",
            job_id=name[0],
            workflow=name[1],
            reason=reason,
            saved_at=saved.since if saved is not None else 0.0,
            mark=saved.mark if saved is not None else 0,
        )
        decided(await self._ledger.commit_all((move,)))
