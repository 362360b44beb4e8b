"""The deadlines of answers: one timer for all of them, which wakes the loop only when one may be due. Times are the loop's, which is moved by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

import pytest

from tenure.control.request_bounds import LOOK_EVERY_S, AnswerDeadlines


class MovedLoop:
    """Stands for the running loop: its time is set, and its timers are called in order."""

    def __init__(self) -> None:
        self.now, self.looks = 1_000.0, 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        timer: asyncio.TimerHandle = asyncio.TimerHandle(when, callback, (), self, None)  # type: ignore[arg-type]
        heapq.heappush(self._timers, (when, len(self._timers), timer))
        return timer

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        pass

    def get_debug(self) -> bool:
        return False

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self.looks += 1
                timer._run()
        self.now = until


class Scope:
    """Stands for `asyncio.Timeout`."""

    ended_at: float | None = None

    def reschedule(self, when: float) -> None:
        self.ended_at = when

    def expired(self) -> bool:
        return self.ended_at is not None


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> MovedLoop:
    moved = MovedLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: moved)
    monkeypatch.setattr(asyncio, "timeout", lambda when: Scope())
    return moved


def ended_after(scope: Any, begun: float) -> float | None:
    return scope.ended_at - begun if scope.ended_at is not None else None


def test_a_request_that_is_held_wakes_the_loop_once_when_its_time_is_over(loop: MovedLoop) -> None:
    deadlines, begun = AnswerDeadlines(), loop.now
    held = deadlines.begin(60.0)
    loop.advance(59.9)
    assert (loop.looks, ended_after(held, begun)) == (0, None)
    loop.advance(0.2)
    assert (loop.looks, ended_after(held, begun)) == (1, pytest.approx(60.0))


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.9, 5.0, 29.9, 60.2])
def test_each_ends_within_half_a_second_of_its_time_whatever_others_have(loop: MovedLoop, seconds: float) -> None:
    deadlines = AnswerDeadlines()
    deadlines.begin(60.0)
    loop.advance(0.3)
    deadlines.begin(30.0)
    begun = loop.now
    one = deadlines.begin(seconds)
    loop.advance(100.0)
    took = ended_after(one, begun)
    assert took is not None
    assert seconds - 1e-6 <= took <= seconds + LOOK_EVERY_S


def test_requests_that_end_in_time_leave_at_most_one_look_and_a_closed_port_none(loop: MovedLoop) -> None:
    deadlines = AnswerDeadlines()
    for _ in range(100):
        deadlines.end(deadlines.begin(30.0))
        loop.advance(0.01)
    loop.advance(100.0)
    assert loop.looks == 1
    deadlines.begin(30.0)
    deadlines.close()
    loop.advance(100.0)
    assert loop.looks == 1
