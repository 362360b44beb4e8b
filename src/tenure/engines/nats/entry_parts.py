"""The messages that an entry of a journal brings, and the deliveries that it acknowledges: both are in the entry itself, and one command of the log does them.

A journal and the log are two streams, and NATS has no step over both. So the entry is the decision, and carries its parts. The command that
follows it (`Deliver`) names the entry, and the fold does the parts of each entry once, in the order of the entries. Where the command is missing,
because its writer died in between or lost the answer, whoever appends next reads the parts from the entries and sends it first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.backoff import Backoff
from tenure.engines.nats import commands as c
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.consumers import DeliveredParts
from tenure.errors import EngineUnavailableError, TenureError

if TYPE_CHECKING:
    from tenure.engines.nats.engine import NatsEngine


log = logging.getLogger("tenure.engines.nats")


class EntryParts(msgspec.Struct, array_like=True, frozen=True):
    """The fields are a format: entries carry it."""

    runs: list[tuple[str, list[c.Item]]]
    """Messages to send, each run as (mailbox, messages)."""
    ended: list[tuple[str, str, str]]
    """Deliveries to acknowledge, each (mailbox, message, receipt)."""


encode_parts = msgspec.msgpack.Encoder().encode
_decode_parts = msgspec.msgpack.Decoder(EntryParts).decode


class CarriedParts(NamedTuple):
    """The parts of one entry, as it carries them."""

    seq: int
    parts: bytes


class EntryDeliveries:
    """Does the parts of the entries of one journal. Everything in here runs on the background loop."""

    def __init__(
        self,
        engine: NatsEngine,
        journal: Callable[[], str],
        carried: Callable[[int, int], AsyncIterator[CarriedParts]],
        complete: Callable[[], Awaitable[object]],
    ) -> None:
        """`carried` reads the parts of entries above the first number, up to the second; `complete` asks for the end of the journal and calls `catch_up`."""
        self._engine, self._journal, self._carried, self._complete = engine, journal, carried, complete
        self._due: dict[int, EntryParts] = {}
        """By sequence: the parts of entries that are written, and that no command is known to have done."""
        self._in_order = asyncio.Lock()
        """The fold takes the command for an entry as saying that all earlier ones are done."""
        self.seen = 0
        """The parts of the entries up to this one are done, or due here: this handle has read them, or has written them."""
        self._finishing = False

    async def deliver(self, seq: int, parts: EntryParts) -> DeliveredParts | None:
        """Does the parts of an entry that was written just now. None where another process has done them.

        Where it only acknowledges, nobody waits for the command, and it leaves with the next one: our fold shows which receipts are dead, and one that
        dies in this moment brings a message again that is known already.
        """
        if not (parts.runs or self._due):
            self._engine.log.spawn(self._acknowledge(seq, parts))
            return DeliveredParts([], self._engine.log.ledger.not_held(parts.ended))
        self._due[seq] = parts
        try:
            return await self._deliver_due(seq)
        except EngineUnavailableError:
            self.finish_later()
            raise

    async def _acknowledge(self, seq: int, parts: EntryParts) -> None:
        commands = self._engine.log
        try:
            await commands.ask(c.Deliver(commands.new_id(), self._journal(), seq, [], parts.ended), rides=True)
        except EngineUnavailableError:
            self._due[seq] = parts
            self.finish_later()

    async def catch_up(self, head: int) -> None:
        """Does what earlier writers left undone, up to the end of the journal."""
        if head > self.seen:
            await self._engine.log.catch_up()
            done = max(self.seen, self._engine.log.ledger.delivered.get(self._journal(), 0))
            async for seq, parts in self._carried(done, head):
                try:
                    self._due[seq] = _decode_parts(parts)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    log.warning(
                        "the messages that entry %d of %s brings cannot be read: %s", seq, self._journal(), error
                    )
            self.seen = max(self.seen, head)
        if self._due:
            await self._deliver_due(0)

    async def _deliver_due(self, wanted: int) -> DeliveredParts | None:
        commands, told = self._engine.log, None
        async with self._in_order:
            for seq in sorted(self._due):
                parts = self._due[seq]
                done = await commands.ask(c.Deliver(commands.new_id(), self._journal(), seq, parts.runs, parts.ended))
                del self._due[seq]
                told = done if seq == wanted else told
        return told

    def finish_later(self) -> None:
        """The outcome of a step is unknown. Its messages must not wait for the next append."""
        if not self._finishing:
            self._finishing = True
            self._engine.log.spawn(self._finish())

    async def _finish(self) -> None:
        pause = Backoff(self._engine.link.random, first_s=0.1, most_s=5.0)
        try:
            while not self._engine.closed:
                await asyncio.sleep(pause.next())
                try:
                    await self._complete()
                    return
                except (EngineUnavailableError, ApiError):
                    continue
        except TenureError:
            return  # the journal is not ours to complete any more, or cannot be read: whoever appends next is told
        finally:
            self._finishing = False
