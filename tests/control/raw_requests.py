"""A port with small limits, and requests to it as plain bytes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.patience import PATIENCE_S

from tenure.control.admission import HttpLimits
from tenure.control.tls import ServerTls
from tenure.control.transport import HttpServer


def raw(port: int, data: bytes, *, then: bytes = b"") -> bytes:
    """Sends bytes as they are. Returns everything that comes back until the other side closes: each caller asks it to, or gives it a reason."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(data)
        if then:
            time.sleep(0.05)
            sock.sendall(then)
        found = b""
        # What it had not read yet when it closed resets the connection.
        with suppress(ConnectionResetError):
            while chunk := sock.recv(65_536):
                found += chunk
        return found


@contextmanager
def limited(
    tls: ServerTls | None = None, *, release: threading.Event | None = None, **limits: Any
) -> Iterator[tuple[HttpServer, int]]:
    """A port whose handler takes its time for who waits: until `release` is set, where a test says so, and else as long as the request says."""
    import asyncio

    from tenure.control.messages.jobs import Done
    from tenure.jobs.decisions import Outcome

    started, stop, found = threading.Event(), threading.Event(), []

    async def handler(sender: str, request: Any) -> Any:
        wait_s = getattr(request, "wait_s", 0.0)
        if release is not None and wait_s:
            await asyncio.to_thread(release.wait, PATIENCE_S)
        else:
            await asyncio.sleep(60 if getattr(request, "job_id", "") == "slow" else wait_s)
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
