"""Probes of a process that has run out of file handles."""

from __future__ import annotations

import socket
import subprocess
import sys

SCRIPT = """
import resource, sys
from tenure.beat.probes import HealthServer
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with HealthServer(0, host="127.0.0.1") as server:
    print(server.address[1], flush=True)
    sys.stdin.read()
"""


def test_more_clients_than_handles_do_not_hold_up_the_probes() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))
        idle = [socket.create_connection(address, timeout=180) for _ in range(200)]
        for path in ("live", "ready"):
            with socket.create_connection(address, timeout=180) as client:
                client.sendall(f"GET /health/{path} HTTP/1.1\r\n\r\n".encode())
                assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        for client in idle:
            client.close()
        process.communicate("", timeout=180)
        assert process.returncode == 0
