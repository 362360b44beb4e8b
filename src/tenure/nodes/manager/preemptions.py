"""The shell around preemption by priority: asks running attempts to give their slot to urgent work that waits for one (decision 0570)."""

from __future__ import annotations

from tenure.control.messages.workers import WorkerReport
from tenure.health.least_loss import MarkWatch
from tenure.jobs.book import WorkflowKey, lane_of
from tenure.jobs.mailbox_names import mailbox_name
from tenure.jobs.outbox import message_key
from tenure.jobs.preemption import Preemption, Running, choose, may_give_way, overdue
from tenure.jobs.steering import MoveJob
from tenure.nodes.fleet.fleet import Fleet
from tenure.nodes.fleet.member import ReportedAttempts
from tenure.nodes.ledger import decided
from tenure.nodes.loop_keeper import FailedOn, ProductFailures
from tenure.nodes.manager.departures import Key
from tenure.nodes.manager.ledger import JobLedger
from tenure.nodes.manager.steering import serves
from tenure.nodes.term_leader import concerns_all

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
        self._ledger, self._fleet, self._reported, self._marks, self._failures = (
            ledger,
            fleet,
            reported,
            marks,
            failures,
        )
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
            try:
                await self._ask(one, now)
            except Exception as error:  # of this job alone: others may still give way
                if concerns_all(error):
                    raise
                self._failures.note(FailedOn.JOB, one.victim.key[0], "asking it to give way to urgent work", error)

    def _able(self, key: WorkflowKey) -> frozenset[str]:
        """Returns the workers that take this work, were a slot free."""
        info = self._ledger.book.jobs[key[0]]
        workflow = info.workflows[key[1]]
        able = self._fleet.able(mailbox_name(*lane_of(info)))
        return frozenset(
            one for one in able if one not in workflow.excluded and serves(self._ledger.book, one, workflow)
        )

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
        move = MoveJob(
            by="leader",
            job_id=one.victim.key[0],
            workflow=one.victim.key[1],
            reason=one.reason,
            saved_at=saved.since if saved is not None else 0.0,
            mark=saved.mark if saved is not None else 0,
            for_work=message_key(*one.waiting.key),
        )
        decided(await self._ledger.commit_all((move,)))
