"""Proof of work inside one process: when the last beat was, how many there were, and who wants to know.

It decides nothing about leases or stalls; others watch it. `beat()` is called in tight loops by whatever does the work, so it takes
no lock: it stores the time, counts, and compares the time with the moment at which the first watcher wants to be told. A watcher
with a rate limit (the lease extender) therefore costs nothing on the beats that it would have skipped anyway.
"""

from __future__ import annotations

import logging
import math
import threading
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

from tenure.beat.proof import NoveltyMark
from tenure.beat.record import Brake
from tenure.clock import Clock, SystemClock
from tenure.errors import LimitError

_logger = logging.getLogger(__name__)

_ALWAYS = -math.inf
_NEVER = math.inf


class BeatWatcher:
    """One watcher of a heartbeat. It is told of the first beat at or after `due`; moving `due` on is its rate limit."""

    __slots__ = ("due", "failures", "tell")

    def __init__(self, tell: Callable[[float, float], object], due: float) -> None:
        self.tell = tell
        self.due = due
        self.failures = 0


class _Callback(BeatWatcher):
    """A plain function that is told of every beat."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        super().__init__(lambda _now, _gap: function(), _ALWAYS)


class Silence(NamedTuple):
    """A quiet spell that the work declared before it began."""

    since: float
    until: float
    why: str


class Heartbeat:
    """Thread-safe heartbeat: workers call `beat()`, the watchdog asks `elapsed()`, watchers hear of beats.

    Under the interpreter lock the count is exact, because CPython (3.10 and newer) switches threads only at calls and at
    backward jumps, and there is none inside `self._count += 1`. Two threads that beat at the same moment may store their
    times in either order; the difference is how long one of them was off the processor.

    Any thread may beat, until a loop makes the heartbeat its own (`own`). From then on a beat of another thread says only that this thread
    lives, unless it is registered with `thread()`.
    """

    __slots__ = (
        "__weakref__",
        "_count",
        "_due",
        "_helpers",
        "_interruption",
        "_last",
        "_lock",
        "_now",
        "_on_beat",
        "_owner",
        "_silences",
        "_watches",
        "activity",
        "clock",
        "mark",
        "name",
        "note",
        "others",
        "progress",
    )

    def __init__(
        self, on_beat: Callable[[], object] | None = None, *, name: str = "", clock: Clock | None = None
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.name = name
        self.progress: float | None = None
        """The last progress that a beat brought, between 0 and 1."""
        self.note: str | None = None
        """The note that the work gave last."""
        self.activity = ""
        """The kind of thing that the work does now, from a bounded set of names: counters take it for a label."""
        self._now = self.clock.monotonic
        self._last = self._now()
        self._count = 0
        self._lock = threading.Lock()  # for the registry below; never held while anything is told
        self._on_beat: _Callback | None = None
        self._watches: tuple[BeatWatcher, ...] = ()
        self._silences: tuple[Silence, ...] = ()
        self._interruption: Exception | None = None
        self._owner = 0
        """The thread whose beats are proof; 0 while every thread's are."""
        self._helpers: frozenset[int] = frozenset()
        self.others = 0
        """Beats of threads that are not the work's own."""
        self.mark = NoveltyMark()
        """The high-water mark of what the work has shown (`beat.proof`)."""
        self._due = _NEVER
        if on_beat is not None:
            self.on_beat = on_beat

    def beat(self, progress: float | None = None, note: str | None = None) -> None:
        """Prove that the work advances. Callbacks run here, outside of any lock; one that raises is logged."""
        if self._owner and get_ident() != self._owner and get_ident() not in self._helpers:
            self.others += 1
            self.raise_if_interrupted()
            return
        # `self._now()` would be slower: a slot looked up as a method is not specialised.
        clock = self._now
        now = clock()
        self._count += 1
        if now >= self._due or progress is not None or note is not None:
            self._tell(now, progress, note)
        else:
            self._last = now

    def own(self) -> None:
        """Makes this the heartbeat of the calling thread: beats of others are no proof from now on."""
        self._owner = get_ident()

    def disown(self) -> None:
        self._owner = 0

    @contextmanager
    def thread(self) -> Iterator[None]:
        """Registers the calling thread as one of the work's own for as long as the block lasts: its beats count."""
        helper = get_ident()
        with self._lock:
            known, self._helpers = helper in self._helpers, self._helpers | {helper}
        try:
            yield
        finally:
            if not known:
                with self._lock:
                    self._helpers -= {helper}

    def begin_work(self) -> None:
        """Other work begins: what the last one said of itself is forgotten, and its beginning is news."""
        self.note = self.progress = None
        self.mark.show(binds=False)
        self.mark.begin_count()

    def elapsed(self) -> float:
        """Returns the seconds since the last beat."""
        return self._now() - self._last

    def unexplained(self) -> float:
        """Returns the seconds of silence that nobody declared. A stall is measured by them."""
        now = self._now()
        known = max((min(silence.until, now) for silence in self._silences), default=self._last)
        return max(0.0, now - max(known, self._last))

    @property
    def count(self) -> int:
        """The number of beats so far."""
        return self._count

    @property
    def last_beat(self) -> float:
        """When the last beat was, in this clock's monotonic time; before the first one, when this was made."""
        return self._last

    @property
    def silent(self) -> Silence | None:
        """The declared quiet spell that lasts longest, if the work is in one."""
        return max(self._silences, key=lambda silence: silence.until, default=None)

    @property
    def on_beat(self) -> Callable[[], object] | None:
        """One function that hears of each beat before all others do (document 003)."""
        return self._on_beat.function if self._on_beat is not None else None

    @on_beat.setter
    def on_beat(self, function: Callable[[], object] | None) -> None:
        with self._lock:
            rest = tuple(watch for watch in self._watches if watch is not self._on_beat)
            self._on_beat = None if function is None else _Callback(function)
            self._watches = rest if self._on_beat is None else (self._on_beat, *rest)
        self.rearm()

    def add_callback(self, function: Callable[[], object]) -> None:
        """Call this after each beat, in the thread that beats, in the order in which they were added."""
        self._add(_Callback(function))

    def watch(self, tell: Callable[[float, float], object], *, due: float = _ALWAYS) -> BeatWatcher:
        """Tell of the first beat at or after `due`, with its time and the gap before it."""
        watch = BeatWatcher(tell, due)
        self._add(watch)
        return watch

    def unwatch(self, watch: BeatWatcher) -> None:
        with self._lock:
            self._watches = tuple(other for other in self._watches if other is not watch)
        self.rearm()

    def interrupt(self, error: Exception) -> None:
        """Let every beat from now on raise this in the work, until `resume()`: how work in a thread is cancelled."""
        self._interruption = error
        self.rearm()

    def raise_if_interrupted(self) -> None:
        """Look whether the work was cancelled, without proving anything."""
        if self._interruption is not None:
            raise self._interruption

    def resume(self) -> None:
        """Beats raise no more."""
        self._interruption = None
        self.rearm()

    def depends(self, name: str, *, errors: bool = True) -> AbstractContextManager[None]:
        """Name what the block waits for. Only a leader can tell that it is down for most that wait for it: see `ctx.depends`."""
        return nullcontext()

    def call_failed(self) -> None:
        """Count a failure of what the block of `depends` names; see `ctx.call_failed`."""

    @property
    def brake(self) -> Brake:
        """Says whether the work may try what it waits for, which is down for most; `Brake.NONE` where nobody can tell."""
        return Brake.NONE

    @contextmanager
    def silence(self, max_s: float, why: str) -> Iterator[None]:
        """Declare that no beat will come for up to `max_s` seconds, such as during one long external call.

        The stall clock stands still until then, and an attached lease is extended to cover it, once. Watchers are told of its beginning
        and its end, and neither counts as a beat. What goes on beyond `max_s` is silence like any other.
        """
        if not (0 < max_s < math.inf):
            raise LimitError("silence max_s", max_s, "a number of seconds above 0")
        now = self._now()
        declared = Silence(now, now + max_s, why)
        with self._lock:
            self._silences = (*self._silences, declared)
            # Whoever still listens is told of this beat, whatever the rate limit: there will be no other for a while.
            for watch in self._watches:
                if watch.due < _NEVER:
                    watch.due = min(watch.due, now)
        self.rearm()
        try:
            self._tell(now, None, why)  # no beat: only content is progress
            yield
        finally:
            with self._lock:
                self._silences = tuple(other for other in self._silences if other is not declared)
                # The declared part is no gap: watchers are told only of what went beyond it.
                self._last = max(self._last, min(self._now(), declared.until))
            self._tell(self._now(), None, None)

    def _tell(self, now: float, progress: float | None, note: str | None) -> None:
        gap, self._last = now - self._last, now
        if note is not None:
            self.note = note
        if now >= self._due:
            for watch in self._watches:
                if now >= watch.due:
                    _tell_one(watch, now, gap)
            self.rearm()
        interruption = self._interruption
        if interruption is not None:
            raise interruption
        if progress is not None:
            # The beat counts in any case: only the number is refused.
            if not 0 <= progress <= 1:
                raise LimitError("progress", progress, "between 0 and 1", remedy="Give the part that is done")
            self.progress = progress
            self.mark.fraction(progress)

    def _add(self, watch: BeatWatcher) -> None:
        with self._lock:
            self._watches = (*self._watches, watch)
        self.rearm()

    def rearm(self) -> None:
        """Look again who is to be told next: for whoever moves a watch's `due` outside of a beat."""
        # Whoever moves a watch's `due` does so before this: the last one to come here has seen every move.
        with self._lock:
            if self._interruption is not None:
                self._due = _ALWAYS
            else:
                self._due = min((watch.due for watch in self._watches), default=_NEVER)


def _tell_one(watch: BeatWatcher, now: float, gap: float) -> None:
    try:
        watch.tell(now, gap)
    except Exception:
        watch.failures += 1
        # One that fails on every beat must not fill the disk: the first, second, fourth, eighth … failure is logged.
        if watch.failures & (watch.failures - 1) == 0:
            _logger.exception("A heartbeat callback failed (failure %d); the work goes on", watch.failures)
