"""Long polls: how a caller waits until there may be something for it, and how it is woken. One core for all engines.

- `HandlePolls` says which polls of one handle are under way, and ends them on `wake` and `close`. It fits threads and event loops.
- `LongPolls` is the loop of a thread that looks, waits and looks again. The threads that wait for one mailbox or journal share a `WakeupTopic`.
- A `WakeupSource` rings the topics of one engine. It is what engines differ in: a thread that listens to a server (`server_wakeups`), or
  shared memory beside a file (`sqlite.wakeup_page`).
- `LoopWaiter` is one wait of one asyncio task.

The engine's clock decides how long to wait, so a manual clock can end a wait, and so can a real commit in another process.
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import msgspec

from tenure.clock import Clock
from tenure.errors import EngineClosedError

T = TypeVar("T")

SHORTEST_WAIT_S = 0.001
"""The least pause before a look at something that is due: a server's clock may say that it is due a moment later than we think."""


class Poll:
    """One long poll under way. `over` means that it is to end with nothing, because its handle was woken or closed."""

    __slots__ = ("over", "ring")

    def __init__(self, ring: Callable[[], object]) -> None:
        self.ring = ring
        """Makes the poll look up from its wait."""
        self.over = False


PollT = TypeVar("PollT", bound=Poll)


class HandlePolls(Generic[PollT]):
    """The long polls of one handle.

    `wake` ends those that are under way; with none under way, the next one ends before it waits. `close` ends those under way and all later
    ones. It has no lock: its owner makes each call under its own lock, or on its own loop.
    """

    __slots__ = ("_wake_next", "closed", "under_way")

    def __init__(self) -> None:
        self.under_way: dict[PollT, None] = {}
        self._wake_next = False
        self.closed = False

    @property
    def ended(self) -> bool:
        """True when the next poll is over before it begins."""
        return self._wake_next or self.closed

    def begin(self, poll: PollT) -> bool:
        """Counts a poll as under way. Returns False, and the poll is over, when a `wake` that came before it says not to wait."""
        if self.ended:
            self._wake_next, poll.over = False, True
            return False
        self.under_way[poll] = None
        return True

    def end(self, poll: PollT) -> None:
        self.under_way.pop(poll, None)

    def wake(self) -> None:
        self._wake_next = not self.under_way
        self.end_all()

    def close(self) -> None:
        self.closed = True
        self.end_all()

    def forget(self) -> None:
        """Forgets the polls under way: in a forked child, the threads that polled are not there."""
        self.under_way.clear()

    def end_all(self) -> None:
        """Ends the polls under way, and remembers nothing for the next one."""
        # They stay under way until they have seen it: a second `wake` meanwhile is for them too, and not for the next poll.
        for poll in self.under_way:
            poll.over = True
            poll.ring()


