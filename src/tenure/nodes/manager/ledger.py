"""Keeps the journal of a datacenter's jobs together with the book that is its fold."""

from __future__ import annotations

from typing import Any

from tenure.engines.aio import Calls
from tenure.engines.contracts import Journal, Term
from tenure.jobs import Decision, JobBook, JobSettings, decide
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command
from tenure.nodes.ledger import Journaled


class Ledger(Journaled[JobBook, Decision]):
    """A manager's view of its datacenter's journal."""

    def __init__(self, journal: Journal, calls: Calls, *, settings: JobSettings | None = None, **given: Any) -> None:
        self._settings = settings
        super().__init__(journal, calls, **given)

    def new_book(self) -> JobBook:
        return JobBook(self._settings)

    def restored(self, snapshot: bytes) -> JobBook:
        return JobBook.restore(snapshot, self._settings)

    def decide(self, command: Command, now: float) -> Decision:
        return decide(self.book, command, now)

    def take_lead(self, term: Term) -> Command:
        return TakeLead(epoch=term.epoch, leader=term.candidate, by=term.candidate)
