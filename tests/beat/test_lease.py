"""Lease extension over real messages of the memory engine, in manual time."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender, LeaseExtenderConfig
from tenure.beat.metrics import LeaseMetrics
from tenure.clock import ManualClock
from tenure.errors import LimitError
from tenure.testing import FakeMailbox, FakeMessage, create_test_message


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def mailbox(clock: ManualClock) -> FakeMailbox[Any, Any]:
    return FakeMailbox("work", clock=clock)


@pytest.fixture
def heartbeat(clock: ManualClock) -> Heartbeat:
    return Heartbeat(clock=clock)


def take(mailbox: FakeMailbox[Any, Any], lease: float) -> FakeMessage[Any, Any]:
    return create_test_message("work", visibility_timeout=lease, mailbox=mailbox)


def test_the_documents_values_are_the_defaults() -> None:
    config = LeaseExtenderConfig()
    assert (config.interval, config.extension, config.enabled) == (60.0, 300, True)


@pytest.mark.parametrize(
    "wrong",
    [{"interval": -1}, {"interval": float("nan")}, {"extension": 0}, {"extension": 43_201}, {"max_hold_s": 0}],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(LimitError, match=next(iter(wrong))):
        LeaseExtenderConfig(**wrong)  # type: ignore[arg-type]


def test_an_hour_of_beats_on_a_lease_of_a_minute_is_one_delivery(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    message = take(mailbox, 60)
    with LeaseExtender(LeaseExtenderConfig().for_lease(60)).attach(message, heartbeat) as lease:
        for _ in range(3_600):
            clock.advance(1)
            heartbeat.beat()
            assert mailbox.receive() == []
    assert not lease.lost
    assert message.extend_visibility_calls == 180
    message.acknowledge()


def test_silence_loses_the_lease_and_the_message_is_delivered_again(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    message = take(mailbox, 60)
    with LeaseExtender().attach(message, heartbeat) as lease:
        clock.advance(59.9)
        assert not lease.lost
        clock.advance(0.1)
        assert lease.lost
        assert lease.lost_reason == "its lease ran out by our own clock"
        (again,) = mailbox.receive()
    assert (again.delivery_count, message.extend_visibility_calls) == (2, 0)


def test_the_first_beat_extends_also_on_a_machine_that_booted_a_second_ago() -> None:
    clock = ManualClock(start=1.0)
    mailbox = FakeMailbox("work", clock=clock)
    message = take(mailbox, 60)
    heartbeat = Heartbeat(clock=clock)
    with LeaseExtender().attach(message, heartbeat):
        heartbeat.beat()
    assert message.extend_visibility_calls == 1


def test_a_short_extension_never_shortens_a_long_lease(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    message = take(mailbox, 1_800)
    with LeaseExtender().attach(message, heartbeat) as lease:
        heartbeat.beat()
        clock.advance(1_799)
        assert not lease.lost
        message.acknowledge()


def test_eight_threads_make_one_call_per_interval(mailbox: FakeMailbox[Any, Any]) -> None:
    message = take(mailbox, 600)
    heartbeat, start = Heartbeat(), threading.Barrier(8)
    calls: list[float] = []
    in_flight = threading.Semaphore(1)

    def slow_extend(seconds: float, checkpoint: bytes | None = None) -> None:
        assert in_flight.acquire(blocking=False), "two calls at once"
        calls.append(seconds)
        threading.Event().wait(0.05)
        in_flight.release()

    message.extend_visibility = slow_extend  # type: ignore[method-assign]

    def work() -> None:
        start.wait()
        for _ in range(2_000):
            heartbeat.beat()

    with LeaseExtender().attach(message, heartbeat):
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert calls == [300]


def test_without_a_rate_limit_there_is_still_only_one_call_in_flight(mailbox: FakeMailbox[Any, Any]) -> None:
    message = take(mailbox, 600)
    heartbeat, inside, go_on = Heartbeat(), threading.Event(), threading.Event()
    calls: list[float] = []

    def hung_extend(seconds: float, checkpoint: bytes | None = None) -> None:
        calls.append(seconds)
        inside.set()
        go_on.wait(60)

    message.extend_visibility = hung_extend  # type: ignore[method-assign]
    with LeaseExtender(LeaseExtenderConfig(interval=0)).attach(message, heartbeat):
        other = threading.Thread(target=heartbeat.beat)
        other.start()
        inside.wait(60)
        for _ in range(100):
            heartbeat.beat()  # returns at once: the engine is slow, the work is not
        go_on.set()
        other.join()
    assert len(calls) == 1


def test_after_a_lost_lease_a_thousand_beats_make_no_call_and_the_holder_is_told_once(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    message = take(mailbox, 60)
    told: list[tuple[str, str]] = []
    extender = LeaseExtender(
        LeaseExtenderConfig(interval=0), on_lost=lambda message, why: told.append((message.id, why))
    )
    with extender.attach(message, heartbeat) as lease, caplog.at_level(logging.DEBUG, "tenure.beat.lease"):
        clock.advance(60)
        for _ in range(1_000):
            heartbeat.beat()
        assert lease.lost_reason == "its lease ran out"
    assert message.extend_visibility_calls == 1
    assert told == [(message.id, "its lease ran out")]
    lost = f"Lease extension failed for message {message.id}: receipt handle expired"
    assert ("tenure.beat.lease", logging.WARNING, lost) in caplog.record_tuples


def test_a_failed_attempt_waits_for_the_interval_too_and_is_logged_with_its_error(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    message = take(mailbox, 600)
    mailbox.lose_connection()
    with LeaseExtender(LeaseExtenderConfig(interval=10)).attach(message, heartbeat) as lease:
        for _ in range(100):
            heartbeat.beat()
        assert message.extend_visibility_calls == 1
        assert not lease.lost
        mailbox.restore_connection()
        clock.advance(10)
        heartbeat.beat()
    assert message.extend_visibility_calls == 2
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == f"Lease extension failed for message {message.id}"
    assert "lost its connection" in caplog.text


def test_when_the_engine_is_out_of_reach_our_own_clock_says_when_the_lease_is_lost(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    message = take(mailbox, 60)
    mailbox.lose_connection()
    told: list[float] = []
    extender = LeaseExtender(
        LeaseExtenderConfig(interval=45), on_lost=lambda *_: told.append(clock.monotonic() - 1_000)
    )
    with extender.attach(message, heartbeat) as lease:
        for _ in range(100):
            heartbeat.beat()
            clock.advance(1)
    assert lease.lost
    # At 0, at 45, and at 60, when the lease ran out: not only at 90, an interval later.
    assert (told, message.extend_visibility_calls) == ([60], 3)


def test_successes_and_failures_are_counted_per_kind_of_work_and_per_tool(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    registry = CollectorRegistry()
    extender = LeaseExtender(LeaseExtenderConfig(interval=0), kind="reviews", metrics=LeaseMetrics("reviews", registry))
    message = take(mailbox, 60)
    with extender.attach(message, heartbeat):
        heartbeat.beat()
        heartbeat.activity = "tool fetch"
        mailbox.lose_connection()
        heartbeat.beat()
        mailbox.restore_connection()
        clock.advance(301)
        heartbeat.beat()
    counts = extender.counts
    assert (counts.attempts, counts.granted, counts.expired, counts.failed, counts.failures) == (3, 1, 1, 1, 2)
    for outcome, during in (("granted", ""), ("expired", "tool fetch"), ("failed", "tool fetch")):
        labels = {"kind": "reviews", "during": during, "outcome": outcome}
        assert registry.get_sample_value("tenure_lease_extensions_total", labels) == 1


def test_a_successful_extension_is_a_debug_line(
    mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    message = take(mailbox, 60)
    with caplog.at_level(logging.DEBUG, "tenure.beat.lease"), LeaseExtender().attach(message, heartbeat):
        heartbeat.beat()
    line = f"Extended visibility for message {message.id} by 300 seconds"
    assert caplog.record_tuples == [("tenure.beat.lease", logging.DEBUG, line)]


def test_one_extender_holds_one_message_at_a_time_and_is_free_again_afterwards(
    mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    extender = LeaseExtender()
    first = take(mailbox, 60)
    second = take(mailbox, 60)
    with extender.attach(first, heartbeat):
        with pytest.raises(RuntimeError, match="already attached"), extender.attach(second, heartbeat):
            pass
        heartbeat.beat()
    with pytest.raises(KeyError), extender.attach(second, heartbeat):
        raise KeyError
    assert second.extend_visibility_calls == 0
    with extender.attach(second, heartbeat):
        heartbeat.beat()
    heartbeat.beat()  # detached: no call
    assert second.extend_visibility_calls == 1


def test_detaching_waits_for_a_renewal_in_flight_so_that_it_cannot_meet_the_acknowledgement(
    mailbox: FakeMailbox[Any, Any],
) -> None:
    message = take(mailbox, 600)
    heartbeat, inside, order = Heartbeat(), threading.Event(), list[str]()

    def slow_extend(seconds: float, checkpoint: bytes | None = None) -> None:
        inside.set()
        threading.Event().wait(0.1)
        order.append("extended")

    message.extend_visibility = slow_extend  # type: ignore[method-assign]
    with LeaseExtender().attach(message, heartbeat):
        other = threading.Thread(target=heartbeat.beat)
        other.start()
        inside.wait(60)
    order.append("detached")
    other.join()
    assert order == ["extended", "detached"]


def test_gaps_that_near_the_lease_shorten_the_interval_so_that_the_next_gap_still_fits(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    """Beats in pairs, 19 s and then 45 s apart, on a lease of 60 s with an interval of 20 s.

    With a fixed interval the beat after 19 s is skipped, and 19 + 45 > 60 loses the lease of work that is healthy.
    """
    message = take(mailbox, 60)
    config = LeaseExtenderConfig().for_lease(60)
    with LeaseExtender(config).attach(message, heartbeat) as lease:
        heartbeat.beat()
        clock.advance(45)
        heartbeat.beat()  # a gap of 45 s was seen: from here on every beat counts
        for _ in range(20):
            clock.advance(19)
            heartbeat.beat()
            clock.advance(45)
            heartbeat.beat()
            assert not lease.lost
    assert message.extend_visibility_calls == 42


def test_gaps_that_were_seen_are_remembered_for_the_next_message_of_this_kind(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    extender = LeaseExtender(LeaseExtenderConfig().for_lease(60))
    first = take(mailbox, 60)
    with extender.attach(first, heartbeat):
        clock.advance(45)
        heartbeat.beat()
    first.acknowledge()
    assert extender.expected_gap_s > 40
    second = take(mailbox, 60)
    with extender.attach(second, heartbeat) as lease:
        heartbeat.beat()
        clock.advance(19)
        heartbeat.beat()  # skipped, had nothing been learnt
        clock.advance(45)
        assert not lease.lost
    assert second.extend_visibility_calls == 2


def test_a_failing_metric_does_not_hide_a_lost_lease(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    class Broken(LeaseMetrics):
        def count(self, outcome: str, during: str = "") -> None:
            raise ValueError("duplicated timeseries")

    told: list[str] = []
    extender = LeaseExtender(metrics=Broken("x"), on_lost=lambda message, why: told.append(why))
    message = take(mailbox, 60)
    with extender.attach(message, heartbeat):
        clock.advance(61)
        heartbeat.beat()
    assert told == ["its lease ran out"]


def test_work_whose_silence_exceeds_its_lease_is_named_in_a_warning_once(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    message = take(mailbox, 60)
    with LeaseExtender(LeaseExtenderConfig(extension=60, interval=20), kind="reviews").attach(message, heartbeat):
        clock.advance(75)
        heartbeat.beat()
        clock.advance(75)
        heartbeat.beat()
    warned = [record.getMessage() for record in caplog.records if "silent" in record.getMessage()]
    assert len(warned) == 1
    assert f"Message {message.id} (reviews) was silent for 75.0 seconds, longer than its lease of 60" in warned[0]


def test_silence_up_to_the_end_is_warned_about_too(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    message = take(mailbox, 60)
    with LeaseExtender(LeaseExtenderConfig(extension=60, interval=20)).attach(message, heartbeat, lease_s=60):
        clock.advance(61)
    assert "was silent for 61.0 seconds" in caplog.text


def test_silence_before_the_work_began_is_not_held_against_it(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    clock.advance(5_000)
    message = take(mailbox, 60)
    with LeaseExtender().attach(message, heartbeat):
        heartbeat.beat()
    assert caplog.records == []


def test_a_declared_silence_is_covered_by_one_longer_extension(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    message = take(mailbox, 60)
    with LeaseExtender(LeaseExtenderConfig(extension=60, interval=20)).attach(message, heartbeat) as lease:
        heartbeat.beat()
        clock.advance(1)
        with heartbeat.silence(900, "model call"):
            covered = message.lease_until - clock.boottime()
            clock.advance(900)
            assert not lease.lost
    assert covered == 920
    assert message.extend_visibility_calls == 3
    assert caplog.records == []


def test_a_hold_has_a_cap_where_one_is_set(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    message = take(mailbox, 60)
    config = LeaseExtenderConfig(interval=20, extension=60, max_hold_s=100)
    with LeaseExtender(config).attach(message, heartbeat) as lease:
        for _ in range(200):
            heartbeat.beat()
            clock.advance(1)
    assert lease.lost
    assert message.extend_visibility_calls == 5  # at 0, 20, 40, 60, 80
    assert f"Message {message.id} (message) was held for 100 seconds" in caplog.text


def test_a_disabled_extender_makes_no_call_and_never_speaks_of_loss(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    message = take(mailbox, 60)
    with LeaseExtender(LeaseExtenderConfig(enabled=False)).attach(message, heartbeat) as lease:
        heartbeat.beat()
        clock.advance(100)
        assert not lease.lost
    assert message.extend_visibility_calls == 0


@pytest.mark.parametrize(
    ("config", "lease", "interval", "extension"),
    [
        (LeaseExtenderConfig(), 30, 10, 30),
        (LeaseExtenderConfig(), 1_800, 60, 1_800),
        (LeaseExtenderConfig(interval=5), 30, 5, 30),
        (LeaseExtenderConfig(extension=20), 30, 10, 20),
    ],
)
def test_what_is_unset_is_derived_from_the_lease(
    config: LeaseExtenderConfig, lease: float, interval: float, extension: float
) -> None:
    fitted = config.for_lease(lease)
    assert (fitted.interval, fitted.extension) == (interval, extension)


def test_what_counts_extensions_is_loaded_when_the_extender_is_attached_and_not_by_a_beat() -> None:
    program = """
