"""The fault proxy, in front of a server that answers each line with itself and remembers what it saw."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tools.servers import FaultProxy


class Echo(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(socketserver.StreamRequestHandler):
    server: Echo

    def handle(self) -> None:
        try:
            for line in self.rfile:
                self.server.seen.append(line)
                self.wfile.write(line)
        except OSError:
            return


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(*echo.server_address) as started:
        yield started


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with socket.create_connection((proxy.host, proxy.port), timeout=60) as connection:
        yield connection


def ask(client: socket.socket, line: bytes) -> bytes:
    client.sendall(line)
    return client.recv(1024)


def saw(echo: Echo, line: bytes) -> bool:
    deadline = time.monotonic() + 5
    while line not in echo.seen and time.monotonic() < deadline:
        time.sleep(0.005)
    return line in echo.seen


def test_without_a_fault_bytes_pass(client: socket.socket, proxy: FaultProxy) -> None:
    assert ask(client, b"a\n") == b"a\n"
    assert (proxy.connections, proxy.fired) == (1, 0)


def test_a_cut_answer_was_served_and_is_never_seen(client: socket.socket, proxy: FaultProxy, echo: Echo) -> None:
    proxy.cut_answer(b"commit")
    assert ask(client, b"begin\n") == b"begin\n"
    with pytest.raises(ConnectionResetError):
        ask(client, b"commit\n")
    assert saw(echo, b"commit\n")
    assert proxy.fired == 1


def test_a_cut_request_is_never_served(client: socket.socket, proxy: FaultProxy, echo: Echo) -> None:
    proxy.cut_request(b"commit")
    with pytest.raises(ConnectionResetError):
        ask(client, b"commit\n")
    assert proxy.fired == 1
    with socket.create_connection((proxy.host, proxy.port), timeout=60) as again:
        assert ask(again, b"next\n") == b"next\n"
    assert echo.seen == [b"next\n"]


def test_half_a_request_arrives_when_it_is_cut_in_the_middle(
    client: socket.socket, proxy: FaultProxy, echo: Echo
) -> None:
    proxy.cut_mid_request()
    with pytest.raises(ConnectionResetError):
        ask(client, b"commit\n")
    assert proxy.fired == 1
    assert b"commit\n" not in echo.seen


def test_a_request_may_be_served_though_the_client_was_reset(
    client: socket.socket, proxy: FaultProxy, echo: Echo
) -> None:
    proxy.cut_after_request(b"commit")
    with pytest.raises(ConnectionResetError):
        ask(client, b"commit\n")
    assert saw(echo, b"commit\n")


def test_a_match_may_be_split_over_two_chunks(client: socket.socket, proxy: FaultProxy) -> None:
    proxy.cut_answer(b"commit")
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sendall(b"com")
    time.sleep(0.05)
    with pytest.raises(ConnectionResetError):
        ask(client, b"mit\n")
    assert proxy.fired == 1


def test_a_delay_holds_each_direction(client: socket.socket, proxy: FaultProxy) -> None:
    proxy.delay(0.1)
    begun = time.monotonic()
    assert ask(client, b"a\n") == b"a\n"
    assert time.monotonic() - begun >= 0.2


def test_a_partition_is_silent_and_what_it_held_arrives_when_it_heals(
    client: socket.socket, proxy: FaultProxy, echo: Echo
) -> None:
    proxy.partition()
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        ask(client, b"a\n")
    assert echo.seen == []
    proxy.heal()
    client.settimeout(60)
    assert client.recv(1024) == b"a\n"


def test_dropping_a_partition_loses_what_it_held(client: socket.socket, proxy: FaultProxy, echo: Echo) -> None:
    proxy.partition()
    client.sendall(b"lost\n")
    time.sleep(0.05)
    proxy.drop()
    with socket.create_connection((proxy.host, proxy.port), timeout=60) as again:
        assert ask(again, b"next\n") == b"next\n"
    assert echo.seen == [b"next\n"]


def test_a_reset_ends_open_connections_and_welcomes_new_ones(client: socket.socket, proxy: FaultProxy) -> None:
    assert ask(client, b"a\n") == b"a\n"
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1024)
    with socket.create_connection((proxy.host, proxy.port), timeout=60) as again:
        assert ask(again, b"b\n") == b"b\n"


def test_a_refusing_proxy_lets_nobody_in_until_it_heals(client: socket.socket, proxy: FaultProxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionResetError):
        client.recv(1024)
    with (
        pytest.raises(ConnectionResetError),
        socket.create_connection((proxy.host, proxy.port), timeout=60) as again,
    ):
        ask(again, b"b\n")
    proxy.heal()
    with socket.create_connection((proxy.host, proxy.port), timeout=60) as again:
        assert ask(again, b"c\n") == b"c\n"
