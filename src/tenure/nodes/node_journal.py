"""The journal of a node: follows it, and appends to it for sure.

`FollowedJournal` keeps the book that is the fold up to date (`journal_reading` reads it), and shows it to callers, but never a part of it that is not
durable yet. `SureAppend` appends and learns what became of it, also where the engine's answer was lost; `CommandGroup` holds the outcomes for a
caller. `AppendParts` are the messages that leave with an append, or are acknowledged by it: in one durable step with the decision that wants it, where
the engine can. The writer of a leader is in `ledger`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Appended, Engine, Entry, Journal, Mailbox, Message, Outgoing, Store
from tenure.errors import (
    DeposedError,
    EngineBusyError,
    EngineCorruptError,
    EngineFullError,
    EngineUnavailableError,
    JournalDamagedError,
    SequenceConflictError,
    StaleEpochError,
    TenureError,
    Truncated,
)
from tenure.jobs.decisions import Command, Event, Outcome
from tenure.nodes.journal_reading import BookRules, BookT, LoadProgress, fold_entry, in_slices, load_book
from tenure.nodes.loop_keeper import FailedOn, ProductFailures
from tenure.randomness import Random


class OrderedMessage(NamedTuple):
    """One message to send with the append that records it.

    The writer decides `command` after those of its callers, and writes it into the same entry. So the message is in the engine if and only if
    the journal says that it was sent.
    """

    command: Command
    """Records that it was sent. Where it decides nothing, the message is not sent."""
    mailbox: Mailbox[Any, Any]
    message: Outgoing[Any]


class AppendParts(NamedTuple):
    """Everything that one append brings beside its events."""

    sends: tuple[tuple[Mailbox[Any, Any], tuple[Outgoing[Any], ...]], ...] = ()
    acknowledges: tuple[Message[Any, Any], ...] = ()

    @classmethod
    def of(cls, orders: list[OrderedMessage], acknowledges: list[Message[Any, Any]]) -> AppendParts:
        return cls(tuple((order.mailbox, (order.message,)) for order in orders), tuple(acknowledges))


NO_PARTS = AppendParts()


ViewT = TypeVar("ViewT")


# Following


class FollowedJournal(Generic[BookT]):
    """Loads a book from a journal, keeps it up to date, and lets callers read it."""

    def __init__(
        self,
        journal: Journal,
        pages: Store,
        calls: Calls,
        rules: BookRules[BookT],
        *,
        failures: ProductFailures,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`pages` is the store for states that are saved in pages. `on_change` is called after the book has folded more durable entries."""
        self._pages = pages
        self.journal, self._calls, self._failures, self._on_change = journal, calls, failures, on_change
        self._books = rules
        self.book = rules.new_book()
        self.seq = 0
        self._epoch: int | None = None
        self._in_flight: asyncio.Future[None] | None = None
        """Set while an append or the rebuilding of the book is under way; done when that has ended. Readers wait for it."""
        self._spoiled = False
        """True while events that are not in the journal may have half changed the book. Readers wait for `_in_flight` then."""
        self._snapshot_at, self._snapshot_bytes, self._bytes_since = 0, 0, 0
        self.state_bytes = 0
        """The size of the book when it was last loaded from a snapshot or encoded for one. More than `MAX_SNAPSHOT_BYTES` cannot be kept."""
        self.deposed: DeposedError | None = None
        self.loading: LoadProgress[BookT] | None = None
        """Set while this node reads the journal and has no book yet that could answer."""
        self.damage: JournalDamagedError | None = None
        """Set while the journal cannot be read to its end. Then `read` raises it, and this node cannot lead."""

    @property
    def epoch(self) -> int:
        """The epoch under which this ledger leads; 0 while it does not lead."""
        return self._epoch or 0

    # Reading

    async def read(self, look: Callable[[BookT], ViewT]) -> ViewT:
        """Returns what `look` finds in the book, once all of it is durable. No caller sees a decision that the engine may yet refuse.

        `look` must return a value that no later fold changes. Raises `DeposedError` while this node's book cannot be trusted, and
        `JournalDamagedError` while the journal cannot be read.
        """
        # A leader whose book could not be built anew is deposed, and its loops must hear that: they try again after any other error.
        if self.damage is not None:
            raise self.deposed or self.damage
        while True:
            # `shield`, here and below: a reader that is cancelled must not cancel the future that the writer sets.
            while self._spoiled and self._in_flight is not None:
                await asyncio.shield(self._in_flight)
            book = self.book
            view = look(book)
            if self._in_flight is not None:
                await asyncio.shield(self._in_flight)
            if self.deposed is not None:
                raise self.deposed
            if not self.seq:
                raise DeposedError("this node has not read the journal yet")
            if book is self.book:
                return view
            # The book was replaced meanwhile: `look` may have seen events that will never be written. Look again.

    async def read_job(
        self, jobs: Callable[[BookT], Container[str]], job_id: str, look: Callable[[BookT], ViewT]
    ) -> ViewT:
        """As `read`, for what `look` finds in one job. A node that still reads the journal shows the jobs that it has read, as they were saved.

        Such a job may have gone on since, as one that a standby shows. Of a job that is not read yet nobody can say anything: this raises `DeposedError`.
        """
        book = self.loading.book if self.loading is not None else None
        if book is not None and job_id in jobs(book):
            return look(book)
        return await self.read(look)

    # Following

    async def load(self) -> None:
        """Starts from the newest snapshot and folds everything after it. Until that is done, the old book answers.

        Raises `JournalDamagedError`; `damage` is then set until a later `load` succeeds.
        """
        progress: LoadProgress[BookT] = LoadProgress(self._tell)
        self.loading = progress if not self.seq else None
        try:
            loaded = await load_book(self.journal, self._pages, self._calls, self._books, progress)
        except JournalDamagedError as error:
            self.damage = error
            raise
        finally:
            self.loading = None
        self.damage, self._bytes_since = None, loaded.bytes_since
        self._snapshot_at = loaded.snapshot_at
        self.state_bytes = self._snapshot_bytes = loaded.snapshot_bytes
        self.book, self.seq = loaded.book, loaded.seq
        self._changed()

    def _tell(self, said: str) -> None:
        """Logs how far this node has read."""
        raise NotImplementedError

    async def follow(self, wait_s: float) -> int:
        """Waits up to `wait_s` for entries, folds them and returns their number. Only for a node that does not lead."""
        try:
            entries = await self._calls.run(self.journal.follow, self.seq, wait_s)
        except Truncated:
            await self.load()  # the leader has truncated the entries that this node did not read in time
            return 1
        await self._fold_durable(entries)
        return len(entries)

    async def catch_up(self) -> None:
        """Folds what was appended since into the book that this node has. A node without a book that can be trusted loads it."""
        if not self.seq or self.damage is not None:
            await self.load()
            return
        try:
            while entries := await self._calls.run(self.journal.read, self.seq):
                await self._fold_durable(entries)
        except (Truncated, EngineCorruptError):
            await self.load()

    async def _fold_durable(self, entries: Sequence[Entry]) -> None:
        async for entry in in_slices(entries):
            try:
                fold_entry(self.journal.name, self.book, entry, self.seq)
            except JournalDamagedError as error:
                self.damage = error
                raise
            self.seq = entry.seq
            self._bytes_since += sum(map(len, entry.events))
        if entries:
            self._changed()

    def _changed(self) -> None:
        """Calls `on_change`. An exception of it is only noted: it must not stop the fold or the writer."""
        try:
            self._on_change()
        except Exception as error:
            self._failures.note(FailedOn.WAITER, "", "waking those who wait for the book", error)


