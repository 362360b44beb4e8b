"""Document 004, Health and Monitoring: each table, rule and limitation."""

from __future__ import annotations

import inspect
import signal
import threading
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.ladder import Ladder
from tenure.beat.probes import HealthServer
from tenure.beat.watchdog import LoopVitals, StallReport, Watchdog, judge_readiness, kill_this_process
from tenure.clock import ManualClock
from tenure.engines.contracts import Engine
from tenure.errors import LadderError
from tenure.testing import FakeMailbox
from tenure.work import FunctionLoop, LoopGroup


def get(server: HealthServer, path: str) -> int:
    assert server.address is not None
    connection = HTTPConnection(*server.address, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


# Components > Health endpoints


@pytest.mark.parametrize(
    ("path", "healthy", "status"),
    [
        ("/health/live", True, 200),
        ("/health/live", False, 200),
        ("/health/ready", True, 200),
        ("/health/ready", False, 503),
    ],
)
def test_the_table_of_endpoints(path: str, healthy: bool, status: int) -> None:
    with HealthServer(0, host="127.0.0.1", readiness=lambda: healthy) as server:
        assert get(server, path) == status


# Components > Heartbeat


def test_the_heartbeat_example() -> None:
    calls: list[int] = []
    hb = Heartbeat()
    hb.beat()
    assert hb.elapsed() >= 0
    hb.add_callback(lambda: calls.append(1))
    hb.beat()
    assert calls == [1]


# Components > Watchdog


def test_the_watchdog_has_the_documents_defaults_and_is_a_daemon() -> None:
    parameters = inspect.signature(Watchdog).parameters
    assert parameters["stall_threshold"].default == 720.0
    assert parameters["check_interval"].default == 60.0
    assert parameters["on_stall"].default is kill_this_process
    assert list(parameters)[:3] == ["heartbeats", "stall_threshold", "check_interval"]


def test_the_watchdog_terminates_the_process_with_sigkill(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real process: tests/process/test_watchdog_kill.py."""
    kills: list[int] = []
    monkeypatch.setattr("tenure.beat.watchdog.os.kill", lambda pid, number: kills.append(number))
    monkeypatch.setattr("tenure.beat.watchdog.os._exit", kills.append)  # for the first process of a container
    clock = ManualClock()
    watchdog = Watchdog([Heartbeat(clock=clock)], clock=clock)
    clock.advance(720)
    watchdog.check()
    assert kills == []
    clock.advance(1)
    watchdog.check()
    assert kills == [signal.SIGKILL, 137]


# LoopGroup integration


def test_the_loop_group_takes_the_documents_arguments_with_its_defaults() -> None:
    parameters = inspect.signature(LoopGroup).parameters
    assert {name: parameter.default for name, parameter in list(parameters.items())[1:7]} == {
        "health_port": None,
        "watchdog_threshold": 720.0,
        "watchdog_interval": 60.0,
        "visibility_timeout": 1800,
        "wait_time_seconds": 30,
        "shutdown_timeout": 30.0,
    }


def test_the_loop_group_example_serves_probes_while_it_runs() -> None:
    engine = Engine.open("memory://")
    main_loop, eval_loop = (FunctionLoop(engine.mailbox(name), lambda message, hb: None) for name in ("main", "eval"))
    group = LoopGroup(
        loops=[main_loop, eval_loop],
        health_port=0,  # the document: 8080
        watchdog_threshold=720.0,
        watchdog_interval=60.0,
        health_host="127.0.0.1",
    )
    runner = threading.Thread(target=group.run)
    runner.start()
    while group.health_address is None or not group.readiness().ready:
        threading.Event().wait(0.005)
    connection = HTTPConnection(*group.health_address, timeout=60)
    connection.request("GET", "/health/ready")
    assert connection.getresponse().status == 200
    connection.close()
    assert group.shutdown()
    runner.join(60)


# MainLoop integration


def test_a_loop_beats_after_receiving_messages_and_after_processing_each() -> None:
    clock = ManualClock()
    mailbox = FakeMailbox(clock=clock)
    at_work: list[int] = []
    loop = FunctionLoop(
        mailbox, lambda message, heartbeat: at_work.append(heartbeat.count), clock=clock, max_messages=3
    )
    loop.run(max_iterations=1, wait_time_seconds=0)
    started = loop.heartbeat.count
    assert started == 2  # one for the start, one after a receive that brought nothing
    for body in "abc":
        mailbox.send(body)
    loop.run(max_iterations=1, wait_time_seconds=0)
    # One for the start, one after receiving, then one after each message.
    assert at_work == [started + 2, started + 3, started + 4]
    assert loop.heartbeat.count == started + 5


# Timeout calibration

DEFAULTS = {"wait_time_seconds": 30, "watchdog_threshold": 720, "visibility_timeout": 1800, "watchdog_interval": 60}


def test_the_defaults_of_the_table_stand_with_any_processing_time_up_to_690_seconds() -> None:
    Ladder(**DEFAULTS).check()
    Ladder(**DEFAULTS, max_processing_time=689).check()
    with pytest.raises(LadderError):
        Ladder(**DEFAULTS, max_processing_time=690).check()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"visibility_timeout": 720 + 600}, "visibility_timeout > watchdog_threshold + max_processing_time"),
        ({"watchdog_threshold": 30 + 600}, "watchdog_threshold > wait_time_seconds + max_processing_time"),
        ({"watchdog_interval": 240}, "watchdog_interval < watchdog_threshold / 3"),
    ],
)
def test_each_inequality_is_strict(change: dict[str, float], rule: str) -> None:
    settings: dict[str, Any] = {**DEFAULTS, "max_processing_time": 600, **change}
    assert [broken.text for broken in Ladder(**settings).broken()] == [rule]
    with pytest.raises(LadderError) as caught:
        Ladder(**settings).check()
    assert rule in str(caught.value)
    name = next(iter(change))
    settings[name] += -1 if name == "watchdog_interval" else 1
    assert Ladder(**settings).broken() == []


# Kubernetes configuration


def test_the_kubernetes_snippet_is_the_documents_and_names_paths_that_are_served() -> None:
    text = (Path(__file__).parents[2] / "deploy/kubernetes/worker.yaml").read_text()
    for line in (
        "livenessProbe:",
        "httpGet: { path: /health/live, port: 8080 }",
        "periodSeconds: 10",
        "failureThreshold: 3",
        "readinessProbe:",
        "httpGet: { path: /health/ready, port: 8080 }",
        "periodSeconds: 5",
        "failureThreshold: 2",
    ):
        assert line in text
    with HealthServer(0, host="127.0.0.1") as server:
        assert {get(server, path) for path in ("/health/live", "/health/ready")} == {200}


# Limitations. "No partial recovery" and "single process" are lifted by slots (tests/process of that part).


def test_the_granularity_is_per_loop_and_the_report_still_says_what_it_was_doing() -> None:
    clock, reports = ManualClock(), list[StallReport]()
    heartbeat = Heartbeat(name="main", clock=clock)
    heartbeat.beat(note="message 17")
    clock.advance(721)
    Watchdog([heartbeat], on_stall=reports.append, clock=clock).check()
    assert "main stalled" in str(reports[0])
    assert "message 17" in str(reports[0])


def test_a_long_external_call_is_no_false_positive_once_it_is_declared() -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(clock=clock)
    watchdog = Watchdog([heartbeat], on_stall=lambda report: None, clock=clock)
    with heartbeat.silence(900, "model call"):
        clock.advance(899)
        assert watchdog.check() == []
        assert judge_readiness({"main": LoopVitals.of(heartbeat)}, 360).ready
