"""Calls that block, made in a thread: from an event loop that goes on meanwhile, or by a caller that watches the call and may give it up.

A thread cannot be killed, so a call that is given up is left to itself: its watch says how to end it from outside (a connection to close), and the caller
goes on at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from tenure.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")

LOOK_S = 0.25
"""The time between two looks at a call that may be interrupted: an interrupt, a cancel or a lost lease ends the call within it."""
CLEAN_UP_S = 0.5
"""An async call that is given up is cancelled, and has this long to close what it opened."""


async def off_loop(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `call` in a thread and returns its result. The blocking twin of the caller makes the call itself."""
    return await asyncio.to_thread(call, *args, **kwargs)


async def awaited(value: T | Awaitable[T]) -> T:
    """Returns the value, awaited where it can be: a hook that users write may be async or not. The blocking twin takes it as it is."""
    return await value if inspect.isawaitable(value) else value


class Hangup:
    """Closes the connection of one call from another thread, because the thread that reads from it cannot look up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._close: Callable[[], object] | None = None
        self._over = False

    def by(self, close: Callable[[], object]) -> None:
        """Takes the function that closes the connection, from whoever opened it. Closes at once when the call was given up already."""
        with self._lock:
            self._close = close
        if self._over:
            self.now()

    def now(self) -> None:
        """Closes the connection, once."""
        self._over = True
        with self._lock:
            close, self._close = self._close, None
        if close is not None:
            close()


def shut_down(sock: socket.socket) -> None:
    """Ends a connection that another thread reads from. Closing would not do: a thread that waits for bytes would go on waiting."""
    with suppress(OSError):  # the other side was faster
        sock.shutdown(socket.SHUT_RDWR)


class CallWatch(Protocol):
    """Judges a call while it runs. The waiting thread or task asks it."""

    def look(self) -> float:
        """Returns the seconds, above 0, after which to look again. Raises the reason when the call must be given up."""

    def given_up(self, reason: BaseException) -> None:
        """Ends the call from outside, as far as that is possible: nobody waits for it any more."""


class ThreadedCall(Generic[T]):
    """A call in a daemon thread, and what became of it."""

    def __init__(self, call: Callable[[], T], name: str, then: Callable[[ThreadedCall[T]], None] | None = None) -> None:
        self._call, self._then = call, then
        self._here = False
        self.changed = threading.Condition()
        """Guards the fields below, and is notified when one changes."""
        self.result: T | None = None
        self.error: BaseException | None = None
        self.over = False
        self.given_up: BaseException | None = None
        self.handed: _Handed | None = None
        """The function that the call's thread wants to have run by the waiting one."""
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)

    def start(self) -> ThreadedCall[T]:
        self._thread.start()
        return self

    def run_here(self) -> None:
        """Makes the call in this thread, where no other one may be started."""
        self._here = True
        self._run()

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # it is raised again in the thread that waits
            self.error = error
        with self.changed:
            self.over = True
            self.changed.notify_all()
        if self._then is not None:
            self._then(self)

    def take(self) -> _Handed | None:
        with self.changed:
            handed, self.handed = self.handed, None
        return handed

    def in_waiting_thread(self, function: Callable[[], None]) -> None:
        """Has the waiting thread run `function`, and returns or raises as it did. The call's own thread calls this.

        A beat proves something only in the thread of the work itself, and that is the thread which waits.
        """
        if self._here:
            function()
            return
        handed = _Handed(function)
        with self.changed:
            self.handed = handed
            self.changed.notify_all()
            self.changed.wait_for(lambda: handed.over or self.given_up is not None)
        if not handed.over and self.given_up is not None:
            raise self.given_up
        if handed.error is not None:
            raise handed.error


class _Handed:
    """A function on its way from one thread to another."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.error: BaseException | None = None
        self.over = False

    def run(self) -> None:
        try:
            self.function()
        except (
            BaseException
        ) as error:  # it is raised in the thread that handed it over, which knows how to end the call
            self.error = error
        self.over = True


def run_watched(running: ThreadedCall[T], watch: CallWatch, clock: Clock) -> T:
    """Runs the call in its thread, and looks after it from this one. Raises what the call raises, or the reason why it was given up."""
    try:
        if clock.blocks:
            running.start()
        else:
            watch.look()
            running.run_here()
        # Without the lock while it looks and while it runs what was handed over: both may take their time, as the renewal of a lease does.
        while not running.over:
            if (handed := running.take()) is not None:
                handed.run()
                with running.changed:
                    running.changed.notify_all()
                continue
            left = watch.look()
            with running.changed:
                if not running.over and running.handed is None:
                    clock.wait(running.changed, left)
    except BaseException as reason:
        with running.changed:
            running.given_up = reason
            running.changed.notify_all()
        watch.given_up(reason)
        raise
    if running.error is not None:
        raise running.error
    return cast(T, running.result)


async def await_watched(work: asyncio.Future[T], watch: CallWatch, clock: Clock) -> T:
    """Awaits the call, and looks after it meanwhile. Raises what the call raises, or the reason why it was given up."""
    try:
        while not work.done():
            await _either(work, clock, watch.look())
        return work.result()
    except BaseException as reason:
        if not work.done():
            watch.given_up(reason)
            work.cancel()
            await asyncio.wait({work}, timeout=CLEAN_UP_S)
            if work.done() and not work.cancelled():
                work.exception()  # whatever it is: the reason why it was given up says more
        raise


async def _either(work: asyncio.Future[Any], clock: Clock, seconds: float) -> None:
    """Waits until the work is done, or for a while."""
    timer = asyncio.ensure_future(clock.async_sleep(seconds))
    try:
        await asyncio.wait([work, timer], return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()


def in_thread(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Makes the call in a daemon thread, and returns the future of its answer in this event loop.

    Not in the loop's own pool: it waits for its threads at the end, and one that was given up may never end.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def tell(running: ThreadedCall[T]) -> None:
        if answer.done():
            return  # given up meanwhile
        if running.error is not None:
            answer.set_exception(running.error)
        else:
            answer.set_result(cast(T, running.result))

    def ended(running: ThreadedCall[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, running)

    ThreadedCall(call, name, ended).start()
    return answer