RETRY_MOST_S = 1.0


class Decided(Protocol):
    """The decision on a command: the events to append, and what became of the command. Its class adds more of the answer."""

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def outcome(self) -> Outcome: ...


DecisionT = TypeVar("DecisionT", bound=Decided)


class CommandGroup(Generic[DecisionT]):
    """Commands of one caller. `complete` wakes the caller once, when all of them are settled."""

    def __init__(self, size: int) -> None:
        self.outcomes: list[DecisionT | TenureError | None] = [None] * size
        self.acknowledged: set[int] = set()
        """The places of the commands whose delivery the append itself acknowledged."""
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = size

    def settle(self, place: int, outcome: DecisionT | TenureError) -> None:
        """Sets the outcome of one command. The first outcome counts: when a writer fails, all commands are settled, and some already were."""
        if self.outcomes[place] is not None:
            return
        self.outcomes[place] = outcome
        self._open -= 1
        if not self._open and not self.complete.done():
            self.complete.set_result(None)

    def settle_rest(self, outcome: TenureError) -> None:
        """Sets this outcome for every command that has none yet."""
        for place in range(len(self.outcomes)):
            self.settle(place, outcome)


class WaitingCommand(NamedTuple, Generic[DecisionT]):
    command: Command
    group: CommandGroup[DecisionT]
    place: int
    delivery: Message[Any, Any] | None = None
    """The message that brought the command. The append that makes the decision durable acknowledges it, where the engine can."""

    def settle(self, outcome: DecisionT | TenureError) -> None:
        self.group.settle(self.place, outcome)


