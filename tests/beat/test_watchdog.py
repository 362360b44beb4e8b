"""The watchdog: who stalled, for how long, at what; and what is done about it."""

from __future__ import annotations

import logging
import threading

import pytest

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.watchdog import StallReport, Watchdog
from tenure.clock import ManualClock
from tenure.errors import LimitError


class Acts:
    """Stands for the kill: remembers the reports."""

    def __init__(self) -> None:
        self.reports: list[StallReport] = []
        self.came = threading.Event()

    def __call__(self, report: StallReport) -> None:
        self.reports.append(report)
        self.came.set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_the_documents_values_are_the_defaults() -> None:
    watchdog = Watchdog([Heartbeat()])
    assert (watchdog.stall_threshold, watchdog.check_interval) == (720.0, 60.0)


def test_a_stall_is_reported_with_its_name_its_length_its_note_and_every_stack(clock: ManualClock) -> None:
    acts, heartbeat = Acts(), Heartbeat(name="reviews", clock=clock)
    watchdog = Watchdog([heartbeat], 100, 10, on_stall=acts, clock=clock)
    heartbeat.beat(progress=0.4, note="page 7")
    clock.advance(100)
    assert watchdog.check() == []
    clock.advance(1)
    watchdog.check()
    (report,) = acts.reports
    assert "reviews stalled: no beat for 101.0 s (the threshold is 100 s); it last said 'page 7', 40% done" in str(
        report
    )
    assert "test_a_stall_is_reported_with_its_name" in report.stacks
    assert "MainThread" in report.stacks


def test_work_that_beats_and_gets_no_further_has_stalled_with_the_evidence(clock: ManualClock) -> None:
    acts, heartbeat = Acts(), Heartbeat(name="reviews", clock=clock)
    watchdog = Watchdog([heartbeat], 100, 10, on_stall=acts, clock=clock)
    for _ in range(21):
        heartbeat.beat(progress=0.1)
        watchdog.check()
        clock.advance(10)
    (report,) = acts.reports
    assert "reviews stalled, spinning: 20 beats in 3 min, 10% done throughout" in str(report)


def test_work_that_goes_on_or_only_beats_or_begins_anew_has_not_stalled(clock: ManualClock) -> None:
    advances, beats, begins = (Heartbeat(name=name, clock=clock) for name in ("advances", "beats", "begins"))
    acts = Acts()
    watchdog = Watchdog([advances, beats, begins], 100, 10, on_stall=acts, clock=clock)
    for n in range(200):
        advances.beat(progress=n / 200)
        beats.beat()
        if n % 10 == 0:
            begins.begin_work()
        begins.beat(progress=0.1)
        watchdog.check()
        clock.advance(10)
    assert acts.reports == []


def test_a_declared_silence_is_no_beat(clock: ManualClock) -> None:
    heartbeat = Heartbeat(clock=clock)
    heartbeat.beat()
    with heartbeat.silence(60, "model call"):
        clock.advance(30)
    assert (heartbeat.count, heartbeat.unexplained()) == (1, 0)


def test_one_stall_is_acted_on_once_and_a_new_one_again(clock: ManualClock) -> None:
    acts, heartbeat = Acts(), Heartbeat(clock=clock)
    watchdog = Watchdog([heartbeat], 100, 10, on_stall=acts, clock=clock)
    for _ in range(3):
        clock.advance(101)
        watchdog.check()
    assert len(acts.reports) == 1
    heartbeat.beat()
    clock.advance(101)
    watchdog.check()
    assert len(acts.reports) == 2


def test_only_the_silent_one_of_several_is_named(clock: ManualClock) -> None:
    acts = Acts()
    beating, silent = Heartbeat(name="a", clock=clock), Heartbeat(name="b", clock=clock)
    watchdog = Watchdog({"a": beating, "b": silent}, 100, 10, on_stall=acts, clock=clock)
    clock.advance(101)
    beating.beat()
    watchdog.check()
    assert [stall.name for stall in acts.reports[0].stalls] == ["b"]


def test_a_declared_silence_is_no_stall(clock: ManualClock) -> None:
    acts, heartbeat = Acts(), Heartbeat(clock=clock)
    watchdog = Watchdog([heartbeat], 100, 10, on_stall=acts, clock=clock)
    with heartbeat.silence(900, "model call"):
        clock.advance(900)
        assert watchdog.check() == []
        clock.advance(101)
        assert len(watchdog.check()) == 1


def test_what_is_unwatched_may_be_silent_and_what_is_watched_later_may_not(clock: ManualClock) -> None:
    acts, heartbeat = Acts(), Heartbeat(clock=clock)
    watchdog = Watchdog({"a": heartbeat}, 100, 10, on_stall=acts, clock=clock)
    watchdog.unwatch("a")
    clock.advance(101)
    assert watchdog.check() == []
    watchdog.watch("a", heartbeat)
    assert [stall.name for stall in watchdog.check()] == ["a"]


def test_its_thread_looks_once_per_interval_and_stops_at_once(clock: ManualClock) -> None:
    acts, heartbeat = Acts(), Heartbeat(clock=clock)
    watchdog = Watchdog([heartbeat], 100, 10, on_stall=acts, clock=clock)
    watchdog.start()
    watchdog.start()
    clock.until_waiting(1)
    clock.advance(9.9)
    assert not acts.came.is_set()
    for _ in range(12):
        clock.until_waiting(1)
        clock.advance(10)
    assert acts.came.wait(60)
    assert watchdog.running
    watchdog.stop()
    assert not watchdog.running


def test_it_can_be_started_again_and_stopped_before_it_started(clock: ManualClock) -> None:
    watchdog = Watchdog([Heartbeat(clock=clock)], 100, 10, on_stall=Acts(), clock=clock)
    watchdog.stop()
    for _ in range(2):
        watchdog.start()
        assert watchdog.running
        watchdog.stop()
        assert not watchdog.running


def test_its_thread_is_a_daemon_so_that_it_never_keeps_a_process_alive(clock: ManualClock) -> None:
    watchdog = Watchdog([Heartbeat(clock=clock)], 100, 10, on_stall=Acts(), clock=clock)
    watchdog.start()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "tenure-watchdog"]
    assert thread.daemon
    watchdog.stop()


def test_an_act_that_raises_does_not_end_the_watch(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    heartbeat = Heartbeat(clock=clock)
    watchdog = Watchdog([heartbeat], 100, 10, on_stall=lambda report: 1 / 0, clock=clock)
    clock.advance(101)
    with caplog.at_level(logging.ERROR):
        assert len(watchdog.check()) == 1
    assert "goes on watching" in caplog.text


@pytest.mark.parametrize(("threshold", "interval"), [(0, 1), (-1, 1), (float("nan"), 1), (10, 0)])
def test_it_refuses_times_that_are_none(threshold: float, interval: float) -> None:
    with pytest.raises(LimitError):
        Watchdog([], threshold, interval)
