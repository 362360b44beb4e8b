"""Keeps the loops of a node running: it starts a loop that raised again after a rest, whatever the loop raised.

Only three things end a loop: a cancellation, an engine that lost what it had acknowledged (`EngineWentBackError`, decision 0295: it ends the
node), and, for the loops of a leader, `DeposedError`. The keeper notes any other exception as a failure
of the product and rests before it starts the loop again. The rests grow, and become short again once the loop runs well: so a node never
ends by an exception of our own code, and never spins on one (decision 0195).

`ProductFailures` records the failures of a node's own code: it logs each traceback once, counts every failure, and raises an alarm while one is
recent. Code that handles one thing of many (a job, a result, a schedule, a report) notes its exceptions there, too, and goes on. It decides
nothing: the code that notes a failure also decides what becomes of the one thing.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.errors import DeposedError, EngineError, EngineWentBackError, NodeUnavailableError, ProductFailedError
from tenure.jobs.alarms import Alarm, AlarmKind
from tenure.logs import NodeLog
from tenure.randomness import Random

NEWS_S = 900.0
"""The seconds that an alarm stands after its last failure: long enough that an operator sees it, and it ends by itself."""
MOST_FRAMES = 20
MOST_PLACES = 1_000
"""The most source lines that are remembered as logged. When there are more, all are forgotten, and their tracebacks logged anew."""


class FailedOn(StrEnum):
    """The kind of thing that the code was handling. It labels a metric and an alarm, so the set is closed."""

    LOOP = "loop"
    COMMAND = "command"
    JOB = "job"
    RESULT = "result"
    SCHEDULE = "schedule"
    WORKER = "worker"
    GATE = "gate"
    DATACENTER = "datacenter"
    REQUEST = "request"
    WAITER = "waiter"


class ProductFailures:
    """The failures of one node."""

    def __init__(
        self,
        clock: Clock,
        log: NodeLog,
        count: Callable[[str], None] = lambda what: None,
    ) -> None:
        """`count` is called with the `FailedOn` of each failure, for a metric."""
        self._clock, self.log, self._count = clock, log, count
        self._newest: dict[str, tuple[float, int, str]] = {}
        """Maps each subject of an alarm to its last failure: when it was, the count of this run of failures, and its description."""
        self._said: dict[tuple[str, str, int], float] = {}
        """Maps each source line whose traceback was logged to when that was. Until `NEWS_S` later, its failures are logged as one line."""

    def note(self, what: FailedOn, subject: str, doing: str, error: BaseException) -> ProductFailedError:
        """Records one failure, and returns it as the error for the caller that it concerns."""
        failed = error if isinstance(error, ProductFailedError) else ProductFailedError(doing, error, trace_of(error))
        now = self._clock.boottime()
        key = f"{what} {subject}" if what is FailedOn.LOOP else str(what)
        words = f"{what} {subject[:200]!r}: {failed.fact}" + (f" ({doing})" if failed is error else "")
        at, before, _ = self._newest.get(key, (now, 0, ""))
        self._newest[key] = now, 1 + (before if now - at <= NEWS_S else 0), words
        self._count(str(what))
        self.log.error(f"FAILED on {words}" + self._trace_once(error, failed.trace, now))
        return failed

    @contextmanager
    def noted(self, what: FailedOn, subject: str, doing: str) -> Iterator[None]:
        """Notes what the block raises about one thing, so that the others go on. An error that concerns all of them is raised."""
        try:
            yield
        except Exception as error:
            if concerns_all(error):
                raise
            self.note(what, subject, doing, error)

    def _trace_once(self, error: BaseException, trace: str, now: float) -> str:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = (
            type(error).__name__,
            frame.tb_frame.f_code.co_filename if frame else "",
            frame.tb_lineno if frame else 0,
        )
        said = self._said.get(place)
        if said is not None and now - said <= NEWS_S:
            return ""
        if len(self._said) >= MOST_PLACES:
            self._said.clear()
        self._said[place] = now
        return f"\n{trace}" if trace else ""

    def alarms(self) -> list[Alarm]:
        """Returns an alarm for each kind of thing, and for each loop, that failed within `NEWS_S`."""
        now, found = self._clock.boottime(), []
        for key, (at, count, words) in list(self._newest.items()):
            if now - at > NEWS_S:
                del self._newest[key]
                continue
            often = f"{count:,} times, " if count > 1 else ""
            reason = f"Tenure's own code failed {often}the last time {now - at:.0f} s ago on {words}"
            found.append(Alarm(AlarmKind.PRODUCT_FAILED, key, reason, _REMEDY))
        return found


def concerns_all(error: BaseException) -> bool:
    """Returns True for an error that no single job causes: `DeposedError` or `EngineError`."""
    return isinstance(error, (DeposedError, EngineError))


_REMEDY = "Everything else goes on. The log has the traceback: please report it"


def trace_of(error: BaseException) -> str:
    """Returns the end of its traceback; empty where formatting fails, as it may when memory is short."""
    try:
        return "".join(traceback.format_exception(error, limit=-MOST_FRAMES))
    except Exception:
        return ""


FIRST_S = 0.1
MOST_S = 30.0
AWAY_MOST_S = 1.5
"""The longest rest while an engine or a node does not answer, however long it is away: when it is back, all callers wait for this loop."""
LOOK_S = 0.5
WELL_S = 10.0
"""A loop that ran for this long ran well: its next rest is a short one again."""

Loop = Callable[[], Coroutine[Any, Any, None]]
"""An `async def`: whatever it raises, it raises inside of its task."""


class _Kept:
    """One loop, or one step of a loop."""

    def __init__(self, random: Random) -> None:
        self._backoff = Backoff(random, first_s=FIRST_S, most_s=MOST_S)
        self._away = Backoff(random, first_s=FIRST_S, most_s=AWAY_MOST_S)
        self.not_before = -math.inf
        self.running: asyncio.Task[None] | None = None
        self.waits = False
        """True while it waits for an engine or a node that does not answer. Logged once, until the loop goes on."""
        self.ailing = False
        """True from a failure until the loop or step runs well again. Steps run well many times a second, so `well` must cost nothing."""

    def well(self) -> None:
        if not self.ailing:
            return
        self.ailing = False
        self._backoff.reset()
        self._away.reset()
        self.waits, self.not_before = False, -math.inf

    def rest_s(self) -> float:
        """Returns the seconds to rest after the failure that `_failed` has just noted."""
        self.ailing = True
        return self._away.next() if self.waits else self._backoff.next()


class LoopKeeper:
    """The loops of one node, or of one term of it."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        failures: ProductFailures,
        *,
        ends: tuple[type[Exception], ...] = (),
    ) -> None:
        """`ends`: the exceptions by which a loop ends itself, and every loop that is kept together with it."""
        self._clock, self._random, self._ends = clock, random, ends
        self.failures = failures
        self._kept: dict[str, _Kept] = {}

    def of_term(self) -> LoopKeeper:
        """Returns a keeper for the loops of a leader: they end when the leader is deposed."""
        return LoopKeeper(self._clock, self._random, self.failures, ends=(DeposedError,))

    async def keep(self, name: str, loop: Loop, *, stop: asyncio.Event | None = None) -> None:
        """Runs the loop until it returns, until this call is cancelled, or until `stop` is set while the loop rests."""
        kept = self._of(name)
        while stop is None or not stop.is_set():
            begun = self._clock.monotonic()
            kept.running = running = asyncio.create_task(loop())
            try:
                # Not `await running`: a loop that `begin_again` cancelled would look as if this call were cancelled.
                await asyncio.wait([running])
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                kept.running = None
            if self._clock.monotonic() - begun >= WELL_S:
                kept.well()
            pause = FIRST_S
            if not running.cancelled():
                error = running.exception()
                if error is None:
                    return
                self._failed(name, kept, error)
                pause = kept.rest_s()
            if stop is None:
                await self._clock.async_sleep(pause)
            else:
                await self._clock.async_wait(stop, pause)

    async def keep_all(self, loops: Mapping[str, Loop]) -> None:
        """Keeps all of them. All end when one raises an exception that ends a loop, or when this call is cancelled."""
        tasks = [asyncio.create_task(self.keep(name, loop)) for name, loop in loops.items()]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    async def turn(self, steps: Mapping[str, Loop]) -> bool:
        """Takes each step of a loop once, in their order. A step that raises rests alone, while the others go on.

        Returns True when a step failed by a fault of our own code: it may have left its changes in memory half done.
        """
        failed = False
        for name, act in steps.items():
            # Only a step that failed has anything kept. There are many rounds a second, and hardly ever one of those.
            kept = self._kept.get(name)
            if kept is not None and kept.ailing and self._clock.boottime() < kept.not_before:
                continue
            try:
                await act()
            except Exception as error:
                kept = self._of(name)
                failed |= self._failed(name, kept, error)
                kept.not_before = self._clock.boottime() + kept.rest_s()
            else:
                if kept is not None and kept.ailing:
                    kept.well()
        return failed

    def rest_s(self, left_s: float, steps: Collection[str]) -> float:
        """Returns the seconds that a loop of these steps may rest when nothing is due for `left_s`; at most until a step that failed has its turn.

        Where something is due already while a step rests, it is most likely the work of that step. The loop must not spin on it, so it
        rests for `LOOK_S` and then looks whether another step has to act.
        """
        resting = [one.not_before for name, one in self._kept.items() if one.not_before > -math.inf and name in steps]
        if not resting:
            return max(0.0, left_s)
        next_turn = max(0.0, min(resting) - self._clock.boottime())
        return min(left_s, next_turn) if left_s > 0 else min(next_turn, LOOK_S)

    def begin_again(self, name: str) -> None:
        """Starts the loop again after a short rest: it missed a change, and finds it in the state when it begins."""
        running = self._of(name).running
        if running is not None:
            running.cancel()

    def _of(self, name: str) -> _Kept:
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _Kept(self._random)
        return kept

    def _failed(self, name: str, kept: _Kept, error: BaseException) -> bool:
        """Notes the exception of a loop or a step. Returns True for a fault of our own code; raises an exception that ends the loop."""
        if isinstance(error, (*self._ends, EngineWentBackError)) or not isinstance(error, Exception):
            raise error
        if isinstance(error, (EngineError, NodeUnavailableError)) and error.retryable:
            # No fault of our code. An engine or node that is away raises an alarm of its own.
            if not kept.waits:
                self.failures.log.warning(f"{name} has to wait: {error}")
            kept.waits = True
            return False
        kept.waits = False
        self.failures.note(FailedOn.LOOP, name, f"running the loop {name!r}", error)
        return True
