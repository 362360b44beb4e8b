"""A journal and the book that is its fold, kept together: one writer decides, appends and folds, in that order.

What the book holds, and what is decided from it, is the subclass's: a datacenter's jobs (`ledger`), or a gate's (`gate.ledger`).

Commands that wait together are decided one after the other on the state that each of them leaves, and written in one append. Nothing is
answered before that append has returned, so no effect outside can come before the decision that ordered it (DESIGN.md, rule 2).

Whatever makes the outcome of an append unknown is resolved by looking for its id, never by taking a fresh position. A writer that was
overtaken is deposed: its book holds decisions that nobody has, so it is thrown away.

A command on which `decide`, the fold or the engine's limits fail is refused alone, and deposes nobody. Where the book may be half changed
by it, the book is built anew from the journal, in the same term (decision 0195).
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import MAX_APPEND_BYTES, Journal, Term
from tenure.errors import (
    DeposedError,
    EngineBusyError,
    EngineError,
    EngineUnavailableError,
    EngineWentBackError,
    JournalDamagedError,
    LimitError,
    StaleEpochError,
    StaleSnapshotError,
    TenureError,
)
from tenure.ids import IdSource
from tenure.jobs.commands import Command
from tenure.jobs.events import Event, encode_event
from tenure.nodes.followed_journal import BookT, FollowedJournal
from tenure.nodes.journal_checksum import checked_id, checked_state
from tenure.nodes.product_failures import FailedOn, ProductFailures
from tenure.nodes.sure_append import SureAppend
from tenure.nodes.waiting_commands import CommandGroup, WaitingCommand
from tenure.randomness import Random

SNAPSHOT_EVERY = 500
"""Entries between two snapshots: what a new manager folds at most before it can serve."""
MOST_COMMANDS = 200
"""In one append; the rest waits for the next."""
_FULL = MAX_APPEND_BYTES - 65_536  # what an engine adds to the events has room in what is left


class Decided(Protocol):
    """What follows from a command: the events to append, and whatever answer goes with them."""

    @property
    def events(self) -> Sequence[Event]: ...


DecisionT = TypeVar("DecisionT", bound=Decided)


class Journaled(FollowedJournal[BookT], Generic[BookT, DecisionT]):
    """A node's view of a journal. A standby follows it; after `lead`, commands may be committed."""

    snapshot_every: ClassVar[int] = SNAPSHOT_EVERY

    def __init__(
        self,
        journal: Journal,
        calls: Calls,
        *,
        clock: Clock,
        ids: IdSource,
        random: Random,
        failures: ProductFailures,
        engine_now: Callable[[], float],
        on_change: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(journal, calls, failures=failures, on_change=on_change)
        self._clock, self._ids, self._engine_now, self._say = clock, ids, engine_now, say
        self._appends = SureAppend(calls, clock, random)
        self._waiting: list[WaitingCommand[DecisionT]] = []
        self._writing: asyncio.Task[None] | None = None
        self._groups: dict[CommandGroup[DecisionT], None] = {}
        """Whoever waits for the writer."""
        self._snapshot_tried_at = 0
        self._doubted = False
        self.on_decided: Callable[[DecisionT], None] = lambda decision: None
        """Called with each decision once it is durable, in their order. What follows from a decision belongs here, and not after
        `commit`: whoever asked may have hung up meanwhile, and is not there to go on (decision 0182)."""
        self.on_missed: Callable[[], None] = lambda: None
        """Called when some `on_decided` failed or was left out: whatever follows has to be read off the book."""

    # What the subclass knows

    @abstractmethod
    def decide(self, command: Command, now: float) -> DecisionT:
        """What follows from a command. Changes nothing; raises what the caller got wrong."""

    @abstractmethod
    def take_lead(self, term: Term) -> Command:
        """The first command of a term."""

    # Leading

    async def lead(self, term: Term) -> None:
        """Fold up to the end and write that we lead: from here on this ledger may commit (rule 1).

        Raises `DeposedError` when somebody newer wrote first.
        """
        known = self.seq
        head = await self._calls.run(self.journal.head)
        if head.seq < known:
            raise EngineWentBackError(
                f"the journal ends at {head.seq}, and this node has seen {known}",
                remedy="The engine lost acknowledged writes: find out which copy is the newest before anything goes on",
            )
        await self.load()
        if self.seq < head.seq:
            why = f"it is missing: the journal ends at {head.seq}"
            self.damage = JournalDamagedError(self.journal.name, "entry", self.seq + 1, why)
            raise self.damage
        self._epoch = term.epoch
        try:
            await self.commit(self.take_lead(term))
        except StaleEpochError as error:
            raise DeposedError(f"a newer leader has written: {error}") from error

    async def commit(self, command: Command) -> DecisionT:
        """Decide, append, fold; the decision once it is durable. Raises `DeposedError`, or what the caller got wrong."""
        return decided(await self.commit_all((command,)))[0]

    async def commit_all(self, commands: Sequence[Command]) -> list[DecisionT | TenureError]:
        """Many commands, in as few appends as they fit into; for each what was decided, or why it was not."""
        if not commands:
            return []
        if self.deposed is not None:
            raise self.deposed
        if self._epoch is None:
            raise DeposedError("this node does not lead")
        group: CommandGroup[DecisionT] = CommandGroup(len(commands))
        self._waiting += [WaitingCommand(command, group, place) for place, command in enumerate(commands)]
        self._groups[group] = None
        self._start_writing()
        try:
            await group.complete
        finally:
            self._groups.pop(group, None)
        return [outcome for outcome in group.outcomes if outcome is not None]

    def rebuild_soon(self) -> None:
        """Build the book anew: something was raised in the midst of using it, and its indexes may be half changed."""
        self._doubted = True
        if self._epoch is not None:
            self._start_writing()

    def _start_writing(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
            self._writing.add_done_callback(self._stopped_writing)

    def _stopped_writing(self, task: asyncio.Task[None]) -> None:
        """A writer that failed leaves a book of which nobody knows what it holds: it must not be led with."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.note(FailedOn.LOOP, "journal writer", "writing to the journal", error)
            self.step_down("the journal writer failed")
            self._waiting = []
            for group in list(self._groups):
                group.settle_rest(self.deposed or DeposedError("this node stopped leading"))

    async def _write(self) -> None:
        while (self._waiting or self._doubted) and self.deposed is None:
            batch: list[WaitingCommand[DecisionT]] = []
            try:
                if self._doubted:
                    self._doubted, self._spoiled = False, True
                    await self._make_durable([])
                    self._missed()
                else:
                    batch, self._waiting = self._waiting[:MOST_COMMANDS], self._waiting[MOST_COMMANDS:]
                    await self._write_batch(batch)
            except Exception as error:
                await self._write_failed(batch, error)
        for waiting in self._waiting:
            self._refuse(waiting)
        self._waiting = []

    async def _write_batch(self, batch: list[WaitingCommand[DecisionT]]) -> None:
        encoded: list[bytes] = []
        folded: list[tuple[WaitingCommand[DecisionT], DecisionT]] = []
        now, size = self._engine_now(), 0
        for position, waiting in enumerate(batch):
            made = self._decide(waiting, now)
            if made is None:
                continue
            decision, written = made
            size += sum(map(len, written))
            if encoded and size > _FULL:
                self._waiting[:0] = batch[position:]  # the next append takes them
                break
            if not self._fold(waiting, written):
                self._waiting[:0] = batch[position + 1 :]
                break
            encoded += written
            folded.append((waiting, decision))
        refused = await self._make_durable(encoded)
        if refused is not None and len(folded) > 1:
            for waiting, _ in folded:
                await self._write_batch([waiting])  # alone: only the one that the engine does not take is refused
            return
        for waiting, decision in folded:
            self._settle(waiting, decision, refused)

    def _decide(self, waiting: WaitingCommand[DecisionT], now: float) -> tuple[DecisionT, list[bytes]] | None:
        """A decision and its events as the journal keeps them; None where the command is refused, whatever was raised."""
        kind = type(waiting.command).__name__
        try:
            decision = self.decide(waiting.command, now)
            # Folded as everybody else will read it, so that no two books can differ.
            written = [encode_event(event) for event in decision.events]
        except TenureError as error:
            waiting.settle(error)
            return None
        except Exception as error:
            waiting.settle(self._failures.note(FailedOn.COMMAND, kind, f"deciding a {kind}", error))
            return None
        size = sum(map(len, written))
        if size > _FULL:
            most = f"at most {_FULL:,} bytes, which is what one append holds"
            waiting.settle(LimitError(f"what a {kind} would write", f"{size:,} bytes", most))
            return None
        return decision, written

    def _fold(self, waiting: WaitingCommand[DecisionT], written: list[bytes]) -> bool:
        """Fold what was just decided; False where that failed: nothing of it is written, and the book is built anew."""
        try:
            self.book.replay(written)
        except Exception as error:
            kind = type(waiting.command).__name__
            self._spoiled = True
            waiting.settle(self._failures.note(FailedOn.COMMAND, kind, f"folding what a {kind} decided", error))
            return False
        return True

    def _settle(self, waiting: WaitingCommand[DecisionT], decision: DecisionT, refused: TenureError | None) -> None:
        if self.deposed is not None:
            self._refuse(waiting)
            return
        if refused is not None:
            waiting.settle(refused)
            return
        try:
            self.on_decided(decision)
        except Exception as error:
            self._failures.note(FailedOn.COMMAND, type(waiting.command).__name__, "following up a decision", error)
            self._missed()
        waiting.settle(decision)  # it is durable, whatever became of what follows from it

    async def _write_failed(self, batch: list[WaitingCommand[DecisionT]], error: Exception) -> None:
        """The writer itself failed: the journal alone knows what of the batch was written, and the book is built anew from it."""
        failed = self._failures.note(FailedOn.LOOP, "journal writer", "writing to the journal", error)
        self._spoiled = True
        await self._make_durable([])
        self._missed()
        for waiting in batch:
            if self.deposed is not None:
                self._refuse(waiting)
            elif not any(waiting is one for one in self._waiting):
                waiting.settle(failed)

    def _missed(self) -> None:
        try:
            self.on_missed()
        except Exception as error:
            self._failures.note(FailedOn.LOOP, "journal writer", "having what was missed read off the book", error)

    async def _make_durable(self, encoded: list[bytes]) -> TenureError | None:
        """Append what was folded, and build the book anew where it cannot be trusted. Returns why the engine does not take the events.

        Until this is done nobody is shown the book (`read`).
        """
        if not encoded and not self._spoiled:
            return None
        refused: TenureError | None = None
        self._in_flight = asyncio.get_running_loop().create_future()
        try:
            if encoded:
                refused = await self._append_or_refuse(encoded)
            if self._spoiled and self.deposed is None:
                await self._rebuild()
        except DeposedError as error:
            self.deposed = error
        except Exception as error:
            # The book holds what the journal does not, and cannot be made right: it is worth nothing any more.
            self.deposed = DeposedError(f"the journal cannot be written: {error}")
        finally:
            self._spoiled = False
            self._in_flight.set_result(None)
            self._in_flight = None
        self._changed()
        return refused

    async def _append_or_refuse(self, encoded: list[bytes]) -> TenureError | None:
        """Append; or say what the engine has against these events. Being deposed, and an engine that fails, are raised."""
        try:
            self.seq = await self._append(encoded)
        except (DeposedError, EngineError):
            raise
        except Exception as error:
            # Not written: the book is ahead of the journal by these events.
            self._spoiled = True
            doing = f"appending {len(encoded):,} events"
            return error if isinstance(error, LimitError) else self._failures.note(FailedOn.COMMAND, "", doing, error)
        self._bytes_since += sum(map(len, encoded))
        return None

    async def _rebuild(self) -> None:
        """The book anew from the journal, under the same term: the journal holds everything that was ever answered.

        Raises `DeposedError` where somebody newer has written.
        """
        backoff = self._appends.backoff()
        while self.deposed is None:
            try:
                await self.load()
                break
            except (EngineUnavailableError, EngineBusyError):
                await self._clock.async_sleep(backoff.next())
        head = await self._calls.run(self.journal.head)
        if self._epoch is not None and head.epoch > self._epoch:
            raise DeposedError(f"another leader has written under epoch {head.epoch}")

    async def _append(self, events: list[bytes]) -> int:
        """The sequence that the events got."""
        assert self._epoch is not None
        append_id = checked_id(self._ids(), self.seq + 1, self._epoch, events)
        return await self._appends.append(self.journal, events, epoch=self._epoch, expect=self.seq, append_id=append_id)

    def _refuse(self, waiting: WaitingCommand[DecisionT]) -> None:
        waiting.settle(self.deposed or DeposedError("this node stopped leading"))

    def step_down(self, reason: str) -> None:
        """Commit nothing more. What is being appended ends as it ends; nobody is told that it succeeded."""
        if self.deposed is None:
            self.deposed = DeposedError(reason)

    async def snapshot_if_due(self) -> bool:
        """Keep a snapshot when enough was appended since the last, and let go of what it covers."""
        if self._epoch is None or self.deposed is not None or self.seq - self._snapshot_at < self.snapshot_every:
            return False
        if self._bytes_since < self._snapshot_bytes:
            return False  # writing a large book again and again would cost more than folding what came since
        if self._writing is not None and not self._writing.done():
            return False  # the book is ahead of the journal while an append is under way
        if self.seq < self._snapshot_tried_at + self.snapshot_every:
            return False  # it could not be saved when it was last tried, and to encode it costs much
        self._snapshot_tried_at = self.seq
        try:
            seq = self.seq
            state = checked_state(self.book.snapshot(), seq)
            self.state_bytes = len(state)
            await self._calls.run(self.journal.snapshot, state, seq, epoch=self._epoch)
            await self._calls.run(self.journal.truncate, seq)
        except (StaleSnapshotError, StaleEpochError) as error:
            self.step_down(f"a snapshot was refused: {error}")
            return False
        except (LimitError, OverflowError) as error:
            # Too large, or a number that a snapshot cannot hold. Nothing is lost: the journal keeps every entry, and a later state may fit.
            # No reason to stop leading. `state_bytes` is an alarm (`jobs.alarms.outgrown`).
            self._say(f"the state cannot be saved, so the journal keeps growing: {error}")
            return False
        self._snapshot_at, self._snapshot_bytes, self._bytes_since = seq, len(state), 0
        return True


def decided(outcomes: Iterable[DecisionT | TenureError]) -> list[DecisionT]:
    """The decisions, where every command has one; raises the first error otherwise."""
    decisions: list[DecisionT] = []
    for outcome in outcomes:
        if isinstance(outcome, TenureError):
            raise outcome
        decisions.append(outcome)
    return decisions
