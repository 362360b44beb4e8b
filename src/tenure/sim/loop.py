"""An asyncio event loop in virtual time, one for each life of a simulated process.

Ordinary asyncio code runs on it: tasks, sleep, timeouts, queues, locks, task groups. It has no selector and no threads,
and refuses what would need them. Because each process has its own loop, its timers run at its own clock's rate, it can
be stopped and killed, and objects that two processes share by mistake are refused by asyncio itself ("attached to a
different loop").
"""

from __future__ import annotations

import asyncio
import weakref
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from tenure.errors import SimulationError
from tenure.sim.clock import SimClock
from tenure.sim.confinement import RefusingLoop
from tenure.sim.kernel import NEVER, Kernel, SimHandle, SimTimer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimTask(asyncio.Task[T]):
    """A task whose hash is its number, so that sets of tasks (asyncio.wait, TaskGroup) are walked in the same order."""

    __slots__ = ("_number",)

    def __init__(self, coro: Any, *, loop: SimLoop, number: int, name: str, context: Context | None) -> None:
        self._number = number
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(RefusingLoop):
    """The event loop of one process of the simulation."""

    def __init__(self, kernel: Kernel, name: str = "main", clock: SimClock | None = None) -> None:
        self.kernel = kernel
        self.name = name
        self.clock = clock or SimClock(kernel)
        self.clock.on_change = lambda: kernel.retime(self)
        self.dead = False
        """Killed or closed: nothing of it runs any more, and what it schedules is dropped."""
        self.held: list[SimHandle | SimTimer] | None = None
        """While the process is stopped: what would have run."""
        self._tasks: list[weakref.ref[SimTask[Any]]] = []
        self._created = 0
        self._prune_at = 64
        self._unread: list[BaseException] = []
        self._stopping = False
        self._exception_handler: Callable[[AbstractEventLoop, dict[str, Any]], object] | None = None
        kernel.loops.append(self)

    # Time and callbacks

    def time(self) -> float:
        return self.clock.monotonic()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        if not self.dead:
            self.kernel.ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        # No other thread can be here: confinement refuses to start one.
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.clock.monotonic() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = SimTimer(when, callback, args, self, context)
        due = self.clock.tick_at(when)
        if not self.dead and due < NEVER:
            self.kernel.push(due, handle)
            handle._scheduled = True
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.kernel.timer_cancelled()

    # Futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_options: object,
    ) -> SimTask[T]:
        self._created += 1
        number = self._created
        task: SimTask[T] = SimTask(
            coro,
            loop=self,
            number=number,
            name=f"{self.name}-{number}" if name is None else str(name),
            context=context,
        )
        if self.dead:
            _bury(task)
        self._tasks.append(weakref.ref(task))
        if len(self._tasks) > self._prune_at:
            self._tasks = [ref for ref in self._tasks if (found := ref()) is not None and _matters(found)]
            self._prune_at = 64 + 2 * len(self._tasks)
        return task

    def pending(self) -> list[SimTask[Any]]:
        """Returns the tasks that have not ended, oldest first."""
        return [task for ref in self._tasks if (task := ref()) is not None and not task.done()]

    def unread_errors(self) -> list[BaseException]:
        """Returns the exceptions of this loop's tasks that no code has retrieved."""
        failed = [task for ref in self._tasks if (task := ref()) is not None and task.done() and task._log_traceback]
        return self._unread + [error for task in failed if (error := task.exception()) is not None]

    def describe(self) -> Iterator[str]:
        """Returns each unfinished task and where it waits."""
        if not self.dead:
            state = " (stopped)" if self.held is not None else ""
            for task in self.pending():
                yield f"{self.name}{state}: {task.get_name()} {_where(task)}"

    def kill(self) -> list[SimTask[Any]]:
        """End at once: no task is told, no `finally` runs. Returns the tasks, to be buried when the run is over."""
        left = self.pending()
        self.dead, self.held = True, None
        return left

    # Running

    def run_until_complete(self, future: Any) -> Any:
        fresh = not asyncio.isfuture(future)
        task: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        try:
            self.kernel.run(until=task.done)
        except BaseException:
            if fresh and task.done() and not task.cancelled():
                task.exception()  # it is the error that is on its way out already
            raise
        return task.result()

    def run_forever(self) -> None:
        self._stopping = False
        self.kernel.run(until=lambda: self._stopping)

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self.dead

    def close(self) -> None:
        """Drop everything that still waits, without running its `finally` blocks into the world."""
        bury(self, self.kill())

    async def shutdown_asyncgens(self) -> None:
        """Does nothing: generators are closed with the tasks that hold them."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Does nothing: there are no threads."""

    # Errors that nobody awaits

    def set_exception_handler(self, handler: Callable[[AbstractEventLoop, dict[str, Any]], object] | None) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[AbstractEventLoop, dict[str, Any]], object] | None:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            error = SimulationError(f"{self.name}: {context.get('message')}")
        else:
            error.add_note(f"in {self.name}: {context.get('message')}")
        self.kernel.fail(error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Hears that a callback or task failed and nobody looks at it: by default that ends the run."""
        if self.dead:
            return
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        elif "never retrieved" in context.get("message", ""):
            # When an interpreter notices this depends on its version, so it is told at the end of the run.
            self._unread.append(context["exception"])
        else:
            self.default_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignored: asyncio's debug mode measures real time."""

    def __repr__(self) -> str:
        return f"<SimLoop {self.name}{' dead' if self.dead else ''}>"


def _matters(task: SimTask[Any]) -> bool:
    return not task.done() or task._log_traceback


def bury(loop: SimLoop, tasks: list[SimTask[Any]]) -> None:
    """Close coroutines of a loop that is dead, so that they neither warn nor act when they are collected."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        for task in tasks:
            _bury(task)
    finally:
        asyncio._set_running_loop(outer)


def _bury(task: SimTask[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine: Any = task.get_coro()
    for _ in range(100):  # each close() ends at most one `finally` that awaits
        try:
            coroutine.close()
        except RuntimeError as error:
            if "ignored GeneratorExit" in str(error):
                continue
            return
        except BaseException:
            return  # what a killed process would have said in its last words
        return


def _where(task: SimTask[Any]) -> str:
    frames = task.get_stack()
    if not frames:
        return "has not begun"
    frame = frames[-1]
    return f"waits at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
