"""Saves the state of a node that leads: decides when, cuts it from the book at a durable moment, and has `state_saving` write it.

`NodeRules` are what makes a manager's ledger differ from a gate's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from tenure.engines.contracts import Term
from tenure.errors import DeposedError, LimitError, StaleEpochError, StaleSnapshotError
from tenure.jobs.decisions import Command
from tenure.jobs.state_pages import PageName
from tenure.nodes.journal_checksum import checked_state, opened
from tenure.nodes.journal_reading import BookRules, BookT
from tenure.nodes.loop_keeper import ProductFailures
from tenure.nodes.node_journal import Decided, DecisionT, FollowedJournal
from tenure.nodes.process import Environment
from tenure.nodes.state_saving import PageReading, PagesAhead, StateCut, StateSaver, some_of

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


SAVED_AT_BYTES = 8_388_608
"""A state in pages is saved when so many bytes of events were appended since it last was."""

PACKED_AT_ONCE = 8
"""The pages that are encoded in one step of the event loop: some milliseconds."""
TakenT = TypeVar("TakenT")


class SavedJournal(FollowedJournal[BookT], Generic[BookT, DecisionT]):
    """A journal whose fold is saved. The subclass writes it."""

    def __init__(
        self,
        rules: NodeRules[BookT, DecisionT],
        environment: Environment,
        *,
        failures: ProductFailures,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        journal = environment.engine.journal(rules.journal)
        pages = environment.engine.store(f"{rules.journal}.pages")
        super().__init__(journal, pages, environment.calls, rules, failures=failures, on_change=on_change)
        self.rules, self._log = rules, environment.log
        self._snapshot_tried_at = 0
        self._rest_wanted: Callable[[], None] | None = None
        """Set while a saving waits for the writer to come between two appends."""
        self._saver = StateSaver(journal, pages, environment.calls, environment.clock)

    @property
    def writing(self) -> bool:
        """True while commands are decided or appended. The book may be ahead of the journal then."""
        raise NotImplementedError

    def _tell(self, said: str) -> None:
        self._log.info(said)

    def step_down(self, reason: str) -> None:
        """Commits nothing more. An append under way may still succeed, but its callers get `DeposedError`."""
        if self.deposed is None:
            self.deposed = DeposedError(reason)

    async def _adopt(self) -> None:
        """Learns which pages are in force, where the state is saved in pages. From here on, no other leader can change that."""
        if self.rules.paged(self.book):
            snapshot = await self._calls.run(self.journal.latest_snapshot)
            self.rules.adopt(self.book, opened(snapshot).state if snapshot is not None else b"")
            self._snapshot_at = snapshot.seq if snapshot is not None else 0

    async def snapshot_if_due(self) -> bool:
        """Saves the state when enough was appended since it was last saved, and truncates the entries that it covers."""
        if self._epoch is None or self.deposed is not None or not self._is_due():
            return False
        self._snapshot_tried_at = self.seq
        try:
            await self._write_ahead(self._epoch)
            cut: StateCut = await self._at_rest(self._cut_now)
            state = checked_state(cut.snapshot, cut.seq)
            self.state_bytes = len(state)
            await self._saver.save(cut, state, self._epoch, self._snapshot_at)
        except (StaleSnapshotError, StaleEpochError) as error:
            self.step_down(f"a snapshot was refused: {error}")
            return False
        except (LimitError, OverflowError) as error:
            # Too large, or a number that a snapshot cannot hold. Nothing is lost: the journal keeps every entry, and a later state may fit.
            # No reason to stop leading. `state_bytes` is an alarm (`jobs.alarms.outgrown`).
            self._log.warning(f"the state cannot be saved, so the journal keeps growing: {error}")
            return False
        self._snapshot_at, self._snapshot_bytes = cut.seq, len(state)
        return True

    def _is_due(self) -> bool:
        """Returns True when what was appended since the last saving is worth another."""
        every = self.rules.snapshot_every
        if self.rules.paged(self.book):
            # It costs what changed. A few large entries count as many small ones: a node that starts folds them all.
            return self.seq - self._snapshot_tried_at >= every or self._bytes_since >= SAVED_AT_BYTES
        if self.seq - self._snapshot_at < every:
            return False
        if self._bytes_since < self._snapshot_bytes:
            return False  # saving a large book again and again would cost more than folding the entries since the last snapshot
        # The last try may have failed, and encoding a large book costs much.
        return self.seq >= self._snapshot_tried_at + every

    async def _write_ahead(self, epoch: int) -> None:
        """Writes most of the pages that changed, a few at a time, before the cut.

        One step that encodes hundreds of pages keeps this node from renewing its term: with 100,000 sleepers and a term of 2 s, leaders lost one
        term after the other (decision 0580).
        """
        changed = self.rules.changed(self.book)
        if len(changed) <= PACKED_AT_ONCE:
            return
        for few in some_of(changed, PACKED_AT_ONCE):
            await self._saver.write_ahead(await self._at_rest(partial(self._pack_now, few, epoch)))
            await asyncio.sleep(0)  # also where the engine's calls take no turn of the loop

    def _pack_now(self, few: list[PageName], epoch: int) -> PagesAhead:
        return self.rules.pack(self.book, few, self.seq, epoch)

    async def _at_rest(self, act: Callable[[], TakenT]) -> TakenT:
        """Returns what `act` takes from the book at a moment at which all of it is durable: now, or between two appends of the writer.

        It must not wait until the writer rests: under steady load it never does (RULINGS.md, 21).
        """
        if not self.writing:
            return act()
        taken: asyncio.Future[TakenT] = asyncio.get_running_loop().create_future()
        # The loop that saves may be cancelled before it is taken, and then nobody asks how it went.
        taken.add_done_callback(lambda wanted: wanted.cancelled() or wanted.exception())
        self._rest_wanted = lambda: _serve(taken, act, self.deposed)
        return await asyncio.shield(taken)

    def _cut_now(self) -> StateCut:
        cut = self.rules.cut(self.book, self.seq, self._epoch or 0)
        self._bytes_since = 0  # what is appended while the cut is written counts for the next
        return cut

    def _serve_cut(self) -> None:
        """Lets the saving take what it waits for. The writer calls it while the book is as durable as the journal."""
        wanted, self._rest_wanted = self._rest_wanted, None
        if wanted is not None:
            wanted()


def _serve(taken: asyncio.Future[TakenT], act: Callable[[], TakenT], deposed: DeposedError | None) -> None:
    if taken.done():
        return
    if deposed is not None:
        taken.set_exception(deposed)
        return
    try:
        taken.set_result(act())
    except Exception as error:
        taken.set_exception(error)
