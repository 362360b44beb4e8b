"""Sends the messages that a gate owes to each datacenter: at once, and in batches while earlier ones are under way.

This module keeps no message. A message that a datacenter did not answer is still owed, and the leader puts it here again
(`jobs.gate_outbox.Resends`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from tenure.control.async_caller import AsyncCaller, Route
from tenure.control.messages.gates import MOST_BYTES, MOST_WORDS, DatacenterSaid, GateWord, TellDatacenter
from tenure.control.messages.jobs import Problem
from tenure.control.messages.wire import Reply, Request
from tenure.errors import DeposedError, NodeUnavailableError
from tenure.jobs.gate_outbox import GateMessage, Owed
from tenure.jobs.model import JobSubmission
from tenure.nodes.loop_keeper import Loop, LoopKeeper

UNDER_WAY = 4
"""The most requests of one lane to one datacenter at a time. With four, one that hangs takes a quarter of the lane."""
_encode = msgspec.json.Encoder().encode


def _size_of(message: GateMessage) -> int:
    return len(_encode(message)) if isinstance(message, JobSubmission) else 200


class BatchLane:
    """Sends one kind of message to one datacenter. Decisions have a lane of their own, so that no submission delays a cancel."""

    def __init__(
        self, send: Callable[[list[GateMessage]], Awaitable[None]], keep: Callable[[Loop], Coroutine[Any, Any, None]]
    ) -> None:
        """`keep` runs `_flush` to its end, whatever it raises."""
        self._send, self._keep = send, keep
        self._waiting: dict[str, GateMessage] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, job_id: str, message: GateMessage) -> None:
        """Puts a message into the next batch. It replaces an older message about the job that was not sent yet."""
        self._waiting[job_id] = message
        if len(self._tasks) < UNDER_WAY:
            task = asyncio.create_task(self._keep(self._flush))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _flush(self) -> None:
        await asyncio.sleep(0)  # messages that are put in this turn of the loop join the batch
        while batch := self._take():
            await self._send(batch)

    def _take(self) -> list[GateMessage]:
        batch: list[GateMessage] = []
        size = 0
        for job_id in list(self._waiting):
            message = self._waiting[job_id]
            try:
                size += _size_of(message)
            except Exception:
                size += MOST_BYTES  # then it goes alone, and sending it raises the error for its job only
            if batch and (size > MOST_BYTES or len(batch) >= MOST_WORDS):
                break
            batch.append(self._waiting.pop(job_id))
        return batch

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class DatacenterLink:
    """Sends messages and questions to one datacenter."""

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        caller: AsyncCaller,
        *,
        timeout_s: float,
        said: Callable[[DatacenterSaid], Awaitable[None]],
        failed: Callable[[str, Exception], Awaitable[None]],
        say: Callable[[str], None],
        keeper: LoopKeeper,
    ) -> None:
        self._failed = failed
        self.name, self._timeout_s, self._said, self._say = name, timeout_s, said, say
        self.route = Route(caller, addresses)
        keep = partial(keeper.keep, f"link to {name}")
        self._lanes = (BatchLane(self._send_each, keep), BatchLane(self._send_each, keep))

    def put(self, owed: Owed) -> None:
        self._lanes[isinstance(owed.message, JobSubmission)].put(owed.job_id, owed.message)

    async def ask(self, request: Request, wait_s: float = 0.0) -> Reply:
        """Asks the datacenter's managers, which may hold the answer back for `wait_s`. Raises `NodeUnavailableError`."""
        return await self.route.ask(request, self._timeout_s + wait_s)

    async def _send_each(self, batch: list[GateMessage]) -> None:
        """Sends a batch together, and where that raises, each message alone: so a message that fails concerns its own job only."""
        try:
            await self._send(batch)
            return
        except DeposedError:
            return  # the next leader sends the messages again
        except Exception as error:
            self._say(f"what is said to datacenter {self.name} goes one by one: {type(error).__name__}: {error}")
        for message in batch:
            try:
                await self._send([message])
            except Exception as error:
                await self._failed(message.job_id, error)

    async def _send(self, batch: list[GateMessage]) -> None:
        submissions = tuple(one for one in batch if isinstance(one, JobSubmission))
        words: tuple[GateWord, ...] = tuple(one for one in batch if not isinstance(one, JobSubmission))
        told = TellDatacenter(datacenter=self.name, submissions=submissions, words=words)
        try:
            reply = await self.route.ask(told, self._timeout_s)
        except NodeUnavailableError:
            return
        if isinstance(reply, DatacenterSaid):
            await self._said(reply)
        elif isinstance(reply, Problem):
            self._say(f"datacenter {self.name} refused what it was told: {reply.fact}")

    async def close(self) -> None:
        await asyncio.gather(*(lane.close() for lane in self._lanes))


class DatacenterLinks:
    """The links to all datacenters of a gate."""

    def __init__(
        self,
        datacenters: Mapping[str, Sequence[str]],
        caller: AsyncCaller,
        *,
        timeout_s: float,
        said: Callable[[DatacenterSaid], Awaitable[None]],
        failed: Callable[[str, Exception], Awaitable[None]],
        say: Callable[[str], None],
        keeper: LoopKeeper,
    ) -> None:
        """`said` is called with each answer of a datacenter, `failed` with a job whose message cannot be sent, and the exception."""
        self._links = {
            name: DatacenterLink(
                name,
                addresses,
                caller,
                timeout_s=timeout_s,
                said=said,
                failed=failed,
                say=say,
                keeper=keeper,
            )
            for name, addresses in datacenters.items()
        }

    def put(self, owed: Owed) -> None:
        """Sends an owed message. One for a datacenter that this gate does not know stays owed: another gate, or this one restarted, may know it."""
        link = self._links.get(owed.datacenter)
        if link is not None:
            link.put(owed)

    @property
    def names(self) -> list[str]:
        return list(self._links)

    def get(self, name: str) -> DatacenterLink | None:
        return self._links.get(name)

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))
