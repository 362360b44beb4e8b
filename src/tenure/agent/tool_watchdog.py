"""Holds a tool to the beats that it promised.

The tool runs in a thread of its own and beats on a heartbeat of its own, which passes each beat on to the work's. When the promise is
broken, or the deadline is over, the call is given up: the thread cannot be killed, but it is cut off. Its beats keep nothing alive any more
and raise, and what it did to its fork of the session is thrown away.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar, cast

from tenure.agent.deadline import Countdown
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import Clock
from tenure.errors import AgentError, Cancelled, ToolSilentError

T = TypeVar("T")


class Leash:
    """The heartbeat that a tool beats on, and the wire to the work's own, which can be cut."""

    def __init__(self, tool: str, promise_s: float, work: Heartbeat | None, clock: Clock) -> None:
        self.heartbeat = Heartbeat(self._pass_on, name=tool, clock=clock)
        self._tool, self._promise_s = tool, promise_s
        self._work = work
        self._before = 0.0

    def _pass_on(self) -> None:
        if self._work is None:
            return
        try:
            self._work.beat(self.heartbeat.progress, self.heartbeat.note)
        except Exception as error:
            # The work's time is over. A callback that raises is only logged, so the tool is told by its own beat.
            self.heartbeat.interrupt(error)

    def slack_s(self, countdown: Countdown) -> float:
        """Returns the seconds for which the tool may stay silent from now."""
        return min(self._promise_s - self.heartbeat.elapsed(), countdown.remaining_s)

    def cut(self, countdown: Countdown) -> AgentError:
        """Give the tool up; why."""
        self._work = None
        error: AgentError
        if countdown.over:
            error = AgentError(f"tool {self._tool!r} was given up: the deadline is over")
        else:
            error = ToolSilentError(self._tool, self.heartbeat.elapsed(), self._promise_s)
        self.heartbeat.interrupt(error)
        return error

    def drop(self) -> None:
        """Nobody waits for the tool any more."""
        self._work = None
        self.heartbeat.interrupt(Cancelled("nobody waits for this tool any more"))


class _Running(Generic[T]):
    """A call in a thread, and what became of it."""

    def __init__(self, call: Callable[[], T], name: str, then: Callable[[_Running[T]], None] | None = None) -> None:
        self._then = then
        self.ended = threading.Condition()
        self.result: T | None = None
        self.error: BaseException | None = None
        self.over = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, call), name=f"tool-{name}", daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self.result = call()
        except BaseException as error:  # it is raised again in the thread that waits
            self.error = error
        with self.ended:
            self.over = True
            self.ended.notify_all()
        if self._then is not None:
            self._then(self)


def run_leashed(call: Callable[[], T], leash: Leash, countdown: Countdown, clock: Clock) -> T:
    """Call, in a thread, as long as it beats in time. Raises what it raises, or why it was given up."""
    running = _Running(call, leash.heartbeat.name)
    with running.ended:
        while not running.over and (left := leash.slack_s(countdown)) > 0:
            clock.wait(running.ended, left)
        if not running.over:
            raise leash.cut(countdown)
    if running.error is not None:
        raise running.error
    return cast(T, running.result)


def in_thread(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Call in a daemon thread, and have the answer in this event loop.

    Not the loop's own pool: it waits for its threads at the end, and one that was given up may never end.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def tell(running: _Running[T]) -> None:
        if answer.done():
            return  # given up meanwhile
        if running.error is not None:
            answer.set_exception(running.error)
        else:
            answer.set_result(cast(T, running.result))

    def ended(running: _Running[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, running)

    _Running(call, name, ended)
    return answer
