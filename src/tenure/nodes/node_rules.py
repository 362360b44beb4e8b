"""The rules by which the ledger of a node works, and which make a manager's differ from a gate's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from tenure.engines.contracts import Term
from tenure.jobs.decisions import Command
from tenure.jobs.state_pages import PageName
from tenure.nodes.journal_reading import BookRules, BookT
from tenure.nodes.node_journal import Decided
from tenure.nodes.state_saving import PageReading, PagesAhead, StateCut

DecisionT_co = TypeVar("DecisionT_co", bound=Decided, covariant=True)


class NodeRules(BookRules[BookT], Protocol[BookT, DecisionT_co]):
    """The pure rules of a manager or a gate, by which its ledger decides and folds. They do no I/O, and are passed the time."""

    @property
    def journal(self) -> str:
        """The name of the journal."""

    @property
    def election(self) -> str:
        """The name of the election that its leader has to win."""

    @property
    def snapshot_every(self) -> int:
        """The least number of entries between two snapshots. It keeps short what a new leader folds before it can serve."""

    def cut(self, book: BookT, seq: int, epoch: int) -> StateCut:
        """Returns the book encoded for saving. It is the fold up to `seq`."""

    def changed(self, book: BookT) -> list[PageName]:
        """Returns the pages that a cut of now would have to encode."""

    def pack(self, book: BookT, some: Sequence[PageName], seq: int, epoch: int) -> PagesAhead:
        """Returns some of these pages, encoded, to be written before the cut that names them."""

    def paged(self, book: BookT) -> bool:
        """Returns True when the book is saved in pages."""

    def adopt(self, book: BookT, snapshot: bytes) -> None:
        """Takes the pages that `snapshot` names as those that are saved."""

    def decide(self, book: BookT, command: Command, now: float) -> DecisionT_co:
        """Returns the decision on a command. It changes nothing, and raises `TenureError` for a mistake of the caller."""

    def take_lead(self, term: Term) -> Command:
        """Returns the first command of a term."""


class WholeStates(Generic[BookT]):
    """The part of the rules of a node that saves its state whole."""

    def restoring(self, snapshot: bytes) -> PageReading[BookT] | None:
        return None

    def cut(self, book: BookT, seq: int, epoch: int) -> StateCut:
        return StateCut(seq, book.snapshot())

    def changed(self, book: BookT) -> list[PageName]:
        return []

    def pack(self, book: BookT, some: Sequence[PageName], seq: int, epoch: int) -> PagesAhead:
        raise NotImplementedError

    def paged(self, book: BookT) -> bool:
        return False

    def adopt(self, book: BookT, snapshot: bytes) -> None:
        return None
