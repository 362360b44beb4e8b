"""Long polls: who waits on which mailbox, and whom to wake. Everything here runs on the background loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from tenure.clock import Clock
from tenure.engines.nats.box import Box, State


class Poll:
    """One long poll, or one follow. `over` means that it is to end with nothing."""

    def __init__(self) -> None:
        self.over = False
        self.until = inf  # engine time at which it looks by itself
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Until it is rung, at most this long."""
        timer = asyncio.get_running_loop().call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
            self._event.clear()


class Polls:
    """The long polls of one handle. `wake` with none under way is remembered by the next."""

    def __init__(self) -> None:
        self._polls: dict[Poll, None] = {}
        self._woken = False
        self.closed = False

    def begin(self) -> Poll | None:
        """None when the handle was woken before: this poll is over at once."""
        if self._woken or self.closed:
            self._woken = False
            return None
        poll = Poll()
        self._polls[poll] = None
        return poll

    def end(self, poll: Poll) -> None:
        self._polls.pop(poll, None)

    def wake(self) -> None:
        self._woken = not self._polls
        self._end_all()

    def close(self) -> None:
        self.closed = True
        self._end_all()

    def _end_all(self) -> None:
        polls, self._polls = self._polls, {}
        for poll in polls:
            poll.over = True
            poll.ring()


class Waiters:
    """For a ready message the newest poll is woken, and the oldest keeps watch over the timers for all.

    A poll that was woken is no longer in line. When it leaves, `stir` is called again: what it did not take wakes the next one.
    """

    def __init__(self, box: Callable[[str], Box], clock: Clock) -> None:
        self._box, self._clock = box, clock
        self._line: dict[str, dict[Poll, None]] = {}

    async def wait(self, name: str, poll: Poll, seconds: float, about_now: float) -> None:
        """Stand in line until something may be there, at most this long.

        Who looked at a timer and found it early keeps its place: otherwise two would hand the watch to each other for ever.
        """
        line = self._line.setdefault(name, {})
        line.setdefault(poll)
        due = self._box(name).next_due() if next(iter(line)) is poll else inf
        poll.until = due
        await poll.wait(max(0.001, min(seconds, due - about_now)))

    def leave(self, name: str, poll: Poll) -> None:
        line = self._line.get(name)
        if line is None:
            return
        line.pop(poll, None)
        if line:
            self.stir(name)
        else:
            del self._line[name]

    def stir(self, name: str) -> None:
        line = self._line.get(name)
        if not line:
            return
        box = self._box(name)
        if box.counts[State.READY]:
            line.popitem()[0].ring()
        if line:
            watch = next(iter(line))
            if box.next_due() < watch.until:
                watch.ring()

    def stir_all(self) -> None:
        for line in self._line.values():
            for poll in list(line):
                poll.ring()
