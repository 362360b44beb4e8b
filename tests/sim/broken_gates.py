"""Gates and managers that each break one rule: the simulation must find the harm in every one of them, or it was not looking."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from tenure.errors import NodeUnavailableError
from tenure.jobs.gate_outbox import Owed
from tenure.jobs.messages import JobGlobalCancel, JobGlobalTimeout, JobStatusCorrection
from tenure.jobs.states import JobState
from tenure.nodes.gate.candidacy import GateCandidacy
from tenure.nodes.gate.gate import Gate
from tenure.nodes.gate.leader import GateLeader
from tenure.nodes.gate.ledger import GateLedger
from tenure.nodes.manager.gate_courier import Courier
from tenure.nodes.manager.gate_desk import GateDesk
from tenure.nodes.manager.gate_reporting import GateReporting
from tenure.nodes.messages.gate import GateWord
from tenure.sim.scenarios.gates import CalmGates, Gates


def gate_with(leader: type[GateLeader] = GateLeader, ledger: type[GateLedger] = GateLedger) -> type[Gate]:
    candidacy = type("Candidacy", (GateCandidacy,), {"leader_class": leader, "ledger_class": ledger})
    return type("BrokenGate", (Gate,), {"candidacy_class": candidacy})


class SaysItOnce(GateLeader):
    """A decision that was lost on its way is not said again."""

    async def _follow_up(self) -> None:
        said: set[tuple[str, str, str]] = self.__dict__.setdefault("said", set())
        put = self._lines.put

        def once(owed: Owed) -> None:
            key = (owed.job_id, owed.datacenter, type(owed.message).__name__)
            if key not in said:
                said.add(key)
                put(owed)

        self._lines.put = once  # type: ignore[method-assign]
        try:
            await super()._follow_up()
        finally:
            self._lines.put = put  # type: ignore[method-assign]


class NeverChecks(GateLeader):
    """Deadlines pass, and nobody looks."""

    async def _check(self) -> None:
        self._timers.pop_due(self._now())


class OwesNothing(GateLeader):
    """A new leader takes what it inherits for done."""

    def _owe_everything(self) -> None:
        return


class AnswersEarly(GateLedger):
    """Says that a job is accepted before the append has returned."""

    async def _append(self, events: list[bytes]) -> int:
        writing = asyncio.create_task(super()._append(events))
        writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self.seq + 1


class DropsReports(Courier):
    """What no gate heard is forgotten."""

    async def _say(self, jobs: list[str]) -> None:
        try:
            await super()._say(jobs)
        except NodeUnavailableError:
            for job_id in jobs:
                self._due.cancel(job_id)


class DropsReportsReporting(GateReporting):
    courier_class: ClassVar[type[Courier]] = DropsReports


class DropsReportsDesk(GateDesk):
    reporting_class: ClassVar[type[GateReporting]] = DropsReportsReporting


class ObeysInWords(GateDesk):
    """Acknowledges a decision, and does nothing."""

    async def _obey(self, word: GateWord) -> JobStatusCorrection:
        if not isinstance(word, (JobGlobalTimeout, JobGlobalCancel)):
            return await super()._obey(word)
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


class WaitsForTheCheck(GateLeader):
    """Looks at deadlines on a cadence, and not when they are due."""

    async def _check(self) -> None:
        noticed: dict[str, float] = self.__dict__.setdefault("noticed", {})
        now = self._now()
        for job_id in self._timers.pop_due(now):
            look_at = noticed.setdefault(job_id, now + self.ledger.book.settings.check_interval)
            self._timers.set(job_id, look_at if now < look_at else 0.0)
        await super()._check()


class SaidOnce(Gates):
    gate: ClassVar[type[Gate]] = gate_with(SaysItOnce)


class Unchecked(Gates):
    gate: ClassVar[type[Gate]] = gate_with(NeverChecks)


class Inherited(Gates):
    gate: ClassVar[type[Gate]] = gate_with(OwesNothing)


class Early(Gates):
    gate: ClassVar[type[Gate]] = gate_with(ledger=AnswersEarly)


class Dropped(Gates):
    desk: ClassVar[type[GateDesk]] = DropsReportsDesk


class Worded(Gates):
    desk: ClassVar[type[GateDesk]] = ObeysInWords


class Cadenced(CalmGates):
    gate: ClassVar[type[Gate]] = gate_with(WaitsForTheCheck)


MUTANTS = {
    "SaidOnce": range(100),
    "Unchecked": range(20),
    "Inherited": range(50, 150),
    "Early": range(100),
    "Dropped": range(10, 100),
    "Worded": range(20),
    "Cadenced": range(20),
}
"""The seeds within which it has to be found."""
