"""Several loops in one process, started, watched, probed and stopped together (document 004).

This file decides when a group ends and what a dead loop means; `GroupLoops` starts and stops the loops. One thread supervises. Every event
(a loop ended, a signal came, a caller wants to stop) reaches that thread through one queue, so that it decides one thing at a time.
"""

from __future__ import annotations

import logging
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tenure.backoff import Retry
from tenure.beat.ladder import Ladder
from tenure.beat.probes import HealthServer
from tenure.beat.watchdog import Readiness, StallReport, Watchdog, judge_readiness, kill_this_process
from tenure.clock import Clock, SystemClock
from tenure.errors import ConfigurationError, LimitError, LoopDiedError
from tenure.randomness import Random, fresh_random
from tenure.work.group_loops import GroupLoops, Isolation, Loop, OnOver

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_logger = logging.getLogger(__name__)

_RESTART = Retry(delay=1.0, max_delay=60.0)
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class OnLoopDeath(StrEnum):
    """The group's reaction to a loop that ended with an error."""

    STOP = "stop"  # the group stops, and run() raises LoopDiedError
    RESTART = "restart"  # the loop is started again after a while; the others go on


@dataclass(frozen=True, slots=True)
class _LoopEnded:
    name: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class _StopAsked:
    signal: int | None = None


_Event = _LoopEnded | _StopAsked


def _report_end(events: queue.SimpleQueue[_Event], name: str, error: BaseException | None) -> None:
    events.put(_LoopEnded(name, error))


@dataclass
class _GroupRun:
    """The state of one run of the group: the present one, or the last one."""

    events: queue.SimpleQueue[_Event] = field(default_factory=queue.SimpleQueue)
    """Each run has its own queue, because a loop that one run abandoned may end during a later one."""
    stopping: bool = False
    died: LoopDiedError | None = None
    abandoned: tuple[str, ...] = ()


