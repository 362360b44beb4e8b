"""Sends the messages of an outbox to one recipient: at once, and in batches while earlier ones are under way.

A lane keeps no message. One that was not answered is still owed, and the outbox (`jobs.gate_outbox`) puts it here again. Gates use lanes to
their datacenters, and the leader of a datacenter uses one to each gate cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar

from tenure.nodes.loop_keeper import Loop, concerns_all

ItemT = TypeVar("ItemT")


class LaneLimits(NamedTuple, Generic[ItemT]):
    """The most that one lane sends at a time."""

    items: int
    """In one request."""
    under_way: int = 1
    """Requests at a time. With one, the recipient hears everything in order."""
    size_of: Callable[[ItemT], int] = lambda item: 0
    bytes: int = 1


class OutboxLane(Generic[ItemT]):
    """Sends one kind of message to one recipient. An item that cannot be sent fails alone."""

    def __init__(
        self,
        send: Callable[[list[ItemT]], Awaitable[None]],
        failed: Callable[[str, Exception], Awaitable[None]],
        keep: Callable[[Loop], Coroutine[Any, Any, None]],
        limits: LaneLimits[ItemT],
        on_end: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """`send` sends a batch, and waits out a recipient that does not answer. `failed` is called with the key of an item that cannot be
        sent, and the exception. `keep` runs `_flush` to its end, whatever it raises; `on_end` gets the exception that ended it for good."""
        self._send, self._failed, self._keep, self._limits, self._on_end = send, failed, keep, limits, on_end
        self._waiting: dict[str, ItemT] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, key: str, item: ItemT) -> None:
        """Puts an item into the next batch. It replaces an older item of this key that was not sent yet."""
        self._waiting[key] = item
        if len(self._tasks) < self._limits.under_way:
            task = asyncio.create_task(self._keep(self._flush))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_end(error)

    async def _flush(self) -> None:
        await asyncio.sleep(0)  # items that are put in this turn of the loop join the batch
        while batch := self._take():
            await self._send_each(batch)

    def _take(self) -> dict[str, ItemT]:
        batch: dict[str, ItemT] = {}
        size = 0
        for key in list(self._waiting):
            try:
                size += self._limits.size_of(self._waiting[key])
            except Exception:
                size += self._limits.bytes  # then it goes alone, and sending it raises the error for its job only
            if batch and (size > self._limits.bytes or len(batch) >= self._limits.items):
                break
            batch[key] = self._waiting.pop(key)
        return batch

    async def _send_each(self, batch: dict[str, ItemT]) -> None:
        """Sends a batch together, and where that raises, each item alone: so an item that fails concerns its own job only."""
        try:
            await self._send(list(batch.values()))
            return
        except Exception as error:
            if concerns_all(error):
                raise
        for key, item in batch.items():
            try:
                await self._send([item])
            except Exception as error:
                if concerns_all(error):
                    raise
                await self._failed(key, error)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
