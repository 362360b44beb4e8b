"""The bounds of a port, each met on purpose: with small ones, a real server and real sockets."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from tests.control.raw_requests import get, limited, raw, status
from tests.nodes.certificates import Authority
from tests.patience import wait_until

from tenure.control.tls import ServerTls

HEAD = b"GET /v1/leader HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/job HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Dial(Protocol):
    def __call__(self, port: int, data: bytes, source: str = ...) -> socket.socket: ...


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Opens connections, sends, and keeps them open until the test is over."""
    with ExitStack() as opened:

        def dial(port: int, data: bytes, source: str = "127.0.0.1") -> socket.socket:
            sock = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0))
            opened.enter_context(sock).sendall(data)
            return sock

        yield dial


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side has hung up; waits for it."""
    try:
        return sock.recv(65_536) == b""
    except ConnectionResetError:
        return True


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        sock.recv(1)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        sock.settimeout(30)
    return False


def test_a_head_that_is_too_long_is_told_so() -> None:
    with limited(head_bytes=4_000) as (_, port):
        lines = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(50))
        assert status(raw(port, HEAD + lines)) == 431
        assert status(raw(port, HEAD + lines + b"\r\n")) == 431
        assert get(port) == 200


def test_empty_lines_before_a_head_are_no_end_of_it() -> None:
    with limited(head_bytes=4_000) as (_, port):
        assert status(raw(port, b"\r\n\r\n" + HEAD + b"Connection: close\r\n\r\n")) == 200
        long = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(50))
        assert status(raw(port, b"\r\n\r\n\r\n", then=HEAD + long)) == 431


def test_the_end_of_a_head_may_be_cut_anywhere() -> None:
    request = HEAD + b"Connection: close\r\n\r\n"
    with limited(head_bytes=4_000) as (server, port):
        for cut in range(len(request) - 5, len(request)):
            assert status(raw(port, request[:cut], then=request[cut:])) == 200
        wait_until(lambda: not len(server.connections))
        assert server.connections.heads.total == 0


def test_a_head_has_a_deadline_from_its_first_byte_and_a_silent_connection_has_not(dial: Dial) -> None:
    with limited(head_s=0.3) as (_, port):
        silent, slow = dial(port, b""), dial(port, HEAD)
        assert is_closed(slow)
        assert is_open(silent)
        silent.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert status(silent.recv(65_536)) == 200


def test_unfinished_heads_share_a_bound_and_the_oldest_gives_way(dial: Dial) -> None:
    with limited(head_bytes_total=10_000) as (server, port):
        crowd = []
        for number in range(10):
            crowd.append(dial(port, HEAD + b"X: " + b"a" * 2_000))
            wait_until(lambda number=number: server.connections.heads.total >= min(4, number + 1) * 2_000)
        assert is_closed(crowd[0])
        assert is_open(crowd[-1])
        assert server.connections.heads.total <= 10_000
        assert get(port) == 200


def test_an_address_has_a_share_of_the_connections_and_others_are_served(dial: Dial) -> None:
    with limited(connections_each=5) as (server, port):
        crowd = [dial(port, HEAD) for _ in range(20)]
        wait_until(lambda: len(server.connections) == 5)
        assert all(is_closed(sock) for sock in crowd[:15])
        assert get(port) == 200
        other = dial(port, HEAD + b"Connection: close\r\n\r\n", source="127.0.0.2")
        assert status(other.recv(65_536)) == 200


def test_where_all_connections_are_taken_the_address_with_most_of_them_gives_way(dial: Dial) -> None:
    with limited(connections=10) as (server, port):
        # The server has at least 16.
        modest = dial(port, HEAD, source="127.0.0.2")
        wait_until(lambda: len(server.connections) == 1)
        crowd = [dial(port, HEAD) for _ in range(30)]
        wait_until(lambda: len(server.connections) == 16)
        assert is_closed(crowd[0])
        assert is_open(modest)


def test_a_connection_that_is_being_answered_is_not_closed_for_others(dial: Dial) -> None:
    release = threading.Event()
    with limited(connections=10, release=release) as (server, port):
        held = dial(port, b"GET /v1/job?job_id=j&wait_s=2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: server.admission.waiting.inside == 1)
        crowd = [dial(port, HEAD) for _ in range(40)]
        assert is_closed(crowd[0])
        release.set()
        assert status(held.recv(65_536)) == 200


def test_bodies_share_a_bound_and_the_oldest_is_told_to_come_back(dial: Dial) -> None:
    with limited(body_bytes_total=100_000, body_s=30.0) as (server, port):
        large = POST + b"Content-Length: 60000\r\n\r\n" + b" " * 50_000
        first = dial(port, large)
        wait_until(lambda: server.bodies.budget.total >= 50_000)
        dial(port, large)
        wait_until(lambda: server.bodies.budget.total >= 100_000)
        honest = b'{"job_id":"j"}'
        answer = raw(port, POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(honest) + honest)
        assert status(answer) == 200
        told = first.recv(65_536)
        assert status(told) == 503
        assert b"Retry-After: 1" in told
        assert b'"retryable":true' in told
        assert is_closed(first)


def test_a_body_counts_until_its_request_is_answered_and_then_no_more(dial: Dial) -> None:
    release = threading.Event()
    with limited(body_bytes_total=1_000, release=release) as (server, port):
        body = b'{"job_id":"j","wait_s":2}' + b" " * 800
        held = dial(port, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: server.admission.waiting.inside == 1)
        refused = raw(port, POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert status(refused) == 503
        release.set()
        assert status(held.recv(65_536)) == 200
        wait_until(lambda: server.bodies.budget.total == 0)


def test_an_announced_length_takes_no_memory(dial: Dial) -> None:
    with limited(body_bytes_total=100_000) as (server, port):
        crowd = [dial(port, POST + b"Content-Length: 1000000\r\n\r\n") for _ in range(50)]
        wait_until(lambda: len(server.connections) == 50)
        assert get(port) == 200
        assert all(is_open(sock) for sock in crowd)
        assert server.bodies.budget.total == 0


def test_who_sends_the_next_request_too_early_is_answered_once_and_closed() -> None:
    with limited() as (_, port):
        answer = raw(port, (HEAD + b"\r\n") * 3)
        assert answer.count(b"HTTP/1.1 200") == 1
        assert b"Connection: close" in answer


def test_who_sends_much_while_it_is_held_is_cut_off(dial: Dial) -> None:
    with limited() as (server, port):
        sock = dial(port, b"GET /v1/job?job_id=j&wait_s=30 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: server.admission.waiting.inside == 1)
        sock.sendall(b"GET /v1/leader HTTP/1.1\r\nX: " + b"a" * 40_000)
        assert is_closed(sock)
        wait_until(lambda: server.admission.waiting.inside == 0)


def test_a_connection_serves_one_request_after_the_other(dial: Dial) -> None:
    body = b'{"job_id":"j"}'
    with limited() as (server, port):
        sock = dial(port, b"")
        for _ in range(3):
            for request in (HEAD + b"\r\n", POST + b"Content-Length: %d\r\n\r\n" % len(body) + body):
                sock.sendall(request)
                assert status(sock.recv(65_536)) == 200
        assert len(server.connections) == 1


def test_a_chunked_body_is_read_and_is_the_last_of_its_connection() -> None:
    body = b'{"job_id":"j"}'
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    with limited() as (_, port):
        answer = raw(port, chunked, then=b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert status(answer) == 200
        assert b"Connection: close" in answer
        assert status(raw(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")) == 400


def test_a_request_that_nobody_answers_is_told_so_in_time() -> None:
    with limited(answer_s=0.3) as (server, port):
        began = time.monotonic()
        answer = raw(
            port, b"GET /v1/job?job_id=slow&wait_s=0.1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert status(answer) == 503
        assert b"Retry-After: 1" in answer
        assert b"there was no answer within 0.4 s" in answer
        assert time.monotonic() - began < 60
        assert server.admission.waiting.inside == 0


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a TLS handshake that promises 500 bytes more."""


