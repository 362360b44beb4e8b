"""Long polls: who waits on which mailbox, and whom to wake. Everything here runs on the background loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from tenure.clock import Clock
from tenure.engines.mailbox_state import MailboxState
from tenure.engines.nats.deliveries import Handed


class Poll:
    """One long poll, or one follow. `over` means that it is to end with nothing."""

    def __init__(self) -> None:
        self.over = False
        self.handed: Handed | None = None
        """The deliveries of its standing claim that the poll has not taken yet."""
        self.take: Callable[[Handed], None] | None = None
        """Takes it at once, where there is something to take it."""
        self.taken = False
        self.doubtful = False
        """True when its claim may stand no longer."""
        self.until = inf  # engine time at which it looks by itself
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    def hand(self, handed: Handed) -> None:
        if self.take is not None:
            self.taken = True
            self.take(handed)
        else:
            self.handed = handed
        self.ring()

    def doubt(self) -> None:
        self.doubtful = True
        self.ring()

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

    @property
    def ended(self) -> bool:
        """True when the next poll ends before it begins."""
        return self._woken or self.closed

    def begin(self) -> Poll | None:
        """None when the handle was woken before: this poll is over at once."""
        if self.ended:
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
    """The oldest long poll on a mailbox keeps watch over its timers for all: the log does nothing by itself when a lease or a delay ends."""

    def __init__(self, box: Callable[[str], MailboxState], clock: Clock) -> None:
        self._box, self._clock = box, clock
        self._line: dict[str, dict[Poll, None]] = {}

    async def wait(self, name: str, poll: Poll, seconds: float, about_now: float) -> None:
        """Until it is rung, or has to look at a timer, at most this long."""
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
        watch = next(iter(line))
        if self._box(name).next_due() < watch.until:
            watch.ring()
