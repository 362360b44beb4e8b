"""A journal and the book that is its fold, kept together: one writer decides, appends and folds, in that order.

What the book holds, and what is decided from it, is the subclass's: a datacenter's jobs (`ledger`), or a gate's (`gate.ledger`).

Commands that wait together are decided one after the other on the state that each of them leaves, and written in one append. Nothing is
answered before that append has returned, so no effect outside can come before the decision that ordered it (DESIGN.md, rule 2).

Whatever makes the outcome of an append unknown is resolved by looking for its id, never by taking a fresh position. A writer that was
overtaken is deposed: its book holds decisions that nobody has, so it is thrown away.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import MAX_APPEND_BYTES, Journal, Term
from tenure.errors import (
    DeposedError,
    EngineBusyError,
    EngineFullError,
    EngineUnavailableError,
    EngineWentBackError,
    JournalDamagedError,
    LimitError,
    SequenceConflictError,
    StaleEpochError,
    StaleSnapshotError,
    TenureError,
    Truncated,
)
from tenure.ids import IdSource
from tenure.jobs.commands import Command
from tenure.jobs.events import Event, encode_event
from tenure.nodes.journal_checksum import checked_id, checked_state
from tenure.nodes.journal_reading import Replays, fold_entry, load_book

SNAPSHOT_EVERY = 500
"""Entries between two snapshots: what a new manager folds at most before it can serve."""
MOST_COMMANDS = 200
"""In one append; the rest waits for the next."""
_FULL = MAX_APPEND_BYTES - 65_536  # what an engine adds to the events has room in what is left
_RETRY_S = 0.05
_RETRY_MOST_S = 1.0

ViewT = TypeVar("ViewT")


class Book(Replays, Protocol):
    """A fold over a journal that can be kept."""

    def snapshot(self) -> bytes: ...


class Decided(Protocol):
    """What follows from a command: the events to append, and whatever answer goes with them."""

    @property
    def events(self) -> Sequence[Event]: ...


BookT = TypeVar("BookT", bound=Book)
DecisionT = TypeVar("DecisionT", bound=Decided)


class _Group(Generic[DecisionT]):
    """Commands that came together, and what became of each: one wake-up for all of them."""

    def __init__(self, size: int) -> None:
        self.outcomes: list[DecisionT | TenureError | None] = [None] * size
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = size

    def fail(self, error: Exception) -> None:
        """A bug of ours: whoever waits hears of it."""
        if not self.complete.done():
            self.complete.set_exception(error)

    def settle(self, place: int, outcome: DecisionT | TenureError) -> None:
        self.outcomes[place] = outcome
        self._open -= 1
        if not self._open and not self.complete.done():
            self.complete.set_result(None)


class _Waiting(NamedTuple, Generic[DecisionT]):
    command: Command
    group: _Group[DecisionT]
    place: int

    def settle(self, outcome: DecisionT | TenureError) -> None:
        self.group.settle(self.place, outcome)


class Journaled(ABC, Generic[BookT, DecisionT]):
    """A node's view of a journal. A standby follows it; after `lead`, commands may be committed."""

    snapshot_every: ClassVar[int] = SNAPSHOT_EVERY

    def __init__(
        self,
        journal: Journal,
        calls: Calls,
        *,
        clock: Clock,
        ids: IdSource,
        engine_now: Callable[[], float],
        on_change: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._on_change, self._say = on_change, say
        """Called when the book holds more that is durable."""
        self.journal, self._calls, self._clock, self._ids = journal, calls, clock, ids
        self._engine_now = engine_now
        self.book = self.new_book()
        self.seq = 0
        self._epoch: int | None = None
        self._waiting: list[_Waiting[DecisionT]] = []
        self._writing: asyncio.Task[None] | None = None
        self._in_flight: asyncio.Future[None] | None = None
        self._snapshot_at, self._snapshot_bytes, self._bytes_since = 0, 0, 0
        self.deposed: DeposedError | None = None
        self.damage: JournalDamagedError | None = None
        """Set while the journal cannot be read to its end: then this book is not shown to anybody, and this node cannot lead."""
        self.on_decided: Callable[[DecisionT], None] = lambda decision: None
        """Called with each decision once it is durable, in their order. What follows from a decision belongs here, and not after
        `commit`: whoever asked may have hung up meanwhile, and is not there to go on (decision 0182)."""

    @property
    def epoch(self) -> int:
        """Under which this ledger leads; 0 while it does not."""
        return self._epoch or 0

    # What the subclass knows

    @abstractmethod
    def new_book(self) -> BookT:
        """A book that has folded nothing."""

    @abstractmethod
    def restored(self, snapshot: bytes) -> BookT:
        """The book that `snapshot` was taken of."""

    @abstractmethod
    def decide(self, command: Command, now: float) -> DecisionT:
        """What follows from a command. Changes nothing; raises what the caller got wrong."""

    @abstractmethod
    def take_lead(self, term: Term) -> Command:
        """The first command of a term."""

    # Reading

    async def read(self, look: Callable[[BookT], ViewT]) -> ViewT:
        """What the book shows, once all of it is durable: nobody is shown a decision that may yet be refused.

        `look` must return what no later fold changes. Raises `DeposedError` while this node's book is worth nothing, and
        `JournalDamagedError` while it cannot have one.
        """
        if self.damage is not None:
            raise self.damage
        view = look(self.book)
        if self._in_flight is not None:
            await asyncio.shield(self._in_flight)
        if self.deposed is not None:
            raise self.deposed
        if not self.seq:
            raise DeposedError("this node has not read the journal yet")
        return view

    # Following

    async def load(self) -> None:
        """Start from the newest snapshot and fold everything after it. Until then the old book answers.

        Raises `JournalDamagedError`, and is then damaged until a later `load` succeeds.
        """
        try:
            loaded = await load_book(self.journal, self._calls, self.new_book, self.restored)
        except JournalDamagedError as error:
            self.damage = error
            raise
        self.damage, self._bytes_since = None, loaded.bytes_since
        self._snapshot_at, self._snapshot_bytes = loaded.snapshot_at, loaded.snapshot_bytes
        self.book, self.seq = loaded.book, loaded.seq
        self._on_change()

    async def follow(self, wait_s: float) -> int:
        """Fold what others append; how many entries came. Only for one that does not lead."""
        try:
            entries = await self._calls.run(self.journal.follow, self.seq, wait_s)
        except Truncated:
            await self.load()  # we were away for longer than the journal remembers
            return 1
        for entry in entries:
            try:
                fold_entry(self.journal.name, self.book, entry, self.seq)
            except JournalDamagedError as error:
                self.damage = error
                raise
            self.seq = entry.seq
        if entries:
            self._on_change()
        return len(entries)

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
        group: _Group[DecisionT] = _Group(len(commands))
        self._waiting += [_Waiting(command, group, place) for place, command in enumerate(commands)]
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await group.complete
        return [outcome for outcome in group.outcomes if outcome is not None]

    async def _write(self) -> None:
        while self._waiting and self.deposed is None:
            batch, self._waiting = self._waiting[:MOST_COMMANDS], self._waiting[MOST_COMMANDS:]
            await self._write_batch(batch)
        for waiting in self._waiting:
            self._refuse(waiting)
        self._waiting = []

    async def _write_batch(self, batch: list[_Waiting[DecisionT]]) -> None:
        encoded: list[bytes] = []
        durable: list[tuple[_Waiting[DecisionT], DecisionT]] = []
        now, size = self._engine_now(), 0
        for position, waiting in enumerate(batch):
            try:
                decision = self.decide(waiting.command, now)
            except TenureError as error:
                waiting.settle(error)
                continue
            # Folded as everybody else will read it, so that no two books can differ.
            written = [encode_event(event) for event in decision.events]
            size += sum(map(len, written))
            if encoded and size > _FULL:
                self._waiting[:0] = batch[position:]  # the next append takes them
                break
            self.book.replay(written)
            encoded += written
            durable.append((waiting, decision))
        if encoded:
            await self._make_durable(encoded)
        for waiting, decision in durable:
            if self.deposed is not None:
                self._refuse(waiting)
                continue
            try:
                self.on_decided(decision)
            except Exception as error:
                waiting.group.fail(error)
            waiting.settle(decision)

    async def _make_durable(self, encoded: list[bytes]) -> None:
        self._in_flight = asyncio.get_running_loop().create_future()
        try:
            self.seq = await self._append(encoded)
            self._bytes_since += sum(map(len, encoded))
        except DeposedError as error:
            self.deposed = error
        except TenureError as error:
            # The book holds what the journal refused: it is worth nothing any more.
            self.deposed = DeposedError(f"the journal cannot be written: {error}")
        finally:
            self._in_flight.set_result(None)
            self._in_flight = None
        self._on_change()

    async def _append(self, events: list[bytes]) -> int:
        """The sequence that the events got. While the engine does not answer, nobody knows; so we ask until it does."""
        assert self._epoch is not None
        expect, pause = self.seq, _RETRY_S
        append_id = checked_id(self._ids(), expect + 1, self._epoch, events)
        lost_answer = False
        while True:
            try:
                if lost_answer and (found := await self._find(append_id, expect)) is not None:
                    return found
                return await self._calls.run(
                    self.journal.append, events, epoch=self._epoch, expect=expect, append_id=append_id
                )
            except (EngineUnavailableError, EngineBusyError, EngineFullError):
                lost_answer = True
                await self._clock.async_sleep(pause)
                pause = min(_RETRY_MOST_S, pause * 2)
            except (StaleEpochError, SequenceConflictError) as error:
                # Our own append may be the one that is in the way: its answer was lost.
                found = await self._find_for_sure(append_id, expect) if lost_answer else None
                if found is not None:
                    return found
                raise DeposedError(f"an append was refused: {error}") from error
            except Truncated as error:
                raise DeposedError(f"another leader has gone on: {error}") from error

    async def _find(self, append_id: str, after: int) -> int | None:
        """One engine call at a time, so that a simulation may fail any of them."""
        position = after
        while entries := await self._calls.run(self.journal.read, position):
            for entry in entries:
                if entry.append_id == append_id:
                    return entry.seq
            position = entries[-1].seq
        return None

    async def _find_for_sure(self, append_id: str, after: int) -> int | None:
        while True:
            try:
                return await self._find(append_id, after)
            except (EngineUnavailableError, EngineBusyError):
                await self._clock.async_sleep(_RETRY_S)
            except Truncated:
                return None

    def _refuse(self, waiting: _Waiting[DecisionT]) -> None:
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
        try:
            seq = self.seq
            state = checked_state(self.book.snapshot(), seq)
            await self._calls.run(self.journal.snapshot, state, seq, epoch=self._epoch)
            await self._calls.run(self.journal.truncate, seq)
        except (StaleSnapshotError, StaleEpochError) as error:
            self.step_down(f"a snapshot was refused: {error}")
            return False
        except (LimitError, OverflowError) as error:
            # Too large, or a number that a snapshot cannot hold. Nothing is lost: the journal keeps every entry, and a later state may fit.
            self._snapshot_at, self._bytes_since = self.seq, 0
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
