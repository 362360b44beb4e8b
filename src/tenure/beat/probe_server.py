"""Serves probes: a very small HTTP server that no client can hold up. `h11` reads and writes HTTP; this file owns sockets, threads and bounds.

One thread reads and writes all connections without blocking, so that a thousand idle ones cost a thousand small objects and not
a thousand threads; a few more threads make the answers that may take a moment. The server does not know the paths: it hands each to
`answer`. Each connection gets one answer and is closed (decision 0041).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple

import h11

from tenure.clock import Clock
from tenure.errors import LimitError, PortTakenError

_logger = logging.getLogger(__name__)

_HEAD_LIMIT_BYTES = 8_192
_READ_S = 10.0  # for the whole request, however slowly it drips
_ANSWER_S = 5.0  # for `answer`: then it is a 503, and a probe has long given up
_WRITE_S = 10.0
_LINGER_S = 1.0  # after the answer: closing with unread input would reset the connection and lose the answer
_SWEEP_S = 0.5
_FAREWELL_S = 1.0  # for answers under way when the server stops; a check that hangs is left behind
_MAX_CONNECTIONS = 2_048
_ANSWERERS = 4
_MAX_QUESTIONS = 256
_OUT_OF_HANDLES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ProbeAnswer(NamedTuple):
    """One HTTP response."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class _Phase(Enum):
    READING = 1
    ANSWERING = 2
    WRITING = 3
    LINGERING = 4


@dataclass(eq=False, slots=True)
class _Connection:
    sock: socket.socket
    deadline: float
    phase: _Phase = _Phase.READING
    head: bytearray = field(default_factory=bytearray)
    """The bytes of the request so far; at most `_HEAD_LIMIT_BYTES` and one read more."""
    http: h11.Connection | None = None
    """Made when the first bytes come, so that a client that never says anything costs no parser."""
    out: memoryview = field(default_factory=lambda: memoryview(b""))
    head_only: bool = False


class ProbeServer:
    """Listens from construction on; serves between `start()` and `stop()`."""

    def __init__(
        self,
        answer: Callable[[str], ProbeAnswer],
        *,
        at_once: Mapping[str, ProbeAnswer],
        host: str,
        port: int,
        clock: Clock,
        what: str = "HTTP",
    ) -> None:
        """`at_once` holds the answers that never wait for anything."""
        self._answer = answer
        self._at_once = dict(at_once)
        self._clock = clock
        self._listener = _listen(what, host, port)
        self._selector = selectors.DefaultSelector()
        self._wakes, self._waker = socket.socketpair()
        for sock in (self._listener, self._wakes, self._waker):
            sock.setblocking(False)
        self._connections: dict[_Connection, None] = {}  # in order of arrival
        self._questions: queue.SimpleQueue[tuple[_Connection, str] | None] = queue.SimpleQueue()
        self._answers: deque[tuple[_Connection, ProbeAnswer]] = deque()
        self._answerers: list[threading.Thread] = []
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return host, port

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="tenure-probes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port. Safe to call twice, and before start()."""
        self._stopping = True
        if self._thread is not None:
            self._wake()
            self._thread.join(5.0)
        for _ in self._answerers:
            self._questions.put(None)
        until = self._clock.monotonic() + _FAREWELL_S
        for thread in self._answerers:
            thread.join(max(0.0, until - self._clock.monotonic()))
        for connection in list(self._connections):
            self._close(connection)
        for sock in (self._listener, self._wakes, self._waker):
            sock.close()
        self._selector.close()

    def _serve(self) -> None:
        sweep_at = 0.0
        while not self._stopping:
            try:
                self._turn()
                now = self._clock.monotonic()
                if now >= sweep_at:
                    sweep_at = now + _SWEEP_S
                    self._sweep(now)
            except Exception:  # one client's oddity must never end the probes of the whole process
                _logger.exception("The probe server met something unexpected, and goes on")

    def _turn(self) -> None:
        for key, _ in self._selector.select(_SWEEP_S):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wakes:
                with contextlib.suppress(BlockingIOError):
                    self._wakes.recv(4_096)
            else:
                connection: _Connection = key.data
                try:
                    self._advance(connection)
                except OSError:
                    self._close(connection)
        while self._answers:
            connection, answer = self._answers.popleft()
            if connection in self._connections and connection.phase is _Phase.ANSWERING:
                self._respond(connection, answer)

    def _accept(self) -> None:
        for _ in range(64):  # then let the others have a turn
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_HANDLES or not self._drop_oldest():
                    return
                continue
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self._connections) >= _MAX_CONNECTIONS:
                self._drop_oldest()
            connection = _Connection(sock, self._clock.monotonic() + _READ_S)
            self._connections[connection] = None
            self._selector.register(sock, selectors.EVENT_READ, connection)

    def _drop_oldest(self) -> bool:
        """Make room: whoever has been sending nothing for longest goes first."""
        for connection in self._connections:
            if connection.phase in (_Phase.READING, _Phase.LINGERING):
                self._close(connection)
                return True
        return False

    def _advance(self, connection: _Connection) -> None:
        match connection.phase:
            case _Phase.READING:
                self._read(connection)
            case _Phase.WRITING:
                self._write(connection)
            case _Phase.ANSWERING:
                if self._drained(connection):  # it said all it had to say, and still waits for the answer
                    self._selector.unregister(connection.sock)
            case _Phase.LINGERING:
                if self._drained(connection):
                    self._close(connection)

    def _drained(self, connection: _Connection) -> bool:
        """Throw away what comes after the request; True at its end."""
        try:
            return not connection.sock.recv(4_096)
        except (BlockingIOError, InterruptedError):
            return False

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(4_096)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            self._close(connection)
            return
        connection.head += data
        try:
            request = _request(connection, data)
        except h11.RemoteProtocolError as error:
            self._respond(connection, _plain(HTTPStatus(error.error_status_hint)))
            return
        if request is not None:
            self._ask(connection, request.method.decode("ascii").upper(), _path(request.target))

    def _ask(self, connection: _Connection, method: str, path: str) -> None:
        connection.head_only = method == "HEAD"
        if method not in ("GET", "HEAD"):
            self._respond(connection, _plain(HTTPStatus.METHOD_NOT_ALLOWED, (("Allow", "GET, HEAD"),)))
        elif path in self._at_once:
            self._respond(connection, self._at_once[path])
        elif self._questions.qsize() >= _MAX_QUESTIONS:
            self._respond(
                connection, _plain(HTTPStatus.SERVICE_UNAVAILABLE, why="earlier checks have not answered yet")
            )
        else:
            connection.phase = _Phase.ANSWERING
            connection.deadline = self._clock.monotonic() + _ANSWER_S
            self._questions.put((connection, path))
            self._hire()

    def _hire(self) -> None:
        # A new one only while all are busy, so that an answer that hangs holds up one of them and not the rest.
        if len(self._answerers) < _ANSWERERS and self._questions.qsize() > 0:
            thread = threading.Thread(target=self._answer_questions, name="tenure-probe-answers", daemon=True)
            self._answerers.append(thread)
            thread.start()

    def _answer_questions(self) -> None:
        while (question := self._questions.get()) is not None:
            connection, path = question
            try:
                answer = self._answer(path)
            except Exception as error:
                _logger.exception("The answer to %s failed", path)
                answer = _plain(HTTPStatus.SERVICE_UNAVAILABLE, why=f"{type(error).__name__}: {error}")
            self._answers.append((connection, answer))
            self._wake()

    def _respond(self, connection: _Connection, answer: ProbeAnswer) -> None:
        connection.out = memoryview(_written(connection, answer))
        connection.phase = _Phase.WRITING
        connection.deadline = self._clock.monotonic() + _WRITE_S
        try:
            self._write(connection)
        except OSError:
            self._close(connection)

    def _write(self, connection: _Connection) -> None:
        try:
            sent = connection.sock.send(connection.out)
        except (BlockingIOError, InterruptedError):
            sent = 0
        connection.out = connection.out[sent:]
        if connection.out:
            self._listen_for(selectors.EVENT_WRITE, connection)
            return
        connection.sock.shutdown(socket.SHUT_WR)
        connection.phase = _Phase.LINGERING
        connection.deadline = self._clock.monotonic() + _LINGER_S
        self._listen_for(selectors.EVENT_READ, connection)

    def _listen_for(self, event: int, connection: _Connection) -> None:
        try:
            self._selector.modify(connection.sock, event, connection)
        except KeyError:
            self._selector.register(connection.sock, event, connection)

    def _sweep(self, now: float) -> None:
        for connection in [c for c in self._connections if now >= c.deadline]:
            if connection.phase is _Phase.ANSWERING:
                why = f"the check did not answer within {_ANSWER_S:g} s"
                self._respond(connection, _plain(HTTPStatus.SERVICE_UNAVAILABLE, why=why))
            elif connection.phase is _Phase.READING and connection.head:
                self._respond(connection, _plain(HTTPStatus.REQUEST_TIMEOUT))
            else:
                self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"w")


