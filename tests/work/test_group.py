"""A group of loops in one process: start, watch, probe, stop. Real threads on the memory engine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from tests.patience import wait_until

from tenure.backoff import Retry
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.ladder import Ladder
from tenure.beat.lease import LeaseExtenderConfig
from tenure.beat.watchdog import LoopState, LoopVitals, StallReport
from tenure.clock import ManualClock
from tenure.engines.contracts import Engine, Message
from tenure.errors import ConfigurationError, LadderError, LimitError, LoopDiedError, PortTakenError
from tenure.work import FunctionLoop, LoopGroup

Work = Callable[[Message[Any, Any], Heartbeat], Any]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine.open("memory://") as engine:
        yield engine


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name in ("tenure-watchdog", "tenure-probes")]
    assert left == []


def idle(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
    pass


def loop_on(engine: Engine, name: str, work: Work = idle, **settings: Any) -> FunctionLoop[Any, Any]:
    return FunctionLoop(engine.mailbox(name), work, **settings)


def ready(group: LoopGroup) -> tuple[int, dict[str, Any]]:
    assert group.health_address is not None
    connection = HTTPConnection(*group.health_address, timeout=60)
    try:
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


class Foreign:
    """The least that a group accepts as a loop: no mailbox, no base class."""

    def __init__(self, name: str, body: Callable[[Foreign], None], clock: ManualClock | None = None) -> None:
        self.name = name
        self.heartbeat = Heartbeat(name=name, clock=clock)
        self.asked = threading.Event()
        self.runs = 0
        self._body = body

    def run(self, *, visibility_timeout: float, wait_time_seconds: float) -> None:
        self.runs += 1
        self._body(self)

    def stop(self) -> None:
        self.asked.set()

    def rearm(self) -> None:
        self.asked.clear()

    def vitals(self) -> LoopVitals:
        return LoopVitals.of(self.heartbeat, LoopState.WORKING)

    def ladder(self, visibility_timeout: float, wait_time_seconds: float) -> Ladder:
        return Ladder(visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds)


def waits(loop: Foreign) -> None:
    loop.asked.wait(60)


def dies(loop: Foreign) -> None:
    raise ValueError("out of luck")


def test_the_documents_values_are_the_defaults(engine: Engine) -> None:
    group = LoopGroup([loop_on(engine, "a")])
    assert (group.watchdog_threshold, group.watchdog_interval) == (720.0, 60.0)
    assert (group.visibility_timeout, group.wait_time_seconds, group.shutdown_timeout) == (1800, 30, 30.0)
    assert group.health_address is None
    assert group.readiness_threshold == 360


def test_a_group_runs_each_loop_in_its_thread_until_it_is_shut_down(engine: Engine) -> None:
    threads: list[str] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        threads.append(threading.current_thread().name)

    group = LoopGroup([loop_on(engine, "a", work), loop_on(engine, "b", work)])
    runner = threading.Thread(target=group.run)
    runner.start()
    engine.mailbox("a").send(1)
    engine.mailbox("b").send(2)
    wait_until(lambda: len(threads) == 2)
    assert group.shutdown()
    runner.join(60)
    assert sorted(threads) == ["tenure-loop-a", "tenure-loop-b"]
    assert not group.running


def test_as_a_context_it_runs_meanwhile(engine: Engine) -> None:
    done: list[int] = []
    with LoopGroup([loop_on(engine, "a", lambda message, heartbeat: done.append(message.body))]) as group:
        assert group.running
        engine.mailbox("a").send(1)
        wait_until(lambda: done == [1])
    assert not group.running


def test_the_settings_reach_the_loops(engine: Engine) -> None:
    leases: list[float] = []

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        leases.append(message.lease_until - engine.clock.boottime())

    loop = loop_on(engine, "a", work)
    with LoopGroup([loop], visibility_timeout=900, watchdog_threshold=600):
        engine.mailbox("a").send(1)
        wait_until(lambda: len(leases) == 1)
    assert 890 < leases[0] <= 900


def test_shutdown_asks_all_loops_at_once_and_does_not_wait_for_one_before_the_next() -> None:
    asked: list[str] = []
    all_asked = threading.Barrier(3)

    def body(loop: Foreign) -> None:
        loop.asked.wait(60)
        asked.append(loop.name)
        all_asked.wait(60)  # none of them ends before every one was asked

    group = LoopGroup([Foreign(name, body) for name in "abc"])
    group.start()
    assert group.shutdown(timeout=60)
    assert sorted(asked) == ["a", "b", "c"]


def test_an_idle_long_poll_does_not_delay_the_shutdown(engine: Engine) -> None:
    group = LoopGroup([loop_on(engine, "a"), loop_on(engine, "b")], wait_time_seconds=300, watchdog_threshold=900)
    group.start()
    wait_until(lambda: group.readiness().ready)
    begun = engine.clock.monotonic()
    assert group.shutdown()
    assert engine.clock.monotonic() - begun < 250


def test_work_in_hand_is_finished_and_settled_during_the_shutdown(engine: Engine) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        begun.set()
        go_on.wait(60)

    loop = loop_on(engine, "a", work)
    group = LoopGroup([loop], health_port=0, health_host="127.0.0.1")
    group.start()
    for body in (1, 2):
        engine.mailbox("a").send(body)
    assert begun.wait(60)
    stopper = threading.Thread(target=group.shutdown)
    stopper.start()
    wait_until(lambda: ready(group)[1]["reasons"] == {"a": "stopping"})
    go_on.set()
    stopper.join(60)
    assert loop.endings["done"] == 1
    assert engine.mailbox("a").depth().ready == 1


def test_a_loop_that_does_not_stop_is_abandoned_by_name_and_holds_up_no_other(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    def stubborn(loop: Foreign) -> None:
        go_on.wait(60)

    ended = loop_on(engine, "tame")
    group = LoopGroup([Foreign("stubborn", stubborn), ended], shutdown_timeout=0.2)
    group.start()
    wait_until(lambda: ended.running)
    assert group.shutdown() is False
    assert group.abandoned == ("stubborn",)
    assert not ended.running
    assert "Loop stubborn did not stop within 0.2 s" in caplog.text
    assert "go_on.wait(60)" in caplog.text  # where it is
    go_on.set()


def test_a_shutdown_before_the_run_counts_once() -> None:
    loop = Foreign("a", waits)
    group = LoopGroup([loop])
    assert group.shutdown()
    group.run()
    assert loop.runs == 0
    group.start()
    wait_until(lambda: loop.runs == 1)
    assert group.shutdown()


def test_a_group_can_be_run_again_also_when_it_was_shut_down_twice(engine: Engine) -> None:
    done: list[int] = []
    loop = loop_on(engine, "a", lambda message, heartbeat: done.append(message.body))
    group = LoopGroup([loop], health_port=0, health_host="127.0.0.1")
    for number in (1, 2, 3):
        group.start()
        engine.mailbox("a").send(number)
        wait_until(lambda number=number: done[-1:] == [number])
        assert group.shutdown()
        assert group.shutdown()
    assert done == [1, 2, 3]


def test_a_shutdown_counts_as_well_between_the_call_of_a_later_run_and_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Foreign("a", waits)
    group = LoopGroup([loop])
    group.start()
    wait_until(lambda: loop.runs == 1)
    assert group.shutdown()
    launch = group.launch

    def late_launch() -> None:
        group.shutdown()
        launch()

    monkeypatch.setattr(group, "launch", late_launch)
    group.run()  # returns
    assert loop.runs == 1


def test_a_shutdown_after_a_run_that_could_not_start_does_not_end_the_next_one(engine: Engine) -> None:
    loop = loop_on(engine, "a")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        group = LoopGroup([loop], health_port=taken.getsockname()[1], health_host="127.0.0.1")
        try:
            with pytest.raises(PortTakenError):
                group.run()
        finally:
            group.shutdown()
    with group:
        wait_until(lambda: group.readiness().ready)


def test_a_group_that_restarts_its_loops_does_not_fail_for_one_that_was_about_to_be_restarted() -> None:
    clock = ManualClock()
    group = LoopGroup([Foreign("unlucky", dies, clock)], on_loop_death="restart", clock=clock, watchdog_threshold=None)
    with group:  # would raise LoopDiedError at its end
        clock.until_waiting(1)


def test_two_runs_at_once_are_refused() -> None:
    with LoopGroup([Foreign("a", waits)]) as group, pytest.raises(RuntimeError, match="already"):
        group.start()


def test_a_callback_that_raises_does_not_skip_the_rest_of_the_shutdown(caplog: pytest.LogCaptureFixture) -> None:
    called: list[str] = []
    group = LoopGroup([Foreign("a", waits), Foreign("b", waits)])
    group.add_shutdown_callback(lambda: called.append("first"))
    group.add_shutdown_callback(lambda: 1 / 0)
    group.add_shutdown_callback(lambda: called.append("last"))
    group.start()
    assert group.shutdown()
    assert called == ["first", "last"]
    assert "A step of the shutdown failed" in caplog.text


def test_a_stop_that_raises_does_not_keep_the_others_from_being_asked() -> None:
    class Rude(Foreign):
        def stop(self) -> None:
            super().stop()
            raise OSError("no")

    group = LoopGroup([Rude("a", waits), Foreign("b", waits)])
    group.start()
    wait_until(lambda: all(loop.runs for loop in group.loops if isinstance(loop, Foreign)))
    assert group.shutdown()


def test_work_may_shut_its_own_group_down(engine: Engine) -> None:
    answers: list[bool] = []
    loop = loop_on(engine, "a", lambda message, heartbeat: answers.append(group.shutdown()))
    group = LoopGroup([loop])
    engine.mailbox("a").send(1)
    group.run()
    assert answers == [False]
    assert loop.endings["done"] == 1


def test_a_loop_that_dies_ends_the_group_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    other = Foreign("other", waits)
    with pytest.raises(LoopDiedError, match="loop 'unlucky' died: ValueError: out of luck") as caught:
        LoopGroup([other, Foreign("unlucky", dies)]).run()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "Loop unlucky died" in caplog.text


def test_a_loop_that_dies_is_shown_on_readiness() -> None:
    go_on = threading.Event()

    def slow_to_end(loop: Foreign) -> None:
        loop.asked.wait(60)
        go_on.wait(60)

    group = LoopGroup([Foreign("slow", slow_to_end), Foreign("unlucky", dies)], health_port=0, health_host="127.0.0.1")
    group.start()
    wait_until(lambda: ready(group)[1]["reasons"].get("unlucky") == "dead: ValueError: out of luck")
    assert ready(group)[0] == 503
    go_on.set()
    group.wait()


def test_a_loop_that_dies_is_started_again_where_that_is_set_and_shown_meanwhile() -> None:
    clock = ManualClock()

    def dies_twice(loop: Foreign) -> None:
        if loop.runs < 3:
            raise ValueError(f"death {loop.runs}")
        loop.asked.wait(60)

    unlucky, other = Foreign("unlucky", dies_twice, clock), Foreign("other", waits, clock)
    group = LoopGroup(
        [unlucky, other],
        on_loop_death="restart",
        restart=Retry(delay=5, factor=2, jitter=0),
        clock=clock,
        watchdog_threshold=None,
    )
    group.start()
    clock.until_waiting(1)
    assert group.readiness().reasons == {"unlucky": "restarting: ValueError: death 1"}
    clock.advance(4.9)
    assert unlucky.runs == 1
    clock.advance(0.1)
    wait_until(lambda: unlucky.runs == 2)
    clock.until_waiting(1)
    clock.advance(10)
    wait_until(lambda: unlucky.runs == 3)
    wait_until(lambda: group.readiness().ready)
    wait_until(lambda: other.runs == 1)
    assert group.shutdown()


def test_a_shutdown_does_not_wait_for_a_restart_that_is_due_later() -> None:
    clock = ManualClock()
    loop = Foreign("unlucky", dies, clock)
    group = LoopGroup([loop], on_loop_death="restart", clock=clock, watchdog_threshold=None)
    group.start()
    clock.until_waiting(1)
    runner = threading.Thread(target=group.wait)
    runner.start()
    assert group.shutdown(timeout=60)
    runner.join(60)
    assert loop.runs == 1


def test_loops_that_end_by_themselves_end_the_group_without_an_error(engine: Engine) -> None:
    mailboxes = [engine.mailbox("a"), engine.mailbox("b")]
    group = LoopGroup([FunctionLoop(mailbox, idle) for mailbox in mailboxes])
    group.start()
    for mailbox in mailboxes:
        mailbox.close()
    group.wait()
    assert not group.running


def test_a_taken_port_is_a_clear_error_and_leaves_nothing_running(engine: Engine) -> None:
    loop = loop_on(engine, "a")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        group = LoopGroup([loop], health_port=taken.getsockname()[1], health_host="127.0.0.1")
        before = set(threading.enumerate())
        with pytest.raises(PortTakenError):
            group.run()
        assert set(threading.enumerate()) <= before  # above all no watchdog that kills this process in 12 minutes
        assert not loop.running
    with group:  # free again: it starts
        wait_until(lambda: group.readiness().ready)


def test_probes_say_why_per_loop_and_turn_well_before_the_watchdog_acts(engine: Engine) -> None:
    clock = ManualClock()
    stalls: list[StallReport] = []
    inside, hung = threading.Event(), threading.Event()

    def work(message: Message[Any, Any], heartbeat: Heartbeat) -> None:
        heartbeat.beat(note="page 3")
        inside.set()  # the first beat also imports the metrics: only now is the work where it hangs
        hung.wait(60)

    loop = loop_on(engine, "reviews", work, clock=clock)
    group = LoopGroup([loop], health_port=0, health_host="127.0.0.1", clock=clock, on_stall=stalls.append)
    with group:
        engine.mailbox("reviews").send(1)
        wait_until(inside.is_set)
        assert ready(group)[0] == 200
        for _ in range(7):
            clock.until_waiting(1)
            clock.advance(60)
        status, answer = ready(group)
        assert (status, stalls) == (503, [])
        assert answer["reasons"] == {"reviews": "no beat for 420.0 s (unready after 360 s), it last said 'page 3'"}
        for _ in range(6):
            clock.until_waiting(1)
            clock.advance(60)
        wait_until(lambda: len(stalls) == 1)
        hung.set()
    assert [stall.name for stall in stalls[0].stalls] == ["reviews"]
    assert "hung.wait(60)" in stalls[0].stacks


def test_every_loop_of_a_group_is_watched() -> None:
    clock = ManualClock()
    stalls: list[StallReport] = []
    loops = [Foreign("main", waits, clock), Foreign("eval", waits, clock)]
    with LoopGroup(loops, clock=clock, on_stall=stalls.append):
        wait_until(lambda: all(loop.runs for loop in loops))
        for _ in range(13):
            clock.until_waiting(1)
            clock.advance(60)
        wait_until(lambda: bool(stalls))
    assert {stall.name for report in stalls for stall in report.stalls} == {"main", "eval"}


def test_a_loop_that_has_ended_is_not_watched_any_more(engine: Engine) -> None:
    clock = ManualClock()
    stalls: list[StallReport] = []
    ends, stays = Foreign("ends", lambda loop: None, clock), Foreign("stays", waits, clock)
    with LoopGroup([ends, stays], clock=clock, on_stall=stalls.append):
        wait_until(lambda: bool(ends.runs and stays.runs))
        for _ in range(14):
            clock.until_waiting(1)
            stays.heartbeat.beat()
            clock.advance(60)
    assert stalls == []


def test_timeouts_that_cannot_work_together_are_refused_when_the_group_is_built(engine: Engine) -> None:
    loop = loop_on(engine, "a")
    with pytest.raises(LadderError, match="raise visibility_timeout above 720"):
        LoopGroup([loop], visibility_timeout=60)
    with pytest.raises(LadderError, match="watchdog_interval < watchdog_threshold / 3"):
        LoopGroup([loop], watchdog_interval=240)
    quiet = loop_on(engine, "a", max_silence_s=700)
    with pytest.raises(LadderError, match="watchdog_threshold > wait_time_seconds"):
        LoopGroup([quiet])
    LoopGroup([loop], visibility_timeout=60, watchdog_threshold=None)
    LoopGroup([loop], visibility_timeout=60, watchdog_threshold=50, watchdog_interval=10)


def test_other_settings_that_cannot_work_are_refused(engine: Engine) -> None:
    loop = loop_on(engine, "a")
    with pytest.raises(ConfigurationError, match="without loops"):
        LoopGroup([])
    with pytest.raises(LimitError, match="shutdown_timeout"):
        LoopGroup([loop], shutdown_timeout=-1)
    with pytest.raises(ConfigurationError, match="isolation is 'container'"):
        LoopGroup([loop], isolation="container")


def test_beats_that_nobody_reads_are_reported(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    deaf = loop_on(engine, "deaf", lease_extender=LeaseExtenderConfig(enabled=False))
    LoopGroup([deaf, loop_on(engine, "heard")], watchdog_threshold=None)
    assert [record.getMessage() for record in caplog.records] == [
        "The beats of loop deaf are read by nobody: no watchdog, no lease extension"
    ]


def test_two_loops_of_one_name_are_both_shown(engine: Engine) -> None:
    group = LoopGroup([loop_on(engine, "a"), loop_on(engine, "a")])
    assert list(group.readiness().loops) == ["a", "a-2"]
    assert group.readiness().reasons == {"a": "starting", "a-2": "starting"}
