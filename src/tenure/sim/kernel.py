"""The heart: one queue of what is ready, one heap of what is due, and a virtual time that jumps between them.

Knows nothing of nodes, networks or seeds. Every loop of a simulation shares one kernel; callbacks run one at a time, in
the order in which they became ready, and timers in the order in which they are due, then in which they were set.

Virtual time is counted in whole ticks of 2**-20 s, a little under a microsecond.

Whole numbers, so that every interpreter and machine agrees. A power of two, so that a tick is exact as a float of
seconds, up to Unix times of this century: a timer set for `when` never fires at a moment that reads earlier than `when`.

Records the events of a run in order: the evidence of a failure, and by its hash the proof that two runs are the same.

Only whole numbers and text that the seed decides go in: no addresses, no real time, nothing that depends on hash order.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenure.errors import SimulationDeadlockError, SimulationError, SimulationRunawayError
from tenure.sim.confinement import confined

if TYPE_CHECKING:
    from tenure.sim.loop import SimLoop


TICKS_PER_S = 1 << 20
NEVER = 1 << 62
"""A tick that no run reaches: what sleeps for `math.inf` waits for it."""


def to_ticks(seconds: float) -> int:
    """Returns the first tick that is not before this many seconds."""
    scaled = seconds * TICKS_PER_S
    return NEVER if scaled >= NEVER else math.ceil(scaled)


def to_seconds(ticks: int) -> float:
    return ticks / TICKS_PER_S


_FOLD = 4_096


class Trace:
    """A list of (tick, who, what), hashed as it grows."""

    def __init__(self, *, keep: int | None = 20_000) -> None:
        self.marks = 0
        """The number of events so far that may have changed the state which an invariant reads."""
        self.events = 0
        self._kept: deque[tuple[int, str, str]] = deque(maxlen=keep)
        self._unhashed: list[tuple[int, str, str]] = []
        self._digest = hashlib.blake2b(digest_size=16)

    def record(self, tick: int, who: str, what: str) -> None:
        """Records an event that invariants are checked after."""
        self.marks += 1
        self.note(tick, who, what)

    def note(self, tick: int, who: str, what: str) -> None:
        """Notes an event that changes no state that invariants look at: a datagram on its way."""
        self.events += 1
        event = (tick, who, what)
        self._kept.append(event)
        self._unhashed.append(event)
        if len(self._unhashed) >= _FOLD:
            self._fold()

    def _fold(self) -> None:
        self._digest.update("".join(f"{tick} {who} {what}\n" for tick, who, what in self._unhashed).encode())
        self._unhashed.clear()

    def digest(self) -> str:
        """32 hexadecimal digits that two runs share when everything recorded is the same."""
        self._fold()
        return self._digest.hexdigest()

    def lines(self, last: int | None = None) -> Iterator[str]:
        """Yields the events that were kept, as a person reads them."""
        kept = list(self._kept)
        for tick, who, what in kept if last is None else kept[-last:]:
            yield f"{to_seconds(tick):>12.6f}  {who:<10} {what}"


class SimHandle(asyncio.Handle):
    """A callback that is ready: asyncio's own handle, filled in without asking a loop whether it is in debug mode."""

    __slots__ = ()
    _callback: Callable[..., object]
    _args: Sequence[Any]
    _context: Context
    _loop: SimLoop
    _source_traceback: None
    _repr: str | None

    def __init__(
        self, callback: Callable[..., object], args: Sequence[Any], loop: SimLoop, context: Context | None
    ) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._source_traceback = self._repr = None


class SimTimer(asyncio.TimerHandle):
    """A callback that waits for its time."""

    __slots__ = ()
    _callback: Callable[..., object]
    _args: Sequence[Any]
    _context: Context
    _loop: SimLoop
    _source_traceback: None
    _repr: str | None
    _when: float
    _scheduled: bool

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: SimLoop,
        context: Context | None,
    ) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = copy_context() if context is None else context
        self._when = when
        self._cancelled = self._scheduled = False
        self._source_traceback = self._repr = None


COLLECT_EVERY = 500_000
"""Steps between two collections of cyclic garbage."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A run that takes longer than this counts as a fault of the code that it runs."""

    steps: int = 5_000_000
    """Callbacks in one run."""
    steps_at_once: int = 100_000
    """Callbacks while time stands still: more than this is a loop that never waits."""
    seconds: float = 10 * 366 * 86_400.0
    """Virtual time: ten years."""