class LoopGroup:
    """Runs loops in threads, with probes, a watchdog and a coordinated end.

    Example::

        group = LoopGroup(loops=[main_loop, eval_loop], health_port=8080)
        group.run()        # until SIGTERM or SIGINT, shutdown(), or a loop dies
    """

    def __init__(
        self,
        loops: Iterable[Loop],
        health_port: int | None = None,
        watchdog_threshold: float | None = 720.0,
        watchdog_interval: float = 60.0,
        visibility_timeout: float = 1800,
        wait_time_seconds: float = 30,
        shutdown_timeout: float = 30.0,
        *,
        health_host: str = "",
        readiness_threshold: float | None = None,
        on_loop_death: OnLoopDeath | str = OnLoopDeath.STOP,
        restart: Retry | None = None,
        on_stall: Callable[[StallReport], object] = kill_this_process,
        isolation: Isolation | str = Isolation.THREAD,
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """`watchdog_threshold=None` means no watchdog. Readiness turns at half of it, unless set.

        `restart` sets the rest before a dead loop starts again; its `max_attempts` does not count. Raises `LadderError` when the timeouts cannot work together.
        """
        self.loops = tuple(loops)
        self.isolation, self.on_loop_death = Isolation(isolation), OnLoopDeath(on_loop_death)
        self.watchdog_threshold, self.watchdog_interval = watchdog_threshold, watchdog_interval
        self.visibility_timeout, self.wait_time_seconds = visibility_timeout, wait_time_seconds
        early = _early_warning(watchdog_threshold or visibility_timeout, wait_time_seconds)
        self.readiness_threshold = early if readiness_threshold is None else readiness_threshold
        self.shutdown_timeout, self._clock = shutdown_timeout, clock or SystemClock()
        self._group_loops = self._make_loops(restart, random or fresh_random())
        self._check_ladders()
        self._health = self._make_health(health_port, health_host, registry)
        self._watchdog = self._make_watchdog(on_stall)
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._now = SystemClock().monotonic  # threads are waited for in real time, whatever clock the loops go by
        self._supervisor: threading.Thread | None = None
        self._last = _GroupRun()
        self._awaits_run, self._stop_before_start = True, False  # a shutdown now is meant for the run to come

    @property
    def running(self) -> bool:
        return self._supervisor is not None and self._supervisor.is_alive()

    @property
    def health_address(self) -> tuple[str, int] | None:
        """Returns the address of the probes while the group runs; None without probes."""
        return self._health.address if self._health is not None else None

    @property
    def abandoned(self) -> tuple[str, ...]:
        """The loops that were still at work when the last shutdown had waited long enough."""
        return self._last.abandoned

    def readiness(self) -> Readiness:
        """Returns the answer of `/health/ready`."""
        return judge_readiness(self._group_loops.vitals(stopping=self._last.stopping), self.readiness_threshold)

    def add_shutdown_callback(self, callback: Callable[[], object]) -> None:
        """Call this when the group begins to stop; one that raises is logged and does not skip the rest."""
        self._callbacks.append(callback)

    def run(self) -> None:
        """Run until the group ends. SIGTERM and SIGINT stop it; a second one abandons what is still at work.

        Signals are handled where Python allows it, in the main thread. Raises `LoopDiedError` when a loop's death ended it.
        """
        self._prepare()  # before the signals: one that comes from here on is not lost
        with _stop_signals(self._on_signal):
            self.launch()
            self.wait()
        if self._last.died is not None:
            raise self._last.died from self._last.died.error

    def start(self) -> None:
        """Start everything and return. Raises `PortTakenError`, and then nothing runs."""
        self._prepare()
        self.launch()

    def wait(self) -> None:
        """Block until the group has ended."""
        supervisor = self._supervisor
        if supervisor is not None:
            supervisor.join()

    def shutdown(self, *, timeout: float | None = None) -> bool:
        """Stop all loops at once, and wait; True when every one of them ended.

        Before `run()`, it lets the next run end at once. From inside a loop it only asks, and returns False.
        """
        with self._lock:
            if not self.running:
                self._stop_before_start = self._awaits_run
                return not self._last.abandoned
            self._last.events.put(_StopAsked())
            supervisor, asked_by_a_loop = self._supervisor, self._group_loops.runs_here()
        if supervisor is None or asked_by_a_loop:
            return False
        supervisor.join(self.shutdown_timeout + 5.0 if timeout is None else timeout)
        return not supervisor.is_alive() and not self._last.abandoned

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        if kind is None and self._last.died is not None:
            raise self._last.died from self._last.died.error

    def _on_signal(self, number: int) -> None:
        # Runs inside the interpreter's signal handling, at any point of the main thread: SimpleQueue may be used there.
        self._last.events.put(_StopAsked(signal=number))

    def _prepare(self) -> None:
        with self._lock:
            if self.running:
                raise RuntimeError("this LoopGroup runs already")
            self._last = _GroupRun()
            self._awaits_run = True

    def launch(self) -> None:
        """Starts what belongs to one run, unless a shutdown was asked for since the last one. `start` and `run` call it."""
        with self._lock:
            if self._stop_before_start:
                self._stop_before_start = False
                return
            self._awaits_run = False
            self._group_loops.open()
            # The port first: it is the only thing that can be refused, and then nothing else has to be undone.
            try:
                if self._health is not None:
                    self._health.start()
            except BaseException:
                self._group_loops.close()
                raise
            if self._watchdog is not None:
                self._watchdog.start()
            on_over = partial(_report_end, self._last.events)
            self._group_loops.make_threads(self._watchdog, on_over)
            self._supervisor = threading.Thread(
                target=self._supervise, args=(on_over,), name="tenure-group", daemon=True
            )
            self._supervisor.start()

    # The supervisor's thread

    def _supervise(self, on_over: OnOver) -> None:
        try:
            self._decide_until_over(self._group_loops.start_all(on_over))
        finally:
            # The watchdog above all: left alive, it would kill a process that has long moved on to something else.
            if self._watchdog is not None:
                self._watchdog.stop()
            if self._health is not None:
                self._health.stop()
            self._group_loops.close()

    def _decide_until_over(self, alive: set[str]) -> None:
        until: float | None = None
        while alive:
            left = None if until is None else until - self._now()
            if left is not None and left <= 0:
                self._abandon(alive)
                return
            try:
                event = self._last.events.get(timeout=left)
            except queue.Empty:
                continue
            match event:
                case _LoopEnded(name=name, error=error):
                    alive.discard(name)
                    stop = error is not None
                    # One that was to be started again, had the group not stopped meanwhile, is no reason to fail.
                    forgiven = self._last.stopping and self.on_loop_death is OnLoopDeath.RESTART
                    if error is not None and self._last.died is None and not forgiven:
                        self._last.died = LoopDiedError(name, error)
                case _StopAsked(signal=number):
                    stop = True
                    if number is not None and self._last.stopping:
                        until = self._now()  # a second signal means that its sender does not want to wait
            if stop and not self._last.stopping:
                until = self._now() + self.shutdown_timeout
                self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        self._last.stopping = True
        _logger.info("Stopping %d loops", len(self.loops))
        # All loops are asked before anything else that may take its time.
        for step in (*self._group_loops.stops(), *self._callbacks):
            try:
                step()
            except Exception:
                _logger.exception("A step of the shutdown failed; the rest goes on")

    def _abandon(self, names: set[str]) -> None:
        self._last.abandoned = tuple(sorted(names))
        for name in self._last.abandoned:
            _logger.error(
                "Loop %s did not stop within %g s, and is abandoned; its lease returns its message. It is at:\n%s",
                name,
                self.shutdown_timeout,
                self._group_loops.stack_of(name),
            )

    # Parts

    def _run_loop(self, loop: Loop) -> None:
        loop.run(visibility_timeout=self.visibility_timeout, wait_time_seconds=self.wait_time_seconds)

    def _make_loops(self, restart: Retry | None, random: Random) -> GroupLoops:
        if not self.loops:
            raise ConfigurationError("a LoopGroup without loops has nothing to do", remedy="Give it at least one loop")
        if not self.shutdown_timeout >= 0:
            raise LimitError("shutdown_timeout", self.shutdown_timeout, "0 seconds or more")
        restarts = self.on_loop_death is OnLoopDeath.RESTART
        return GroupLoops(
            self.loops,
            self._run_loop,
            isolation=self.isolation,
            restart=(restart or _RESTART).checked("restart") if restarts else None,
            clock=self._clock,
            random=random,
        )

    def _check_ladders(self) -> None:
        """Raises `LadderError` when the timeouts cannot work together."""
        for name, loop in self._group_loops.loops.items():
            ladder = self._ladder_of(loop)
            ladder.check()
            if self.watchdog_threshold is None and ladder.extension_interval is None:
                _logger.warning("The beats of loop %s are read by nobody: no watchdog, no lease extension", name)

    def _ladder_of(self, loop: Loop) -> Ladder:
        return replace(
            loop.ladder(self.visibility_timeout, self.wait_time_seconds),
            readiness_threshold=self.readiness_threshold,
            watchdog_threshold=self.watchdog_threshold,
            watchdog_interval=None if self.watchdog_threshold is None else self.watchdog_interval,
        )

    def _make_health(self, port: int | None, host: str, registry: CollectorRegistry | None) -> HealthServer | None:
        if port is None:
            return None
        return HealthServer(port, host=host, readiness=self.readiness, registry=registry)

    def _make_watchdog(self, on_stall: Callable[[StallReport], object]) -> Watchdog | None:
        if self.watchdog_threshold is None:
            return None
        if self.isolation is Isolation.PROCESS and on_stall is kill_this_process:
            on_stall = self._group_loops.kill_stalled  # a process of its own ends alone
        return Watchdog({}, self.watchdog_threshold, self.watchdog_interval, on_stall=on_stall, clock=self._clock)


def _early_warning(threshold: float, wait: float) -> float:
    """Returns the silence after which readiness turns: half-way to the kill, and longer than the longest poll."""
    half = threshold / 2
    return half if half > wait else (wait + threshold) / 2


@contextmanager
def _stop_signals(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Calls `on_signal` for each SIGTERM and SIGINT during the block, and restores the former handlers after it.

    Python sets signal handlers in the main thread only; in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda got, _frame: on_signal(got)) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            # C code set a handler that reads as None, and Python cannot restore it. The default is the nearest thing.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
