"""Leads a gate cluster: takes the reports of datacenters, checks each job when its time has come, and repeats messages until they are answered.

The rules are in `jobs`, by topic (`gate_jobs`, `gate_decisions`, `gate_reports`). `jobs.gate_outbox` finds in the state which messages the datacenters are owed. The
leader sends no message before the append that decided it has returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import msgspec

from tenure.control.messages.gates import DatacenterSaid, DatacenterWord
from tenure.control.messages.wire import GATE_ELECTION
from tenure.engines.contracts import Term
from tenure.errors import DeposedError, TenureError
from tenure.jobs.decisions import Command, Event, GateDecision, Outcome
from tenure.jobs.gate_decisions import CheckGlobal
from tenure.jobs.gate_jobs import GateArchive, GateFailJob, GateForgetOld, GateTakeLead
from tenure.jobs.gate_outbox import GateOutbox, Owed, OwedKind
from tenure.jobs.gate_reports import HearCorrection, HearProgress, HearTimeout, HearTransfer, progressed
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.messages import JobLeaderTransfer, JobProgressReport, JobReportAck, JobTimeoutReport
from tenure.jobs.settings import GateSettings
from tenure.jobs.topics import decide_gate
from tenure.nodes.gate.datacenter_links import DatacenterLinks
from tenure.nodes.gate.fitness import Forwarding, ReportedCounts
from tenure.nodes.leadership import Leadership
from tenure.nodes.ledger import SNAPSHOT_EVERY
from tenure.nodes.loop_keeper import FailedOn, concerns_all
from tenure.nodes.saved_journal import WholeStates
from tenure.nodes.stored_values import StoredArguments, stored_keys
from tenure.nodes.term_leader import Mandate, Struck, TermLeader
from tenure.timers import Timers

JOURNAL = "gate"
"""The name of a gate cluster's journal."""
FORGET_EVERY_S = 600.0
ARCHIVE_AT_ONCE = 100
TELLING = "telling a datacenter of it"
ARCHIVE = "gate-jobs"
"""The store with the records of jobs that left the tracker."""


@dataclass(frozen=True, slots=True)
class GateRules(WholeStates[GateJobTracker]):
    """The rules of a gate cluster's journal: its book is a `GateJobTracker`."""

    settings: GateSettings | None = None
    snapshot_every: int = SNAPSHOT_EVERY
    journal: str = JOURNAL
    election: str = GATE_ELECTION

    def new_book(self) -> GateJobTracker:
        return GateJobTracker(self.settings)

    def restored(self, snapshot: bytes) -> GateJobTracker:
        return GateJobTracker.restore(snapshot, self.settings)

    def decide(self, book: GateJobTracker, command: Command, now: float) -> GateDecision:
        return decide_gate(book, command, now)

    def take_lead(self, term: Term) -> Command:
        return GateTakeLead(epoch=term.epoch, gate=term.candidate, by=term.candidate)


GateMandate = Mandate[GateJobTracker, GateDecision]


