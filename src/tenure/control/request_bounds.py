"""Bounds one request that was let in: its body, the bytes of all bodies together, and the time until its answer.

A body counts from its first byte until its request is answered, because the answer is made from it. An announced length reserves nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tenure.byte_budget import ByteBudget
from tenure.control.admission import HttpLimits
from tenure.control.problems import no_memory, too_large, too_slow

if TYPE_CHECKING:
    from aiohttp import web

    from tenure.control.connections import GuardedConnection


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


LOOK_EVERY_S = 0.5
"""Deadlines that are due within so long of each other are met by one look."""


class AnswerDeadlines:
    """The deadlines of the requests that are being answered. Runs on the event loop's thread."""

    def __init__(self) -> None:
        self._due: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf

    def begin(self, seconds: float) -> asyncio.Timeout:
        """Returns a scope that raises `TimeoutError` after `seconds`, or up to `LOOK_EVERY_S` later. Enter it at once; call `end` after it."""
        scope = asyncio.timeout(None)
        now = asyncio.get_running_loop().time()
        due = self._due[scope] = now + seconds
        if (
            self._looks_at > due + LOOK_EVERY_S
        ):  # seldom: nearly all have the same time, so the look for the first is soon enough
            self._look_at(max(due, now + LOOK_EVERY_S))
        return scope

    def end(self, scope: asyncio.Timeout) -> None:
        del self._due[scope]

    def close(self) -> None:
        """Leaves no timer behind. What is still being answered has no deadline any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_at(self, when: float) -> None:
        self.close()
        self._looks_at, self._timer = when, asyncio.get_running_loop().call_at(when, self._look)

    def _look(self) -> None:
        """Ends what is due. The next look is when another request is: a worker holds one all the time, and shall wake nobody by that."""
        now = asyncio.get_running_loop().time()
        for scope, due in self._due.items():
            if due <= now and not scope.expired():
                scope.reschedule(now)
        self._looks_at, self._timer = math.inf, None
        later = [due for due in self._due.values() if due > now]
        if later:
            self._look_at(max(min(later), now + LOOK_EVERY_S))


class Visit:
    """One request, from the end of its head until its answer is made."""

    __slots__ = ("began", "body", "connection", "name", "request", "request_id")

    def __init__(self, request: web.BaseRequest, connection: GuardedConnection, request_id: str, began: float) -> None:
        self.request, self.connection, self.request_id, self.began = request, connection, request_id, began
        self.name = ""  # the operation's, once it is known
        self.body: BodyInMemory | None = None  # while it is read, and until the request is answered

    @property
    def is_chunked(self) -> bool:
        """True when the body says its length only as it comes."""
        return bool(self.request.headers.get("Transfer-Encoding"))
