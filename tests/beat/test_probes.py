"""The probes over real sockets: what they say, and the clients that must not hold them up."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from http.client import HTTPConnection
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import ExtensionOutcome
from tenure.beat.metrics import LeaseMetrics
from tenure.beat.probes import HealthServer
from tenure.beat.watchdog import LoopState, LoopVitals, Readiness, judge_readiness
from tenure.clock import ManualClock
from tenure.errors import ConfigurationError, LimitError, PortTakenError


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with HealthServer(0, host="127.0.0.1") as server:
        yield server


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    status, body, _ = ask_more(server, path, method)
    return status, body


def ask_more(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    assert server.address is not None
    connection = HTTPConnection(*server.address, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode(), {k.lower(): v for k, v in response.getheaders()}
    finally:
        connection.close()


def say(server: HealthServer, request: bytes, *, half_close: bool = False) -> bytes:
    """Send raw bytes, and read until the server closes."""
    assert server.address is not None
    with socket.create_connection(server.address, timeout=60) as client:
        client.sendall(request)
        if half_close:
            client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(65_536):
            answer += part
        return answer


def test_liveness_is_always_200_and_readiness_says_yes_by_default(server: HealthServer) -> None:
    assert ask(server, "/health/live") == (200, '{"alive":true}\n')
    assert ask(server, "/health/ready")[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/health/live", "/health/live/", "/health/live?probe=1", "/health/live/?a=b&c", "/health/live#x"],
)
def test_queries_and_trailing_slashes_do_not_matter(server: HealthServer, path: str) -> None:
    assert ask(server, path)[0] == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics"])
def test_head_gets_the_same_head_and_no_body(server: HealthServer, path: str) -> None:
    status, body, headers = ask_more(server, path, "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["content-length"]) > 0


def test_other_paths_and_methods_are_refused_with_what_would_do(server: HealthServer) -> None:
    status, body = ask(server, "/")
    assert status == 404
    assert json.loads(body) == {"paths": ["/health/live", "/health/ready", "/metrics"]}
    status, _, headers = ask_more(server, "/health/live", "POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_unreadiness_is_a_503_that_says_why_per_loop() -> None:
    loops = {
        "reviews": LoopVitals(LoopState.WORKING, 400, 400, 7, "page 3", 0.5),
        "evals": LoopVitals(LoopState.POLLING, 1),
    }
    with HealthServer(0, host="127.0.0.1", readiness=lambda: judge_readiness(loops, 360)) as server:
        status, body = ask(server, "/health/ready")
    answer = json.loads(body)
    assert status == 503
    assert answer["ready"] is False
    assert answer["reasons"] == {"reviews": "no beat for 400.0 s (unready after 360 s), it last said 'page 3'"}
    assert answer["loops"]["evals"]["ready"] is True
    assert answer["loops"]["reviews"] == {
        "ready": False,
        "state": "working",
        "beat_age_s": 400,
        "silent_s": 400,
        "beats": 7,
        "doing": "page 3",
        "progress": 0.5,
        "in_hand": None,
        "error": None,
    }


def test_readiness_of_bare_heartbeats_turns_with_their_silence() -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(name="job", clock=clock)

    def readiness() -> Readiness:
        return judge_readiness({"job": LoopVitals.of(heartbeat)}, 60)

    with HealthServer(0, host="127.0.0.1", readiness=readiness) as server:
        clock.advance(60)
        assert ask(server, "/health/ready")[0] == 200
        clock.advance(1)
        assert ask(server, "/health/ready")[0] == 503
        heartbeat.beat()
        assert ask(server, "/health/ready")[0] == 200


@pytest.mark.parametrize("state", sorted(set(LoopState) - {LoopState.POLLING, LoopState.WORKING}))
def test_a_loop_that_takes_no_work_is_not_ready(state: LoopState) -> None:
    verdict = judge_readiness({"a": LoopVitals(state, 0, error="because")}, 60)
    assert verdict == Readiness(False, {"a": f"{state}: because"}, verdict.loops)


def test_a_worker_without_loops_is_not_ready() -> None:
    assert not judge_readiness({}, 60).ready


def test_a_check_that_raises_is_a_503_and_liveness_stays() -> None:
    def check() -> bool:
        raise OSError("no such table")

    with HealthServer(0, host="127.0.0.1", readiness=check) as server:
        status, body = ask(server, "/health/ready")
        assert status == 503
        assert "OSError: no such table" in body
        assert ask(server, "/health/live")[0] == 200
        assert ask(server, "/metrics")[0] == 200


@pytest.mark.slow
def test_checks_that_hang_hold_up_neither_liveness_nor_the_process() -> None:
    hung = threading.Event()

    def check() -> bool:
        hung.wait(30)
        return True

    with HealthServer(0, host="127.0.0.1", readiness=check) as server:
        assert server.address is not None
        waiting = []
        for _ in range(8):
            client = socket.create_connection(server.address, timeout=60)
            client.sendall(b"GET /health/ready HTTP/1.1\r\n\r\n")
            waiting.append(client)
        assert ask(server, "/health/live")[0] == 200
        for client in waiting:
            assert client.recv(100).startswith(b"HTTP/1.1 503 ")
            client.close()
        hung.set()
        assert ask(server, "/health/ready")[0] == 200


def test_metrics_show_lease_extensions_and_the_age_of_each_loops_proof() -> None:
    registry = CollectorRegistry()
    LeaseMetrics("reviews", registry).count(ExtensionOutcome.GRANTED)
    LeaseMetrics("reviews", registry).count(ExtensionOutcome.GRANTED)
    LeaseMetrics("reviews", registry).count(ExtensionOutcome.EXPIRED)
    verdict = judge_readiness({"reviews": LoopVitals(LoopState.WORKING, 12.5, 12.5, 7)}, 60)
    with HealthServer(0, host="127.0.0.1", registry=registry, readiness=lambda: verdict) as server:
        status, text, headers = ask_more(server, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert 'tenure_lease_extensions_total{during="",kind="reviews",outcome="granted"} 2.0' in text
    assert 'tenure_lease_extensions_total{during="",kind="reviews",outcome="expired"} 1.0' in text
    assert 'tenure_loop_beat_age_seconds{loop="reviews"} 12.5' in text
    assert 'tenure_loop_ready{loop="reviews",state="working"} 1.0' in text


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", 400),  # TLS on a plain port
        (b"GET\r\n\r\n", 400),
        (b"GET /health/live\r\n\r\n", 400),
        (b"GET /health/live HTTP/2.0\r\n\r\n", 400),
        (b"G\xc3\xa9T /health/live HTTP/1.1\r\n\r\n", 400),
        (b"GET /health/live HTTP/1.1\r\nX: " + b"x" * 20_000, 431),
        (b"GET /health/live HTTP/1.0\n\n", 200),
        (b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        (b"get /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        (b"GET /health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /health/live HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (b"GET /health/live HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: a\r\n\r\nzz", 200),
        (b"GET /health/live HTTP/1.1\r\nHost a\r\n\r\n", 400),
        (b"GET /health/live HTTP/1.1\r\n" + b"X: y\r\n" * 4_000, 431),
        (b"x" * 20_000, 431),
        (b"GET http://10.0.0.1:8080/health/live HTTP/1.1\r\n\r\n", 200),
        (b"GET /health/live HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello and much more", 200),
        (b"DELETE /health/live HTTP/1.1\r\n\r\n", 405),
    ],
)
def test_malformed_and_odd_requests_get_an_answer_and_harm_nobody(
    server: HealthServer, request_bytes: bytes, status: int
) -> None:
    assert say(server, request_bytes).startswith(f"HTTP/1.1 {status} ".encode())
    assert ask(server, "/health/live")[0] == 200


def test_any_bytes_in_any_pieces_get_an_answer_and_leave_nothing_behind(server: HealthServer) -> None:
    assert server.address is not None
    random = Random(19)
    pieces = [
        b"GET",
        b" ",
        b"/health/live",
        b"HTTP/1.1",
        b"\r\n",
        b"\n",
        b"Host: a",
        b":",
        b"\x00",
        b"\xff\xfe",
        b"HEAD",
        b"\r",
        b"1" * 90,
    ]
    for _ in range(300):
        said = b"".join(random.choices(pieces, k=random.randrange(1, 12))) + random.randbytes(random.randrange(3))
        with socket.create_connection(server.address, timeout=60) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in (said[: len(said) // 2], said[len(said) // 2 :], b"\r\n\r\n"):
                with contextlib.suppress(ConnectionError):  # it may have answered the first part and closed
                    client.sendall(part)
            answer = b"".join(iter(lambda: client.recv(4_096), b""))
        assert re.match(rb"HTTP/1\.1 (200|400|404|405|501) ", answer), (said, answer)
    assert ask(server, "/health/ready")[0] == 200


def test_an_endless_head_is_refused_at_its_limit_and_what_follows_is_not_kept(server: HealthServer) -> None:
    assert server.address is not None
    line = b"X: " + b"y" * 65_000 + b"\r\n"
    tracemalloc.start()
    try:
        with socket.create_connection(server.address, timeout=60) as client, contextlib.suppress(ConnectionError):
            client.sendall(b"GET /health/live HTTP/1.1\r\n")
            for _ in range(300):
                client.sendall(line)
            assert client.recv(100).startswith(b"HTTP/1.1 431 ")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000  # of 20 MB


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_a_client_that_has_said_all_and_closed_its_side_still_gets_its_answer(server: HealthServer, path: str) -> None:
    answer = say(server, f"GET {path} HTTP/1.1\r\n\r\n".encode(), half_close=True)
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_client_that_closes_its_side_while_a_check_is_under_way_still_gets_its_answer() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def check() -> bool:
        asked.set()
        return go_on.wait(60)

    with HealthServer(0, host="127.0.0.1", readiness=check) as server:
        assert server.address is not None
        with socket.create_connection(server.address, timeout=60) as client:
            client.sendall(b"GET /health/ready HTTP/1.1\r\n\r\n")
            assert asked.wait(60)
            client.shutdown(socket.SHUT_WR)
            assert ask(server, "/health/live")[0] == 200  # so that the server has seen the end of the other one
            go_on.set()
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_request_that_comes_byte_by_byte_is_answered(server: HealthServer) -> None:
    assert server.address is not None
    with socket.create_connection(server.address, timeout=60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /health/live HTTP/1.1\r\n\r\n":
            client.sendall(bytes([byte]))
            assert ask(server, "/health/live")[0] == 200
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")


def test_one_idle_client_holds_up_nobody(server: HealthServer) -> None:
    assert server.address is not None
    with socket.create_connection(server.address):
        assert ask(server, "/health/live")[0] == 200
        assert ask(server, "/health/ready")[0] == 200


def test_clients_that_hang_up_at_any_point_harm_nobody(server: HealthServer) -> None:
    assert server.address is not None
    for request in (b"", b"GET", b"GET /health/ready HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"):
        for _ in range(20):
            client = socket.create_connection(server.address)
            # Reset instead of an orderly end: the worst way to leave.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            client.sendall(request)
            client.close()
    assert ask(server, "/health/ready")[0] == 200


def test_a_thousand_idle_clients_hold_up_nobody_and_cost_no_threads(server: HealthServer) -> None:
    assert server.address is not None
    before = set(threading.enumerate())
    idle = [socket.create_connection(server.address) for _ in range(1_000)]
    try:
        for _ in range(20):
            assert ask(server, "/health/live")[0] == 200
            assert ask(server, "/health/ready")[0] == 200
        assert len(set(threading.enumerate()) - before) <= 4
    finally:
        for client in idle:
            client.close()


def test_beyond_its_places_the_oldest_idle_client_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.beat.probe_server._MAX_CONNECTIONS", 10)
    with HealthServer(0, host="127.0.0.1") as server:
        assert server.address is not None
        idle = [socket.create_connection(server.address, timeout=60) for _ in range(30)]
        assert ask(server, "/health/ready")[0] == 200
        assert idle[0].recv(1) == b""  # closed by the server
        idle[-1].sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
        assert idle[-1].recv(100).startswith(b"HTTP/1.1 200 ")
        for client in idle:
            client.close()


def test_clients_that_stay_silent_are_sent_away_after_a_while() -> None:
    clock = ManualClock()
    with HealthServer(0, host="127.0.0.1", clock=clock) as server:
        assert server.address is not None
        with (
            socket.create_connection(server.address, timeout=60) as silent,
            socket.create_connection(server.address, timeout=60) as half,
        ):
            half.sendall(b"GET /health")
            assert ask(server, "/health/live")[0] == 200
            clock.advance(11)
            assert silent.recv(100) == b""
            assert half.recv(100).startswith(b"HTTP/1.1 408 ")


def test_port_0_takes_a_free_port_and_says_which(server: HealthServer) -> None:
    assert server.address is not None
    assert server.address[1] > 0


def test_a_taken_port_is_a_clear_error_and_leaves_nothing_running(server: HealthServer) -> None:
    assert server.address is not None
    before = set(threading.enumerate())
    second = HealthServer(server.address[1], host="127.0.0.1")
    with pytest.raises(PortTakenError, match=f"port {server.address[1]}: Address already in use") as caught:
        second.start()
    assert isinstance(caught.value, ConfigurationError)
    assert "Choose another port" in str(caught.value)
    assert not second.running
    assert set(threading.enumerate()) <= before


def test_a_port_that_is_none_is_a_clear_error() -> None:
    with pytest.raises(LimitError, match="65535"):
        HealthServer(70_000, host="127.0.0.1").start()


def test_it_can_be_stopped_twice_and_started_again_on_the_same_port() -> None:
    server = HealthServer(0, host="127.0.0.1")
    _, port = server.start()
    server.stop()
    server.stop()
    again = HealthServer(port, host="127.0.0.1")
    again.start()
    assert ask(again, "/health/live")[0] == 200
    again.stop()
    assert not again.running
    assert again.address is None
