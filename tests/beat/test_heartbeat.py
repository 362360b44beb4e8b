"""Beats: time, count, progress, callbacks, silences and interruptions."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from tenure.beat.heartbeat import Heartbeat
from tenure.clock import ManualClock
from tenure.errors import LimitError


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads change places as often as they can: what is not atomic shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_elapsed_counts_from_the_last_beat_and_before_that_from_the_making(clock: ManualClock) -> None:
    heartbeat = Heartbeat(clock=clock)
    clock.advance(5)
    assert heartbeat.elapsed() == 5
    heartbeat.beat()
    assert heartbeat.elapsed() == 0
    clock.advance(2.5)
    assert heartbeat.elapsed() == 2.5
    assert heartbeat.last_beat == 1_005


def test_a_beat_carries_progress_and_a_note_which_later_beats_keep() -> None:
    heartbeat = Heartbeat()
    heartbeat.beat(progress=0.25, note="page 3")
    heartbeat.beat()
    assert (heartbeat.progress, heartbeat.note, heartbeat.count) == (0.25, "page 3", 2)


@pytest.mark.parametrize("progress", [float("nan"), -0.1, 1.1, float("inf")])
def test_a_progress_that_is_no_fraction_is_refused_and_the_beat_still_counts(progress: float) -> None:
    heartbeat = Heartbeat()
    heartbeat.beat(progress=0.5)
    with pytest.raises(LimitError, match="progress"):
        heartbeat.beat(progress=progress)
    assert (heartbeat.progress, heartbeat.count) == (0.5, 2)


def test_on_beat_runs_first_then_the_callbacks_in_their_order() -> None:
    heard: list[str] = []
    heartbeat = Heartbeat()
    heartbeat.add_callback(lambda: heard.append("first added"))
    heartbeat.add_callback(lambda: heard.append("second added"))
    heartbeat.on_beat = lambda: heard.append("on_beat")
    heartbeat.beat()
    assert heard == ["on_beat", "first added", "second added"]


def test_on_beat_can_be_given_replaced_and_taken_away() -> None:
    heard: list[int] = []
    first, second = (lambda: heard.append(1)), (lambda: heard.append(2))
    heartbeat = Heartbeat(first)
    assert heartbeat.on_beat is first
    heartbeat.beat()
    heartbeat.on_beat = second
    heartbeat.beat()
    heartbeat.on_beat = None
    heartbeat.beat()
    assert heard == [1, 2]
    assert heartbeat.on_beat is None


def test_a_callback_that_raises_is_logged_and_stops_neither_the_rest_nor_the_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    def broken() -> None:
        raise ValueError("no disk")

    heartbeat = Heartbeat()
    heartbeat.on_beat = broken
    heartbeat.add_callback(broken)
    heartbeat.add_callback(lambda: heard.append("rest"))
    with caplog.at_level(logging.ERROR, "tenure.beat.heartbeat"):
        heartbeat.beat()
    assert heard == ["rest"]
    assert len(caplog.records) == 2
    assert "no disk" in caplog.text


def test_a_callback_that_fails_on_every_beat_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    heartbeat = Heartbeat()
    heartbeat.add_callback(lambda: 1 / 0)
    for _ in range(1_000):
        heartbeat.beat()
    assert len(caplog.records) == 10  # failures 1, 2, 4 … 512


def test_callbacks_run_outside_of_any_lock() -> None:
    heartbeat = Heartbeat()
    heard: list[float] = []

    def callback() -> None:
        heard.append(heartbeat.elapsed())
        heartbeat.add_callback(lambda: None)  # takes the registry's lock: it would hang if the beat held it
        heartbeat.on_beat = None

    heartbeat.on_beat = callback
    heartbeat.beat()
    assert len(heard) == 1


def test_a_watch_is_told_of_the_first_beat_at_or_after_its_due_time(clock: ManualClock) -> None:
    heartbeat = Heartbeat(clock=clock)
    told: list[tuple[float, float]] = []

    def tell(now: float, gap: float) -> None:
        told.append((now, gap))
        watch.due = now + 10

    watch = heartbeat.watch(tell, due=1_003)
    for _ in range(30):
        clock.advance(1)
        heartbeat.beat()
    assert told == [(1_003, 1), (1_013, 1), (1_023, 1)]
    heartbeat.unwatch(watch)
    clock.advance(100)
    heartbeat.beat()
    assert len(told) == 3


@pytest.mark.usefixtures("eager_switching")
def test_eight_threads_lose_no_beat_and_the_count_is_exact() -> None:
    heartbeat = Heartbeat()
    each, start = 40_000, threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(each):
            heartbeat.beat()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heartbeat.count == 8 * each
    assert heartbeat.elapsed() < 5


@pytest.mark.usefixtures("eager_switching")
def test_callbacks_may_come_and_go_while_others_beat() -> None:
    heartbeat, stop, errors = Heartbeat(), threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not stop.is_set():
                heartbeat.beat()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        heartbeat.on_beat = [].clear
        heartbeat.on_beat = None
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    heard: list[int] = []
    heartbeat.add_callback(lambda: heard.append(1))
    heartbeat.beat()
    assert heard == [1]


def test_a_declared_silence_is_explained_until_its_bound_and_no_longer(clock: ManualClock) -> None:
    heartbeat = Heartbeat(clock=clock)
    with heartbeat.silence(60, "model call"):
        clock.advance(50)
        assert (heartbeat.elapsed(), heartbeat.unexplained()) == (50, 0)
        assert heartbeat.silent is not None
        assert heartbeat.silent.why == "model call"
        clock.advance(25)
        assert heartbeat.unexplained() == 15
    assert (heartbeat.unexplained(), heartbeat.silent, heartbeat.note) == (0, None, "model call")
    clock.advance(3)
    assert heartbeat.unexplained() == 3


def test_watchers_hear_of_a_silence_before_it_begins_and_take_only_its_excess_for_a_gap(clock: ManualClock) -> None:
    heartbeat, gaps = Heartbeat(clock=clock), list[float]()
    watch = heartbeat.watch(lambda _now, gap: gaps.append(gap), due=5_000)
    with heartbeat.silence(60, "model call"):
        assert gaps == [0]
        watch.due = 1_000
        clock.advance(70)
    assert gaps == [0, 10]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_silence_needs_a_bound(seconds: float) -> None:
    with pytest.raises(LimitError, match="max_s"), Heartbeat().silence(seconds, "never"):
        pass


def test_an_interrupted_heartbeat_raises_in_the_work_until_it_is_resumed() -> None:
    heartbeat, heard = Heartbeat(), list[int]()
    heartbeat.add_callback(lambda: heard.append(1))
    heartbeat.interrupt(KeyError("lease lost"))
    for _ in range(2):
        with pytest.raises(KeyError, match="lease lost"):
            heartbeat.beat()
    heartbeat.resume()
    heartbeat.beat()
    assert (heartbeat.count, heard) == (3, [1, 1, 1])