class LookResult(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The outcome of one look: results, a flag to look again at once, and the seconds until something is due (None: nothing is).

    A struct, because to make a named tuple is a call of Python: one is made for each receive.
    """

    found: list[T]
    again: bool = False
    due_in: float | None = None


class WakeupTopic:
    """One mailbox or journal in one engine, for the threads that wait for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.condition = threading.Condition()
        """Waiters wait on it. It also guards the `HandlePolls` of every handle on this topic."""
        self.rings = 0
        """Only grows. A waiter that finds it changed since before its look has to look again."""
        self.waiting = 0
        """The polls that wait, of all handles. Only the source changes it, under its lock."""
        self.bundles: tuple[WakeupTopic, ...] = ()
        """The topics of consumers that cover this one: they are rung with it."""

    def ring(self) -> None:
        with self.condition:
            self.rings += 1
            self.condition.notify_all()
        for bundle in self.bundles:
            bundle.ring()

    def renew(self) -> None:
        """Begins anew in a forked child: another thread of the parent may have held the condition, and none of its waiters is here."""
        self.condition = threading.Condition()
        self.rings = self.waiting = 0


TopicT = TypeVar("TopicT", bound=WakeupTopic)


class WakeupSource(ABC, Generic[TopicT]):
    """Rings the topics of one engine when another thread or process did something that their waiters may want.

    A poll calls `enter`, then `look_again` and `watch` in turns, then `leave`.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Condition()
        """Guards the topics, their `waiting`, and what the source itself keeps."""
        self._topics: dict[str, TopicT] = {}
        self._handles: WeakSet[LongPolls] = WeakSet()
        self._bundles = 0
        self._pid = os.getpid()

    # What an engine brings

    @abstractmethod
    def new_topic(self, name: str) -> TopicT: ...

    def entered(self, topic: TopicT) -> bool:
        """Hears that a poll has begun to wait. Returns True when it has to look once more before it waits. The lock is held."""
        return False

    def left(self, topic: TopicT) -> None:
        """Hears that a poll waits no longer. The lock is held."""

    def look_again(self, topic: TopicT, look: Callable[[], LookResult[T]]) -> LookResult[T]:
        """Looks for a poll that has waited, or is about to: every look but the first."""
        return look()

    def watch(self, topic: TopicT, seconds: float, poll: Poll) -> bool:
        """Makes sure, within `seconds`, that the topic is rung. Returns True when that is new: earlier news are not announced, so look again."""
        return False

    def announced_as(self, name: str) -> str:
        """Returns the topic that a bundle waits on for this one: several may share one, where listening to each costs something."""
        return name

    def covered(self, bundle: TopicT, topics: list[TopicT]) -> None:
        """Hears that a bundle covers these topics from now on. The lock is held."""

    def look_every(self, topic: TopicT) -> float:
        """Returns the seconds that a waiter may wait before it looks by itself."""
        return math.inf

    # What polls and engines use

    def topic(self, name: str) -> TopicT:
        self.check_fork()
        with self.lock:
            found = self._topics.get(name)
            if found is None:
                found = self._topics[name] = self.new_topic(name)
            return found

    def long_polls(self, name: str) -> LongPolls:
        """Returns the long polls of a new handle on this topic."""
        return self.polls_on(self.topic(name))

    def polls_on(self, topic: TopicT) -> LongPolls:
        polls = LongPolls(self, topic)
        with self.lock:
            self._handles.add(polls)
        return polls

    def new_bundle(self) -> TopicT:
        """Returns a topic for one consumer, which is rung with each of the topics that it covers."""
        self._bundles += 1
        return self.topic(f"*{self._bundles}")

    def cover(self, bundle: TopicT, names: Iterable[str]) -> None:
        """Replaces the topics that a bundle is rung with. A poll that waits for it looks again."""
        self.check_fork()
        wanted = {name: self.topic(name) for name in map(self.announced_as, names)}
        with self.lock:
            for name, topic in self._topics.items():
                covers = bundle in topic.bundles
                if covers and name not in wanted:
                    topic.bundles = tuple(other for other in topic.bundles if other is not bundle)
                elif not covers and name in wanted:
                    topic.bundles = (*topic.bundles, bundle)
            self.covered(bundle, list(wanted.values()))
        bundle.ring()

    def drop_bundle(self, bundle: TopicT) -> None:
        self.cover(bundle, ())
        with self.lock:
            self._topics.pop(bundle.name, None)

    def enter(self, topic: TopicT) -> bool:
        with self.lock:
            topic.waiting += 1
            return self.entered(topic)

    def leave(self, topic: TopicT) -> None:
        with self.lock:
            topic.waiting -= 1
            self.left(topic)

    def stir(self) -> None:
        """Lets the polls that wait inside `watch` see whether they are over."""
        with self.lock:
            self.lock.notify_all()

    def end_polls(self) -> None:
        """Closes every handle's polls: the engine is closing."""
        with self.lock:
            handles = list(self._handles)
        for polls in handles:
            polls.close()

    def check_fork(self) -> None:
        """Called before a lock is taken: in a forked child the locks may be held by threads that are not there."""
        if self._pid != os.getpid():
            self.renew_after_fork()

    def renew_after_fork(self) -> None:
        """Begins anew in a forked child: no thread waits or listens yet, and no lock is held."""
        self._pid, self.lock = os.getpid(), threading.Condition()
        for topic in self._topics.values():
            topic.renew()
        for polls in self._handles:
            polls.forget()


class LongPolls:
    """The long polls of one handle in threads. Safe to share between them."""

    def __init__(self, source: WakeupSource[Any], topic: WakeupTopic) -> None:
        self.topic = topic
        self._source, self._clock = source, source.clock
        self.handle: HandlePolls[Poll] = HandlePolls()

    @property
    def closed(self) -> bool:
        return self.handle.closed

    def poll(
        self,
        wait_s: float,
        look: Callable[[], LookResult[T]],
        *,
        first: Callable[[], LookResult[T]] | None = None,
        handed: Callable[[], bool] = lambda: False,
    ) -> list[T]:
        """Looks until something is found, the time is over, or the poll is ended. A look must be repeatable.

        `first` is the first look, where it differs from the others. `handed` says that a look will find something, without the topic
        having been rung; a thread that makes it true notifies the topic's condition.
        """
        self._source.check_fork()
        end = self._clock.monotonic() + wait_s
        poll: Poll | None = None
        try:
            while True:
                # Read before the look: a ring that comes during the look is then not waited for.
                rings = self.topic.rings
                seen = (first or look)() if poll is None else self._source.look_again(self.topic, look)
                if seen.found:
                    return seen.found
                again = seen.again
                if poll is None:
                    if (poll := self._begin()) is None:
                        return []
                    again = self._source.enter(self.topic) or again
                if (left := end - self._clock.monotonic()) <= 0 or poll.over:
                    return []
                if again or self._source.watch(self.topic, left, poll):
                    continue
                if not self._wait(poll, rings, min(left, self._pause(seen.due_in)), handed) or self.closed:
                    return []
        except EngineClosedError:
            if poll is None:
                raise
            return []  # closed while we waited: the wait ends, as with any close
        finally:
            if poll is not None:
                self._end(poll)

    def wake(self) -> None:
        self._source.check_fork()
        with self.topic.condition:
            self.handle.wake()
        self._source.stir()

    def close(self) -> None:
        self._source.check_fork()
        with self.topic.condition:
            self.handle.close()
        self._source.stir()

    def forget(self) -> None:
        self.handle.forget()

    def _begin(self) -> Poll | None:
        """Returns a poll that is under way, or None when a `wake` that came before says not to wait."""
        poll = Poll(self._notify)
        with self.topic.condition:
            return poll if self.handle.begin(poll) else None

    def _end(self, poll: Poll) -> None:
        with self.topic.condition:
            self.handle.end(poll)
        self._source.leave(self.topic)

    def _notify(self) -> None:
        self.topic.condition.notify_all()

    def _pause(self, due_in: float | None) -> float:
        """Returns the seconds after which to look again, rung or not."""
        pause = self._source.look_every(self.topic)
        return pause if due_in is None else min(pause, max(SHORTEST_WAIT_S, due_in))

    def _wait(self, poll: Poll, rings: int, seconds: float, handed: Callable[[], bool]) -> bool:
        """Waits until the topic was rung after `rings` was read, the time is over, or the poll is over.

        Returns False when the poll is over and nothing was handed over: no other look is made then, which a server in trouble may not answer, and
        for which who ended the poll would wait, as a supervisor does that has an outcome to settle.
        """
        topic, end = self.topic, self._clock.monotonic() + seconds
        with topic.condition:
            if poll.over:
                return False
            while topic.rings == rings and not handed() and not poll.over:
                left = end - self._clock.monotonic()
                if left <= 0 or not self._clock.wait(topic.condition, left):
                    break
            return handed() or not poll.over


class LoopWaiter:
    """One wait of one asyncio task. Any thread may end it."""

    def __init__(self) -> None:
        import asyncio  # here: supervisors have no event loop, and shall start quickly

        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        # On the loop's own thread without a detour, so that simulations need no thread-safe wake-up.
        if threading.get_ident() == self._thread:
            self._rung.set()
        else:
            self._loop.call_soon_threadsafe(self._rung.set)

    def reset(self) -> None:
        """Waits for the next ring."""
        self._rung.clear()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Returns when it is rung, and after `seconds` by the clock at the latest."""
        await clock.async_wait(self._rung, seconds)
