"""Gates and managers that each break one rule: the simulation must find the harm in every one of them, or it was not looking."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from tests.worlds.gates.cast import Pace
from tests.worlds.gates.misfortunes import Misfortune
from tests.worlds.gates.scenario import CalmGates, Gates, ImpatientGates
from tests.worlds.patching import Patched

from tenure.control.messages.gates import DatacenterWord, GateWord
from tenure.control.messages.jobs import JobList, ListJobs
from tenure.control.messages.wire import Reply
from tenure.errors import NodeUnavailableError, SequenceConflictError, StaleEpochError, TenureError
from tenure.jobs.decisions import Command, GateDecision, Outcome, Rule
from tenure.jobs.gate_decisions import GlobalDecisionMade
from tenure.jobs.gate_outbox import Outbox, Owed
from tenure.jobs.gate_reports import HearProgress, HearTimeout
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.messages import JobGlobalCancel, JobGlobalTimeout, JobProgressReport, JobStatusCorrection
from tenure.jobs.model import GateJobTrackingInfo
from tenure.jobs.states import JobState
from tenure.jobs.topics import decide_gate
from tenure.nodes import leadership
from tenure.nodes.gate import gate, leader
from tenure.nodes.gate.gate import Gate
from tenure.nodes.gate.leader import JOURNAL, GateLeader
from tenure.nodes.ledger import NodeLedger
from tenure.nodes.manager import gate_reports as gate_reporting
from tenure.nodes.manager import manager
from tenure.nodes.manager.gate_handlers import GateHandlers
from tenure.nodes.manager.gate_reports import GateReporter
from tenure.nodes.node_journal import NO_PARTS, AppendParts

# The gates


class SaysItOnce(GateLeader):
    """A decision that was lost on its way is not said again."""

    async def follow_up(self) -> None:
        said: set[tuple[str, str, str]] = self.__dict__.setdefault("said", set())
        put = self._links.put

        def once(owed: Owed) -> None:
            key = (owed.job_id, owed.datacenter, type(owed.message).__name__)
            if key not in said:
                said.add(key)
                put(owed)

        self._links.put = once  # type: ignore[method-assign]
        try:
            await super().follow_up()
        finally:
            self._links.put = put  # type: ignore[method-assign]


class FollowsAfterwards(GateLeader):
    """What follows from a decision is done by whoever asked for it, if he is still there."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        commit_all = self.ledger.commit_all

        async def commit_and_follow(commands: Sequence[Command]) -> list[GateDecision | TenureError]:
            outcomes = await commit_all(commands)
            for outcome in outcomes:
                if not isinstance(outcome, TenureError):
                    super(FollowsAfterwards, self).follow(outcome)
            return outcomes

        self.ledger.commit_all = commit_and_follow  # type: ignore[method-assign]

    def follow(self, decision: GateDecision) -> None:
        """Whoever asked does it."""


class NeverChecks(GateLeader):
    """Deadlines pass, and nobody looks."""

    async def check_deadlines(self) -> None:
        self._timers.pop_due(self.now())


class WaitsForTheCheck(GateLeader):
    """Looks at deadlines on a cadence, and not when they are due."""

    async def check_deadlines(self) -> None:
        noticed: dict[str, float] = self.__dict__.setdefault("noticed", {})
        now = self.now()
        for job_id in self._timers.pop_due(now):
            look_at = noticed.setdefault(job_id, now + self.ledger.book.settings.check_interval)
            self._timers.set(job_id, look_at if now < look_at else 0.0)
        await super().check_deadlines()


class CancelsLater(GateLeader):
    """A cancel is journaled, and said at the next check."""

    def follow(self, decision: GateDecision) -> None:
        if any(isinstance(event, GlobalDecisionMade) and event.rule is Rule.ASKED for event in decision.events):
            later = self.ledger.book.settings.check_interval
            asyncio.get_running_loop().call_later(later, super().follow, decision)
        else:
            super().follow(decision)


