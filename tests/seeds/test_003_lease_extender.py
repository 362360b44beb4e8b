"""Document 003, Message Lease Extender: its tests as written, then each of its rules.

Two differences, both noted at the place: the manual clock stands where the document sleeps, and the tests that need an adapter
(`test_tool_context_beat`, `test_mainloop_extends_during_tool_execution`) come with the agents.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import FrozenInstanceError
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import ExtensionOutcome, LeaseExtender, LeaseExtenderConfig
from tenure.clock import ManualClock
from tenure.testing import FakeMailbox, create_test_message
from tenure.work.slots.attempt_supervision import note_renewal

# Testing > Unit tests


def test_lease_extender_extends_on_beat() -> None:
    """Verify extension happens when heartbeat fires."""
    msg = create_test_message()
    heartbeat = Heartbeat()
    config = LeaseExtenderConfig(interval=0.0)  # No rate limit
    extender = LeaseExtender(config)

    with extender.attach(msg, heartbeat):
        heartbeat.beat()
        heartbeat.beat()
        heartbeat.beat()

    assert msg.extend_visibility_calls == 3


def test_lease_extender_rate_limits() -> None:
    """Verify extension is rate-limited by interval."""
    clock = ManualClock()
    msg = create_test_message(clock=clock)
    heartbeat = Heartbeat(clock=clock)
    config = LeaseExtenderConfig(interval=1.0)  # 1 second limit
    extender = LeaseExtender(config)

    with extender.attach(msg, heartbeat):
        heartbeat.beat()  # Extends
        heartbeat.beat()  # Skipped (interval not elapsed)
        heartbeat.beat()  # Skipped
        clock.advance(1.1)  # the document: time.sleep(1.1)
        heartbeat.beat()  # Extends (interval elapsed)

    assert msg.extend_visibility_calls == 2


def test_lease_extender_disabled() -> None:
    """Verify no extension when disabled."""
    msg = create_test_message()
    heartbeat = Heartbeat()
    config = LeaseExtenderConfig(enabled=False)
    extender = LeaseExtender(config)

    with extender.attach(msg, heartbeat):
        heartbeat.beat()

    assert msg.extend_visibility_calls == 0


def test_heartbeat_callback_chaining() -> None:
    """Verify original callback is preserved."""
    calls: list[str] = []
    heartbeat = Heartbeat()
    heartbeat.on_beat = lambda: calls.append("original")

    msg = create_test_message()
    extender = LeaseExtender(LeaseExtenderConfig(interval=0.0))

    with extender.attach(msg, heartbeat):
        heartbeat.beat()

    assert calls == ["original"]
    assert msg.extend_visibility_calls == 1


# Testing > Integration tests


def test_stuck_worker_lease_expires() -> None:
    """Verify lease expires when no heartbeats occur."""
    clock = ManualClock()
    mailbox = FakeMailbox(clock=clock)
    msg = create_test_message(visibility_timeout=1, mailbox=mailbox)
    heartbeat = Heartbeat(clock=clock)
    extender = LeaseExtender(LeaseExtenderConfig(interval=0.1))

    with extender.attach(msg, heartbeat):
        # Simulate stuck worker - no beats
        clock.advance(1.5)  # the document: time.sleep(1.5)

    # No extensions because no beats
    assert msg.extend_visibility_calls == 0
    # Message should have become visible (expired)
    assert [again.id for again in mailbox.receive()] == [msg.id]


# Core types


def test_config_has_the_documents_fields_and_defaults_and_is_frozen() -> None:
    config = LeaseExtenderConfig()
    assert (config.interval, config.extension, config.enabled) == (60.0, 300, True)
    with pytest.raises(FrozenInstanceError):
        config.interval = 1.0  # type: ignore[misc]


def test_the_extender_can_be_made_without_a_config() -> None:
    assert LeaseExtender().config == LeaseExtenderConfig()


def test_an_attached_extender_refuses_a_second_message() -> None:
    extender, heartbeat = LeaseExtender(), Heartbeat()
    with (
        extender.attach(create_test_message(), heartbeat),
        pytest.raises(RuntimeError, match="LeaseExtender already attached"),
        extender.attach(create_test_message(), heartbeat),
    ):
        pass


def test_detach_restores_the_heartbeat_also_after_an_error() -> None:
    heartbeat, calls = Heartbeat(), list[str]()
    original = lambda: calls.append("original")  # noqa: E731
    heartbeat.on_beat = original
    msg = create_test_message()
    with pytest.raises(KeyError), LeaseExtender().attach(msg, heartbeat):
        raise KeyError
    assert heartbeat.on_beat is original
    heartbeat.beat()
    assert (calls, msg.extend_visibility_calls) == (["original"], 0)


def test_the_extension_is_relative_to_the_current_time() -> None:
    clock = ManualClock()
    msg = create_test_message(visibility_timeout=300, clock=clock)
    heartbeat = Heartbeat(clock=clock)
    with LeaseExtender().attach(msg, heartbeat):
        clock.advance(200)
        heartbeat.beat()
    assert msg.lease_until == clock.boottime() + 300


def test_elapsed_is_the_time_since_the_last_beat() -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(clock=clock)
    clock.advance(0.1)
    heartbeat.beat()
    assert heartbeat.elapsed() < 0.05  # Just beat, should be fresh


# Error handling, observability

LOGGER = "tenure.beat.lease"  # the document's is weakincentives.runtime.main_loop
SLOTS_LOGGER = "tenure.work.slots.attempt_supervision"


def test_an_extension_is_a_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    msg, heartbeat = create_test_message(), Heartbeat()
    with caplog.at_level(logging.DEBUG, LOGGER), LeaseExtender().attach(msg, heartbeat):
        heartbeat.beat()
    line = f"Extended visibility for message {msg.id} by 300 seconds"
    assert caplog.record_tuples == [(LOGGER, logging.DEBUG, line)]


def test_receipt_handle_expired_logs_a_warning_and_processing_continues(caplog: pytest.LogCaptureFixture) -> None:
    mailbox = FakeMailbox()
    msg, heartbeat = create_test_message(mailbox=mailbox), Heartbeat()
    mailbox.expire(msg)
    with LeaseExtender(LeaseExtenderConfig(interval=0)).attach(msg, heartbeat):
        heartbeat.beat()  # does not raise
        heartbeat.beat()
    line = f"Lease extension failed for message {msg.id}: receipt handle expired"
    assert caplog.record_tuples == [(LOGGER, logging.WARNING, line)]


def test_transient_errors_log_an_exception_and_skip_this_extension(caplog: pytest.LogCaptureFixture) -> None:
    mailbox = FakeMailbox()
    msg, heartbeat = create_test_message(mailbox=mailbox), Heartbeat()
    with LeaseExtender(LeaseExtenderConfig(interval=0)).attach(msg, heartbeat):
        mailbox.lose_connection()
        heartbeat.beat()
        mailbox.restore_connection()
        heartbeat.beat()
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, f"Lease extension failed for message {msg.id}")
    assert record.exc_info is not None
    assert msg.extend_visibility_calls == 2


@pytest.mark.parametrize(
    ("outcome", "level", "line"),
    [
        ("granted", logging.DEBUG, "Extended visibility for message abc-123 by 300 seconds"),
        ("expired", logging.WARNING, "Lease extension failed for message abc-123: receipt handle expired"),
        ("failed", logging.WARNING, "Lease extension failed for message abc-123, and is tried again"),
    ],
)
def test_renewals_of_a_slot_are_told_and_counted_as_those_of_a_loop(
    outcome: str, level: int, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A supervisor renews for its slots."""
    occupant = SimpleNamespace(workflow="documents_lines", ticket=SimpleNamespace(id="abc-123"))
    labels = {"kind": "documents_lines", "during": "", "outcome": outcome}
    before = REGISTRY.get_sample_value("tenure_lease_extensions_total", labels) or 0
    with caplog.at_level(logging.DEBUG, SLOTS_LOGGER):
        note_renewal(cast(Any, occupant), ExtensionOutcome(outcome), 300)
    assert caplog.record_tuples == [(SLOTS_LOGGER, level, line)]
    assert REGISTRY.get_sample_value("tenure_lease_extensions_total", labels) == before + 1