import sys
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender
from tenure.testing import create_test_message
assert "prometheus_client" not in sys.modules
heartbeat = Heartbeat()
with LeaseExtender().attach(create_test_message(), heartbeat):
    before = set(sys.modules)
    assert "prometheus_client" in before
    heartbeat.beat()
    print(sorted(set(sys.modules) - before))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_a_renewal_that_is_handed_over_is_made_by_whoever_took_it_and_only_one_is_in_flight(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    taken: list[Any] = []
    message = take(mailbox, 60)
    extender = LeaseExtender(LeaseExtenderConfig(interval=0, extension=60), hand_over=taken.append)
    with extender.attach(message, heartbeat) as lease:
        for _ in range(3):
            heartbeat.beat()
        assert (len(taken), message.extend_visibility_calls) == (1, 0)
        clock.advance(30)
        taken.pop()()
        assert (message.lease_until, lease.lost) == (clock.boottime() + 60, False)
        clock.advance(61)
        heartbeat.beat()
        taken.pop()()
        assert lease.lost_reason == "its lease ran out"
        heartbeat.beat()
        assert taken == []
    assert message.extend_visibility_calls == 2


def test_a_failed_renewal_elsewhere_is_tried_again_before_the_lease_is_over(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat
) -> None:
    taken: list[Any] = []
    message = take(mailbox, 30)
    mailbox.lose_connection()
    extender = LeaseExtender(LeaseExtenderConfig(interval=60, extension=90), hand_over=taken.append)
    with extender.attach(message, heartbeat):
        heartbeat.beat()
        taken.pop()()
        clock.advance(30)  # half of the interval, and the end of the lease
        heartbeat.beat()
        assert len(taken) == 1
        taken.pop()()


def test_a_silence_that_is_declared_while_a_renewal_is_in_flight_is_covered_all_the_same(
    clock: ManualClock, mailbox: FakeMailbox[Any, Any], heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    message = take(mailbox, 60)
    extender = LeaseExtender(LeaseExtenderConfig(interval=20, extension=60), hand_over=taken.append)
    extend = message.extend_visibility
    with extender.attach(message, heartbeat), ExitStack() as work:

        def slowly(seconds: float, checkpoint: bytes | None = None) -> None:
            if heartbeat.silent is None:  # while this call is under way, the work goes silent
                work.enter_context(heartbeat.silence(600, "model call"))
            extend(seconds, checkpoint)

        monkeypatch.setattr(message, "extend_visibility", slowly)
        heartbeat.beat()
        taken.pop()()
        taken.pop()()  # asked for by nobody's beat
        assert message.lease_until >= clock.boottime() + 600
        assert taken == []
