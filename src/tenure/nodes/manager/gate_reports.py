"""Reports a datacenter's jobs to their gates: progress every 10 s, timeouts and ends at once, a new leader first of all, and again for as long as no gate answers.

It is a leader's side of `GateCoordinatedTimeout`. The rules for timeouts are in `jobs`: a local timeout waits for the gate, falls back after 300 s, and a new
leader reports it again. Nothing is stored for it: each report is made from the journaled state (`jobs.gate_exchange`) when it is sent, so a new leader owes what its
predecessor owed, and a gate that was away for an hour learns where each job stands now, and not an hour of history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from tenure.backoff import delay_after
from tenure.control.async_caller import AsyncCaller, Route
from tenure.control.messages.gates import MOST_REPORTS, DatacenterWord, GateHeard, TellGate
from tenure.control.messages.wire import Problem
from tenure.errors import NodeUnavailableError, TenureError
from tenure.jobs import Decision, JobBook
from tenure.jobs.deadlines import LeaderElected
from tenure.jobs.gate_exchange import HearGate, is_timed_out, leader_transfer, report_for
from tenure.jobs.gate_outbox import Outbox
from tenure.jobs.messages import Identity, JobLeaderTransfer, JobReportAck
from tenure.jobs.model import JobInfo
from tenure.nodes.loop_keeper import FailedOn, concerns_all
from tenure.nodes.manager.leader import DatacenterLeader
from tenure.nodes.manager.leader_parts import LeaderPart
from tenure.nodes.outbox_lane import LaneLimits, OutboxLane

ANSWER_S = 5.0
"""The seconds that one gate may take for one answer: made for wide-area latency."""
AGAIN_FIRST_S = 1.0
"""A report is sent again after 1, 2, 4, … seconds while no gate answers, or acknowledges an end; at least once in each report interval."""
QUICK_TRIES = 15
"""The pauses grow only after so many reports that no gate heard. An election takes about 12 s: pauses that grow from the first one on outlast it, and grants and timeouts
that wait for the end of such a pause let a job end seconds after its time (decision 0300)."""
REPORTING = "reporting it to its gate"


class ReportKind(StrEnum):
    PROGRESS = "progress"
    TIMEOUT = "timeout"
    END = "end"


class ReportDebt(NamedTuple):
    """The news that a gate must learn of a job. When it changes, the next report is due at once; otherwise reports keep their cadence."""

    kind: ReportKind
    token: int
    extensions: float
    """The seconds that were granted to the job. The gate's deadline includes them, so it must hear of a grant before it checks."""


def report_debt(info: JobInfo) -> ReportDebt | None:
    """Returns what the gates of a job are owed; None where they know its end, or it has none."""
    if info.job.submission.gate_addr is None or (info.state.terminal and info.gate_acked):
        return None
    kind = ReportKind.TIMEOUT if is_timed_out(info) else ReportKind.PROGRESS
    tracking = info.timeout_tracking
    extensions = tracking.total_extensions_granted
    return ReportDebt(ReportKind.END if info.state.terminal else kind, tracking.timeout_fence_token, extensions)


def gate_addresses(info: JobInfo) -> tuple[str, ...]:
    """Returns the addresses of a job's gates; empty for a job that no gate submitted."""
    submission = info.job.submission
    if submission.gate_addr is None:
        return ()
    return tuple(f"{host}:{port}" for host, port in (submission.gate_addr, *submission.gate_addrs))


