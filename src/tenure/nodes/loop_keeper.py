"""Keeps the loops of a node running: one that raises is begun again after a rest, whatever it raised.

Only two things end a loop: being stopped (cancelled), and, for what a leader does, being deposed. Anything else is noted as a failure of
the product and waited for with a growing rest, which good running makes short again: so a node never ends by an exception, and
never spins on one (decision 0195).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping

from tenure.clock import Clock
from tenure.engines.backoff import Backoff
from tenure.errors import DeposedError, EngineError, NodeUnavailableError
from tenure.nodes.product_failures import FailedOn, ProductFailures
from tenure.randomness import Random

FIRST_S = 0.1
MOST_S = 30.0
AWAY_MOST_S = 1.5
"""What is out of reach is asked again so often, however long it is away: when it is back, everybody waits for us."""
LOOK_S = 0.5
WELL_S = 10.0
"""A loop that ran for so long ran well: its next rest is a short one again."""

Loop = Callable[[], Awaitable[None]]


class _Kept:
    """One loop, or one step of a loop."""

    def __init__(self, random: Random) -> None:
        self._backoff = Backoff(random, first_s=FIRST_S, most_s=MOST_S)
        self._away = Backoff(random, first_s=FIRST_S, most_s=AWAY_MOST_S)
        self.not_before = -math.inf
        self.running: asyncio.Task[None] | None = None
        self.waits = False
        """It waits for an engine or a node that does not answer: said once, until it goes on."""

    def well(self) -> None:
        self._backoff.reset()
        self._away.reset()
        self.waits, self.not_before = False, -math.inf

    def rest_s(self) -> float:
        """How long to rest after the failure that has just been noted."""
        return self._away.next() if self.waits else self._backoff.next()


class LoopKeeper:
    """The loops of one node, or of one term of it."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        failures: ProductFailures,
        *,
        say: Callable[[str], None] = lambda text: None,
        ends: tuple[type[Exception], ...] = (),
    ) -> None:
        """`ends`: what a loop may raise to end itself, and everything that is kept with it."""
        self._clock, self._random, self._say, self._ends = clock, random, say, ends
        self.failures = failures
        self._kept: dict[str, _Kept] = {}

    def of_term(self) -> LoopKeeper:
        """A keeper for what a leader does: its loops end when it is deposed."""
        return LoopKeeper(self._clock, self._random, self.failures, say=self._say, ends=(DeposedError,))

    async def keep(self, name: str, loop: Loop, *, stop: asyncio.Event | None = None) -> None:
        """Run the loop until it returns, until this is cancelled, or until `stop` is set while it rests."""
        kept = self._of(name)
        while stop is None or not stop.is_set():
            begun = self._clock.monotonic()
            kept.running = running = asyncio.create_task(_once(loop))
            try:
                # Not `await running`: a cancelled loop (`begin_again`) must not look as if we were cancelled.
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
        """Keep all of them; when one raises what ends them, or this is cancelled, all end."""
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
        """Take each step of a loop once, in their order. One that raises rests by itself, while the others go on.

        True when one of them failed by a fault of ours: it may have left half done what it did in memory.
        """
        failed = False
        for name, act in steps.items():
            kept = self._of(name)
            if self._clock.boottime() < kept.not_before:
                continue
            try:
                await act()
            except Exception as error:
                failed |= self._failed(name, kept, error)
                kept.not_before = self._clock.boottime() + kept.rest_s()
            else:
                kept.well()
        return failed

    def rest_s(self, left_s: float, steps: Iterable[str]) -> float:
        """How long a loop of these steps may rest that has nothing to do for `left_s`: no longer than until one that failed has its turn.

        Where something is due already, and a step rests, it is most likely what that step has to do: the loop must not spin on it,
        and looks now and then whether it was something else.
        """
        resting = [at for name in steps if (at := self._of(name).not_before) > -math.inf]
        if not resting:
            return max(0.0, left_s)
        next_turn = max(0.0, min(resting) - self._clock.boottime())
        return min(left_s, next_turn) if left_s > 0 else min(next_turn, LOOK_S)

    def begin_again(self, name: str) -> None:
        """The loop missed something that it can read off the state when it begins: let it begin anew, after a short rest."""
        running = self._of(name).running
        if running is not None:
            running.cancel()

    def _of(self, name: str) -> _Kept:
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _Kept(self._random)
        return kept

    def _failed(self, name: str, kept: _Kept, error: BaseException) -> bool:
        """Note what a loop or a step raised. True where it is a fault of ours; raises what ends the loop."""
        if isinstance(error, self._ends) or not isinstance(error, Exception):
            raise error
        if isinstance(error, (EngineError, NodeUnavailableError)) and error.retryable:
            # No fault of ours: whoever is away has an alarm of its own.
            if not kept.waits:
                self._say(f"{name} has to wait: {error}")
            kept.waits = True
            return False
        kept.waits = False
        self.failures.note(FailedOn.LOOP, name, f"running the loop {name!r}", error)
        return True


async def _once(loop: Loop) -> None:
    """So that a loop which raises before its first await fails as one that raises later."""
    await loop()
