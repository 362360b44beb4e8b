"""How a handle of a memory engine waits: for one mailbox, or for each of those that a consumer covers."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from threading import Condition
from typing import TYPE_CHECKING, TypeVar

from tenure.engines.long_poll import HandlePolls
from tenure.engines.memory.shared_mailbox import SharedMailbox, Waiter
from tenure.errors import MailboxClosedError

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine

FoundT = TypeVar("FoundT")


class MemoryPolls:
    """The long polls of one handle. A poll stands in the line of each of its mailboxes; whatever rings it, it looks at all of them."""

    what: str
    """Names the handle in an error."""

    def __init__(self, engine: MemoryEngine, boxes: tuple[SharedMailbox, ...]) -> None:
        self.engine, self.clock, self.boxes = engine, engine.clock, boxes
        self._lock, self._boottime = engine.lock, engine.clock.boottime
        self.handle: HandlePolls[Waiter] = HandlePolls()
        """Called under the engine's lock."""
        engine.enlist(self)

    def _poll(self, wait: float, take: Callable[[], list[FoundT]]) -> list[FoundT]:
        """Waits for the first message. The caller holds the lock, which the wait lets go of."""
        condition = Condition(self._lock)
        now = self._boottime()
        deadline = now + wait
        waiter = self._enter(condition.notify)
        found: list[FoundT] = []
        try:
            while not waiter.over and now < deadline:
                if self.engine.outbox:
                    self._forward()
                else:
                    self.clock.wait(condition, self._watch(waiter, deadline) - now)
                if self.handle.closed or (found := take()):
                    break
                now = self._boottime()
        finally:
            self._leave(waiter)
        return found

    def _forward(self) -> None:
        """Sends the news of a dead letter before the poll is over. The lock is let go of meanwhile."""
        self._lock.release()
        try:
            self.engine.forward()
        finally:
            self._lock.acquire()

    def _enter(self, ring: Callable[[], object]) -> Waiter:
        """Begins a long poll; one that was woken before it began is over at once."""
        waiter = Waiter(ring)
        self.handle.begin(waiter)
        return waiter

    def _watch(self, waiter: Waiter, deadline: float) -> float:
        """Lines up for the next message. Returns when to wake by itself: the first in a line looks after the timers for all."""
        waiter.until = deadline
        for box in self.boxes:
            box.waiters.setdefault(waiter)
            if next(iter(box.waiters)) is waiter:
                waiter.until = min(waiter.until, box.state.next_due())
        return waiter.until

    def _leave(self, waiter: Waiter) -> None:
        self.handle.end(waiter)
        for box in self.boxes:
            box.waiters.pop(waiter, None)
        for box in self.boxes:
            box.alert()

    def _move(self, boxes: tuple[SharedMailbox, ...]) -> None:
        """Lets the polls under way wait for other mailboxes. The caller holds the lock."""
        left, self.boxes = [box for box in self.boxes if box not in boxes], boxes
        for waiter in self.handle.under_way:
            for box in left:
                box.waiters.pop(waiter, None)
            waiter.until = -inf
            waiter.ring()
        for box in left:
            box.alert()

    def listen(self, ring: Callable[[], object], deadline: float) -> Waiter:
        """For asyncio, which must not wait on a lock: `ring` is called, under the lock, when it is time to look again.

        Look again at `Waiter.until`, too. Give it back to `unlisten` each time.
        """
        self.check_open()
        with self._lock:
            waiter = self._enter(ring)
            self._watch(waiter, deadline)
            if waiter.over or any(box.state.ready_count for box in self.boxes):
                waiter.ring()
            return waiter

    def waits(self, waiter: Waiter) -> bool:
        """Returns True while the waiter is in line: no message woke it, and its poll goes on."""
        with self._lock:
            return all(waiter in box.waiters for box in self.boxes) and not waiter.over

    def unlisten(self, waiter: Waiter) -> bool:
        """Stops listening. Returns False when the poll is to end: it was woken, or the mailbox closed."""
        with self._lock:
            self._leave(waiter)
            return not waiter.over

    def wake(self) -> None:
        self.check_open()
        with self._lock:
            self.handle.wake()

    def end_polls(self) -> None:
        """Ends the long polls of this handle that are under way. The caller holds the lock."""
        self.handle.end_all()

    @property
    def closed(self) -> bool:
        return self.handle.closed

    def close(self) -> None:
        with self._lock:
            self.handle.close()

    def check_open(self) -> None:
        if self.handle.closed:
            self.engine.check_open()
            raise MailboxClosedError(f"{self.what} was closed", remedy="Open it again from its engine")
