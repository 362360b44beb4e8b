"""The rules of a datacenter's ledger: its book is a `JobBook`, and `jobs.topics.decide` decides. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tenure.control.messages.jobs import MANAGER_ELECTION
from tenure.engines.contracts import Term
from tenure.jobs import Decision, JobBook, JobSettings, decide
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command
from tenure.nodes.ledger import SNAPSHOT_EVERY, NodeLedger
from tenure.nodes.term_leader import Mandate

JOURNAL = "jobs"
"""The name of a datacenter's journal."""
JobLedger = NodeLedger[JobBook, Decision]
JobMandate = Mandate[JobBook, Decision]


@dataclass(frozen=True, slots=True)
class DatacenterRules:
    """The rules of a datacenter's journal: its book is a `JobBook`."""

    settings: JobSettings | None = None
    snapshot_every: int = SNAPSHOT_EVERY
    journal: str = JOURNAL
    election: str = MANAGER_ELECTION

    def new_book(self) -> JobBook:
        return JobBook(self.settings)

    def restored(self, snapshot: bytes) -> JobBook:
        return JobBook.restore(snapshot, self.settings)

    def decide(self, book: JobBook, command: Command, now: float) -> Decision:
        return decide(book, command, now)

    def take_lead(self, term: Term) -> Command:
        return TakeLead(epoch=term.epoch, leader=term.candidate, by=term.candidate)