def decided(outcomes: Iterable[DecisionT | TenureError]) -> list[DecisionT]:
    """Returns the decisions, where every command has one; raises the first error otherwise."""
    decisions: list[DecisionT] = []
    for outcome in outcomes:
        if isinstance(outcome, TenureError):
            raise outcome
        decisions.append(outcome)
    return decisions


class SureAppend:
    """Asks the engine until it answers: until then the outcome of an append is unknown."""

    def __init__(self, engine: Engine, calls: Calls, clock: Clock, random: Random) -> None:
        self._engine, self._calls, self._clock, self._random = engine, calls, clock, random

    async def append(
        self,
        journal: Journal,
        events: Sequence[bytes],
        *,
        epoch: int,
        expect: int,
        append_id: str,
        parts: AppendParts = NO_PARTS,
    ) -> Appended:
        """Returns the sequence that the events got. Raises `DeposedError` when another leader wrote at this position.

        `parts` is for engines that append in one step: an entry that is found after a lost answer brought all of its parts.
        """
        backoff: Backoff | None = None
        lost_answer = False
        while True:
            try:
                if lost_answer and (found := await self._find(journal, append_id, expect)) is not None:
                    return Appended(found)
                place = {"epoch": epoch, "expect": expect, "append_id": append_id}
                if parts == NO_PARTS:
                    return Appended(await self._calls.run(journal.append, events, **place))
                return await self._calls.run(self._engine.append_with, journal, events, **place, **parts._asdict())
            except (EngineUnavailableError, EngineBusyError, EngineFullError):
                lost_answer, backoff = True, backoff or self.backoff()
                await self._clock.async_sleep(backoff.next())
            except (StaleEpochError, SequenceConflictError) as error:
                # After a lost answer, the entry at this position may be our own append.
                found = await self._find_for_sure(journal, append_id, expect) if lost_answer else None
                if found is not None:
                    return Appended(found)
                raise DeposedError(f"an append was refused: {error}") from error
            except Truncated as error:
                raise DeposedError(f"another leader has gone on: {error}") from error

    def backoff(self) -> Backoff:
        return Backoff(self._random, most_s=RETRY_MOST_S)

    async def _find(self, journal: Journal, append_id: str, after: int) -> int | None:
        """Returns the sequence of the entry with this id above `after`, or None. Each page is one engine call, so that a simulation may fail any."""
        position = after
        while entries := await self._calls.run(journal.read, position):
            for entry in entries:
                if entry.append_id == append_id:
                    return entry.seq
            position = entries[-1].seq
        return None

    async def _find_for_sure(self, journal: Journal, append_id: str, after: int) -> int | None:
        backoff = self.backoff()
        while True:
            try:
                return await self._find(journal, append_id, after)
            except (EngineUnavailableError, EngineBusyError):
                await self._clock.async_sleep(backoff.next())
            except Truncated:
                return None