class OwesNothing(GateLeader):
    """A new leader takes what it inherits for done."""

    def missed(self) -> None:
        return


class AnswersEarly(NodeLedger[Any, Any]):
    """Says that a job is accepted before the append has returned."""

    async def append(self, events: list[bytes], parts: AppendParts = NO_PARTS) -> int:
        if self.rules.journal != JOURNAL:
            return await super().append(events, parts)
        writing = asyncio.create_task(super().append(events, parts))
        writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self.seq + 1


class ForgetsDecisions(NodeLedger[Any, Any]):
    """A new leader does not know what was decided before it, and decides again."""

    async def load(self) -> None:
        await super().load()
        if self.rules.journal != JOURNAL:
            return
        for info in self.book.jobs.values():
            if not info.state.terminal:
                info.decided = None


class WritesOn(NodeLedger[Any, Any]):
    """A leader that was overtaken refreshes its sequence and its epoch, and writes all the same."""

    async def append(self, events: list[bytes], parts: AppendParts = NO_PARTS) -> int:
        if self.rules.journal != JOURNAL:
            return await super().append(events, parts)
        while True:
            head = await self._calls.run(self.journal.head)
            try:
                return await self._calls.run(
                    self.journal.append,
                    events,
                    epoch=max(head.epoch, self.epoch),
                    expect=head.seq,
                    append_id=self._ids(),
                )
            except (SequenceConflictError, StaleEpochError):
                continue


class Strict(GateJobTracker):
    """Holds a job to its timeout, whatever time its datacenters granted."""

    def deadline(self, info: GateJobTrackingInfo) -> float:
        return info.submitted_at + info.timeout_seconds


def rebuilding_nothing(book: GateJobTracker, command: Command, now: float) -> GateDecision:
    """A report of a job that it does not know is answered, and forgotten."""
    if isinstance(command, (HearProgress, HearTimeout)) and command.report.job_id not in book.jobs:
        return GateDecision([], Outcome.NOTHING, Rule.DATACENTER_SAID, "not a job of ours", command.report.job_id)
    return decide_gate(book, command, now)


class ShowsOldNews(Gate):
    """Lists jobs as they were before they ended."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._newest = self.handlers[ListJobs]
        self.handlers[ListJobs] = self._old_list

    async def _old_list(self, request: Any) -> Reply:
        reply = await self._newest(request)
        if not isinstance(reply, JobList):
            return reply
        rows = tuple(
            msgspec.structs.replace(row, state=JobState.RUNNING) if row.state is JobState.TIMED_OUT else row
            for row in reply.jobs
        )
        return msgspec.structs.replace(reply, jobs=rows)


# The managers


class OwesOnce(Outbox[Any, Any]):
    """What was sent once is not owed any more, whether it was heard or not."""

    def due(self, now: float) -> list[tuple[Any, Any]]:
        found = super().due(now)
        for key, _ in found:
            self.settle(key)
        return found


class DropsReports(GateReporter):
    """What no gate heard is forgotten."""

    async def send_reports(self, jobs: list[str]) -> None:
        try:
            await super().send_reports(jobs)
        except NodeUnavailableError:
            return


class HidesExtensions(GateReporter):
    """Time that was granted here is nobody else's business."""

    def words_about(self, book: Any, jobs: list[str], now: float) -> list[DatacenterWord]:
        return [
            msgspec.structs.replace(word, total_extensions_granted=0.0) if isinstance(word, JobProgressReport) else word
            for word in super().words_about(book, jobs, now)
        ]


class ObeysInWords(GateHandlers):
    """Acknowledges a decision, and does nothing."""

    async def obey(self, words: Sequence[GateWord]) -> list[JobStatusCorrection]:
        return [await self._say_so(word) for word in words]

    async def _say_so(self, word: GateWord) -> JobStatusCorrection:
        if not isinstance(word, (JobGlobalTimeout, JobGlobalCancel)):
            return (await super().obey([word]))[0]
        return JobStatusCorrection(
            job_id=word.job_id,
            datacenter=self._identity.datacenter,
            manager_id=self._identity.manager_id,
            status=JobState.CANCELLED if isinstance(word, JobGlobalCancel) else JobState.TIMED_OUT,
            fence_token=1,
            gate_epoch=word.gate_epoch,
            accepted=True,
            ended_by_gate=True,
        )


