"""Where the progress signal's numbers come from: windows over real events.

Document 001 compares "completions per interval" with an "expected rate" and says of neither where it comes from. Here an
interval is the last `interval_s` seconds, sliding; and what is expected is what was seen over the `history` intervals
before it (workers), or what could have moved and did not (managers, gates). Nothing is learned or guessed: with too
little evidence nothing is expected, and then nothing is called slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tenure.health.signals import finite, whole

INTERVAL_S = 30.0
_BUCKETS = 10  # per interval: counts are exact to a tenth of it, memory is bounded whatever the rate


class EventWindow:
    """How much happened in the last interval, and in the history before it."""

    def __init__(self, interval_s: float = INTERVAL_S, history: int = 10) -> None:
        self.interval_s = finite("interval_s", interval_s, least=0.001)
        self.history = whole("history", history)
        self._width = interval_s / _BUCKETS
        self._buckets: deque[list[float]] = deque()  # [index, amount], by index

    def record(self, now: float, amount: float = 1) -> None:
        """Something happened now."""
        index = self._forget(now)
        if self._buckets and self._buckets[-1][0] >= index:
            self._buckets[-1][1] += amount
        else:
            self._buckets.append([index, amount])

    def last_interval(self, now: float) -> float:
        """Returns how much happened in the last interval."""
        begin = self._forget(now) - _BUCKETS
        return sum(amount for index, amount in self._buckets if index > begin)

    def before(self, now: float) -> float:
        """Returns how much happened in the history that precedes the last interval."""
        begin = self._forget(now) - _BUCKETS
        return sum(amount for index, amount in self._buckets if index <= begin)

    def _forget(self, now: float) -> int:
        index = int(now // self._width)
        oldest = index - _BUCKETS * (1 + self.history)
        while self._buckets and self._buckets[0][0] <= oldest:
            self._buckets.popleft()
        return index


class CompletionRate:
    """`expected_completion_rate`: completions per assigned workflow and interval, over the history.

    A leader keeps one per datacenter and feeds it from all workers, so that a slow worker is measured against its peers.
    The last interval is left out: a node is not its own excuse.
    """

    def __init__(self, interval_s: float = INTERVAL_S, history: int = 10) -> None:
        self._completions = EventWindow(interval_s, history)
        self._busy_s = EventWindow(interval_s, history)

    def observe(self, now: float, *, assigned: int, over_s: float, completions: int) -> None:
        """Notes that a worker had `assigned` workflows for `over_s` seconds, and completed that many."""
        self._busy_s.record(now, whole("assigned", assigned) * finite("over_s", over_s))
        self._completions.record(now, whole("completions", completions))

    def expected(self, now: float) -> float:
        """Returns the rate; 0.0 while less than one workflow was watched for one interval."""
        busy_s, interval_s = self._busy_s.before(now), self._busy_s.interval_s
        return self._completions.before(now) * interval_s / busy_s if busy_s >= interval_s else 0.0


class ProgressCounts(NamedTuple):
    """The numbers of the last interval for a `WorkerHealthState`."""

    assigned: int
    completions_last_interval: int
    advancing: int
    counter: int
    """All steps of this incarnation: the sum over its attempts, ended ones too, so it never falls."""
    silent: int = 0
    """Attempts that do not advance and whose silence is allowed. They are alive, and prove nothing."""


@dataclass(slots=True)
class _Attempt:
    counter: int
    moved_at: float
    allowed_until: float


class ProgressWindow:
    """Counts the attempts of a worker that advance, and those whose silence is allowed.

    An attempt advances when its counter rose within the interval. Beginning counts as a step: work is not stuck as it starts. A silence
    within the stall threshold, or a declared one, is allowed, and is no progress: it keeps a lease, and earns a worker nothing (decision 0306).
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self._completions = EventWindow(interval_s, history=0)
        self._attempts: dict[str, _Attempt] = {}
        self._counter = 0

    def begin(self, attempt: str, now: float) -> None:
        """Notes that an attempt starts."""
        self._attempts[attempt] = _Attempt(0, now, now)

    def step(self, attempt: str, counter: int, now: float) -> None:
        """Notes the value at which an attempt's counter stands. One that did not rise proves nothing."""
        if attempt not in self._attempts:
            self.begin(attempt, now)  # a new leader hears of it in the middle
        running = self._attempts[attempt]
        if whole("counter", counter) > running.counter:
            self._counter += counter - running.counter
            running.counter, running.moved_at = counter, now

    def allow_silence(self, attempt: str, until: float) -> None:
        """Sets the time until which the attempt may be silent. Each report of the worker sets it anew."""
        if attempt in self._attempts:
            self._attempts[attempt].allowed_until = until

    def end(self, attempt: str, now: float, *, completed: bool) -> None:
        """Notes that an attempt ended. Only one that completed counts as a completion. Ending twice counts once."""
        if self._attempts.pop(attempt, None) is not None and completed:
            self._completions.record(now)

    def completed(self, now: float, count: int) -> None:
        """Notes that so many attempts completed since the last word: most of them may have begun since, too."""
        if count > 0:
            self._completions.record(now, count)

    def __iter__(self) -> Iterator[str]:
        """Yields the attempts that have begun and not ended."""
        return iter(list(self._attempts))

    def counts(self, now: float) -> ProgressCounts:
        """Returns the numbers for this worker's state."""
        still = [one for one in self._attempts.values() if now - one.moved_at >= self.interval_s]
        silent = sum(now < one.allowed_until for one in still)
        completions = int(self._completions.last_interval(now))
        return ProgressCounts(len(self._attempts), completions, len(self._attempts) - len(still), self._counter, silent)


class Flow(NamedTuple):
    """The numbers of the last interval for a `ManagerHealthState` or a `GateHealthState`."""

    arrived_last_interval: int
    left_last_interval: int
    expected: float
    overdue: int
    """Work that has waited for an interval although there is room for it."""


class FlowWindow:
    """Work that arrives and has to be passed on: dispatched by a manager, forwarded by a gate.

    Expected is what was passed on, and what waits for longer than an interval although there is room. So a full
    datacenter expects nothing of its managers and is BUSY, and one that has room and lets work lie is stuck.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._arrived = EventWindow(interval_s, history=0)
        self._left = EventWindow(interval_s, history=0)
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Work that arrived and was not passed on."""
        return self._waiting

    def arrive(self, now: float, count: int = 1) -> None:
        """Work was accepted."""
        self._arrived.record(now, whole("count", count))
        self._waiting += count

    def leave(self, now: float, count: int = 1) -> None:
        """Work was passed on, or withdrawn."""
        self._left.record(now, whole("count", count))
        # Work that a predecessor accepted leaves here without having arrived.
        self._waiting = max(0, self._waiting - count)

    def measure(self, now: float, room: int | None = None) -> Flow:
        """Returns the numbers of the last interval. `room` is how much more could be passed on now; None where nothing limits it."""
        arrived, left = int(self._arrived.last_interval(now)), int(self._left.last_interval(now))
        overdue = max(0, self._waiting - arrived)
        if room is not None:
            overdue = min(overdue, whole("room", room))
        return Flow(arrived, left, float(left + overdue), overdue)
