"""A consumer of many mailboxes in the log: one command settles a group and claims, or leaves a claim that stands for all of its mailboxes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.checked_consumer import CheckedConsumer, CheckedSettlement, ClaimWish, Dead
from tenure.engines.contracts import BodyT, Message, ReplyT
from tenure.engines.mailbox_records import LEASED
from tenure.engines.nats import commands as c
from tenure.engines.nats.consumers import ExchangedFold
from tenure.engines.nats.ledger_records import Delivery
from tenure.engines.nats.mailbox import NatsMessage
from tenure.engines.nats.pending_commands import Claimed, LogPoll
from tenure.engines.nats.polls import LINGER_S, NatsPolls

if TYPE_CHECKING:
    from tenure.engines.nats.engine import NatsEngine

_SETTLED_ROOM = 256  # of one settlement beside its reply
Settled = list[tuple[str, str, str, bytes | None]]
Messages = list[Message[BodyT, ReplyT]]


class NatsConsumer(NatsPolls, CheckedConsumer[BodyT, ReplyT, str], Generic[BodyT, ReplyT]):
    """A claim is known by its receipt. The log gives back by itself what a claim took whose asker had given up."""

    engine: NatsEngine

    def __init__(self, engine: NatsEngine, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        CheckedConsumer.__init__(self, engine, body, reply, max_delivery_count)
        NatsPolls.__init__(self, engine, "", "this consumer")
        self._name = engine.call("consumer", self._new_name)
        self._version = 0
        self._given_at = -inf
        """When it last got messages."""
        self._covering = threading.Lock()
        """Held while the log is told of other mailboxes, so that the version in the log is the newest."""

    async def _new_name(self) -> str:
        return self.engine.log.new_id()

    def _cover(self, names: tuple[str, ...]) -> None:
        with self._covering:
            version, ranks = self._version + 1, [list(rank) for rank in self.ranks]
            self.engine.ask("cover", c.Cover, self._name, version, ranks)
            self._version = version

    async def refused(self) -> None:
        """The log has forgotten this consumer, or another thread has just changed its mailboxes."""
        log = self.engine.log
        await log.ask(c.Cover(log.new_id(), self._name, self._version, [list(rank) for rank in self.ranks]))

    def watched(self) -> tuple[str, ...]:
        return tuple(name for rank in self.ranks for name in rank)

    def _is_ours(self, message: Any) -> bool:
        return isinstance(message, NatsMessage) and message.is_of(self.engine)

    # Exchanging

    def _exchange(
        self, group: Sequence[CheckedSettlement], wish: ClaimWish | None, wait_s: float, claims: list[str]
    ) -> tuple[Messages[BodyT, ReplyT], Dead]:
        clock, dead, begun = self.engine.clock, dict[int, bool](), 0
        *before, last = self._parts(group)
        for part in before:
            told = self.engine.call("settle", self._settle, part)
            dead |= {begun + place: gone for place, gone in told.lost.items()}
            begun += len(part)
        if wish is None:
            told = self.engine.call("settle", self._settle, last)
            return [], dead | {begun + place: gone for place, gone in told.lost.items()}

        def noted(told: ExchangedFold) -> None:
            nonlocal last
            dead.update({begun + place: gone for place, gone in told.lost.items()})
            last = []  # they are settled: if it stands again, only to claim

        end = clock.monotonic() + wait_s
        while True:
            claimed = self.engine.wait(self._claim, lambda: last, wish, end if wait_s else 0.0, noted)
            if claimed is None:
                break
            self._given_at = clock.monotonic()
            claims.append(claimed.receipt)
            made = [self.handle_of(each.box).message(claimed, each) for each in claimed.deliveries]
            if found := [message for message in made if message is not None]:
                self._note_given_up(group, dead)
                return found, dead
            wait_s = max(0.0, end - clock.monotonic())  # none of them could be decoded
        self._note_given_up(group, dead)
        return [], dead

    def _note_given_up(self, group: Sequence[CheckedSettlement], dead: Dead) -> None:
        for place, (message, _) in enumerate(group):
            if place not in dead:
                message.given_up = "it was settled"

    def _parts(self, group: Sequence[CheckedSettlement]) -> list[Settled]:
        """In order, each small enough for one message of the stream: usually all of them in one."""
        parts: list[Settled] = [[]]
        most, size = self.engine.link.max_payload // 2, 0
        for message, reply in group:
            need = len(reply or b"") + _SETTLED_ROOM
            if parts[-1] and size + need > most:
                parts.append([])
                size = 0
            parts[-1].append((message.mailbox, *message.held, reply))
            size += need
        return parts

    def _command(self, receipt: str, settled: Settled, wish: ClaimWish | None, seconds: float) -> c.ConsumerExchange:
        most, lease, provisional, fair = 0, 0.0, False, False
        if wish is not None:
            most, lease, provisional, fair = wish.most, wish.lease_s, wish.provisional, wish.fair
        limit = self.max_delivery_count
        return c.ConsumerExchange(
            receipt, settled, self._name, self._version, fair, most, lease, limit, provisional, seconds
        )

    async def _settle(self, settled: Settled) -> ExchangedFold:
        return await self._asked(settled, None)

    async def _asked(self, settled: Settled, wish: ClaimWish | None) -> ExchangedFold:
        log = self.engine.log
        while True:
            told: ExchangedFold | None = await log.ask(self._command(log.new_id(), settled, wish, 0.0))
            if told is not None:
                return told
            await self.refused()

    async def _claim(
        self,
        answer: Callable[[Claimed], None],
        settled: Callable[[], Settled],
        wish: ClaimWish,
        end: float,
        noted: Callable[[ExchangedFold], None],
    ) -> Claimed | None:
        """On the loop. What was claimed; None when there was nothing, or the consumer was woken. With an `end` it waits."""
        if not end or self.handle.ended:
            found = await self._look(settled(), wish, noted)
            if found is None and end:
                self.handle.begin(LogPoll())  # it was woken before: that was for this poll
            return found

        def command(receipt: str, seconds: float) -> c.AnyCommand:
            return self._command(receipt, settled(), wish, seconds)

        lingers = not settled() and self.engine.clock.monotonic() - self._given_at < LINGER_S
        return await self.stand(answer, command, wish.lease_s, end, noted, lingers)

    async def _look(self, settled: Settled, wish: ClaimWish, noted: Callable[[ExchangedFold], None]) -> Claimed | None:
        """Returns the messages that are there now. Where there is nothing to settle, a claim is appended only if the fold shows one to claim."""
        log, clock = self.engine.log, self.engine.clock
        if not settled and not log.may_hold(*wish.names):
            await log.catch_up()
            if not log.may_hold(*wish.names):
                return None
        while True:
            asked, receipt = clock.boottime(), log.new_id()
            told = await self.engine.timed("exchange", log.ask(self._command(receipt, settled, wish, 0.0)))
            if told is None:
                await self.refused()
                continue
            noted(told)
            return Claimed(receipt, asked + wish.lease_s, told.deliveries, {}) if told.deliveries else None

    # The rest

    def _still_held(self, claims: list[str]) -> Messages[BodyT, ReplyT]:
        asked = self.engine.clock.boottime()
        held: list[tuple[str, float, Delivery]] = self.engine.call("held", self._held, claims)
        made = [
            self.handle_of(each.box).message(Claimed(receipt, asked + left, [each], {}), each)
            for receipt, left, each in held
        ]
        return [message for message in made if message is not None]

    async def _held(self, claims: list[str]) -> list[tuple[str, float, Delivery]]:
        now, boxes = await self.engine.log.catch_up(), self.engine.log.ledger.boxes
        return [
            (record.receipt, record.due - now, Delivery.of(record, box.name))
            for box in list(boxes.values())
            for record in box.records.values()
            if record.state is LEASED and record.receipt in claims and record.due > now
        ]

    def _extend_many(self, messages: Sequence[Any], seconds: float) -> set[int]:
        held = [(message.mailbox, *message.held) for message in messages]
        return set(self.engine.ask("extend", c.ExtendMany, held, seconds))
