"""Answers the reports of workers: records which attempts run and advance, and tells a worker at once which attempts it must stop.

This is the shell around `Fleet`: it commits each decision of the fleet, and only then lets it count. It is the memory of one leader and dies
with the term. Each report holds the whole state of its worker, so the next leader knows as much after one report from each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from tenure.control.messages.wire import Grant
from tenure.control.messages.workers import (
    AttemptReport,
    ExtendDeadline,
    ExtensionReply,
    Unwanted,
    WorkerDirective,
    WorkerReport,
)
from tenure.errors import DeposedError, TenureError
from tenure.health.signals import RoutingDecision
from tenure.jobs import Decision, JobBook
from tenure.jobs.attempts import RecordProgress, held_by_another, journal_due
from tenure.jobs.catalogue import RegisterWorkflows
from tenure.jobs.decisions import Command, Evidence, Outcome
from tenure.jobs.extensions import ResetExtensions
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.outbox import standing
from tenure.jobs.states import WorkflowState
from tenure.jobs.timeout import ProgressWatch
from tenure.jobs.workers import EvictWorker, ForgetWorker, JudgeWorker, WorkerDrained
from tenure.nodes.fleet.fleet import Fleet
from tenure.nodes.fleet.member import FleetSettings, PoolView, ReportedAttempts, Told
from tenure.nodes.grant_views import Granted, report_grants, worker_grant
from tenure.nodes.held_requests import Held
from tenure.nodes.loop_keeper import FailedOn, concerns_all
from tenure.nodes.manager.earned_time import LiveProgress, extend_job, near_deadlines, patience
from tenure.nodes.manager.ledger import JobMandate
from tenure.nodes.manager.outage_brake import OutageBrake
from tenure.nodes.manager.steering import Departures, Preemptions


class WorkerReportHandlers:
    """Answers reports with directives. The leader calls `heard` with each decision, and `touched` with the jobs that it is about."""

    def __init__(
        self,
        mandate: JobMandate,
        *,
        settings: FleetSettings | None = None,
        pool: PoolView | None = None,
    ) -> None:
        ledger = self._ledger = mandate.ledger
        self._keeper, self._failures = mandate.keeper, mandate.keeper.failures
        self._clock, self._now, self._pool = mandate.environment.clock, mandate.now, pool
        self._log = mandate.environment.log
        self.watch = ProgressWatch()
        self.brake = OutageBrake(ledger, settings.outages if settings is not None else None)
        self.fleet = Fleet(settings)
        self.fleet.restore(ledger.book, mandate.now())
        self._note_broken()
        self._drained = dict(ledger.book.state.drained)
        self.fleet.drain(self._drained)
        self.reported = ReportedAttempts()
        self.departures = Departures(ledger, self.reported, self._failures)
        self._preemptions = Preemptions(ledger, self.fleet, self.reported, self.departures.marks, self._failures)
        self.progress = LiveProgress(ledger, self.reported, self._now)
        self.granted = Granted(self._grants, self.watch.last, self.progress.eta)
        self._held = Held(mandate.environment.clock)

    def live(self, job_id: str, workflow: str) -> AttemptReport | None:
        """Returns the newest report of a running workflow's attempt. It is for people, and more recent than the journal."""
        found = self.reported.attempt(job_id, workflow)
        return found.attempt if found is not None else None

    def _grants(self, job_id: str, workflow: str, attempt: int) -> tuple[Grant, ...]:
        found = self.reported.attempt(job_id, workflow)
        heard = self.reported.report(found.start) if found is not None else None
        if found is None or heard is None or found.attempt.attempt != attempt:
            return ()
        grants, worker = report_grants(found.attempt, heard.at), heard.report.worker
        return (*grants, self.health_of(worker)) if self.fleet.knows(worker, found.start) else grants

    def health_of(self, worker: str) -> Grant:
        """Returns the time that is left until the healthcheck deadline of a known worker."""
        now, fleet = self._now(), self.fleet
        left = fleet.health.extensions(worker).remaining_extensions
        return worker_grant(fleet.left_s(worker, now), left, fleet.settings.healthcheck_s, now)

    # Requests of workers

    async def report(self, report: WorkerReport) -> WorkerDirective:
        """Records a report and returns the directive: at once when it holds news for the worker, else when it changes, or after `wait_s`."""
        until = self._clock.monotonic() + report.wait_s
        own = self._own(report)
        self.reported.remember(own, self._now())
        self.brake.heard(own, self._now())
        self.departures.heard(own, self._now())
        await self._hear(report)
        unwanted = await self._unwanted(report)
        dropped = {(one.job_id, one.workflow, one.attempt) for one in unwanted}
        wanted = [one for one in report.attempts if one.name[:3] not in dropped]
        news = [command for one in wanted if (command := self._record(report, one)) is not None]
        for command, outcome in zip(news, await self._ledger.commit_all(news), strict=True):
            # When the ledger refuses the progress of one attempt, that of the others still counts.
            if isinstance(outcome, DeposedError):
                raise outcome
            if isinstance(outcome, TenureError):
                self._log.warning(f"what {report.worker} says of {command.job_id} was not recorded: {outcome}")
        # The appends above may have taken a while, and the worker waits for `wait_s` in all.
        left_s = until - self._clock.monotonic()
        if left_s > 0 and not unwanted and self._knows(report):
            await self._held.hold(report.start, left_s)
            newest = self.reported.report(report.start)
            unwanted = await self._unwanted(newest.report if newest is not None else report)
        told = self._tell(report)
        return WorkerDirective(
            epoch=self._ledger.epoch,
            cancels=unwanted,
            verdict=told.verdict,
            reason=told.reason,
            left_s=told.left_s,
            holds=self.brake.holds(report.worker, self._now()),
            incarnation=report.start,
            near=() if report.wait_s else near_deadlines(self._ledger.book, report, self._now()),
            peers=told.peers,
            serves=self._registered(report),
        )

    def _own(self, report: WorkerReport) -> WorkerReport:
        """Returns the report without attempts that another worker holds: what is said of those is neither counted nor shown."""
        jobs = self._ledger.book.jobs

        def is_own(one: AttemptReport) -> bool:
            known = jobs[one.job_id].workflows.get(one.workflow) if one.job_id in jobs else None
            return known is None or not held_by_another(known, one.delivery, report.worker)

        own = tuple(one for one in report.attempts if is_own(one))
        return report if len(own) == len(report.attempts) else msgspec.structs.replace(report, attempts=own)

    async def extend(self, ask: ExtendDeadline) -> ExtensionReply:
        """Grants a worker more time, for itself or for a job, if it earned it. Raises `UnknownWorkerError`."""
        worker = ask.request.worker_id
        if ask.job_id:
            return await extend_job(self._ledger, self.fleet, ask, self._now)
        await self._decide(self.fleet.resets(worker))
        now = self._now()
        response, command = self.fleet.extend(ask.request, ask.incarnation, now)
        await self._ledger.commit(command)
        return ExtensionReply(
            response=response, epoch=self._ledger.epoch, left_s=self.fleet.earned_s(worker, self._now())
        )

    def _knows(self, report: WorkerReport) -> bool:
        return self._tell(report).verdict is report.verdict

    def _tell(self, report: WorkerReport) -> Told:
        """Returns the fleet's verdict on the worker. An operator's drain overrides every verdict but eviction."""
        told = self.fleet.tell(report.worker, report.start, self._now())
        drained = self._drained.get(report.worker)
        if drained is None or told.verdict is RoutingDecision.EVICT:
            return told
        words = f"drained by {drained.by or 'an operator'}" + (f": {drained.reason}" if drained.reason else "")
        return told._replace(verdict=RoutingDecision.DRAIN, reason=words)

    def heard(self, decision: Decision) -> None:
        """Applies an operator's drain, or its end, once it is durable. A report of that worker that is held is answered at once."""
        if self.brake.followed(decision):
            for report in self.reported.reports():
                self._held.ring(report.start)
        for event in decision.events:
            if isinstance(event, WorkerDrained):
                self._drained = dict(self._ledger.book.state.drained)
                self.fleet.drain(self._drained)
                self._introduce(event.worker)
                for start in self.reported.starts_of_worker(event.worker):
                    self._held.ring(start)

    # Decisions of the fleet

    async def _register(self, report: WorkerReport) -> None:
        """Journals what a worker serves, before its first verdict. A registration that fails holds nothing else of the report up."""
        if report.serves is None or report.leaving or report.serves == self._registered(report):
            return
        if not self.fleet.may_register(report):
            return
        register = RegisterWorkflows(
            by=report.worker,
            worker=report.worker,
            incarnation=report.start,
            offer=report.serves,
            lanes=report.lanes,
            workflows=report.workflows,
        )
        with self._failures.noted(FailedOn.WORKER, report.worker, "registering what it serves"):
            decision = await self._ledger.commit(register)
            if decision.outcome is Outcome.REFUSED and report.workflows:
                self._log.warning(f"what {report.worker} serves was not registered: {decision.reason}")

    def _registered(self, report: WorkerReport) -> str | None:
        """Returns the digest of what this start of a worker has registered; None before it has."""
        known = self._ledger.book.state.registered.get(report.worker)
        return known.offer if known is not None and known.incarnation == report.start else None

    async def _hear(self, report: WorkerReport) -> None:
        await self._register(report)
        commands = self.fleet.hear(report, self._now())
        if commands:
            # The fleet already counts them as decided. Hanging up cancels this handler, so a task of its own carries them through (decision 0182).
            carried = asyncio.create_task(self.carry_out(commands, report))
            carried.add_done_callback(_nobody_may_wait)
            await asyncio.shield(carried)

    async def carry_out(self, commands: list[Command], report: WorkerReport) -> None:
        """Journals what the fleet decided because of a report."""
        await self._decide(commands)
        if any(isinstance(command, EvictWorker) for command in commands):
            await self._register(report)
            await self._decide(self.fleet.hear(report, self._now()))  # the evicted start has made way for this one

    async def _decide(self, commands: list[Command]) -> None:
        """Journals each command, lets it count, and wakes the held reports that it concerns.

        A command that fails for one worker is tried once more, because the fleet already counts it as decided. When it fails again, the next
        sweep judges that worker anew.
        """
        for command in commands:
            try:
                await self._decide_one(command)
            except Exception as error:
                if concerns_all(error):
                    raise
                await self._decide_again(command)

    async def _decide_again(self, command: Command) -> None:
        try:
            await self._decide_one(command)
        except Exception as error:
            if concerns_all(error):
                raise
            worker = getattr(command, "worker", "")
            self._failures.note(FailedOn.WORKER, worker, f"deciding a {type(command).__name__}", error)
            self.fleet.judge_again(worker)

    async def _decide_one(self, command: Command) -> None:
        if isinstance(command, JudgeWorker) and not self.fleet.knows(command.worker, command.incarnation):
            return  # it left while the commands before this one were written: the record of a verdict would outlive it
        if isinstance(command, EvictWorker):
            command = msgspec.structs.replace(command, marks=self.reported.saved_by(command.incarnation))
        await self._ledger.commit(command)
        if isinstance(command, JudgeWorker):
            self._held.ring(self.fleet.told(command))
            self._introduce(command.worker)
        elif isinstance(command, EvictWorker):
            self.fleet.gone(command, self._now())
            self._log.warning(f"evicted {command.worker} ({command.incarnation}): {command.reason}")
            self._held.ring(command.incarnation)
        elif isinstance(command, ResetExtensions):
            self.fleet.was_reset(command.worker)
        elif isinstance(command, ForgetWorker):
            self.brake.forget(command.worker)

    def _introduce(self, worker: str) -> None:
        """When a second worker joins a lane, tells the first one now. Otherwise it would fail, for good, work that only the second one can do."""
        mine = next((report for report in self.reported.reports() if report.worker == worker), None)
        pairs = [able for lane in (mine.lanes if mine else ()) if len(able := self.fleet.able(lane)) == 2]
        if pairs:
            for report in self.reported.reports():
                if report.worker != worker and any(report.worker in able for able in pairs):
                    self._held.ring(report.start)

    async def keep_watch(self) -> None:
        """Looks after the workers for as long as the term lasts."""
        while True:
            await self._keeper.turn({"looking after workers": self._look})
            await self._clock.async_sleep(self.fleet.settings.sweep_s)

    async def _look(self) -> None:
        now = self._now()
        for name in self.fleet.silent(now) if self._pool is not None else ():
            with self._failures.noted(FailedOn.WORKER, name, "asking the gossip pool for it"):
                await self._ask_pool(name, now)
        await self._decide(self.fleet.sweep(now))
        await self.brake.look(now)
        await self.departures.look(now)
        await self._preemptions.look(now)
        self._note_broken()
        for report in self.reported.reports():
            if not self.fleet.knows(report.worker, report.start):
                self.reported.forget(report.start)

    def _note_broken(self) -> None:
        for name, error in self.fleet.take_broken().items():
            self._failures.note(FailedOn.WORKER, name, "judging a worker", error)

    async def _ask_pool(self, name: str, now: float) -> None:
        assert self._pool is not None
        word = self._pool.word(name)
        if word is not None:
            await self._decide(self.fleet.hear_gossip(name, word, now))

    # Jobs

    def touched(self, job_ids: Iterable[str]) -> None:
        """Answers the held reports of the workers that run something of these jobs: they may have to stop it."""
        for job_id in job_ids:
            for start in self.reported.starts_of_job(job_id):
                self._held.ring(start)

    def forget(self, info: JobInfo) -> None:
        """Forgets the progress of a job that has ended."""
        self.watch.forget_job(info.id, list(info.workflows))
        self.progress.forget(info)

    async def _unwanted(self, report: WorkerReport) -> tuple[Unwanted, ...]:
        def look(book: JobBook) -> tuple[Unwanted, ...]:
            judged = [(one, standing(book, *one.name, report.worker)) for one in report.attempts]
            return tuple(one.unwanted(verdict.reason) for one, verdict in judged if not verdict.wanted)

        return await self._ledger.read(look)

    def _record(self, report: WorkerReport, one: AttemptReport) -> RecordProgress | None:
        """Returns the command that journals an attempt's progress; None when nothing is due.

        Returns None also when our own code fails on this attempt, so that the others of the report still count.
        """
        try:
            return self._progress_of(report, one)
        except Exception as error:
            self._failures.note(FailedOn.JOB, one.job_id, f"hearing of it from {report.worker}", error)
            return None

    def _progress_of(self, report: WorkerReport, one: AttemptReport) -> RecordProgress | None:
        """Returns one command for both: the core records a start that it did not know of, and progress when it is due."""
        command = RecordProgress(
            by=report.worker,
            job_id=one.job_id,
            workflow=one.workflow,
            attempt=one.attempt,
            worker=report.worker,
            incarnation=report.start,
            delivery=one.delivery,
            generation=one.generation,
            steps=one.steps,
            fraction=one.fraction,
            note=one.note,
        )
        now, before = self._now(), self.watch.last(one.job_id)
        advanced = self.watch.observe(command, now)
        info = self._ledger.book.jobs.get(one.job_id)
        if info is None:
            return None
        self.progress.note(one, now)
        # The time of the last beat counts, not the time at which the report came.
        silent_s = self.brake.silent_s(one, now)
        self.watch.touch(one.job_id, max(before, min(now, now - silent_s + patience(info, one, self._ledger.book))))
        workflow = info.workflows[one.workflow]
        begun = workflow.state is not WorkflowState.RUNNING or workflow.delivery != one.delivery
        # Most progress is only watched, not journaled: asking the ledger each time would cost half of a report.
        if begun and workflow.state is WorkflowState.RUNNING:
            return msgspec.structs.replace(command, evidence=self._silence_of(workflow, now))
        return command if begun or (advanced and journal_due(self._ledger.book, info, now)) else None

    def _silence_of(self, workflow: WorkflowRecord, now: float) -> Evidence:
        """Returns how long the worker of the delivery before has not been heard; nothing where this leader never heard it."""
        heard = self.reported.report(workflow.incarnation)
        return {"silent_for": round(now - heard.at, 1)} if heard is not None else {}

    def close(self) -> None:
        """Ends the term: every held report is answered, and its worker asks the next leader."""
        self._held.ring_all()


def _nobody_may_wait(task: asyncio.Task[None]) -> None:
    """Retrieves the task's exception, so that asyncio does not log it as lost: the request that caused the task may be gone.

    A deposed leader carries nothing through. A worker that still waits gets the exception through its own request.
    """
    if not task.cancelled():
        task.exception()
