"""Engines whose server or file falls silent, breaks off or is held: every call ends in time, all goes on by itself, and every promise holds.

NATS, whose client behaves in other ways, has `nats/test_silence.py` with the same load. Full disks are in `test_full_disk.py`. Lost writes and lost files are in
`redis/test_losses.py`, `sqlite/test_faults.py` and, with real nodes, in `process/datacenter/test_lost_engine.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.engines.load import Load
from tests.soak import sized

from tools.servers import FaultProxy, Postgres, Valkey

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SILENT_S = sized("seconds for which a server or file is away in the chaos of engines", short=3.0, long=20.0)
TIMEOUT_S = 1.0
SLACK_S = 30.0
"""What a busy machine may add to a call that ends at its deadline."""
GROWTH_BYTES = 64 * 2**20


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def frozen(server: Any, proxy: FaultProxy) -> Iterator[None]:
    """The server is stopped: its kernel still accepts connections."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


@contextmanager
def swallowed(server: Any, proxy: FaultProxy) -> Iterator[None]:
    """The network forwards nothing in either direction, and says nothing."""
    proxy.partition()
    yield
    proxy.heal()


@contextmanager
def half_open(server: Any, proxy: FaultProxy) -> Iterator[None]:
    """The connections of before stay open on our side for ever, and new ones work: as after a firewall forgot them."""
    proxy.abandon()
    yield
    proxy.heal()


@contextmanager
def reset(server: Any, proxy: FaultProxy) -> Iterator[None]:
    """All connections are reset, several times."""
    for _ in range(5):
        proxy.reset()
        time.sleep(SILENT_S / 10)
    yield


@contextmanager
def restarted(server: Any, proxy: FaultProxy) -> Iterator[None]:
    """The server is killed, and comes back with what it had acknowledged."""
    server.kill()
    yield
    server.restart()


@pytest.mark.parametrize("fault", [frozen, swallowed, half_open, reset, restarted])
@pytest.mark.parametrize("kind", [Postgres, Valkey])
def test_a_server_that_falls_silent_costs_time_and_nothing_else(
    kind: type[Any], fault: Callable[..., Any], own_server: Callable[[Any], Any]
) -> None:
    server = own_server(kind())
    with FaultProxy(server.host, server.port) as proxy:
        url = server.url_of("postgres" if kind is Postgres else 0, port=proxy.port)
        through(f"{url}?timeout={TIMEOUT_S}", lambda: fault(server, proxy), TIMEOUT_S)


HOLD = """
import sqlite3, sys, time
held = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=120)
held.execute("BEGIN IMMEDIATE")
print("holds", flush=True)
time.sleep(600)
"""


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Another process takes the write lock, and is stopped: only its death gives the lock back."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.kill()


def test_a_file_whose_lock_is_held_costs_time_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    through(f"sqlite:///{file}?synchronous=normal&busy_timeout={TIMEOUT_S}", lambda: held(file), TIMEOUT_S)


def through(url: str, fault: Callable[[], Any], timeout_s: float) -> None:
    """Runs the load through the fault, and checks what it was promised."""
    load = Load(url)
    try:
        load.goes_on("before")
        before, load.slowest_s = resident(), 0.0
        with fault():
            time.sleep(SILENT_S)
        load.goes_on("after it")
        assert load.slowest_s < 2 * timeout_s + SLACK_S  # two: a call may have to connect first
        assert resident() - before < GROWTH_BYTES
        load.finish()
    finally:
        load.close()
