"""The loops of a group: their names, the thread or process that each runs in, and the state of each.

It starts, stops, watches and kills loops. `LoopGroup` decides when, and what the death of one loop means for the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tenure.backoff import Retry
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.ladder import Ladder
from tenure.beat.watchdog import LoopState, LoopVitals, StallReport, Watchdog, thread_stack
from tenure.clock import Clock
from tenure.errors import ConfigurationError
from tenure.randomness import Random
from tenure.work.loop_process import LoopForkServer

_logger = logging.getLogger(__name__)

OnOver = Callable[[str, BaseException | None], None]
"""Called once for each loop that ended for good, with its name and the error that ended it, or None."""


class Isolation(StrEnum):
    """The place in which the loops of a group run."""

    THREAD = "thread"
    PROCESS = "process"

    @classmethod
    def _missing_(cls, value: object) -> Isolation:
        raise ConfigurationError(f"isolation is {value!r}", remedy="Choose 'thread' or 'process'")


class Loop(Protocol):
    """The interface that a group needs of a loop; every `MailboxLoop` has it."""

    name: str
    heartbeat: Heartbeat

    def run(self, *, visibility_timeout: float, wait_time_seconds: float) -> None: ...

    def stop(self) -> None: ...

    def rearm(self) -> None: ...

    def vitals(self) -> LoopVitals: ...

    def ladder(self, visibility_timeout: float, wait_time_seconds: float) -> Ladder: ...


class GroupLoops:
    """Loops by name. Call `open`, then `make_threads`, then `start_all`, and `close` at the end."""

    def __init__(
        self,
        loops: Iterable[Loop],
        run: Callable[[Loop], None],
        *,
        isolation: Isolation,
        restart: Retry | None,
        clock: Clock,
        random: Random,
    ) -> None:
        """With `restart`, a loop that dies is started again after a while."""
        self.loops = _named(loops)
        self._run = run
        self._isolation, self._restart = isolation, restart
        self._clock, self._random = clock, random
        self._fork_server: LoopForkServer | None = None
        self._threads: dict[str, LoopThread] = {}

    def open(self) -> None:
        """Forks the fork server for loops in processes. Call it before any thread of the group runs."""
        if self._isolation is Isolation.PROCESS:
            self._fork_server = LoopForkServer(self.loops, self._run)

    def close(self) -> None:
        fork_server, self._fork_server = self._fork_server, None
        if fork_server is not None:
            fork_server.close()

    def make_threads(self, watchdog: Watchdog | None, on_over: OnOver) -> None:
        """Makes a thread for each loop; none runs yet."""
        self._threads = {name: self._thread_of(name, loop, watchdog, on_over) for name, loop in self.loops.items()}

    def start_all(self, on_over: OnOver) -> set[str]:
        """Starts the threads; returns their names."""
        for name, thread in self._threads.items():
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no more threads to give
                on_over(name, error)
        return set(self._threads)

    def stops(self) -> list[Callable[[], None]]:
        """Returns the function of each loop that asks it to end and returns at once."""
        return [thread.stop for thread in self._threads.values()]

    def runs_here(self) -> bool:
        """Returns True when the calling thread is one of the loops."""
        return any(thread.is_current() for thread in self._threads.values())

    def stack_of(self, name: str) -> str:
        return thread_stack(self._threads[name].ident)

    def kill_stalled(self, report: StallReport) -> None:
        """Kills the processes of the loops that stalled, and no others. They start again or end the group, as set."""
        for stall in report.stalls:
            _logger.critical("%s; its process is ended with SIGKILL, the others go on", stall)
            if self._fork_server is not None:
                self._fork_server.kill(stall.name, str(stall))

    def vitals(self, *, stopping: bool) -> dict[str, LoopVitals]:
        """Returns the vitals of each loop."""
        return {name: self._vitals_of(name, loop, stopping) for name, loop in self.loops.items()}

    def _vitals_of(self, name: str, loop: Loop, stopping: bool) -> LoopVitals:
        thread = self._threads.get(name)
        if thread is None:
            return LoopVitals.of(loop.heartbeat, LoopState.STARTING)
        if thread.died is not None:
            state = LoopState.RESTARTING if thread.will_restart else LoopState.DEAD
            return LoopVitals.of(loop.heartbeat, state, error=f"{type(thread.died).__name__}: {thread.died}")
        fork_server = self._fork_server
        vitals = loop.vitals() if fork_server is None else LoopVitals.of(loop.heartbeat, fork_server.state(name))
        if stopping and vitals.state is not LoopState.ENDED:
            return LoopVitals.of(loop.heartbeat, LoopState.STOPPING, in_hand=vitals.in_hand)
        return vitals

    def _thread_of(self, name: str, loop: Loop, watchdog: Watchdog | None, on_over: OnOver) -> LoopThread:
        fork_server = self._fork_server

        def on_run() -> None:
            loop.heartbeat.beat()  # what was before this start is no silence of this run
            if watchdog is not None:
                watchdog.watch(name, loop.heartbeat)

        def on_end() -> None:
            if watchdog is not None:
                watchdog.unwatch(name)

        calls = LoopCalls(
            run=(lambda: self._run(loop)) if fork_server is None else (lambda: fork_server.run(name)),
            stop=loop.stop if fork_server is None else (lambda: fork_server.stop(name)),
            rearm=loop.rearm,
            on_run=on_run,
            on_end=on_end,
            on_over=lambda error: on_over(name, error),
        )
        return LoopThread(name, calls, restart=self._restart, clock=self._clock, random=self._random)


def _named(loops: Iterable[Loop]) -> dict[str, Loop]:
    """Returns the loops by name. When several have one name, the later ones get a number."""
    named: dict[str, Loop] = {}
    for loop in loops:
        name, number = loop.name, 2
        while name in named:
            name, number = f"{loop.name}-{number}", number + 1
        named[name] = loop
    return named


# A loop that ran for this long before it died is a new failure, not the same one again.
_HEALTHY_S = 60.0


@dataclass(frozen=True, slots=True)
class LoopCalls:
    """Runs one loop in a thread and reports its end."""

    run: Callable[[], None]
    stop: Callable[[], None]
    rearm: Callable[[], None]
    """Forget a stop that came too late to be heard, so that the next run is not ended by it."""
    on_run: Callable[[], None]
    on_end: Callable[[], None]
    on_over: Callable[[BaseException | None], None]
    """Called last, once: with the error that ended it, or None."""


class LoopThread:
    """Runs a loop until it ends by itself, is stopped, or dies; with `restart`, a death is followed by another start."""

    def __init__(self, name: str, calls: LoopCalls, *, restart: Retry | None, clock: Clock, random: Random) -> None:
        self.name = name
        self.died: BaseException | None = None
        """The error that ended the last run; None while it runs."""
        self._calls = calls
        self._restart = restart
        self._clock = clock
        self._random = random
        self._condition = threading.Condition()
        self._stopping = self._in_run = False
        # A daemon, because an abandoned loop must not keep the process from ending.
        self._thread = threading.Thread(target=self._main, name=f"tenure-loop-{name}", daemon=True)

    @property
    def ident(self) -> int:
        return self._thread.ident or 0

    @property
    def will_restart(self) -> bool:
        return self._restart is not None and not self._stopping

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the loop to end, or do not start it again. Returns at once."""
        with self._condition:
            self._stopping = True
            in_run = self._in_run
            self._condition.notify_all()
        if in_run:
            self._calls.stop()

    def _main(self) -> None:
        failures = 0
        while self._enter():
            begun = self._clock.monotonic()
            self._run_once()
            if self.died is None or not self.will_restart:
                break
            failures = 1 if self._clock.monotonic() - begun >= _HEALTHY_S else failures + 1
            self._pause(failures)
        self._calls.rearm()
        self._calls.on_over(self.died)

    def _enter(self) -> bool:
        with self._condition:
            self._in_run = not self._stopping
            return self._in_run

    def _run_once(self) -> None:
        self.died = None
        try:
            self._calls.on_run()
            self._calls.run()
        except BaseException as error:
            _logger.exception("Loop %s died", self.name)
            self.died = error
        finally:
            with self._condition:
                self._in_run = False
            self._calls.on_end()

    def _pause(self, failures: int) -> None:
        assert self._restart is not None
        seconds = self._restart.delay_s(failures, self._random.random())
        _logger.warning("Loop %s is started again in %.1f s (death %d in a row)", self.name, seconds, failures)
        until = self._clock.monotonic() + seconds
        with self._condition:
            while not self._stopping and (left := until - self._clock.monotonic()) > 0:
                self._clock.wait(self._condition, left)
