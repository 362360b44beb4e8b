"""The steps of attempts: engine calls and pauses that are described, and made by one of three drivers.

A generator yields a call to make, or the seconds to pause, and receives the call's answer or its exception. The code in between is written
once; the drivers differ only in how they wait. A supervisor imports this, so it imports no event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tenure.clock import Clock

if TYPE_CHECKING:
    from tenure.engines.aio import Calls

T = TypeVar("T")
Step = Callable[[], Any] | Coroutine[Any, Any, Any] | float
"""A call to the engine, an async workflow to await, or the seconds of a pause."""
Steps = Generator[Step, Any, T]


def _run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # a supervisor's steps have no coroutines, and it shall start quickly

    return asyncio.run(coroutine)


def run_steps(steps: Steps[T], clock: Clock, run: Callable[[Coroutine[Any, Any, Any]], Any] = _run_coroutine) -> T:
    """Takes the steps in this thread, and returns what they return. `run` runs the coroutines among them."""
    advance, answer = steps.send, None
    while True:
        try:
            step = advance(answer)
        except StopIteration as end:
            return cast("T", end.value)
        try:
            if isinstance(step, float):
                answer = None
                clock.sleep(step)
            else:
                answer = run(step) if isinstance(step, Coroutine) else step()
            advance = steps.send
        except Exception as error:
            answer, advance = error, steps.throw


async def await_steps(steps: Steps[T], calls: Calls, clock: Clock) -> T:
    """Takes the steps from an event loop. A cancellation ends them where they are."""
    advance, answer = steps.send, None
    while True:
        try:
            step = advance(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned
        try:
            if isinstance(step, float):
                answer = None
                await clock.async_sleep(step)
            else:
                answer = await (step if isinstance(step, Coroutine) else calls.run(step))
            advance = steps.send
        except Exception as error:
            answer, advance = error, steps.throw


def hand_over_steps(
    steps: Steps[None],
    submit: Callable[[Callable[[], None]], object],
    later: Callable[[Callable[[], None]], None],
) -> None:
    """Makes the calls in another thread with `submit`. Everything between two calls runs in the thread to which `later` brings it.

    The first part runs here. The steps must not pause: nothing waits here.
    """

    def go_on(advance: Callable[[Any], Step], answer: Any) -> None:
        try:
            step = advance(answer)
        except StopIteration:
            return
        assert not isinstance(step, float | Coroutine), "steps that are handed over cannot pause"

        def call() -> None:
            try:
                answer = step()
            except Exception as error:
                failed = error  # the name `error` ends with this block
                later(lambda: go_on(steps.throw, failed))
            else:
                later(lambda: go_on(steps.send, answer))

        submit(call)

    go_on(steps.send, None)
