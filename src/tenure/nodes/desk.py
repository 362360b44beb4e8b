"""Where workers report: what runs is recorded, what advances keeps its time, what nobody wants any more is told at once.

A leader's own memory. It dies with the term: each report is the whole state, so the next leader knows as much after a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from tenure.clock import Clock
from tenure.jobs import Decision, JobBook, ProgressWatch, RecordProgress
from tenure.jobs.commands import Command
from tenure.jobs.model import JobInfo
from tenure.jobs.outbox import standing
from tenure.jobs.states import WorkflowState
from tenure.jobs.submission import settled
from tenure.nodes.ledger import Ledger
from tenure.nodes.worker_messages import AttemptReport, Unwanted, WorkerDirective, WorkerReport


class WorkerDesk:
    """Answers reports with directives. `touched` when something was decided about a job."""

    def __init__(
        self,
        ledger: Ledger,
        commit: Callable[[Command], Awaitable[Decision]],
        *,
        epoch: int,
        clock: Clock,
        engine_now: Callable[[], float],
    ) -> None:
        self._ledger, self._commit, self._epoch, self._clock, self._now = ledger, commit, epoch, clock, engine_now
        self.watch = ProgressWatch()
        self._latest: dict[str, WorkerReport] = {}
        self._live: dict[tuple[str, str], AttemptReport] = {}
        self._runs_on: dict[str, set[str]] = {}
        self._bells: dict[str, set[asyncio.Future[None]]] = {}

    def live(self, job_id: str, workflow: str) -> AttemptReport | None:
        """The newest word on a workflow that runs: for people, more recent than the journal."""
        return self._live.get((job_id, workflow))

    async def report(self, report: WorkerReport) -> WorkerDirective:
        """Record it, and say what is not wanted: at once if there is anything, else when there is, or after `wait_s`."""
        self._remember(report)
        unwanted = await self._unwanted(report)
        dropped = {(one.job_id, one.workflow, one.attempt) for one in unwanted}
        wanted = [one for one in report.attempts if one.name[:3] not in dropped]
        await asyncio.gather(*(self._record(report.worker, one) for one in wanted))
        if not unwanted and report.wait_s:
            await self._hold(report.worker, report.wait_s)
            unwanted = await self._unwanted(self._latest.get(report.worker, report))
        return WorkerDirective(epoch=self._epoch, cancels=unwanted)

    def touched(self, job_ids: Iterable[str]) -> None:
        """Whoever runs something of these jobs may have to hear of it."""
        for job_id in job_ids:
            for worker in self._runs_on.get(job_id, ()):
                for bell in self._bells.get(worker, ()):
                    if not bell.done():
                        bell.set_result(None)

    def forget(self, info: JobInfo) -> None:
        """The job has ended."""
        self.watch.forget_job(info.id, list(info.workflows))

    def _remember(self, report: WorkerReport) -> None:
        before = self._latest.get(report.worker)
        for one in before.attempts if before else ():
            self._live.pop((one.job_id, one.workflow), None)
            self._runs_on.get(one.job_id, set()).discard(report.worker)
            if not self._runs_on.get(one.job_id):
                self._runs_on.pop(one.job_id, None)
        if not report.attempts:
            self._latest.pop(report.worker, None)
            return
        self._latest[report.worker] = report
        for one in report.attempts:
            self._live[(one.job_id, one.workflow)] = one
            self._runs_on.setdefault(one.job_id, set()).add(report.worker)

    async def _unwanted(self, report: WorkerReport) -> tuple[Unwanted, ...]:
        def look(book: JobBook) -> tuple[Unwanted, ...]:
            found = []
            for one in report.attempts:
                verdict = standing(book, *one.name)
                if not verdict.wanted:
                    found.append(
                        Unwanted(job_id=one.job_id, workflow=one.workflow, attempt=one.attempt, reason=verdict.reason)
                    )
            return tuple(found)

        return await self._ledger.read(look)

    async def _record(self, worker: str, one: AttemptReport) -> None:
        """One word for both: the core records a start that it had not heard of, and progress when it is due."""
        command = RecordProgress(
            by=worker,
            job_id=one.job_id,
            workflow=one.workflow,
            attempt=one.attempt,
            worker=worker,
            incarnation=worker,
            delivery=one.delivery,
            steps=one.steps,
            fraction=one.fraction,
            note=one.note,
        )
        now, before = self._now(), self.watch.last(one.job_id)
        advanced = self.watch.observe(command, now)
        info = self._ledger.book.jobs.get(one.job_id)
        if info is None:
            return
        # The time of the last beat counts, not the time at which we heard of it.
        self.watch.touch(one.job_id, max(before, min(now, now - one.silent_s + patience(info, one, self._ledger.book))))
        workflow = info.workflows[one.workflow]
        if advanced or workflow.state is not WorkflowState.RUNNING or workflow.delivery != one.delivery:
            await self._commit(command)

    async def _hold(self, worker: str, seconds: float) -> None:
        bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bells.setdefault(worker, set()).add(bell)
        nap = asyncio.ensure_future(self._clock.async_sleep(seconds))
        try:
            await asyncio.wait([bell, nap], return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            bell.cancel()
            bells = self._bells.get(worker, set())
            bells.discard(bell)
            if not bells:
                self._bells.pop(worker, None)

    def close(self) -> None:
        """The term is over: whoever is held asks the next leader."""
        for bells in self._bells.values():
            for bell in bells:
                if not bell.done():
                    bell.set_result(None)


def patience(info: JobInfo, one: AttemptReport, book: JobBook) -> float:
    """How much longer than its job's stuck threshold an attempt may be silent: stall < stuck, also where only the worker knows the stall.

    A threshold that was asked for stands as it is; one that we derived becomes twice the stall (DESIGN.md, the ladder).
    """
    submission, threshold = info.job.submission, info.timeout_tracking.stuck_threshold
    derived = settled(msgspec.structs.replace(submission, stuck_threshold=None), book.settings).stuck_threshold
    return max(0.0, 2 * one.stall_s - threshold) if threshold == derived else 0.0
