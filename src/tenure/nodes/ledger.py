"""Writes a journal and keeps the book that is its fold: one writer decides, folds and appends, and answers only then.

The `NodeRules` decide what the book holds and what follows from a command: a datacenter's jobs (`manager.leader`), or a gate's (`gate.leader`).

The writer decides commands that wait together one after the other, each on the state that the one before it leaves, and writes them in one
append. It answers none of them before that append has returned, so no effect outside can come before the decision that ordered it
(DESIGN.md, rule 2).

When the outcome of an append is unknown, the writer looks for the append's id in the journal, and never appends again at a fresh position.
A writer that a newer leader overtook is deposed. Its book holds decisions that no other node has, so the node throws the book away.

When `decide`, the fold or the engine's limits fail on a command, the writer refuses that command alone, and goes on leading. Where the
command may have left the book half changed, the writer builds the book anew from the journal, in the same term (decision 0195).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tenure.engines.contracts import MAX_APPEND_BYTES, Message, Term
from tenure.errors import (
    DeposedError,
    EngineBusyError,
    EngineError,
    EngineUnavailableError,
    EngineWentBackError,
    JournalDamagedError,
    LimitError,
    StaleEpochError,
    TenureError,
)
from tenure.jobs.decisions import Command, encode_event
from tenure.nodes.journal_checksum import checked_id
from tenure.nodes.journal_reading import BookT
from tenure.nodes.loop_keeper import FailedOn, ProductFailures
from tenure.nodes.node_journal import (
    NO_PARTS,
    AppendParts,
    CommandGroup,
    DecisionT,
    OrderedMessage,
    SureAppend,
    WaitingCommand,
    decided,
)
from tenure.nodes.process import Environment
from tenure.nodes.saved_journal import NodeRules, SavedJournal

SNAPSHOT_EVERY = 500
"""The usual `NodeRules.snapshot_every`."""
MOST_COMMANDS = 200
"""The most commands of one append; the rest waits for the next."""
_FULL = MAX_APPEND_BYTES - 65_536  # leaves room for the bytes that an engine adds to the events


class NodeLedger(SavedJournal[BookT, DecisionT]):
    """A node's view of a journal. A standby follows it; after `lead`, commands may be committed."""

    def __init__(
        self,
        rules: NodeRules[BookT, DecisionT],
        environment: Environment,
        *,
        failures: ProductFailures,
        engine_now: Callable[[], float],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(rules, environment, failures=failures, on_change=on_change)
        self._engine_now, self._clock, self._ids = engine_now, environment.clock, environment.ids
        self._appends = SureAppend(environment.engine, environment.calls, environment.clock, environment.random)
        self._in_one_step = environment.engine.appends_in_one_step
        self._waiting: list[WaitingCommand[DecisionT]] = []
        self._writing: asyncio.Task[None] | None = None
        self._groups: dict[CommandGroup[DecisionT], None] = {}
        """The groups of commands whose callers wait for the writer. When the writer fails, all of them are settled."""
        self._doubted = False
        self.on_decided: Callable[[DecisionT], None] = lambda decision: None
        """Called with each decision once it is durable, in their order. Consequences of a decision belong here, and not after
        `commit`: a caller that hung up meanwhile is cancelled, and would never get to them (decision 0182)."""
        self.orders_due: Callable[[], Sequence[OrderedMessage]] = tuple
        """Returns the messages that the folded book orders. They leave with the append that makes it durable, where the engine can."""
        self.on_missed: Callable[[], None] = lambda: None
        """Called when an `on_decided` failed or was left out: then the leader has to find the consequences in the book."""

    # Leading

    async def lead(self, term: Term) -> None:
        """Folds the journal to its end and writes that this node leads: from here on this ledger may commit (rule 1).

        A standby leads from the book that it has, and folds only what it has not seen yet (decision 0420).

        Raises `DeposedError` when a newer leader wrote first.
        """
        known = self.seq
        head = await self._calls.run(self.journal.head)
        if head.seq < known:
            raise EngineWentBackError(
                f"the journal ends at {head.seq}, and this node has seen {known}",
                remedy="The engine lost acknowledged writes: find out which copy is the newest before anything goes on",
            )
        await self.catch_up()
        if self.seq < head.seq:
            why = f"it is missing: the journal ends at {head.seq}"
            self.damage = JournalDamagedError(self.journal.name, "entry", self.seq + 1, why)
            raise self.damage
        self._epoch = term.epoch
        try:
            await self.commit(self.rules.take_lead(term))
        except StaleEpochError as error:
            raise DeposedError(f"a newer leader has written: {error}") from error
        await self._adopt()

    async def commit(self, command: Command) -> DecisionT:
        """Returns the decision on the command once it is durable. Raises `DeposedError`, or the mistake of the caller."""
        return decided(await self.commit_all((command,)))[0]

    async def commit_all(self, commands: Sequence[Command]) -> list[DecisionT | TenureError]:
        """Commits many commands in as few appends as they fit into. Returns for each its decision, or the error that refused it."""
        return (await self.record_all([(command, None) for command in commands]))[0]

    async def record_all(
        self, commands: Sequence[tuple[Command, Message[Any, Any] | None]]
    ) -> tuple[list[DecisionT | TenureError], list[Message[Any, Any]]]:
        """As `commit_all`, for commands that messages brought. Returns also those messages that the appends have acknowledged already."""
        if not commands:
            return [], []
        if self.deposed is not None:
            raise self.deposed
        if self._epoch is None:
            raise DeposedError("this node does not lead")
        group: CommandGroup[DecisionT] = CommandGroup(len(commands))
        self._waiting += [
            WaitingCommand(command, group, place, delivery) for place, (command, delivery) in enumerate(commands)
        ]
        self._groups[group] = None
        self._start_writing()
        try:
            await group.complete
        finally:
            self._groups.pop(group, None)
        done = [one for place, (_, one) in enumerate(commands) if place in group.acknowledged and one is not None]
        return [outcome for outcome in group.outcomes if outcome is not None], done

    def rebuild_soon(self) -> None:
        """Has the writer build the book anew: an exception came while the book was in use, and may have left its indexes half changed."""
        self._doubted = True
        if self._epoch is not None:
            self._start_writing()

    @property
    def writing(self) -> bool:
        """True while commands are decided or appended. The book may be ahead of the journal then."""
        return self._writing is not None and not self._writing.done()

    def _start_writing(self) -> None:
        if not self.writing:
            self._writing = asyncio.create_task(self._write())
            self._writing.add_done_callback(self._stopped_writing)

    def _stopped_writing(self, task: asyncio.Task[None]) -> None:
        """Steps down when the writer failed: no node knows what its book holds then, so it must not lead with it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.note(FailedOn.LOOP, "journal writer", "writing to the journal", error)
            self.step_down("the journal writer failed")
            self._waiting = []
            self._serve_cut()
            for group in list(self._groups):
                group.settle_rest(self.deposed or DeposedError("this node stopped leading"))

    async def _write(self) -> None:
        while (self._waiting or self._doubted) and self.deposed is None:
            if not self._doubted:
                self._serve_cut()
            batch: list[WaitingCommand[DecisionT]] = []
            try:
                if self._doubted:
                    self._doubted, self._spoiled = False, True
                    await self._make_durable([])
                else:
                    batch, self._waiting = self._waiting[:MOST_COMMANDS], self._waiting[MOST_COMMANDS:]
                    await self._write_batch(batch)
            except Exception as error:
                await self._write_failed(batch, error)
        self._serve_cut()
        for waiting in self._waiting:
            self._refuse(waiting)
        self._waiting = []

    async def _write_batch(self, batch: list[WaitingCommand[DecisionT]], *, alone: bool = False) -> None:
        """Decides, folds and appends. `alone`: without the parts that an append may bring, because the engine refused it with them."""
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
                self._waiting[:0] = batch[position:]  # decided again for the next append, after this one has returned
                break
            if not self._fold(waiting, written):
                self._waiting[:0] = batch[position + 1 :]
                break
            encoded += written
            folded.append((waiting, decision))
        along = self._take_along(encoded, now) if self._in_one_step and not alone and encoded else []
        deliveries = [one.delivery for one, _ in folded if one.delivery is not None] if self._in_one_step else []
        parts = AppendParts.of([order for order, _ in along], deliveries) if encoded and not alone else NO_PARTS
        refused = await self._make_durable(encoded, parts)
        if refused is not None and (len(folded) > 1 or parts != NO_PARTS):
            for waiting, _ in folded:
                # Each alone, so that only the command that the engine does not take is refused.
                await self._write_batch([waiting], alone=True)
            return
        if parts.acknowledges and self.deposed is None:
            for waiting, _ in folded:
                if waiting.delivery is not None:
                    waiting.group.acknowledged.add(waiting.place)
        for waiting, decision in folded:
            self._settle(waiting, decision, refused)
        for _, decision in along if self.deposed is None else ():
            self._follow_up(decision, "an order")

    def _take_along(self, encoded: list[bytes], now: float) -> list[tuple[OrderedMessage, DecisionT]]:
        """Decides and folds what records the orders that the folded book holds, and adds its events to the entry. Returns those orders."""
        along: list[tuple[OrderedMessage, DecisionT]] = []
        try:
            orders = self.orders_due() if not self._spoiled else ()
        except Exception as error:
            self._failures.note(FailedOn.LOOP, "journal writer", "asking which orders are due", error)
            self._doubted = True  # it may have left the indexes of the book half changed
            return along
        size = sum(map(len, encoded))
        for order in orders:
            waiting: WaitingCommand[DecisionT] = WaitingCommand(order.command, CommandGroup(1), 0)
            made = self._decide(waiting, now)
            if made is None or not made[1]:
                continue  # the leader sends it by itself, and finds out what is wrong
            size += sum(map(len, made[1]))
            if size > _FULL or not self._fold(waiting, made[1]):
                break
            encoded += made[1]
            along.append((order, made[0]))
        return along

    def _decide(self, waiting: WaitingCommand[DecisionT], now: float) -> tuple[DecisionT, list[bytes]] | None:
        """Returns a decision and its encoded events; None where it refused the command because of any exception."""
        kind = type(waiting.command).__name__
        try:
            decision = self.rules.decide(self.book, waiting.command, now)
            # The leader folds the encoded bytes that every follower will read, so that no two books can differ.
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
        """Folds a decision. Returns False where the fold failed: then nothing of it is written, and the book is built anew."""
        try:
            self.book.position = self.seq + 1
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
        waiting.settle(decision)  # first: its caller has the loop before those whom `on_decided` wakes
        self._follow_up(decision, type(waiting.command).__name__)

    def _follow_up(self, decision: DecisionT, kind: str) -> None:
        try:
            self.on_decided(decision)
        except Exception as error:
            self._failures.note(FailedOn.COMMAND, kind, "following up a decision", error)
            self._missed()

    async def _write_failed(self, batch: list[WaitingCommand[DecisionT]], error: Exception) -> None:
        """Handles an exception of the writer itself. Only the journal knows what of the batch was written, so the book is built anew from it."""
        failed = self._failures.note(FailedOn.LOOP, "journal writer", "writing to the journal", error)
        self._spoiled = True
        await self._make_durable([])
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

    async def _make_durable(self, encoded: list[bytes], parts: AppendParts = NO_PARTS) -> TenureError | None:
        """Appends the folded events, and builds the book anew where it cannot be trusted.

        Returns the error where the engine refuses the events, else None. Until this is done, `read` shows the book to no caller.
        """
        if not encoded and not self._spoiled:
            return None
        refused: TenureError | None = None
        rebuilt = False
        self._in_flight = asyncio.get_running_loop().create_future()
        try:
            if encoded:
                refused = await self._append_or_refuse(encoded, parts)
            if self._spoiled and self.deposed is None:
                await self._rebuild()
                rebuilt = True
        except DeposedError as error:
            self.deposed = error
        except Exception as error:
            # The book holds events that the journal does not hold, and it could not be built anew: this node must not lead with it.
            self.deposed = DeposedError(f"the journal cannot be written: {error}")
        finally:
            self._spoiled = False
            self._in_flight.set_result(None)
            self._in_flight = None
        self._changed()
        if rebuilt:
            # The journal may hold events that nobody followed up: of an append that was done before it raised.
            self._missed()
        return refused

    async def _append_or_refuse(self, encoded: list[bytes], parts: AppendParts) -> TenureError | None:
        """Appends the events. Returns the error where the engine refuses them; raises `DeposedError` and `EngineError`."""
        try:
            self.seq = await self.append(encoded, parts)
        except (DeposedError, EngineError):
            raise
        except Exception as error:
            # The events were not written, so the book is ahead of the journal by them.
            self._spoiled = True
            doing = f"appending {len(encoded):,} events"
            return error if isinstance(error, LimitError) else self._failures.note(FailedOn.COMMAND, "", doing, error)
        self._bytes_since += sum(map(len, encoded))
        return None

    async def _rebuild(self) -> None:
        """Builds the book anew from the journal, under the same term: the journal holds every decision that a caller was ever told.

        Raises `DeposedError` where a newer leader has written.
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

    async def append(self, events: list[bytes], parts: AppendParts = NO_PARTS) -> int:
        """Appends the events, and returns their sequence."""
        assert self._epoch is not None
        append_id = checked_id(self._ids(), self.seq + 1, self._epoch, events)
        done = await self._appends.append(
            self.journal, events, epoch=self._epoch, expect=self.seq, append_id=append_id, parts=parts
        )
        for (_, (message,)), sent in zip(parts.sends, done.sent, strict=False):  # no outcomes where the answer was lost
            if sent.refused:
                self._log.warning(f"{message.key}, generation {message.generation}, was not sent again: {sent.refused}")
        for delivery in done.lost:
            self._log.info(f"message {delivery.id} comes again: what it brought is recorded, and will be known already")
        return done.seq

    def _refuse(self, waiting: WaitingCommand[DecisionT]) -> None:
        waiting.settle(self.deposed or DeposedError("this node stopped leading"))
