"""Saves the state of a node that leads: decides when, cuts it from the book at a durable moment, and has `state_saving` write it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from tenure.errors import DeposedError, LimitError, StaleEpochError, StaleSnapshotError
from tenure.nodes.journal_checksum import checked_state, opened
from tenure.nodes.journal_reading import BookT
from tenure.nodes.loop_keeper import ProductFailures
from tenure.nodes.node_journal import DecisionT, FollowedJournal
from tenure.nodes.node_rules import NodeRules
from tenure.nodes.process import Environment
from tenure.nodes.state_saving import StateCut, StateSaver

SAVED_AT_BYTES = 8_388_608
"""A state in pages is saved when so many bytes of events were appended since it last was."""


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
        self._cut_wanted: asyncio.Future[StateCut] | None = None
        """Set while a saving waits for the writer to come between two appends."""
        self._saver = StateSaver(journal, pages, environment.calls, environment.clock)

    @property
    def writing(self) -> bool:
        """True while commands are decided or appended. The book may be ahead of the journal then."""
        raise NotImplementedError

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
            cut = await self._cut()
            state = checked_state(cut.snapshot, cut.seq)
            self.state_bytes = len(state)
            await self._saver.save(cut, state, self._epoch)
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
        return (
            self.seq >= self._snapshot_tried_at + every
        )  # the last try may have failed, and encoding a large book costs much

    async def _cut(self) -> StateCut:
        """Returns the state, encoded at a moment at which all of it is durable: now, or between two appends of the writer.

        It must not wait until the writer rests: under steady load it never does (RULINGS.md, 21).
        """
        if not self.writing:
            return self._cut_now()
        if self._cut_wanted is None:
            self._cut_wanted = asyncio.get_running_loop().create_future()
            # The loop that saves may be cancelled before the cut is made, and then nobody asks how it went.
            self._cut_wanted.add_done_callback(lambda wanted: wanted.cancelled() or wanted.exception())
        return await asyncio.shield(self._cut_wanted)

    def _cut_now(self) -> StateCut:
        cut = self.rules.cut(self.book, self.seq, self._epoch or 0)
        self._bytes_since = 0  # what is appended while the cut is written counts for the next
        return cut

    def _serve_cut(self) -> None:
        """Makes the cut that is waited for. The writer calls it while the book is as durable as the journal."""
        wanted, self._cut_wanted = self._cut_wanted, None
        if wanted is None or wanted.done():
            return
        if self.deposed is not None:
            wanted.set_exception(self.deposed)
            return
        try:
            wanted.set_result(self._cut_now())
        except Exception as error:
            wanted.set_exception(error)