class Kernel:
    """Runs callbacks of many loops in virtual time."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.now = 0
        """The time, in ticks."""
        self.steps = 0
        self.limits = limits or Limits()
        self.after_step: Callable[[], None] | None = None
        """Called after each callback; what it raises ends the run."""
        self.loops: list[SimLoop] = []
        self.ready: deque[SimHandle | SimTimer] = deque()
        self._heap: list[tuple[int, int, SimTimer]] = []
        self._tickets = 0
        self._cancelled = 0
        self._failure: BaseException | None = None
        self._running = False
        self._collect_at = COLLECT_EVERY

    def push(self, due: int, handle: SimTimer) -> None:
        """Run this when the time comes."""
        self._tickets += 1
        heapq.heappush(self._heap, (max(due, self.now), self._tickets, handle))

    def fail(self, error: BaseException) -> None:
        """End the run with this error, after the callback that is running now."""
        if self._failure is None:
            self._failure = error

    def retime(self, loop: SimLoop) -> None:
        """Notes that a machine's clock changed its rate: its timers are due at other moments."""
        self._heap = [
            (max(self.now, loop.clock.tick_at(handle.when())), ticket, handle)
            if handle._loop is loop
            else (due, ticket, handle)
            for due, ticket, handle in self._heap
        ]
        heapq.heapify(self._heap)

    def timer_cancelled(self) -> None:
        """Cancelled timers stay in the heap until they are due, unless they become most of it."""
        self._cancelled += 1
        if self._cancelled > 512 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].cancelled()]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def run(self, *, until: Callable[[], bool] | None = None, deadline: int = NEVER) -> None:
        """Run until the condition holds or the time is reached.

        Raises what a callback failed with, `SimulationDeadlockError` when nothing would happen any more although the
        condition does not hold, and `SimulationRunawayError` beyond the limits.
        """
        furthest = to_ticks(self.limits.seconds)
        with self._entered(), confined():
            while until is None or not until():
                if self.ready or self._advance(min(deadline, furthest)):
                    self._drain(until, min(deadline, furthest))
                elif self._heap and furthest < min(deadline, self._heap[0][0]):
                    raise self._too_long()
                elif deadline < NEVER:
                    self.now = max(self.now, deadline)
                    return
                elif until is None:
                    return
                else:
                    raise self._deadlock()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        if self._running or asyncio._get_running_loop() is not None:
            raise SimulationError(
                "a simulation was started while an event loop runs in this thread",
                remedy="Start it from synchronous code; inside a simulation, use await",
            )
        self._running = True
        try:
            yield
        finally:
            self._running = False
            asyncio._set_running_loop(None)

    def _advance(self, deadline: int) -> bool:
        """Jump to the next timer and make ready what is due; False when there is none before the deadline."""
        heap = self._heap
        while heap:
            due, _, handle = heap[0]
            if handle._cancelled or handle._loop.dead:
                heapq.heappop(heap)
                continue
            if due > deadline or due >= NEVER:
                return False
            self.now = due
            while heap and heap[0][0] <= due:
                self.ready.append(heapq.heappop(heap)[2])
            return True
        return False

    def _drain(self, until: Callable[[], bool] | None, deadline: int) -> None:
        """Run what is ready and then what is due, until nothing is left or the condition holds."""
        ready, enter, after, limits = self.ready, asyncio._set_running_loop, self.after_step, self.limits
        last = min(limits.steps, self.steps + limits.steps_at_once, self._collect_at)
        current = None
        while True:
            if not ready:
                if not self._advance(deadline):
                    return
                last = min(limits.steps, self.steps + limits.steps_at_once, self._collect_at)
            handle = ready.popleft()
            loop = handle._loop
            if handle._cancelled or loop.dead:
                continue
            if loop.held is not None:
                loop.held.append(handle)  # a stopped process: this runs when it goes on
                continue
            if loop is not current:
                enter(loop)
                current = loop
            self.steps += 1
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                loop.call_exception_handler({"message": f"{handle!r} failed", "exception": error, "handle": handle})
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if after is not None:
                after()
            if self.steps >= last:
                self._collect_or_stop(handle, last)
                last = min(limits.steps, self.steps + limits.steps_at_once, self._collect_at)
            if until is not None and until():
                return

    def _collect_or_stop(self, handle: SimHandle | SimTimer, last: int) -> None:
        """Collects garbage here. The collector is off, so that it runs at the same steps each time."""
        if last != self._collect_at or self.steps >= self.limits.steps:
            raise self._runaway(handle)
        gc.collect()
        self._collect_at += COLLECT_EVERY

    def _too_long(self) -> SimulationRunawayError:
        return SimulationRunawayError(
            f"the run went beyond {self.limits.seconds:g} s of virtual time",
            remedy="Something waits for ever in a loop; or give it larger Limits",
        )

    def _runaway(self, handle: SimHandle | SimTimer) -> SimulationRunawayError:
        if self.steps >= self.limits.steps:
            what, remedy = f"{self.steps:,} callbacks", "Shorten the run, or give it larger Limits"
        else:
            what = f"{self.limits.steps_at_once:,} callbacks while time stood still"
            remedy = "Something loops without waiting: look for sleep(0), or a timeout that is always 0"
        at = to_seconds(self.now)
        return SimulationRunawayError(f"{what} at {at:.6f} s; the last one was {handle!r}", remedy=remedy)

    def _deadlock(self) -> SimulationDeadlockError:
        lines = [line for loop in self.loops for line in loop.describe()]
        stuck = "\n  ".join(lines) or "no task is left at all"
        return SimulationDeadlockError(
            f"at {to_seconds(self.now):.6f} s nothing is ready and no timer is set; these wait:\n  {stuck}\n",
            remedy="Something is awaited that nobody will set: a lost wake-up, or a lock held by a crashed node",
        )