def test_the_original_callback_is_invoked_first_and_its_failure_does_not_stop_the_extension() -> None:
    msg, heartbeat = create_test_message(), Heartbeat()
    seen: list[int] = []

    def original() -> None:
        seen.append(msg.extend_visibility_calls)
        raise ValueError

    heartbeat.on_beat = original
    with LeaseExtender().attach(msg, heartbeat):
        heartbeat.beat()
    assert (seen, msg.extend_visibility_calls) == ([0], 1)


# Guiding principles, thread safety, comparison


def test_no_additional_thread_exists_while_attached() -> None:
    before = set(threading.enumerate())
    heartbeat = Heartbeat()
    with LeaseExtender().attach(create_test_message(), heartbeat):
        heartbeat.beat()
        assert set(threading.enumerate()) <= before


def test_the_extender_is_called_outside_of_the_heartbeats_lock() -> None:
    """A callback may use the heartbeat and the extender's own message: nothing deadlocks."""
    msg, heartbeat = create_test_message(), Heartbeat()
    heartbeat.add_callback(lambda: heartbeat.elapsed())
    with LeaseExtender(LeaseExtenderConfig(interval=0)).attach(msg, heartbeat):
        threads = [threading.Thread(target=heartbeat.beat) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)


def test_the_rate_limit_ignores_a_wall_clock_that_is_set() -> None:
    clock = ManualClock()
    msg = create_test_message(clock=clock)
    heartbeat = Heartbeat(clock=clock)
    with LeaseExtender().attach(msg, heartbeat):
        heartbeat.beat()
        clock.step_wall(86_400)
        heartbeat.beat()
        clock.step_wall(-2 * 86_400)
        clock.advance(60)
        heartbeat.beat()
    assert msg.extend_visibility_calls == 2
