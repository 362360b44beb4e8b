"""Lets one description of engine calls and pauses serve slots that block, slots on an event loop, and the supervisor's threads.

A generator yields a call to make, or the seconds to pause, and receives the call's answer or its exception. What happens in between is
written once; the three drivers below differ only in how they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from tenure.clock import Clock
from tenure.engines.aio import Calls

T = TypeVar("T")
Step = Callable[[], Any] | float
"""A call to the engine, or the seconds of a pause."""
Steps = Generator[Step, Any, T]


def run_steps(steps: Steps[T], clock: Clock) -> T:
    """Takes the steps in this thread, and returns what they return."""
    advance, answer = steps.send, None
    while True:
        try:
            step = advance(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned
        try:
            answer = clock.sleep(step) if isinstance(step, float) else step()
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
            answer = await (clock.async_sleep(step) if isinstance(step, float) else calls.run(step))
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
        assert not isinstance(step, float), "steps that are handed over cannot pause"

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
