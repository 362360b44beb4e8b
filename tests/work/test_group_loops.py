"""One loop in one thread: the order of its calls, and restarts in manual time."""

from __future__ import annotations

import threading
from random import Random

import pytest

from tenure.backoff import Retry
from tenure.clock import ManualClock
from tenure.work.group_loops import LoopCalls, LoopThread


class Recorded:
    """Calls that write down their order; `run` does what it is given."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.during_run = lambda: None

    def calls(self) -> LoopCalls:
        return LoopCalls(
            run=self._run,
            stop=lambda: self.order.append("stop"),
            rearm=lambda: self.order.append("rearm"),
            on_run=lambda: self.order.append("on_run"),
            on_end=lambda: self.order.append("on_end"),
            on_over=self._on_over,
        )

    def _run(self) -> None:
        self.order.append("run")
        self.during_run()

    def _on_over(self, error: BaseException | None) -> None:
        self.order.append("over")
        self.error = error
        self.over.set()


def thread_of(recorded: Recorded, clock: ManualClock, restart: Retry | None = None) -> LoopThread:
    return LoopThread("a", recorded.calls(), restart=restart, clock=clock, random=Random(1))


def test_a_stop_that_comes_as_the_run_ends_is_forgotten_before_the_next_run() -> None:
    recorded = Recorded()
    thread = thread_of(recorded, ManualClock())
    recorded.during_run = lambda: thread.stop()
    thread.start()
    assert recorded.over.wait(60)
    assert recorded.order == ["on_run", "run", "stop", "on_end", "rearm", "over"]


def test_a_stop_before_its_thread_runs_keeps_the_loop_from_running() -> None:
    recorded = Recorded()
    thread = thread_of(recorded, ManualClock())
    thread.stop()
    thread.start()
    assert recorded.over.wait(60)
    assert recorded.order == ["rearm", "over"]


def test_a_stop_after_the_end_does_not_reach_the_loop() -> None:
    recorded = Recorded()
    thread = thread_of(recorded, ManualClock())
    thread.start()
    assert recorded.over.wait(60)
    thread.stop()
    assert "stop" not in recorded.order


def test_deaths_in_a_row_are_answered_with_growing_pauses_and_a_long_life_starts_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, recorded, begun = ManualClock(), Recorded(), list[float]()
    thread = thread_of(recorded, clock, Retry(delay=1, factor=2, jitter=0))

    def die() -> None:
        begun.append(clock.monotonic() - 1_000)
        if len(begun) == 3:
            clock.advance(100)  # a long and healthy life
        raise ValueError(f"death {len(begun)}")

    recorded.during_run = die
    thread.start()
    for pause in (1, 2, 1, 2):
        clock.until_waiting(1)
        assert isinstance(thread.died, ValueError)
        clock.advance(pause)
    clock.until_waiting(1)
    thread.stop()
    assert recorded.over.wait(60)
    assert begun == [0, 1, 3, 104, 106]
    assert isinstance(recorded.error, ValueError)
    assert "death 2 in a row" in caplog.text
