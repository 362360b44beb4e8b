"""Ends the answers that take too long. One timer serves all requests, because a timer for each would cost more than all other bounds together."""

from __future__ import annotations

import asyncio

LOOK_EVERY_S = 0.5


class AnswerDeadlines:
    """The deadlines of the requests that are being answered. Runs on the event loop's thread."""

    def __init__(self) -> None:
        self._due: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> asyncio.Timeout:
        """Returns a scope that raises `TimeoutError` after `seconds`, or up to `LOOK_EVERY_S` later. Enter it at once; call `end` after it."""
        scope = asyncio.timeout(None)
        loop = asyncio.get_running_loop()
        self._due[scope] = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_later(LOOK_EVERY_S, self._look)
        return scope

    def end(self, scope: asyncio.Timeout) -> None:
        del self._due[scope]

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for scope, due in self._due.items():
            if due <= now and not scope.expired():
                scope.reschedule(now)
        # Without requests there is no timer, so that a port that was closed leaves nothing behind.
        self._timer = loop.call_later(LOOK_EVERY_S, self._look) if self._due else None
