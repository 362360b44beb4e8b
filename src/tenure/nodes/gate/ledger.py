"""The ledger of a gate cluster: it writes the journal of jobs across datacenters, and keeps the tracker that is its fold."""

from __future__ import annotations

from typing import Any

from tenure.engines.aio import Calls
from tenure.engines.contracts import Journal, Term
from tenure.jobs.decisions import Command, GateDecision
from tenure.jobs.gate_jobs import GateTakeLead
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.settings import GateSettings
from tenure.jobs.topics import decide_gate
from tenure.nodes.ledger import Journaled


class GateLedger(Journaled[GateJobTracker, GateDecision]):
    """A gate's view of its cluster's journal."""

    def __init__(self, journal: Journal, calls: Calls, *, settings: GateSettings | None = None, **given: Any) -> None:
        self._settings = settings
        super().__init__(journal, calls, **given)

    def new_book(self) -> GateJobTracker:
        return GateJobTracker(self._settings)

    def restored(self, snapshot: bytes) -> GateJobTracker:
        return GateJobTracker.restore(snapshot, self._settings)

    def decide(self, command: Command, now: float) -> GateDecision:
        return decide_gate(self.book, command, now)

    def take_lead(self, term: Term) -> Command:
        return GateTakeLead(epoch=term.epoch, gate=term.candidate, by=term.candidate)