def test_unfinished_handshakes_are_bounded_and_an_honest_one_is_served(dial: Dial, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("node")
    with limited(ServerTls(pair.cert, pair.key), handshakes=3) as (server, port):
        crowd = [dial(port, HELLO) for _ in range(10)]
        assert all(is_closed(sock) for sock in crowd[:7])
        context = ssl.create_default_context(cafile=authority.file)
        with context.wrap_socket(dial(port, b""), server_hostname="127.0.0.1") as honest:
            honest.sendall(HEAD + b"Connection: close\r\n\r\n")
            assert status(honest.recv(65_536)) == 200
        wait_until(lambda: not len(server.connections))


def test_the_bounds_of_heads_hold_below_tls_too(dial: Dial, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("node")
    context = ssl.create_default_context(cafile=authority.file)
    with limited(ServerTls(pair.cert, pair.key), head_bytes=4_000) as (_, port):
        with context.wrap_socket(dial(port, b""), server_hostname="127.0.0.1") as sock:
            sock.sendall(HEAD + b"X: " + b"a" * 5_000)
            assert status(sock.recv(65_536)) == 431
        with context.wrap_socket(dial(port, b""), server_hostname="127.0.0.1") as sock:
            for _ in range(3):
                sock.sendall(HEAD + b"\r\n")
                assert status(sock.recv(65_536)) == 200