class GateLeader(TermLeader[GateJobTracker, GateDecision]):
    """Leads a gate cluster with a ledger that has taken the lead."""

    def __init__(
        self,
        mandate: GateMandate,
        links: DatacenterLinks,
        flow: Forwarding,
        *,
        link_suspect: Callable[[], bool],
        heed: Callable[[Sequence[Event]], None] = lambda events: None,
    ) -> None:
        """`heed` gets the events that became durable under this leader."""
        super().__init__(mandate, _failed_job)
        self._unread: dict[str, Exception] = {}
        """Maps each job whose refresh raised to its exception; `follow_up` tries these jobs again, each alone."""
        self._links, self._flow, self._link_suspect, self._heed = links, flow, link_suspect, heed
        self._archive = mandate.environment.engine.store(ARCHIVE)
        self._arguments = StoredArguments(mandate.environment.engine, mandate.environment.calls)
        self._timers: Timers[str] = Timers()
        self._outbox = GateOutbox(self.ledger.book.settings)
        self._touched: dict[str, None] = {}
        """Jobs whose deadlines and owed messages have to be read off the book anew."""
        self._steps |= {
            "follow up": self.follow_up,
            "deadlines": self.check_deadlines,
            "housekeeping": self._keep_house,
        }
        self._forget_at = 0.0
        self.reported_counts = ReportedCounts()

    @property
    def owed(self) -> Counter[tuple[str, OwedKind]]:
        """The number of messages that each datacenter has not answered yet, by kind."""
        return self._outbox.counts

    # Commands, reports and answers

    def follow(self, decision: GateDecision) -> None:
        if decision.campaign_above > self.overtaken:
            # A datacenter that has seen a newer gate epoch does not follow this gate, so the next campaign asks for an epoch above that one.
            self.overtaken = decision.campaign_above
            self.ledger.step_down(decision.reason)
            self.wake()
        elif decision.events and decision.job_id:
            self._touched[decision.job_id] = None
            self.wake()
        if decision.events:
            self._heed(decision.events)

    async def hear(self, words: Sequence[DatacenterWord]) -> list[JobReportAck]:
        """Commits the reports of a datacenter, and returns the acknowledgements. Raises `DeposedError` when the datacenter knows a newer gate."""
        decisions = await self._hear_each([_command_for(word) for word in words])
        for word, decision in zip(words, decisions, strict=True):
            if isinstance(word, JobProgressReport) and decision is not None and decision.outcome is Outcome.ACCEPTED:
                self._note_progress(word)
        if self.overtaken:
            raise DeposedError("a datacenter has seen a newer gate")
        return [decision.ack for decision in decisions if decision is not None and decision.ack is not None]

    async def _hear_each(self, commands: Sequence[Command]) -> list[GateDecision | None]:
        """Commits all commands together, and a refused one once more alone. Returns None for a report that is refused again: the leader does not
        acknowledge it, so the datacenter sends it again, and the other reports count."""
        heard: list[GateDecision | None] = []
        for command, outcome in zip(commands, await self.ledger.commit_all(commands), strict=True):
            if isinstance(outcome, TenureError) and not concerns_all(outcome):
                outcome = (await self.ledger.commit_all([command]))[0]
            if isinstance(outcome, TenureError):
                if concerns_all(outcome):
                    raise outcome
                self.keeper.failures.note(
                    FailedOn.DATACENTER, command.by, f"hearing a {type(command).__name__}", outcome
                )
                heard.append(None)
            else:
                heard.append(outcome)
        return heard

    def step_down(self, reason: str) -> None:
        """Stops leading, because a peer is better placed."""
        self.ledger.step_down(reason)
        self.wake()

    def _note_progress(self, report: JobProgressReport) -> None:
        tracker, now = self.ledger.book, self.now()
        self.reported_counts.heard(report)
        if report.job_id not in tracker.jobs:
            return
        tracker.heard_report(report, now)
        if progressed(report):
            tracker.heard_progress(report.job_id, report.datacenter, now)
        if progressed(report) or now > tracker.deadline(tracker.jobs[report.job_id]):
            # Progress only moves a check to a later time, so setting it is cheap: the heap corrects its old entry when that comes up.
            self._timers.set(report.job_id, tracker.next_due(report.job_id))

    async def heard_back(self, said: DatacenterSaid) -> None:
        """Takes a datacenter's answer to the messages that this gate sent."""
        try:
            await self.hear(said.reports)
            await self._hear_each([HearCorrection(by=said.datacenter, correction=one) for one in said.corrections])
        except DeposedError:
            return  # the next leader sends the messages again, and gets the answer

    async def cannot_say(self, job_id: str, error: Exception) -> None:
        """Fails a job when its message to a datacenter cannot be sent: otherwise the job would wait there, or run on, for ever."""
        try:
            await self.strikes.strike(job_id, TELLING, error)
        except DeposedError:
            return  # the next leader tries again

    def returned(self, datacenter: str) -> None:
        """Sends the messages that a datacenter is owed at once, because it was silent and answers again."""
        self._outbox.hurry(datacenter, self.now())
        self.wake()

    # The loop of the leader

    async def _begin(self) -> None:
        """Looks at every job first, because the last leader, or a failure, may have left messages unsent."""
        self.missed()

    def missed(self) -> None:
        self._touched.update(dict.fromkeys(self.ledger.book.jobs))
        self.wake()

    def _due(self) -> float:
        return min(self._timers.next_due(), self._outbox.next_due())

    async def follow_up(self) -> None:
        """Refreshes the deadlines and the owed messages of jobs that changed. Then sends the messages that are due."""
        now, changed = self.now(), [one for one in self._touched if one not in self.strikes.aside]
        self._touched = {}
        try:
            await self.ledger.read(lambda tracker: self._refresh(tracker, changed, now))
        except Exception:
            self._touched.update(dict.fromkeys(changed))  # refresh these jobs at the next turn
            raise
        while self._unread:
            job_id, _ = self._unread.popitem()
            await self.strikes.attempt(job_id, partial(self._refresh_alone, job_id), "reading off what is due")
        for datacenter, count in self._outbox.take_passed_on().items():
            self._flow.passed_on(datacenter, count)
        failed: dict[str, Exception] = {}
        try:
            due = self._outbox.due(self.now(), failed)
        except Exception:
            # It may have taken a message out and not set when it goes again. All messages are owed anew, and are due at once.
            self._outbox = GateOutbox(self.ledger.book.settings)
            self._touched.update(dict.fromkeys(self.ledger.book.jobs))
            raise
        for job_id, error in failed.items():
            self.keeper.failures.note(FailedOn.JOB, job_id, TELLING, error)
        for owed in due:
            await self.strikes.attempt(owed.job_id, partial(self._say_owed, owed), TELLING)

    async def _say_owed(self, owed: Owed) -> None:
        self._links.put(owed)

    def _refresh(self, tracker: GateJobTracker, changed: Iterable[str], now: float) -> None:
        for job_id in changed:
            try:
                self._refresh_job(tracker, job_id, now)
            except Exception as error:
                self._unread[job_id] = error

    async def _refresh_alone(self, job_id: str) -> None:
        now = self.now()
        await self.ledger.read(lambda tracker: self._refresh_job(tracker, job_id, now))

    def _refresh_job(self, tracker: GateJobTracker, job_id: str, now: float) -> None:
        if job_id in tracker.jobs:
            self._timers.set(job_id, tracker.next_due(job_id))
        else:
            self._timers.cancel(job_id)
        self._outbox.refresh(tracker, job_id, now)

    async def check_deadlines(self) -> None:
        """Checks each job whose time has come. A job that is due and not decided is checked again after the check interval."""
        now, again = self.now(), self.ledger.book.settings.check_interval
        due = [job_id for job_id in self._timers.pop_due(now) if job_id in self.ledger.book.jobs]
        if not due:
            return
        for job_id in due:
            self._timers.set(job_id, now + again)  # set first, so that a job whose check fails is checked again, too
        suspect = self._link_suspect()
        checks = [CheckGlobal(by="gate", job_id=job_id, link_suspect=suspect) for job_id in due]
        await self.strikes.commit_all(checks, "checking its deadlines")
        for job_id in due:
            self._check_next(job_id, now, again)

    def _check_next(self, job_id: str, now: float, again: float) -> None:
        info = self.ledger.book.jobs.get(job_id)
        if info is None or info.decided is not None or info.state.terminal or job_id in self.strikes.aside:
            self._timers.cancel(job_id)
            return
        at = self.ledger.book.next_due(job_id)
        self._timers.set(job_id, at if at > now else now + again)

    async def _keep_house(self) -> None:
        tracker, now = self.ledger.book, self.now()
        for job_id in list(islice((one for one in tracker.ended if one not in self.strikes.aside), ARCHIVE_AT_ONCE)):
            if now < tracker.jobs[job_id].ended_at + tracker.settings.archive_after:
                break
            await self.strikes.attempt(job_id, partial(self._archive_job, job_id), "archiving it")
        if now >= self._forget_at:
            self._forget_at = now + FORGET_EVERY_S
            await self.ledger.commit(GateForgetOld(by="gate"))

    async def _archive_job(self, job_id: str) -> None:
        info = self.ledger.book.jobs.get(job_id)
        if info is not None:
            keep_s = self.ledger.book.settings.keep_archive
            await self._arguments.keep_for(stored_keys(info.submission), keep_s)
            await self._calls.run(self._archive.put, job_id, msgspec.json.encode(info), ttl=keep_s)
            await self.ledger.commit(GateArchive(by="gate", job_id=job_id))
            self.reported_counts.forget(job_id, info.target_datacenters)


def _failed_job(struck: Struck) -> GateFailJob:
    return GateFailJob(by="gate", **struck._asdict())


def _command_for(word: DatacenterWord) -> Command:
    if isinstance(word, JobTimeoutReport):
        return HearTimeout(by=word.datacenter, report=word)
    if isinstance(word, JobLeaderTransfer):
        return HearTransfer(by=word.datacenter, transfer=word)
    return HearProgress(by=word.datacenter, report=word)


GateLeadership = Leadership[GateJobTracker, GateDecision, GateLeader]
