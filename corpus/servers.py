"""Servers on loopback that behave badly, or slowly, for the cases that wait for somebody else. Each lives in a thread of its case."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable


def serve(behave: Callable[[socket.socket], object]) -> tuple[str, int]:
    """Starts a server that treats each connection with `behave`, and returns its address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=treat, args=(connection,), daemon=True).start()

    def treat(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            behave(connection)

    threading.Thread(target=accept, name="server", daemon=True).start()
    host, port = listener.getsockname()
    return host, port


def silent(connection: socket.socket) -> None:
    """Takes what comes, and never answers."""
    while connection.recv(65536):
        pass
    time.sleep(600)


def answer(connection: socket.socket, body: bytes, status: str = "200 OK", headers: str = "") -> None:
    """Answers one request with the whole body."""
    connection.recv(65536)
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
    connection.sendall(head.encode() + body)
    connection.close()


def stream(connection: socket.socket, piece: bytes, every_s: float, count: int = 10_000) -> None:
    """Answers one request with pieces of an event stream."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    for _ in range(count):
        connection.sendall(piece)
        time.sleep(every_s)
    connection.close()
