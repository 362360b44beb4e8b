"""Reports a datacenter's jobs to their gates: progress every 10 s, timeouts and ends at once, a new leader first of all, and again for as long as no gate answers.

It is a leader's side of `GateCoordinatedTimeout`. The rules for timeouts are in `jobs`: a local timeout waits for the gate, falls back after 300 s, and a new
leader reports it again. Nothing is stored for it: each report is made from the journaled state (`jobs.gate_exchange`), so a new leader owes what its predecessor
owed, and a gate that was away for an hour learns where each job stands now, and not an hour of history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from tenure.backoff import delay_after
from tenure.control.async_caller import AsyncCaller, Route
from tenure.control.messages.gates import MOST_REPORTS, DatacenterWord, GateHeard, TellGate
from tenure.control.messages.jobs import Problem
from tenure.errors import NodeUnavailableError, TenureError
from tenure.jobs import Decision, JobBook
from tenure.jobs.deadlines import LeaderElected, LocalTimeoutReported
from tenure.jobs.endings import JobEnded
from tenure.jobs.gate_exchange import HearGate, leader_transfer, report_for
from tenure.jobs.messages import Identity, JobLeaderTransfer, JobReportAck
from tenure.jobs.model import JobInfo
from tenure.jobs.timers import Timers
from tenure.nodes.loop_keeper import FailedOn
from tenure.nodes.manager.leader import DatacenterLeader, LeaderPart
from tenure.nodes.term_leader import concerns_all

if TYPE_CHECKING:
    from tenure.nodes.manager.leader import DatacenterLeader


ANSWER_S = 5.0
"""The seconds that one gate may take for one answer: made for wide-area latency."""
AGAIN_FIRST_S = 1.0
"""The courier reports an end that no gate has acknowledged again after 1, 2, 4, … seconds, and at least once in each report interval."""


class GateReporter:
    """Reports to one gate cluster on the jobs that it submitted here."""

    def __init__(
        self,
        addresses: Iterable[str],
        caller: AsyncCaller,
        leader: DatacenterLeader,
        identity: Identity,
    ) -> None:
        self._route = Route(caller, addresses)
        self._ledger, self._failures, self._identity = leader.ledger, leader.keeper.failures, identity
        self._clock, self._now, self._progress_at = leader.clock, leader.now, leader.worker_reports.watch.last
        self._due: Timers[str] = Timers()
        self._resent: dict[str, int] = {}
        """Maps each ended job that no gate has acknowledged to the number of reports on its end so far."""
        self._transfers: dict[str, str] = {}
        """Maps each job whose gate must learn of the new leader to the name of the previous leader."""
        self._rung = asyncio.Event()
        self._tell_people, self._unheard = leader.say, False

    @property
    def interval_s(self) -> float:
        return self._ledger.book.settings.report_interval

    def owe(self, job_id: str, *, soon: bool = True) -> None:
        """Makes the report of this job due: now, or within an interval."""
        self._resent.pop(job_id, None)
        if soon:
            self._due.set(job_id, self._now())
            self._rung.set()
        elif self._due.due(job_id) > self._now() + self.interval_s:
            self._due.set(job_id, self._now() + self.interval_s)
            self._rung.set()

    def introduce(self, job_id: str, old_manager_id: str) -> None:
        """Tells the gate that this node leads the job now, before its first report on it."""
        self._transfers[job_id] = old_manager_id
        self.owe(job_id)

    async def run(self) -> None:
        failures = 0
        while True:
            self._rung.clear()
            jobs = self._due.pop_due(self._now(), limit=MOST_REPORTS)
            if not jobs:
                await self._rest()
                continue
            try:
                await self._say_all(jobs)
                failures = 0
                self._note_heard()
            except NodeUnavailableError as error:
                # No gate answers. All reports stay owed; the next round asks every gate again.
                for job_id in jobs:
                    self._due.set(job_id, self._now())
                self._note_unheard(error)
                failures += 1
                await self._clock.async_sleep(self._pause_after(failures))
            except Exception:
                for job_id in jobs:
                    self._due.set(job_id, self._now())  # the keeper begins this loop again, and it must still owe these
                raise

    async def _say_all(self, jobs: list[str]) -> None:
        """Reports these jobs in one message, or each alone where that fails: a report that cannot be made or sent concerns one job."""
        try:
            await self.send_reports(jobs)
            return
        except Exception as error:
            if concerns_all(error) or isinstance(error, NodeUnavailableError):
                raise
        for job_id in jobs:
            self._due.set(job_id, self._now() + self.interval_s)  # for a job whose report fails again
        for job_id in jobs:
            try:
                await self.send_reports([job_id])
            except Exception as error:
                if concerns_all(error) or isinstance(error, NodeUnavailableError):
                    raise
                self._failures.note(FailedOn.GATE, job_id, "reporting it to its gate", error)

    def _note_unheard(self, error: NodeUnavailableError) -> None:
        """Logs, once for each outage, that no gate takes our reports: operators find a token or certificate that a gate refuses in this log, too."""
        if not self._unheard:
            self._tell_people(f"no gate hears our reports, which stay owed: {error.fact}")
        self._unheard = True

    def _note_heard(self) -> None:
        if self._unheard:
            self._tell_people("gates hear our reports again")
        self._unheard = False

    async def send_reports(self, jobs: list[str]) -> None:
        now = self._now()
        words = await self._ledger.read(lambda book: self.words_about(book, jobs, now))
        for job_id in jobs:
            self._due.set(job_id, self._next(job_id, now))  # before we ask: an `owe` meanwhile must not be overwritten
        if not words:
            return
        told = TellGate(datacenter=self._identity.datacenter, manager=self._identity.manager_id, words=tuple(words))
        reply = await self._route.ask(told, ANSWER_S)
        if not isinstance(reply, GateHeard):
            fact = f"{reply.fact}. {reply.remedy}" if isinstance(reply, Problem) else f"it is {type(reply).__name__}"
            raise NodeUnavailableError(f"a gate does not take them: {fact}")
        for word in words:
            if isinstance(word, JobLeaderTransfer):
                self._transfers.pop(word.job_id, None)
        news = [ack for ack in reply.acks if self._is_news(ack)]
        for ack, outcome in zip(
            news, await self._ledger.commit_all([HearGate(by="gate", message=ack) for ack in news]), strict=True
        ):
            if isinstance(outcome, TenureError):
                if concerns_all(outcome):
                    raise outcome
                self._failures.note(FailedOn.GATE, ack.job_id, "hearing that its gate knows of it", outcome)

    def words_about(self, book: JobBook, jobs: list[str], now: float) -> list[DatacenterWord]:
        words: list[DatacenterWord] = []
        for job_id in jobs:
            info = book.jobs.get(job_id)
            if info is None:
                continue
            if job_id in self._transfers and not info.state.terminal:
                words.append(leader_transfer(info, self._identity, book.epoch, self._transfers[job_id]))
            report = report_for(info, self._identity, now, book.settings, self._progress_at(job_id))
            if report is not None:
                words.append(report)
        return words

    def _next(self, job_id: str, now: float) -> float:
        info = self._ledger.book.jobs.get(job_id)
        if info is None or (info.state.terminal and info.gate_acked):
            self._resent.pop(job_id, None)
            return float("inf")
        if not info.state.terminal:
            return now + self.interval_s
        self._resent[job_id] = self._resent.get(job_id, 0) + 1
        return now + self._pause_after(self._resent[job_id])

    def _pause_after(self, times: int) -> float:
        """Returns the seconds before the next report, after so many that brought no acknowledgement."""
        return delay_after(times, first_s=AGAIN_FIRST_S, most_s=self.interval_s)

    def _is_news(self, ack: JobReportAck) -> bool:
        info = self._ledger.book.jobs.get(ack.job_id)
        if info is None:
            return False
        ended = info.state.terminal and ack.status.terminal and not info.gate_acked
        return ended or ack.gate_epoch > info.timeout_tracking.gate_epoch

    async def _rest(self) -> None:
        left = max(0.0, min(self._due.next_due() - self._now(), self.interval_s))
        await self._clock.async_wait(self._rung, left)


AT_ONCE = (LocalTimeoutReported, JobEnded)
"""The events that a gate must learn at once. The arrival of a job is none: the answer to its submission tells it."""


def gate_addresses(info: JobInfo) -> tuple[str, ...]:
    """Returns the addresses of a job's gates; empty for a job that no gate submitted."""
    submission = info.job.submission
    if submission.gate_addr is None:
        return ()
    return tuple(f"{host}:{port}" for host, port in (submission.gate_addr, *submission.gate_addrs))