class KnowsOnlyItsOwn(GateHandlers):
    """A decision about a job that it does not know, or knows no more, is not answered with an end."""

    async def obey(self, words: Sequence[GateWord]) -> list[JobStatusCorrection]:
        unknown = {word.job_id for word in words if word.job_id not in self._manager.ledger.book.jobs}
        replies = await super().obey(words)
        return [
            msgspec.structs.replace(reply, status=JobState.RUNNING, accepted=False)
            if reply.job_id in unknown
            else reply
            for reply in replies
        ]


# The worlds


class SaidOnce(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(gate, "GateLeader"): SaysItOnce}


class HungUpOn(Patched, ImpatientGates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(gate, "GateLeader"): FollowsAfterwards}


class Unchecked(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(gate, "GateLeader"): NeverChecks}


class Cadenced(Patched, CalmGates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(gate, "GateLeader"): WaitsForTheCheck}


class CadencedUnderFaults(Patched, Gates):
    """The same while other places have their misfortunes."""

    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(gate, "GateLeader"): WaitsForTheCheck}
    turns: ClassVar[tuple[Misfortune, ...]] = (Misfortune.CUT_OFF, Misfortune.MANAGER_LEADER)


class CancelledLater(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(gate, "GateLeader"): CancelsLater}


class Inherited(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(gate, "GateLeader"): OwesNothing}


class Early(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leadership, "NodeLedger"): AnswersEarly}


class DecidedTwice(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leadership, "NodeLedger"): ForgetsDecisions}


class TwoOwners(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leadership, "NodeLedger"): WritesOn}


class Unextended(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leader, "GateJobTracker"): Strict}


class NotRebuilt(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leader, "decide_gate"): rebuilding_nothing}


class OldNews(Gates):
    gate: ClassVar[type[Gate]] = ShowsOldNews


class Dropped(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {
        (gate_reporting, "GateReporter"): DropsReports,
        (gate_reporting, "Outbox"): OwesOnce,
    }


class Hidden(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(gate_reporting, "GateReporter"): HidesExtensions}


class Worded(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(manager, "GateHandlers"): ObeysInWords}


class Disowned(Patched, Gates):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(manager, "GateHandlers"): KnowsOnlyItsOwn}


class NoFallback(Gates):
    """A datacenter that is cut off waits for the gates for ever."""

    manager_settings = msgspec.structs.replace(Pace.brisk().jobs, fallback_after=1_000_000.0)


MUTANTS = {
    "SaidOnce": 15,
    "HungUpOn": 5,
    "Unchecked": 15,
    "Cadenced": 5,
    "CadencedUnderFaults": 15,
    "CancelledLater": 15,
    "Inherited": 45,
    "Early": 15,
    "DecidedTwice": 45,
    "TwoOwners": 45,
    "Unextended": 45,
    "NotRebuilt": 30,
    "OldNews": 5,
    "Dropped": 15,
    "Hidden": 45,
    "Worded": 15,
    "Disowned": 15,
    "NoFallback": 15,
}
"""Among how many seeds it has to be found."""

KNOWN = {
    "SaidOnce": (8, 10),
    "Inherited": (40, 43),
    "DecidedTwice": (17, 20),
    "TwoOwners": (3, 18),
    "NotRebuilt": (6, 21),
    "Dropped": (2, 4),
    "Unextended": (1, 6),
    "Hidden": (1, 21),
    "Disowned": (7, 8),
    "NoFallback": (4, 6),
}
"""Seeds at which a rule was found that the first seed does not show, by a search over all of its seeds. They are tried first."""
