from __future__ import annotations

import pytest

from tenure.errors import LimitError
from tenure.health.outage import DependencyWatch, OutageSettings, WaitingAttempt


def waiter(
    job: str, *, failures: int = 0, waited_s: float = 1.0, allowed_s: float = 299.0, steps: int = 0
) -> WaitingAttempt:
    return WaitingAttempt((job, "w", 1), "s3", steps, failures, waited_s, allowed_s)


def test_three_that_fail_on_two_workers_show_that_what_they_wait_for_is_down() -> None:
    watch = DependencyWatch()
    watch.heard("a", [waiter("1", failures=1), waiter("2", failures=1)], 10.0)
    assert not watch.down(10.0), "two are too few"
    watch.heard("b", [waiter("3", failures=1)], 11.0)
    assert watch.down(11.0)["s3"] == (3, 3, 2)


def test_three_that_fail_on_one_worker_may_be_the_fault_of_the_worker() -> None:
    watch = DependencyWatch()
    watch.heard("a", [waiter(job, failures=1) for job in "123"], 10.0)
    assert not watch.down(10.0)


def test_one_that_hangs_among_many_that_do_not_is_no_outage() -> None:
    watch = DependencyWatch()
    watch.heard("a", [waiter("1", waited_s=200.0, allowed_s=100.0), *(waiter(f"a{n}") for n in range(5))], 10.0)
    watch.heard("b", [waiter(f"b{n}") for n in range(5)], 10.0)
    assert not watch.down(10.0)


def test_silence_tells_once_half_of_what_is_allowed_is_used_up() -> None:
    watch = DependencyWatch()
    for worker in "abc":
        watch.heard(worker, [waiter(worker, waited_s=149.0, allowed_s=151.0)], 1_000.0)
    assert not watch.down(1_000.0)
    for worker in "abc":
        watch.heard(worker, [waiter(worker, waited_s=150.0, allowed_s=150.0)], 1_001.0)
    assert watch.down(1_001.0)


def test_a_failure_is_forgotten_after_the_window_and_with_a_decision() -> None:
    watch = DependencyWatch(OutageSettings(window_s=60.0))
    for number, worker in enumerate("abc"):
        watch.failed("s3", worker, (worker, "w", 1), 10.0 + number)
    assert watch.down(12.0)
    assert not watch.down(71.0), "the first two are older than the window"
    for worker in "abc":
        watch.failed("s3", worker, (worker, "w", 2), 80.0)
    watch.begin("s3", 81.0)
    assert not watch.down(82.0)


def test_a_call_that_comes_through_is_a_success_and_one_that_fails_breaks_the_streak() -> None:
    watch = DependencyWatch()
    watch.heard("a", [waiter("1", failures=2), waiter("2")], 1.0)
    watch.begin("s3", 1.0)
    watch.heard("a", [waiter("1", steps=1), waiter("2", steps=1)], 2.0)
    assert (watch.met("s3").successes, watch.met("s3").streak) == (2, 2)
    watch.heard("a", [waiter("1", steps=1, failures=1)], 3.0)
    assert (watch.met("s3").failures, watch.met("s3").streak) == (1, 0)


def test_settings_that_would_call_one_attempt_an_outage_are_refused() -> None:
    with pytest.raises(LimitError, match="least_waiters"):
        OutageSettings(least_waiters=1)
    with pytest.raises(LimitError, match="share"):
        OutageSettings(share=1.0)


def test_with_the_rule_off_nothing_is_ever_down() -> None:
    watch = DependencyWatch(OutageSettings(enabled=False))
    for worker in "abc":
        watch.heard(worker, [waiter(worker, failures=1)], 1.0)
    assert not watch.down(1.0)
