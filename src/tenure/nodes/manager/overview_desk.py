"""Answers with the state of the whole datacenter in one reply: the first look of an operator who was woken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tenure.clock import Clock
from tenure.control.messages.nodes import ListNodes, NodeList
from tenure.control.messages.overview import AskOverview, Overview
from tenure.control.messages.queues import DeadLetterList, ListDeadLetters
from tenure.control.messages.wire import Reply, Request
from tenure.jobs import JobBook
from tenure.nodes.manager.node_desk import NodeDesk
from tenure.nodes.manager.queue_desk import queue_list
from tenure.nodes.manager.troubles import troubles

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager

FRESH_S = 1.0
"""The desk answers with its last overview for these seconds, so that many open pages cost the leader as much as one."""
LETTERS_S = 10.0
"""The seconds between two counts of dead letters: each count asks the engine for every mailbox."""


class OverviewDesk:
    """Part of a manager. Only the leader answers."""

    def __init__(self, manager: Manager, nodes: NodeDesk, clock: Clock) -> None:
        self._manager, self._nodes, self._clock = manager, nodes, clock
        self._kept: tuple[float, int, Overview] | None = None
        """(when it was asked for, epoch, overview): one of an earlier term does not count any more."""
        self._letters: tuple[float, int] = (-LETTERS_S, 0)
        self.handlers: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {AskOverview: self._overview}

    async def _overview(self, request: AskOverview) -> Reply:
        desk, epoch, asked = self._manager.desk, self._manager.epoch, self._clock.monotonic()
        if self._kept is not None and self._kept[1] == epoch and asked - self._kept[0] < FRESH_S:
            return replace(self._kept[2], now=self._manager.now())
        nodes = await self._nodes.handlers[ListNodes](ListNodes())
        assert isinstance(nodes, NodeList)
        letters = await self._count_letters()
        now, observer = self._manager.now(), self._manager.observer

        def look(book: JobBook) -> Overview:
            running = sum(map(len, book.on_worker.values()))
            queued, held = sum(map(len, book.queued.values())), sum(map(len, book.ready.values()))
            return Overview(
                datacenter=self._manager.datacenter,
                leader=self._manager.name,
                epoch=epoch,
                elected_at=book.state.elected_at,
                now=now,
                troubles=troubles(
                    book,
                    now,
                    alarms=observer.standing_since,
                    workers=nodes.workers,
                    healthcheck_s=desk.fleet.settings.healthcheck_s,
                    managers=len(nodes.managers),
                    dead_letters=letters,
                ),
                jobs=dict(Counter(info.state.value for info in book.jobs.values())),
                attempts={"resting": len(book.resting), "held": held, "queued": queued, "running": running},
                workers=dict(Counter(one.verdict for one in nodes.workers)),
                slots=sum(one.slots for one in nodes.workers),
                free=sum(one.free for one in nodes.workers),
                queues=queue_list(book, now).queues,
                dead_letters=letters,
                pulse=observer.pulse.read(now),
            )

        found = await self._manager.ledger.read(look)
        self._kept = asked, epoch, found
        return found

    async def _count_letters(self) -> int:
        at, count = self._letters
        if self._clock.monotonic() - at >= LETTERS_S:
            reply = await self._manager.handlers[ListDeadLetters](ListDeadLetters(limit=1))
            count = reply.count if isinstance(reply, DeadLetterList) else 0
            self._letters = self._clock.monotonic(), count
        return count