def _owe(job_id: str, soon: bool, courier: GateReporter) -> None:
    courier.owe(job_id, soon=soon)


class GateReporting(LeaderPart):
    """Runs one courier for each gate cluster."""

    def __init__(self, leader: DatacenterLeader, caller: AsyncCaller, identity: Identity) -> None:
        self._leader, self._caller, self._identity = leader, caller, identity
        self._couriers: dict[tuple[str, ...], GateReporter] = {}
        self._tasks: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._failed: asyncio.Future[None] | None = None
        """Set while `run` runs. The exception that ends a courier fails it, and so ends `run`."""
        self._previous = ""
        """The name of the previous leader, once the history of some job told it."""

    async def run(self) -> None:
        self._failed = asyncio.get_running_loop().create_future()
        try:
            self._introduce()
            await self._failed
        finally:
            tasks, self._tasks, self._couriers, self._failed = list(self._tasks.values()), {}, {}, None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        """Makes the reports of these jobs due: at once after a timeout or an end, else within an interval."""
        soon = any(isinstance(event, AT_ONCE) for event in decision.events)
        for job_id in job_ids:
            info = self._leader.ledger.book.jobs.get(job_id)
            if info is not None and not (info.state.terminal and info.gate_acked):
                self._with_courier(info, partial(_owe, job_id, soon))

    def _introduce(self) -> None:
        """Tells every gate, before anything else, that this node leads now and where each job stands."""
        owed = [
            info for info in self._leader.ledger.book.jobs.values() if not (info.state.terminal and info.gate_acked)
        ]
        for info in owed:
            self._with_courier(info, partial(self._introduce_job, info))

    def _introduce_job(self, info: JobInfo, courier: GateReporter) -> None:
        # A takeover has one predecessor: the first history that names it is enough.
        self._previous = self._previous or self._before(info)
        courier.introduce(info.id, self._previous)

    def _before(self, info: JobInfo) -> str:
        """Returns the previous leader by the history of a job, for people; empty when the history does not name it."""
        for event in reversed(self._leader.ledger.book.history(info.id)):
            if isinstance(event, LeaderElected):
                return str(event.evidence.get("previous_leader", ""))
        return ""

    def _with_courier(self, info: JobInfo, tell: Callable[[GateReporter], None]) -> None:
        """Calls `tell` with the courier of one job's gates. An exception concerns the reports of this job, and no other."""
        try:
            courier = self._courier(info)
            if courier is not None:
                tell(courier)
        except Exception as error:
            self._leader.keeper.failures.note(FailedOn.GATE, info.id, "reporting it to its gate", error)

    def _courier(self, info: JobInfo) -> GateReporter | None:
        addresses = gate_addresses(info)
        if not addresses or self._failed is None:
            return None
        courier = self._couriers.get(addresses)
        if courier is None:
            courier = self._couriers[addresses] = GateReporter(addresses, self._caller, self._leader, self._identity)
            task = asyncio.create_task(self._leader.keeper.keep("gate reports", courier.run))
            task.add_done_callback(self._ended)
            self._tasks[addresses] = task
        return courier

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Ends `run` when a courier raised. A courier runs for the whole term and raises only when the leader is deposed."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
