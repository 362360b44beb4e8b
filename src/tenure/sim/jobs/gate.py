"""The gates of the large world: one leads, successors read its journal, and one may find it lost."""

from __future__ import annotations

from typing import Any

from tenure.jobs import gate_commands as gc
from tenure.jobs.commands import Command
from tenure.jobs.deadlines import NEVER
from tenure.jobs.events import Event
from tenure.jobs.gate_decide import decide_gate
from tenure.jobs.gate_hear import progressed
from tenure.jobs.gate_outbox import Resends
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.messages import JobProgressReport, JobStatusCorrection, JobTimeoutReport
from tenure.jobs.model import JobSubmission
from tenure.jobs.rules import Rules
from tenure.jobs.settings import GateSettings
from tenure.jobs.timers import Timers
from tenure.sim.jobs.clockwork import Clockwork
from tenure.sim.jobs.datacenter import Datacenter
from tenure.sim.jobs.promises import broken_by_gate


class Gate:
    """The gate cluster as its datacenters see it: one address."""

    def __init__(
        self, clockwork: Clockwork, settings: GateSettings, rules: Rules, datacenters: dict[str, Datacenter]
    ) -> None:
        self.clockwork, self.settings, self.rules, self.datacenters = clockwork, settings, rules, datacenters
        self.tracker = GateJobTracker(settings)
        self.journal: list[Event] = []
        self.timers: Timers[str] = Timers()
        self.resends = Resends(settings, rules)
        self.leading = False
        self.counter = 0
        self.lost = False
        self._wake_at = NEVER

    def take_over(self, gate: str, *, lost_journal: bool = False) -> None:
        if lost_journal:
            self.tracker, self.journal, self.counter, self.lost = GateJobTracker(self.settings), [], 0, True
        self.lead(gate, self.counter + 1)

    def lead(self, gate: str, epoch: int) -> None:
        self.counter = epoch
        self.timers, self.resends = Timers(), Resends(self.settings, self.rules)
        self.tracker.fresh.clear()
        self.leading = True
        self.do(gc.GateTakeLead(epoch=epoch, gate=gate))
        self.clockwork.tell(f"{gate} leads, epoch {epoch}")
        for job_id in list(self.tracker.jobs):
            self.changed(job_id)
        self.wake()

    def lose_leader(self) -> None:
        if self.leading:
            self.leading = False
            self.clockwork.tell("the gate is gone")

    def do(self, command: Command) -> gc.GateDecision:
        decision = decide_gate(self.tracker, command, self.clockwork.now, self.rules)
        for event in decision.events:
            broken = broken_by_gate(event, self.tracker)
            self.clockwork.require(not broken, f"gate: {broken}")
            self.tracker.apply(event)
        if decision.events:
            self.journal += decision.events
            self.clockwork.tell(f"gate: {', '.join(type(x).__name__ for x in decision.events)} {decision.reason}")
            if decision.job_id:
                self.changed(decision.job_id)
        return decision

    def changed(self, job_id: str) -> None:
        if job_id not in self.tracker.jobs:
            return
        self.timers.set(job_id, self.tracker.next_due(job_id))
        self.resends.refresh(self.tracker, job_id, self.clockwork.now)
        self.plan()

    def plan(self) -> None:
        due = min(self.timers.next_due(), self.resends.next_due())
        if due < self._wake_at:
            self._wake_at = due
            self.clockwork.after(max(0.0, due - self.clockwork.now), self.wake)

    def wake(self) -> None:
        """Checks that are due, and whatever has to be said again."""
        self._wake_at = NEVER
        if not self.leading:
            return
        now = self.clockwork.now
        for job_id in self.timers.pop_due(now):
            self.do(gc.CheckGlobal(job_id=job_id))
            self.timers.set(job_id, self.tracker.next_due(job_id))
        for item in self.resends.due(now):
            datacenter = self.datacenters[item.datacenter]
            datacenter.wire.send(datacenter.hear, item.message)
        self.plan()

    def hear(self, message: Any) -> None:
        """A message from a datacenter."""
        if not self.leading:
            return
        kind = type(message)
        if kind is JobProgressReport:
            decision = self.do(gc.HearProgress(report=message))
            if decision.outcome == "accepted" and progressed(message):
                self.tracker.heard_progress(message.job_id, message.datacenter, self.clockwork.now)
                self.timers.set(message.job_id, self.tracker.next_due(message.job_id))
        elif kind is JobTimeoutReport:
            decision = self.do(gc.HearTimeout(report=message))
        else:
            assert kind is JobStatusCorrection
            decision = self.do(gc.HearCorrection(correction=message))
        if decision.campaign_above:
            self.lead("gate again", decision.campaign_above + 1)
        elif decision.ack is not None:
            datacenter = self.datacenters[message.datacenter]
            datacenter.wire.send(datacenter.hear, decision.ack)

    def submit(self, submission: JobSubmission) -> bool:
        if not self.leading:
            return False
        self.do(gc.GateSubmit(submission=submission, target_datacenters=submission.target_datacenters))
        return True

    def cancel(self, job_id: str) -> bool:
        if not self.leading:
            return False
        self.do(gc.GateCancel(by="client", job_id=job_id, reason="enough"))
        return True
