"""The blocking caller reads whatever HTTP/1.1 allows, keeps connections, and takes nonsense for no answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import closing
from random import Random

import h11
import msgspec
import pytest

from tenure.control.caller import Caller
from tenure.control.http_exchange import BrokenAnswer, SocketAnswer, exchange
from tenure.control.messages.jobs import AskLeader, LeaderView
from tenure.errors import ConfigurationError, NodeUnavailableError

VIEW = LeaderView(leader="m@127.0.0.1:1", address="127.0.0.1:1", epoch=3, leads=True, seq=7)
BODY = msgspec.json.encode(VIEW)
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
ENDED_BY_CLOSING = b"HTTP/1.1 200 OK\r\n\r\n" + BODY
CLOSING = PLAIN.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
LATER = b"HTTP/1.1 503 No\r\nRetry-After: 7\r\ncontent-length: 2\r\n\r\nno"


class Wire:
    """A socket as `exchange` uses it, on which an answer comes in so many pieces and then the connection ends."""

    def __init__(self, data: bytes, pieces: int) -> None:
        size = -(-len(data) // pieces) or 1
        self._left = [data[at : at + size] for at in range(0, len(data), size)]

    def sendall(self, data: bytes) -> None: ...

    def recv(self, most: int) -> bytes:
        return self._left.pop(0) if self._left else b""


def read(data: bytes, *, most: int = 1_000, pieces: int = 1) -> SocketAnswer:
    return exchange(Wire(data, pieces), b"", b"", most=most)  # type: ignore[arg-type]


def one_request(connection: socket.socket) -> bytes:
    """Returns a request with its body; nothing where the caller hung up."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(65_536)):
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < size:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def asked(*answers: bytes, times: int = 1, token: str = "") -> tuple[list[object], list[list[bytes]]]:
    """Asks a server that sends one of `answers` for each request; returns the replies, and the requests on each connection."""
    left, connections = list(answers), list[list[bytes]]()

    def serve() -> None:
        while left:
            connection, _ = server.accept()
            connections.append([])
            with connection:
                while left and (request := one_request(connection)):
                    connections[-1].append(request)
                    answer = left.pop(0)
                    connection.sendall(answer)
                    if answer is not PLAIN:
                        break

    with socket.create_server(("127.0.0.1", 0)) as server, closing(Caller(token=token)) as caller:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        return [caller.ask(address, AskLeader(), 30.0) for _ in range(times)], connections


def test_a_connection_is_kept_for_the_next_request() -> None:
    replies, connections = asked(PLAIN, PLAIN, PLAIN, times=3, token="secret")
    assert (replies, [len(one) for one in connections]) == ([VIEW] * 3, [3])
    head = connections[0][0].partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0] == b"POST /v1/leader HTTP/1.1"
    assert {b"Content-Type: application/json", b"Authorization: Bearer secret"} <= set(head)


@pytest.mark.parametrize("answer", [CLOSING, CHUNKED, ENDED_BY_CLOSING], ids=["closing", "chunked", "ended by closing"])
def test_an_answer_of_another_form_is_read_and_its_connection_not_used_again(answer: bytes) -> None:
    replies, connections = asked(answer, PLAIN, PLAIN, times=3)
    assert (replies, [len(one) for one in connections]) == ([VIEW] * 3, [1, 2])


def test_a_kept_connection_that_the_node_closed_is_replaced() -> None:
    last_word = bytes(bytearray(PLAIN))  # equal, and not the same: after it the server hangs up
    replies, connections = asked(PLAIN, last_word, PLAIN, times=3)
    assert (replies, [len(one) for one in connections]) == ([VIEW] * 3, [2, 1])


def test_nonsense_is_no_answer() -> None:
    for answer in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b"nonsense\r\n\r\n",
        b"",
        PLAIN.replace(b"leader", b"\xff\xff"),
    ):
        with pytest.raises(NodeUnavailableError):
            asked(answer, answer)


def test_a_token_that_would_be_another_field_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="token"):
        Caller(token="a\r\nX-Other: b")


@pytest.mark.parametrize("answer", [PLAIN, CLOSING, CHUNKED, ENDED_BY_CLOSING, LATER], ids=str)
def test_an_answer_may_come_in_any_pieces(answer: bytes) -> None:
    assert {read(answer, pieces=pieces)[:3] for pieces in (1, 2, 7, len(answer))} == {read(answer)[:3]}


def test_what_a_proxy_says_of_later_is_read() -> None:
    assert read(LATER) == SocketAnswer(503, "7", b"no", True)


def test_a_body_that_is_too_large_is_not_read() -> None:
    for answer in (PLAIN, CHUNKED, ENDED_BY_CLOSING):
        with pytest.raises(BrokenAnswer, match="larger than 20 bytes"):
            read(answer, most=20)


def test_bytes_behind_an_answer_keep_its_connection_from_being_used_again() -> None:
    assert not read(PLAIN + b"HTTP/1.1 200 OK\r\n").reusable


def by_h11(data: bytes) -> tuple[int, bytes] | None:
    """Returns status and body as `h11` reads them; None for what it refuses."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method="POST", target="/", headers=[("Host", "node")]))
    http.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        http.receive_data(data)
        http.receive_data(b"")
        while not isinstance(event := http.next_event(), (h11.EndOfMessage, h11.ConnectionClosed)):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
    except h11.ProtocolError:
        return None
    return (status, body) if status else None


def test_a_damaged_answer_is_read_as_h11_reads_it_or_refused() -> None:
    random = Random(7)
    damages: list[Callable[[bytes, int], bytes]] = [
        lambda data, at: data[:at] + data[at + 1 :],
        lambda data, at: data[:at] + bytes([random.randrange(256)]) + data[at + 1 :],
        lambda data, at: data[:at] + data[random.randrange(len(data)) :],
        lambda data, at: data[:at] + b"\r\n" + data[at:],
    ]
    read_some = 0
    for _ in range(1_500):
        data = random.choice([PLAIN, CLOSING, CHUNKED, LATER])
        for _ in range(random.randint(1, 3)):
            data = random.choice(damages)(data, random.randrange(len(data) or 1))
        try:
            answer = read(data)
        except BrokenAnswer:
            continue
        read_some += 1
        assert (answer.status, answer.body) == by_h11(data), data
    assert read_some > 100
