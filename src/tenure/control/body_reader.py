"""Reads the body of a request that was let in. Bounds each body, the time that it takes, and the bytes of all bodies together.

A body counts from its first byte until its request is answered, because the answer is made from it. An announced length reserves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tenure.byte_budget import ByteBudget
from tenure.control.rate_limits import HttpLimits
from tenure.control.refusals import no_memory, too_large, too_slow


class BodyContent(Protocol):
    """The library's stream of one body."""

    def is_eof(self) -> bool: ...

    def read_nowait(self, n: int = -1) -> bytes: ...

    async def readany(self) -> bytes: ...


class BodyInMemory:
    """The body of one request, from its first byte until the request is answered."""

    def __init__(self, owner: str, on_gave_way: Callable[[], None]) -> None:
        self.owner = owner
        self.chunks: list[bytes] = []
        self.size = 0
        self.gave_way = False
        self._scope: asyncio.Timeout | None = None
        self._on_gave_way = on_gave_way

    def give_way(self) -> None:
        """Frees the bytes at once, because other bodies need the memory, and wakes the `read` of this body, which then refuses it."""
        self.gave_way = True
        self.chunks.clear()
        self._on_gave_way()
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    def reading(self, seconds: float) -> asyncio.Timeout:
        self._scope = asyncio.timeout(seconds)
        return self._scope


class BodyReader:
    """Reads the bodies of one port. `read` returns a body and counts it; `release` ends that. Runs on the event loop's thread."""

    def __init__(self, limits: HttpLimits, on_drop: Callable[[str], None] = lambda bound: None) -> None:
        """`on_drop` gets the name of the bound for which a body is refused."""
        self._limits, self._on_drop = limits, on_drop
        self.budget: ByteBudget[BodyInMemory] = ByteBudget(limits.body_bytes_total)

    async def read(self, body: BodyInMemory, content: BodyContent, most: int) -> bytes:
        """Reads the whole body. Raises `Refused` where it is too large, comes too slowly, or must make room for others."""
        if content.is_eof():  # all of it is here already, as it nearly always is
            self._grow(body, content.read_nowait(-1), most)
        else:
            try:
                async with body.reading(self._limits.body_s):
                    while chunk := await content.readany():
                        self._grow(body, chunk, most)
            except TimeoutError as error:
                if body.gave_way:
                    raise no_memory() from error
                self._on_drop("body_s")
                raise too_slow(self._limits.body_s) from error
        self.budget.keep(body)
        data = b"".join(body.chunks)
        body.chunks.clear()
        return data

    def release(self, body: BodyInMemory) -> None:
        """Frees a body, because its request was answered."""
        body.chunks.clear()
        self.budget.release(body)

    def in_memory(self, owner: str) -> BodyInMemory:
        """Returns a body of which nothing was read yet; `owner` is the address that sends it."""
        return BodyInMemory(owner, lambda: self._on_drop("body_bytes_total"))

    def _grow(self, body: BodyInMemory, chunk: bytes, most: int) -> None:
        body.size += len(chunk)
        if body.size > most:
            raise too_large(most)
        body.chunks.append(chunk)
        for loser in self.budget.hold(body, body.owner, body.size):
            loser.give_way()
        if body.gave_way:
            raise no_memory()
