"""One loop in one thread: runs it, notices how it ended, and starts it again where that is wanted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tenure.backoff import Retry
from tenure.clock import Clock
from tenure.randomness import Random

_logger = logging.getLogger(__name__)

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
