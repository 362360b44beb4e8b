"""Sends reports to one gate cluster: each when it is due, in batches, and again for as long as no gate answers.

Nothing is stored for it. The courier makes each report from the journaled state (`jobs.gate_exchange`), so a new leader owes what its predecessor
owed. A gate that was away for an hour learns where each job stands now, and not an hour of history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenure.control.async_caller import AsyncCaller, Route
from tenure.control.messages.gates import MOST_REPORTS, DatacenterWord, GateHeard, TellGate
from tenure.control.messages.jobs import Problem
from tenure.errors import NodeUnavailableError, TenureError
from tenure.jobs import JobBook
from tenure.jobs.gate_exchange import HearGate, leader_transfer, report_for
from tenure.jobs.messages import Identity, JobLeaderTransfer, JobReportAck
from tenure.jobs.timers import Timers
from tenure.nodes.loop_keeper import FailedOn
from tenure.nodes.term_leader import concerns_all

if TYPE_CHECKING:
    from tenure.nodes.manager.leader import DatacenterLeader

ANSWER_S = 5.0
"""The seconds that one gate may take for one answer: made for wide-area latency."""
AGAIN_FIRST_S = 1.0
"""The courier reports an end that no gate has acknowledged again after 1, 2, 4, … seconds, and at least once in each report interval."""


class Courier:
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
        self._pauses: dict[str, float] = {}
        """Maps each ended job that no gate has acknowledged to the pause before its next report."""
        self._transfers: dict[str, str] = {}
        """Maps each job whose gate must learn of the new leader to the name of the previous leader."""
        self._rung = asyncio.Event()
        self._tell_people, self._unheard = leader.say, False

    @property
    def interval_s(self) -> float:
        return self._ledger.book.settings.report_interval

    def owe(self, job_id: str, *, soon: bool = True) -> None:
        """Makes the report of this job due: now, or within an interval."""
        self._pauses.pop(job_id, None)
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
        pause = AGAIN_FIRST_S
        while True:
            self._rung.clear()
            jobs = self._due.pop_due(self._now(), limit=MOST_REPORTS)
            if not jobs:
                await self._rest()
                continue
            try:
                await self._say_all(jobs)
                pause = AGAIN_FIRST_S
                self._note_heard()
            except NodeUnavailableError as error:
                # No gate answers. All reports stay owed; the next round asks every gate again.
                for job_id in jobs:
                    self._due.set(job_id, self._now())
                self._note_unheard(error)
                await self._clock.async_sleep(pause)
                pause = min(self.interval_s, pause * 2)
            except Exception:
                for job_id in jobs:
                    self._due.set(job_id, self._now())  # the keeper begins this loop again, and it must still owe these
                raise

    async def _say_all(self, jobs: list[str]) -> None:
        """Reports these jobs in one message, or each alone where that fails: a report that cannot be made or sent concerns one job."""
        try:
            await self._say(jobs)
            return
        except Exception as error:
            if concerns_all(error) or isinstance(error, NodeUnavailableError):
                raise
        for job_id in jobs:
            self._due.set(job_id, self._now() + self.interval_s)  # for a job whose report fails again
        for job_id in jobs:
            try:
                await self._say([job_id])
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

    async def _say(self, jobs: list[str]) -> None:
        now = self._now()
        words = await self._ledger.read(lambda book: self._words(book, jobs, now))
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

    def _words(self, book: JobBook, jobs: list[str], now: float) -> list[DatacenterWord]:
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
            self._pauses.pop(job_id, None)
            return float("inf")
        if not info.state.terminal:
            return now + self.interval_s
        pause = self._pauses.get(job_id, min(AGAIN_FIRST_S, self.interval_s))
        self._pauses[job_id] = min(self.interval_s, pause * 2)
        return now + pause

    def _is_news(self, ack: JobReportAck) -> bool:
        info = self._ledger.book.jobs.get(ack.job_id)
        if info is None:
            return False
        ended = info.state.terminal and ack.status.terminal and not info.gate_acked
        return ended or ack.gate_epoch > info.timeout_tracking.gate_epoch

    async def _rest(self) -> None:
        left = max(0.0, min(self._due.next_due() - self._now(), self.interval_s))
        await self._clock.async_wait(self._rung, left)
