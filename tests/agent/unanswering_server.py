"""An HTTP server that takes a model call and never answers it, in one of the ways that real servers and proxies have."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

EVERY_S = 0.05
_HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'
_EMPTY_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None,
                "choices": [{"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": None}]}  # fmt: skip
WAYS = ("comments", "pings", "empty pieces", "drip", "silent after headers", "half-open")


class UnansweringServer:
    """Serves every connection in one way, until the client hangs up or the server is closed."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.asked, self.hung_up = threading.Event(), threading.Event()
        """Set by the first request, and when a client closed its connection."""
        self.calls = 0
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(EVERY_S)
            if not self._request(connection):
                return
            self.calls += 1
            self.asked.set()
            for piece in self._pieces():
                if self._closing.is_set():
                    return
                try:
                    connection.sendall(piece)
                    if connection.recv(1) == b"":
                        break
                except TimeoutError:
                    continue  # nobody hung up within EVERY_S
                except OSError:
                    break
            self.hung_up.set()

    def _request(self, connection: socket.socket) -> bytes:
        """Reads a request to its end. Returns nothing for a connection on which none came."""
        data = b""
        while not self._closing.is_set():
            with suppress(TimeoutError):
                piece = connection.recv(65_536)
                if not piece:
                    return b""
                data += piece
            head, _, body = data.partition(b"\r\n\r\n")
            lengths = [
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            ]
            if lengths and len(body) >= lengths[0]:
                return data
        return b""

    def _pieces(self) -> Iterator[bytes]:
        if self.way != "half-open":
            yield _HEADERS
        event = {"comments": b": keep-alive\n\n", "pings": _PING}.get(self.way, b"")
        if self.way == "empty pieces":
            event = b"data: " + json.dumps(_EMPTY_CHUNK).encode() + b"\n\n"
        while True:
            if self.way == "drip":
                event = b"x"  # a line that never ends
            yield b"%x\r\n%s\r\n" % (len(event), event) if event else b""