class GateReporter:
    """Reports to one gate cluster on the jobs that it submitted here."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        caller: AsyncCaller,
        leader: DatacenterLeader,
        identity: Identity,
        on_end: Callable[[BaseException], None],
    ) -> None:
        """`on_end` gets the exception that ended the reports for good: this node is deposed."""
        self._route = Route(caller, addresses)
        self._ledger, self._failures, self._identity = leader.ledger, leader.keeper.failures, identity
        self._clock, self._now, self._progress_at = leader.clock, leader.now, leader.worker_reports.watch.last
        self.transfers: dict[str, str] = {}
        """Maps each job whose gate must learn of the new leader to the name of the previous leader."""
        self._log, self._unheard = leader.log, 0
        keep = partial(leader.keeper.keep, "gate reports")
        self.lane = OutboxLane(self._send, self._cannot_report, keep, LaneLimits[str](MOST_REPORTS), on_end)
        """Takes the ids of jobs. One request at a time, so that a gate hears them in order."""

    def put(self, job_id: str) -> None:
        self.lane.put(job_id, job_id)

    async def _send(self, jobs: list[str]) -> None:
        """Reports these jobs in one message. While no gate answers, waits, and then puts them back in the lane."""
        try:
            await self.send_reports(jobs)
        except NodeUnavailableError as error:
            # Logged once for each outage: operators find a token or certificate that a gate refuses in this log, too.
            if not self._unheard:
                self._log.warning(f"no gate hears our reports, which stay owed: {error.fact}")
            self._unheard += 1
            await self._clock.async_sleep(resend_s(max(1, self._unheard - QUICK_TRIES), self._ledger.book))
            for job_id in jobs:
                self.put(job_id)
            return
        if self._unheard:
            self._log.info("gates hear our reports again")
        self._unheard = 0

    async def _cannot_report(self, job_id: str, error: Exception) -> None:
        self._failures.note(FailedOn.GATE, job_id, REPORTING, error)

    async def send_reports(self, jobs: list[str]) -> None:
        now = self._now()
        words = await self._ledger.read(lambda book: self.words_about(book, jobs, now))
        if not words:
            return
        told = TellGate(datacenter=self._identity.datacenter, manager=self._identity.manager_id, words=tuple(words))
        reply = await self._route.ask(told, ANSWER_S)
        if not isinstance(reply, GateHeard):
            fact = f"{reply.fact}. {reply.remedy}" if isinstance(reply, Problem) else f"it is {type(reply).__name__}"
            raise NodeUnavailableError(f"a gate does not take them: {fact}")
        for word in words:
            if isinstance(word, JobLeaderTransfer):
                self.transfers.pop(word.job_id, None)
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
            if job_id in self.transfers and not info.state.terminal:
                words.append(leader_transfer(info, self._identity, book.epoch, self.transfers[job_id]))
            report = report_for(info, self._identity, now, book.settings, self._progress_at(job_id))
            if report is not None:
                words.append(report)
        return words

    def _is_news(self, ack: JobReportAck) -> bool:
        info = self._ledger.book.jobs.get(ack.job_id)
        if info is None:
            return False
        ended = info.state.terminal and ack.status.terminal and not info.gate_acked
        return ended or ack.gate_epoch > info.timeout_tracking.gate_epoch


def resend_s(times: int, book: JobBook) -> float:
    """Returns the seconds before the next report, after so many that were not answered or not acknowledged."""
    return delay_after(times, first_s=AGAIN_FIRST_S, most_s=book.settings.report_interval)


class GateReporting(LeaderPart):
    """The outbox of a datacenter's leader: owes each gate cluster a report on each of its jobs, and sends those that are due."""

    heeds = None

    def __init__(self, leader: DatacenterLeader, caller: AsyncCaller, identity: Identity) -> None:
        self._leader, self._caller, self._identity = leader, caller, identity
        self._outbox: Outbox[tuple[tuple[str, ...], str], ReportDebt] = Outbox(self._pause_s)
        """By the addresses of the gate cluster, and the job."""
        self._reporters: dict[tuple[str, ...], GateReporter] = {}
        self._changed = asyncio.Event()
        self._deposed: BaseException | None = None
        """The exception that ended a lane. `run` raises it: a lane ends only when the leader is deposed."""

    @property
    def _book(self) -> JobBook:
        return self._leader.ledger.book

    async def run(self) -> None:
        """Sends the reports that are due, until cancelled. Begins with every job: this node leads now, and the last leader, or a failure, may
        have left reports unsent."""
        self._outbox = Outbox(self._pause_s)
        try:
            self._introduce()
            while self._deposed is None:
                self._changed.clear()
                failed: dict[tuple[tuple[str, ...], str], Exception] = {}
                for (addresses, job_id), _ in self._outbox.due(self._leader.now(), failed):
                    self._attempt(job_id, partial(self._put, addresses, job_id))
                for (_, job_id), error in failed.items():
                    self._failed(job_id, error)
                left = min(self._outbox.next_due() - self._leader.now(), self._book.settings.report_interval)
                await self._leader.clock.async_wait(self._changed, max(0.0, left))
            raise self._deposed
        finally:
            reporters, self._reporters = self._reporters, {}
            await asyncio.gather(*(one.lane.close() for one in reporters.values()))

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        """Owes the gates of these jobs what the decision changed."""
        for job_id in job_ids:
            self._attempt(job_id, partial(self._owe, job_id))

    def _owe(self, job_id: str) -> None:
        info = self._book.jobs.get(job_id)
        if info is None:
            return
        key, debt, now = (gate_addresses(info), job_id), report_debt(info), self._leader.now()
        if debt is None:
            self._outbox.settle(key)
            return
        # The answer to its submission told the gate of a new job, so its first progress report can wait for an interval.
        waits = debt.kind is ReportKind.PROGRESS and self._outbox.owed(key) is None
        self._outbox.owe(key, debt, now, within_s=self._book.settings.report_interval if waits else 0.0)
        self._changed.set()

    def _introduce(self) -> None:
        """Owes every gate, before anything else, the word that this node leads now, and where each job stands."""
        previous = ""
        for job_id in list(self._book.attended):
            info = self._book.jobs.look(job_id)
            if info is not None and report_debt(info) is not None:
                # A takeover has one predecessor: the first history that names it is enough.
                previous = previous or self._before(info)
                self._attempt(info.id, partial(self._introduce_job, info, previous))

    def _introduce_job(self, info: JobInfo, previous: str) -> None:
        addresses, debt = gate_addresses(info), report_debt(info)
        assert debt is not None
        self._reporter(addresses).transfers[info.id] = previous
        self._outbox.owe((addresses, info.id), debt, self._leader.now())

    def _before(self, info: JobInfo) -> str:
        """Returns the previous leader by the history of a job, for people; empty when the history does not name it."""
        for event in reversed(self._book.history(info.id)):
            if isinstance(event, LeaderElected):
                return str(event.evidence.get("previous_leader", ""))
        return ""

    def _pause_s(self, debt: ReportDebt, sent: int) -> float:
        if debt.kind is ReportKind.END:  # until a gate acknowledges it
            return resend_s(sent, self._book)
        return self._book.settings.report_interval

    def _attempt(self, job_id: str, act: Callable[[], None]) -> None:
        """Calls `act`. An exception concerns the reports of this job, and no other."""
        try:
            act()
        except Exception as error:
            self._failed(job_id, error)

    def _failed(self, job_id: str, error: Exception) -> None:
        self._leader.keeper.failures.note(FailedOn.GATE, job_id, REPORTING, error)

    def _reporter(self, addresses: tuple[str, ...]) -> GateReporter:
        found = self._reporters.get(addresses)
        if found is None:
            found = GateReporter(addresses, self._caller, self._leader, self._identity, self._ended)
            self._reporters[addresses] = found
        return found

    def _put(self, addresses: tuple[str, ...], job_id: str) -> None:
        if job_id in self._book.jobs:
            self._reporter(addresses).put(job_id)
        else:
            self._outbox.settle((addresses, job_id))  # archived, although no gate ever acknowledged its end

    def _ended(self, error: BaseException) -> None:
        self._deposed = error
        self._changed.set()
