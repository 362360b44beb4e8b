"""The base of every loop, on the memory engine in manual time: what becomes of a message in each case."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenure.backoff import Retry
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtenderConfig
from tenure.beat.watchdog import LoopState
from tenure.clock import ManualClock
from tenure.engines.contracts import Engine, Mailbox, Message
from tenure.errors import (
    EngineCorruptError,
    LadderError,
    LeaseLostError,
    LimitError,
    MailboxConnectionError,
)
from tenure.testing import FakeMailbox
from tenure.work import Ending, FunctionLoop, MailboxLoop
from tenure.work.loop_messages import DeadLetterPolicy

Work = Callable[[Message[Any, Any], Heartbeat], Any]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    with Engine.open("memory://", clock=clock) as engine:
        yield engine


@pytest.fixture
def mailbox(engine: Engine) -> Mailbox[Any, Any]:
    return engine.mailbox("work")


def loop_of(mailbox: Mailbox[Any, Any], work: Work, clock: ManualClock, **settings: Any) -> FunctionLoop[Any, Any]:
    return FunctionLoop(mailbox, work, clock=clock, **settings)


def endings(loop: MailboxLoop[Any, Any]) -> dict[str, int]:
    return {ending: count for ending, count in loop.endings.items() if count}


def test_work_is_done_acknowledged_and_beaten_for(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    done: list[Any] = []
    loop = loop_of(mailbox, lambda message, heartbeat: done.append(message.body), clock)
    mailbox.send("a")
    mailbox.send("b")
    loop.run(max_iterations=2, wait_time_seconds=0)
    assert done == ["a", "b"]
    assert mailbox.approximate_count() == 0
    assert endings(loop) == {"done": 2}
    # Document 004: after receiving, and after each message; and once when it starts.
    assert loop.heartbeat.count == 1 + 2 * 2


def test_a_reply_is_sent_where_it_is_wanted(engine: Engine, mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    replies = engine.mailbox("replies")
    loop = loop_of(mailbox, lambda message, heartbeat: message.body * 2, clock)
    mailbox.send(21, reply_to=replies)
    mailbox.send(1)
    loop.run(max_iterations=2, wait_time_seconds=0)
    assert [message.body for message in replies.receive(10)] == [42]
    assert endings(loop) == {"done": 2}


def test_an_hour_of_work_on_a_lease_of_a_minute_is_delivered_once(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    deliveries: list[int] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        deliveries.append(message.delivery_count)
        for _ in range(360):
            clock.advance(10)
            heartbeat.beat()
            assert mailbox.receive() == []

    loop = loop_of(mailbox, work, clock)
    mailbox.send("long")
    loop.run(max_iterations=1, visibility_timeout=60)
    assert (deliveries, endings(loop), mailbox.approximate_count()) == ([1], {"done": 1}, 0)


def test_a_failure_is_tried_again_after_a_backoff_that_grows(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    attempts: list[float] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        attempts.append(clock.monotonic())
        if message.delivery_count < 4:
            raise ValueError("not yet")

    loop = loop_of(mailbox, work, clock, retry=Retry(delay=2, factor=3, jitter=0))
    mailbox.send("flaky")
    for _ in range(30):
        loop.run(max_iterations=1, wait_time_seconds=0)
        clock.advance(1)
    assert [b - a for a, b in itertools.pairwise(attempts)] == [2, 6, 18]
    assert endings(loop) == {"failed": 3, "done": 1}


def test_a_final_failure_becomes_a_dead_letter_with_its_reason(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        raise {"a": KeyError("no such user"), "b": ValueError("later")}[message.body]

    loop = loop_of(mailbox, work, clock, dead_letters=DeadLetterPolicy(include_errors=(KeyError,)))
    mailbox.send("a")
    mailbox.send("b")
    loop.run(max_iterations=2, wait_time_seconds=0)
    (dead,) = mailbox.dead_letters.list()
    assert dead.reason == "KeyError: 'no such user' (not worth a retry)"
    assert endings(loop) == {"dead letter": 1, "failed": 1}


def test_a_replayed_dead_letter_gets_its_attempts_anew(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        raise ValueError("again")

    loop = loop_of(mailbox, work, clock, retry=Retry(delay=0), dead_letters=DeadLetterPolicy(max_delivery_count=2))
    mailbox.send("a")
    loop.run(max_iterations=2, wait_time_seconds=0)
    (dead,) = mailbox.dead_letters.list()
    assert dead.reason == "failed in attempt 2 of 2: ValueError: again"
    assert mailbox.dead_letters.replay(dead.id)
    loop.run(max_iterations=1, wait_time_seconds=0)
    assert mailbox.dead_letters.count() == 0
    loop.run(max_iterations=1, wait_time_seconds=0)
    (dead,) = mailbox.dead_letters.list()
    assert (dead.reason, dead.delivery_count) == ("failed in attempt 2 of 2: ValueError: again", 4)


def test_a_helper_thread_that_beats_keeps_neither_the_lease_nor_the_watchdog_from_work_that_hangs(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    silent: list[float] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        def beats() -> None:
            for _ in range(10):
                clock.advance(10)
                heartbeat.beat()

        thread = threading.Thread(target=beats)
        thread.start()
        thread.join()
        silent.append(heartbeat.unexplained())
        assert (heartbeat.others, loop.lease is not None and loop.lease.lost) == (10, True)

        def registered() -> None:
            with heartbeat.thread(), contextlib.suppress(LeaseLostError):
                heartbeat.beat()

        thread = threading.Thread(target=registered)
        thread.start()
        thread.join()
        silent.append(heartbeat.unexplained())

    loop = loop_of(mailbox, work, clock)
    mailbox.send("a")
    loop.run(max_iterations=1, visibility_timeout=60, wait_time_seconds=0)
    assert silent == [100, 0]


def test_a_reply_that_cannot_be_sent_is_a_failure_of_that_message_only(
    engine: Engine, mailbox: Mailbox[Any, Any], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    loop = loop_of(mailbox, lambda message, heartbeat: threading.Lock() if message.body == "bad" else 1, clock)
    for body in ("bad", "good"):
        mailbox.send(body, reply_to=engine.mailbox("replies"))
    loop.run(max_iterations=2, wait_time_seconds=0)
    assert endings(loop) == {"failed": 1, "done": 1}
    assert "SerializationError" in caplog.text


def test_a_handle_error_that_fails_itself_does_not_end_the_loop(
    mailbox: Mailbox[Any, Any], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(MailboxLoop[Any, Any]):
        def handle(self, message: Message[Any, Any]) -> None:
            raise ValueError("first")

        def handle_error(self, message: Message[Any, Any], error: Exception) -> None:
            raise ValueError("second")

    loop = Careless(mailbox, clock=clock)
    mailbox.send("a")
    loop.run(max_iterations=1)
    assert endings(loop) == {"failed": 1}
    assert "first" in caplog.text
    assert "second" in caplog.text


def test_the_news_of_a_dead_letter_is_shown_to_the_loop_and_acknowledged(
    engine: Engine, mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    news: list[str] = []

    class Replies(MailboxLoop[Any, Any]):
        def handle(self, message: Message[Any, Any]) -> None:
            raise AssertionError("a failure is no reply")

        def handle_failure(self, message: Message[Any, Any]) -> None:
            assert message.failure is not None
            news.append(message.failure.reason)

    replies = engine.mailbox("replies")
    mailbox.send("a", reply_to=replies)
    mailbox.receive()[0].dead_letter("hopeless")
    Replies(replies, clock=clock).run(max_iterations=1)
    assert news == ["hopeless"]
    assert replies.approximate_count() == 0


def test_work_that_loses_its_lease_goes_on_by_default_and_its_result_is_discarded(
    mailbox: Mailbox[Any, Any], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, bool]] = []

    class Plain(MailboxLoop[Any, Any]):
        def handle(self, message: Message[Any, Any]) -> str:
            clock.advance(61)
            self.heartbeat.beat()  # document 003: a beat never raises, processing continues
            assert self.lease is not None
            seen.append(("went on", self.lease.lost))
            return "late"

        def lease_lost(self, message: Message[Any, Any], reason: str) -> None:
            seen.append((reason, True))

    loop = Plain(mailbox, clock=clock)
    mailbox.send("a")
    loop.run(max_iterations=1, visibility_timeout=60)
    assert seen == [("its lease ran out", True), ("went on", True)]
    assert endings(loop) == {"lost": 1}
    assert "is discarded: its lease ran out" in caplog.text
    (again,) = mailbox.receive()
    assert again.delivery_count == 2


def test_work_that_loses_its_lease_is_cancelled_by_its_next_beats_where_that_is_set(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    raised: list[Exception] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        if message.delivery_count > 1:
            return
        clock.advance(61)
        for _ in range(2):  # also when the first one is swallowed
            try:
                heartbeat.beat()
            except LeaseLostError as error:
                raised.append(error)
        heartbeat.beat()
        raise AssertionError("not cancelled")

    loop = loop_of(mailbox, work, clock, on_lease_lost="cancel")
    mailbox.send("a")
    loop.run(max_iterations=2, visibility_timeout=60, wait_time_seconds=0)
    assert len(raised) == 2
    assert endings(loop) == {"lost": 1, "done": 1}  # the second delivery's beats do not raise


def test_a_silent_worker_that_wakes_after_its_lease_discards_its_result_without_a_beat(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    loop = loop_of(mailbox, lambda message, heartbeat: clock.advance(61), clock)
    mailbox.send("a")
    loop.run(max_iterations=1, visibility_timeout=60)
    assert endings(loop) == {"lost": 1}


def test_settling_is_tried_again_while_the_lease_lasts(
    mailbox: Mailbox[Any, Any], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([MailboxConnectionError("gone")] * 3)

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        real = message.acknowledge

        def flaky() -> None:
            if (failure := next(failures, None)) is not None:
                raise failure
            real()

        message.acknowledge = flaky  # type: ignore[method-assign]

    loop = loop_of(mailbox, work, clock)
    mailbox.send("a")
    runner = threading.Thread(target=lambda: loop.run(max_iterations=1, visibility_timeout=60))
    runner.start()
    for _ in range(3):
        clock.until_waiting(1)
        clock.advance(1)
    runner.join(60)
    assert endings(loop) == {"done": 1}
    assert caplog.text.count("could not settle") == 3


@pytest.mark.parametrize("extends", [True, False])
def test_finished_work_that_cannot_be_settled_is_lost_when_its_lease_is(
    mailbox: Mailbox[Any, Any], clock: ManualClock, extends: bool
) -> None:
    def cannot() -> None:
        raise MailboxConnectionError("gone")

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        message.acknowledge = cannot  # type: ignore[method-assign]

    loop = loop_of(mailbox, work, clock, lease_extender=LeaseExtenderConfig(enabled=extends))
    mailbox.send("a")
    runner = threading.Thread(target=lambda: loop.run(max_iterations=1, visibility_timeout=60))
    runner.start()
    while runner.is_alive():
        if clock.waiting:
            clock.advance(1)
    runner.join(60)
    assert endings(loop) == {"lost": 1}
    assert clock.monotonic() <= 1_062


def test_an_unreachable_mailbox_is_tried_again_shown_and_beaten_for(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    mailbox = FakeMailbox("work", clock=clock)
    mailbox.lose_connection()
    loop = loop_of(mailbox, lambda message, heartbeat: None, clock)
    runner = threading.Thread(target=loop.run)
    runner.start()
    for _ in range(10):
        clock.until_waiting(1)
        clock.advance(11)
    clock.until_waiting(1)
    vitals = loop.vitals()
    assert (vitals.state, vitals.error) == (
        LoopState.CUT_OFF,
        "MailboxConnectionError: mailbox 'work' lost its connection",
    )
    assert vitals.beats >= 11
    assert caplog.text.count("cannot reach its mailbox") == 1
    mailbox.restore_connection()
    mailbox.send("a")
    clock.advance(11)
    deadline = threading.Event()
    while not loop.endings[Ending.DONE] and not deadline.wait(0.01):
        pass
    assert loop.vitals().error is None
    assert loop.shutdown(timeout=60)
    runner.join(60)


def test_an_engine_that_is_broken_for_good_ends_the_loop(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    def receive(*args: Any, **options: Any) -> Any:
        raise EngineCorruptError("file is not a database")

    mailbox.receive = receive  # type: ignore[method-assign]
    loop = loop_of(mailbox, lambda message, heartbeat: None, clock)
    with pytest.raises(EngineCorruptError):
        loop.run()
    assert loop.vitals().state is LoopState.DEAD
    assert not loop.running


def test_a_closed_mailbox_ends_the_loop_in_order(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    loop = loop_of(mailbox, lambda message, heartbeat: None, clock)
    runner = threading.Thread(target=loop.run)
    runner.start()
    clock.until_waiting(1)
    mailbox.close()
    runner.join(60)
    assert not runner.is_alive()
    assert loop.vitals().state is LoopState.ENDED


def test_a_stop_wakes_an_idle_long_poll_at_once(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    loop = loop_of(mailbox, lambda message, heartbeat: None, clock)
    runner = threading.Thread(target=lambda: loop.run(wait_time_seconds=3_600))
    runner.start()
    clock.until_waiting(1)
    assert loop.vitals().state is LoopState.POLLING
    assert loop.shutdown(timeout=60)  # the clock stands still: nothing but the wake can end the poll
    runner.join(60)
    assert loop.vitals().state is LoopState.ENDED


def test_a_stop_before_the_run_counts_once(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    loop = loop_of(mailbox, lambda message, heartbeat: None, clock)
    mailbox.send("a")
    loop.stop()
    loop.run()
    assert endings(loop) == {}
    loop.run(max_iterations=1)
    assert endings(loop) == {"done": 1}


def test_shutdown_lets_the_work_in_hand_finish_and_says_when_it_has_waited_enough(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        begun.set()
        go_on.wait(60)

    loop = loop_of(mailbox, work, clock)
    mailbox.send("a")
    mailbox.send("b")
    runner = threading.Thread(target=loop.run)
    runner.start()
    assert begun.wait(60)
    assert loop.vitals().in_hand is not None
    assert loop.shutdown(timeout=0) is False
    assert loop.vitals().state is LoopState.STOPPING
    go_on.set()
    runner.join(60)
    assert endings(loop) == {"done": 1}
    assert mailbox.depth().ready == 1


def test_work_may_stop_its_own_loop(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    loop = loop_of(mailbox, lambda message, heartbeat: loop.shutdown(), clock)
    mailbox.send("a")
    loop.run()
    assert endings(loop) == {"done": 1}


def test_a_message_that_comes_as_the_loop_stops_is_released_and_does_not_count(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    real = mailbox.receive

    def receive(*args: Any, **options: Any) -> Any:
        messages = real(*args, **options)
        loop.stop()
        return messages

    loop = loop_of(mailbox, lambda message, heartbeat: None, clock)
    mailbox.receive = receive  # type: ignore[method-assign]
    mailbox.send("a")
    loop.run()
    assert endings(loop) == {"released": 1}
    (again,) = real()
    assert again.delivery_count == 1


def test_a_batch_is_worked_through_one_by_one_each_with_a_full_lease(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    leases: list[float] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        leases.append(message.lease_until - clock.boottime())
        clock.advance(5)

    loop = loop_of(mailbox, work, clock, max_messages=5)
    for body in "abc":
        mailbox.send(body)
    loop.run(max_iterations=1, visibility_timeout=600)
    assert (leases, endings(loop)) == ([600, 600, 600], {"done": 3})


def test_what_waits_behind_long_work_is_released_on_a_beat_and_does_not_count(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    taken: list[tuple[Any, int]] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        clock.advance(9)
        heartbeat.beat()
        assert mailbox.receive() == []
        clock.advance(1)
        heartbeat.beat()
        taken.extend((other.body, other.delivery_count) for other in mailbox.receive(10))

    loop = loop_of(mailbox, work, clock, max_messages=5)
    for body in "abc":
        mailbox.send(body)
    loop.run(max_iterations=1, visibility_timeout=600)
    assert taken == [("b", 1), ("c", 1)]
    assert endings(loop) == {"done": 1, "released": 2}


def test_what_waits_behind_silent_work_returns_by_its_short_lease(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        clock.advance(31)
        assert [other.attempt for _ in range(2) for other in mailbox.receive(10)] == [1, 1]

    loop = loop_of(mailbox, work, clock, max_messages=5)
    for body in "abc":
        mailbox.send(body)
    loop.run(max_iterations=1, visibility_timeout=600)
    assert endings(loop) == {"done": 1}


def test_a_stop_in_the_middle_of_a_batch_releases_the_rest(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    loop = loop_of(mailbox, lambda message, heartbeat: loop.stop(), clock, max_messages=5)
    for body in "abc":
        mailbox.send(body)
    loop.run()
    assert endings(loop) == {"done": 1, "released": 2}
    assert mailbox.depth().ready == 2


def test_an_exit_inside_the_work_ends_the_loop_and_gives_the_message_back(
    mailbox: Mailbox[Any, Any], clock: ManualClock
) -> None:
    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        raise SystemExit(3)

    loop = loop_of(mailbox, work, clock)
    mailbox.send("a")
    with pytest.raises(SystemExit):
        loop.run()
    assert loop.vitals().state is LoopState.DEAD
    assert mailbox.depth().ready == 1


def test_two_runs_at_once_are_refused(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    loop = loop_of(mailbox, lambda message, heartbeat: loop.run(), clock)
    mailbox.send("a")
    loop.run(max_iterations=1)
    assert endings(loop) == {"failed": 1}  # the inner run raised RuntimeError in the work


def test_the_note_of_one_message_is_not_shown_for_the_next(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    notes: list[Any] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        notes.append((heartbeat.note, heartbeat.progress))
        heartbeat.beat(0.9, "nearly done")

    loop = loop_of(mailbox, work, clock)
    mailbox.send("a")
    mailbox.send("b")
    loop.run(max_iterations=2, wait_time_seconds=0)
    assert notes == [(None, None), (None, None)]


def test_settings_that_cannot_work_are_refused(mailbox: Mailbox[Any, Any], clock: ManualClock) -> None:
    with pytest.raises(LimitError, match="max_messages"):
        loop_of(mailbox, lambda message, heartbeat: None, clock, max_messages=0)
    with pytest.raises(ValueError, match="explode"):
        loop_of(mailbox, lambda message, heartbeat: None, clock, on_lease_lost="explode")
    slow = loop_of(mailbox, lambda message, heartbeat: None, clock, lease_extender=LeaseExtenderConfig(interval=90))
    with pytest.raises(LadderError, match="extension_interval < visibility_timeout"):
        slow.run(visibility_timeout=60)
    quiet = loop_of(mailbox, lambda message, heartbeat: None, clock, max_silence_s=50)
    with pytest.raises(LadderError, match="max_processing_time"):
        quiet.run(visibility_timeout=60)


def test_work_that_is_lost_is_logged_where_its_lease_was(
    mailbox: Mailbox[Any, Any], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        clock.advance(61)
        heartbeat.beat()

    loop = loop_of(mailbox, work, clock, on_lease_lost="continue", name="reviews")
    mailbox.send("a")
    with caplog.at_level(logging.WARNING):
        loop.run(max_iterations=1, visibility_timeout=60)
    assert "(reviews) was silent for 61.0 seconds" in caplog.text