def _listen(what: str, host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise LimitError("port", port, "between 0 and 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1_024)
    except OSError as error:
        raise PortTakenError(what, host, port, error.strerror or str(error)) from error


def _new_http() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT_BYTES)


def _request(connection: _Connection, data: bytes) -> h11.Request | None:
    """Returns the request once its head is complete, None before. Raises `h11.RemoteProtocolError`."""
    if connection.http is None:
        connection.http = _new_http()
    try:
        return _next_request(connection.http, data)
    except h11.RemoteProtocolError:
        # Scripts that write a request by hand often leave the Host header out, and h11 refuses HTTP/1.1 without it. Such a request is
        # read once more as HTTP/1.0, which knows no Host. Both get the same answer here: one, and then the connection is closed.
        connection.http = _new_http()
        return _next_request(connection.http, bytes(connection.head).replace(b" HTTP/1.1", b" HTTP/1.0", 1))


def _next_request(http: h11.Connection, data: bytes) -> h11.Request | None:
    http.receive_data(data)
    event = http.next_event()
    if not isinstance(event, h11.Request):
        return None
    if not event.http_version.startswith(b"1."):
        raise h11.RemoteProtocolError("HTTP/1 is served here", error_status_hint=HTTPStatus.BAD_REQUEST)
    return event


def _path(target: bytes) -> str:
    """Returns the path of a request, without query and trailing slash."""
    text = target.decode("latin-1")
    if "://" in text:  # as proxies ask
        text = "/" + text.split("://", 1)[1].partition("/")[2]
    return text.partition("?")[0].partition("#")[0].rstrip("/") or "/"


def _plain(status: HTTPStatus, headers: tuple[tuple[str, str], ...] = (), *, why: str = "") -> ProbeAnswer:
    return ProbeAnswer(status, (why or status.phrase).encode() + b"\n", "text/plain; charset=utf-8", headers)


def _written(connection: _Connection, answer: ProbeAnswer) -> bytes:
    """Returns the bytes of the answer."""
    headers = [
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(answer.body))),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
        *answer.headers,
    ]
    http = connection.http or _new_http()
    head = http.send(h11.Response(status_code=answer.status, reason=answer.status.phrase, headers=headers))
    body = None if connection.head_only else http.send(h11.Data(data=answer.body))
    return (head or b"") + (body or b"")
