"""A port with small limits, and requests to it as plain bytes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenure.control.admission import HttpLimits
from tenure.control.tls import ServerTls
from tenure.control.transport import HttpServer


def raw(port: int, data: bytes, *, then: bytes = b"") -> bytes:
    """Bytes as they are; everything that comes back until the other side closes, or for two seconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(data)
        if then:
            time.sleep(0.05)
            sock.sendall(then)
        sock.settimeout(2)
        found = b""
        try:
            while chunk := sock.recv(65_536):
                found += chunk
        except (TimeoutError, ConnectionResetError):
            pass
        return found


@contextmanager
def limited(tls: ServerTls | None = None, **limits: Any) -> Iterator[tuple[HttpServer, int]]:
    """A port whose handler takes its time for who waits."""
    import asyncio

    from tenure.control.messages.jobs import Done
    from tenure.jobs.decisions import Outcome

    started, stop, found = threading.Event(), threading.Event(), []

    async def handler(sender: str, request: Any) -> Any:
        await asyncio.sleep(60 if getattr(request, "job_id", "") == "slow" else getattr(request, "wait_s", 0.0))
        return Done(job_id="j", outcome=Outcome.ALREADY, epoch=1)

    async def main() -> None:
        server = HttpServer(handler, limits=HttpLimits(**limits), tls=tls)
        found.append((server, await server.start()))
        started.set()
        await asyncio.to_thread(stop.wait)
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert started.wait(30)
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join(30)


def status(data: bytes) -> int:
    return int(data.split(b" ", 2)[1]) if data else 0


def get(port: int, path: str = "/v1/leader") -> int:
    return status(raw(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()))
