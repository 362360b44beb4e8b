"""LESSONS.md, "In the process": each way in which earlier implementations of documents 003 and 004 broke, as a test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.patience import wait_until

from tenure.agent import (
    EvalLoop,
    EvalRequest,
    EvalResult,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    Prompt,
    Sample,
    Score,
    Session,
)
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender, LeaseExtenderConfig
from tenure.beat.probes import HealthServer
from tenure.beat.watchdog import StallReport
from tenure.clock import ManualClock
from tenure.engines.contracts import Engine
from tenure.errors import LoopDiedError, PortTakenError, ReceiptHandleExpiredError
from tenure.testing import FakeMailbox, ScriptedAdapter, create_test_message
from tenure.work import FunctionLoop, LoopGroup


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    with Engine.open("memory://", clock=clock) as engine:
        yield engine


def idle_loop(engine: Engine, name: str, **settings: Any) -> FunctionLoop[Any, Any]:
    return FunctionLoop(engine.mailbox(name), lambda message, heartbeat: None, **settings)


# The first beat shortened an 1800 s lease to 300 s; a silent but healthy worker lost its message before the watchdog's 720 s


def test_a_worker_that_beats_once_and_is_then_silent_for_719_seconds_keeps_its_message(
    engine: Engine, clock: ManualClock
) -> None:
    def work(message: Any, heartbeat: Heartbeat) -> None:
        heartbeat.beat()
        clock.advance(719)
        assert engine.mailbox("work").receive() == []

    loop = FunctionLoop(engine.mailbox("work"), work, clock=clock)
    engine.mailbox("work").send(1)
    loop.run(max_iterations=1, visibility_timeout=1800)
    assert loop.endings["done"] == 1


def test_the_documents_own_300_seconds_do_not_shorten_1800() -> None:
    clock = ManualClock()
    msg, heartbeat = create_test_message(visibility_timeout=1800, clock=clock), Heartbeat(clock=clock)
    with LeaseExtender(LeaseExtenderConfig()).attach(msg, heartbeat):
        heartbeat.beat()
    assert msg.lease_until == clock.boottime() + 1800


# "Last extension" started as 0.0: on a host whose monotonic clock is younger than the interval the first beat did nothing


def test_the_first_beat_extends_one_second_after_boot() -> None:
    clock = ManualClock(start=1.0)
    msg, heartbeat = create_test_message(clock=clock), Heartbeat(clock=clock)
    with LeaseExtender().attach(msg, heartbeat):
        heartbeat.beat()
    assert msg.extend_visibility_calls == 1


# Eight threads beating at once made eight extension calls; after a lost lease, 1,000 beats made 1,000 failing calls


def test_eight_threads_beating_at_once_make_one_extension_call() -> None:
    msg, heartbeat, start = create_test_message(), Heartbeat(), threading.Barrier(8)

    def beat() -> None:
        start.wait(60)
        heartbeat.beat()

    with LeaseExtender().attach(msg, heartbeat):
        threads = [threading.Thread(target=beat) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert msg.extend_visibility_calls == 1


def test_a_thousand_beats_after_a_lost_lease_make_one_failing_call() -> None:
    mailbox = FakeMailbox()
    msg, heartbeat = create_test_message(mailbox=mailbox), Heartbeat()
    mailbox.expire(msg)
    with LeaseExtender(LeaseExtenderConfig(interval=0)).attach(msg, heartbeat):
        for _ in range(1_000):
            heartbeat.beat()
    assert msg.extend_visibility_calls == 1


# A message body that cannot be decoded killed the loop, stayed in the queue and never became a dead letter


def test_a_body_that_cannot_be_decoded_becomes_a_dead_letter_and_the_loop_goes_on(
    engine: Engine, clock: ManualClock
) -> None:
    done: list[int] = []
    typed = engine.mailbox("work", body=int)
    engine.mailbox("work").send({"not": "a number"})
    typed.send(7)
    loop = FunctionLoop(typed, lambda message, heartbeat: done.append(message.body), clock=clock)
    loop.run(max_iterations=2, wait_time_seconds=0)
    assert (done, typed.approximate_count(), typed.dead_letters.count()) == ([7], 0, 1)


# A request with a deadline could be sent to Redis but not read back


class Request(msgspec.Struct):
    text: str
    deadline: datetime


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/work.db"])
def test_a_request_with_a_deadline_comes_back_as_it_was_sent(url: str, tmp_path: Path) -> None:
    request = Request("review", datetime(2026, 11, 15, 21, 0, 0, 123456, UTC))
    with Engine.open(url.format(folder=tmp_path)) as engine:
        mailbox = engine.mailbox("work", body=Request)
        mailbox.send(request)
        (message,) = mailbox.receive()
        assert message.body == request


# An expired handle was honoured until a reaper thread came by; 1,000 simultaneous expiries took 10 s to return; 50 mailboxes
# meant 50 threads


def test_an_expired_handle_is_dead_from_the_very_moment(engine: Engine, clock: ManualClock) -> None:
    engine.mailbox("work").send(1)
    (message,) = engine.mailbox("work").receive(visibility_timeout=60)
    clock.advance(60)
    for call in (message.acknowledge, message.nack, message.release, lambda: message.extend_visibility(60)):
        with pytest.raises(ReceiptHandleExpiredError):
            call()


def test_a_thousand_simultaneous_expiries_are_all_there_at_once_and_fifty_mailboxes_need_no_thread(
    engine: Engine, clock: ManualClock
) -> None:
    before = set(threading.enumerate())
    for number in range(50):
        engine.mailbox(f"box-{number}").send(1)
    mailbox = engine.mailbox("work")
    for number in range(1_000):
        mailbox.send(number)
    assert len(mailbox.receive(1_000, visibility_timeout=60)) == 1_000
    clock.advance(60)
    # Each comes alone, because its claim ran out (RULINGS.md, 7); all come without any time passing.
    claimed = [message.body for _ in range(1_000) for message in mailbox.receive(1_000)]
    assert claimed == list(range(1_000))
    assert set(threading.enumerate()) <= before


# Long poll as sleep: 174 ms median wake-up, and `close()` did not wake it; `receive(max_messages=10, wait=2)` held one ready
# message for 2 s. In manual time: the clock stands still, so that whatever waits for it hangs and fails.


@pytest.mark.parametrize("end", ["send", "close"])
def test_a_long_poll_is_ended_by_a_message_and_by_close_without_any_time_passing(
    engine: Engine, clock: ManualClock, end: str
) -> None:
    mailbox = engine.mailbox("work")
    poll = threading.Thread(target=lambda: mailbox.receive(wait_time_seconds=3_600))
    poll.start()
    clock.until_waiting(1)
    mailbox.send(1) if end == "send" else mailbox.close()
    poll.join(60)
    assert not poll.is_alive()


def test_one_ready_message_is_not_held_back_for_a_full_batch(engine: Engine) -> None:
    engine.mailbox("work").send(1)
    assert len(engine.mailbox("work").receive(max_messages=10, wait_time_seconds=2)) == 1


# The eval loop had no public heartbeat, so the watchdog never watched it


class Agent(MainLoop[str, str]):
    hung: threading.Event

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        self.hung.wait(60)
        return Prompt("agent", request), Session()


def test_every_loop_has_a_public_heartbeat_and_is_watched(engine: Engine, clock: ManualClock) -> None:
    stalls: list[StallReport] = []
    hung = threading.Event()
    requests = engine.mailbox("main", MainLoopRequest[str], MainLoopResult[str])
    samples = engine.mailbox("eval", EvalRequest[str, str], EvalResult)
    main = Agent(adapter=ScriptedAdapter(["a", "b"]), requests=requests, clock=clock)
    main.hung = hung
    evals = EvalLoop(loop=main, evaluator=lambda output, expected: Score(1.0), requests=samples, clock=clock)
    assert evals.heartbeat is not main.heartbeat
    with LoopGroup(loops=[main, evals], clock=clock, on_stall=stalls.append):
        requests.send(MainLoopRequest("go"))
        samples.send(EvalRequest(run_id="run", sample=Sample("s1", "go", "a")))
        wait_until(lambda: main.vitals().in_hand and evals.vitals().in_hand)
        for _ in range(13):
            clock.until_waiting(1)
            clock.advance(60)
        wait_until(lambda: stalls)
        hung.set()
    assert {stall.name for report in stalls for stall in report.stalls} == {"main", "eval"}


# One idle TCP client blocked every health probe; `?query`, a trailing slash and HEAD failed; a raising readiness check dropped
# the connection


def test_probes_answer_beside_an_idle_client_and_to_queries_slashes_head_and_raising_checks() -> None:
    def raising() -> bool:
        raise OSError("no disk")

    with HealthServer(0, host="127.0.0.1", readiness=raising) as server:
        assert server.address is not None
        with socket.create_connection(server.address):
            for method, path, status in (
                ("GET", "/health/live", 200),
                ("GET", "/health/live?from=kubelet", 200),
                ("GET", "/health/live/", 200),
                ("HEAD", "/health/live", 200),
                ("GET", "/health/ready", 503),
            ):
                connection = HTTPConnection(*server.address, timeout=5)
                connection.request(method, path)
                assert connection.getresponse().status == status
                connection.close()


# Health port taken: `run()` raised but left the watchdog thread alive to kill the host process 12 minutes later


def test_a_taken_health_port_leaves_no_watchdog_behind(engine: Engine) -> None:
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        group = LoopGroup([idle_loop(engine, "a")], health_port=taken.getsockname()[1], health_host="127.0.0.1")
        with pytest.raises(PortTakenError):
            group.run()
    assert set(threading.enumerate()) <= before


# One loop raising went unnoticed while another ran; shutdown stopped at the first loop that timed out; `shutdown()` before
# `run()` was lost; an idle long poll delayed shutdown by its whole wait; a raising shutdown callback skipped the rest


def test_one_loop_raising_is_noticed_while_another_runs(engine: Engine, clock: ManualClock) -> None:
    def leave(message: Any, heartbeat: Heartbeat) -> None:
        raise SystemExit("out")

    engine.mailbox("a").send(1)
    dying = FunctionLoop(engine.mailbox("a"), leave, clock=clock)
    with pytest.raises(LoopDiedError, match="'a' died"):
        LoopGroup([dying, idle_loop(engine, "b", clock=clock)]).run()


def test_a_loop_that_times_out_does_not_keep_the_next_ones_from_being_shut_down(engine: Engine) -> None:
    hung = threading.Event()
    stuck = FunctionLoop(engine.mailbox("a"), lambda message, heartbeat: hung.wait(60))
    others = [idle_loop(engine, name) for name in "bcd"]
    group = LoopGroup([stuck, *others], shutdown_timeout=0.2)
    group.start()
    engine.mailbox("a").send(1)
    wait_until(lambda: stuck.vitals().in_hand and all(loop.running for loop in others))
    assert group.shutdown() is False
    assert (group.abandoned, [loop.running for loop in others]) == (("a",), [False, False, False])
    hung.set()


def test_a_shutdown_before_run_is_not_lost(engine: Engine) -> None:
    group = LoopGroup([idle_loop(engine, "a")])
    group.shutdown()
    group.run()  # returns


def test_an_idle_long_poll_ends_at_once_when_its_group_does(engine: Engine, clock: ManualClock) -> None:
    group = LoopGroup(
        [idle_loop(engine, "a", clock=clock)], clock=clock, wait_time_seconds=300, watchdog_threshold=None
    )
    group.start()
    clock.until_waiting(1)
    assert group.shutdown(timeout=60)  # the clock stands still


def test_a_raising_shutdown_callback_skips_nothing(engine: Engine) -> None:
    called: list[str] = []
    group = LoopGroup([idle_loop(engine, "a")])
    group.add_shutdown_callback(lambda: 1 / 0)
    group.add_shutdown_callback(lambda: called.append("rest"))
    with group:
        pass
    assert called == ["rest"]


# Readiness used the same threshold as the kill, so the early warning came with the kill


def test_readiness_turns_at_half_of_the_watchdogs_threshold(engine: Engine, clock: ManualClock) -> None:
    group = LoopGroup([idle_loop(engine, "a", clock=clock)], clock=clock)
    assert (group.readiness_threshold, group.watchdog_threshold) == (360, 720)


def test_a_stalled_loop_is_unready_for_minutes_before_the_watchdog_acts(engine: Engine, clock: ManualClock) -> None:
    stalls: list[StallReport] = []
    hung = threading.Event()
    loop = FunctionLoop(engine.mailbox("a"), lambda message, heartbeat: hung.wait(60), clock=clock)
    with LoopGroup([loop], clock=clock, on_stall=stalls.append) as group:
        engine.mailbox("a").send(1)
        wait_until(lambda: loop.vitals().in_hand)
        unready_at = None
        for minute in range(1, 14):
            clock.until_waiting(1)
            clock.advance(60)
            if unready_at is None and not group.readiness().ready:
                unready_at = minute
            assert stalls == [] or minute >= 12
        wait_until(lambda: stalls)
        hung.set()
    assert unready_at in (6, 7)
