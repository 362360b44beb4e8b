"""Fixtures that pytest finds by itself once Tenure is installed. Imports nothing heavy: every pytest run loads it.

`TENURE_TEST_REDIS_URL` and the like name a server for the fixtures of real engines. Otherwise `valkey-server` or `redis-server`, `nats-server`,
`initdb` and `postgres` are taken from the PATH and run on a free port of 127.0.0.1, in a folder of their own, until the test run ends. A server
that cannot be had is a skip that says why.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tenure.clock import ManualClock
    from tenure.testing.datacenter import TestDatacenter
    from tenure.testing.mailbox import FakeEngine, FakeMailbox


@pytest.fixture
def tenure_clock() -> ManualClock:
    """Returns a clock that moves only when the test says so."""
    from tenure.clock import ManualClock

    return ManualClock()


@pytest.fixture
def tenure_engine(tenure_clock: ManualClock) -> Iterator[FakeEngine]:
    """Yields an engine in memory, on `tenure_clock`, whose mailboxes can be made to fail."""
    from tenure.testing.mailbox import FakeEngine

    with FakeEngine(tenure_clock) as engine:
        yield engine


@pytest.fixture
def tenure_mailbox(tenure_engine: FakeEngine) -> FakeMailbox[Any, Any]:
    """Returns a mailbox of `tenure_engine` that can expire receipts, lose its connection, and counts its calls."""
    return tenure_engine.mailbox("mailbox")


@pytest.fixture
def tenure_dc(tenure_clock: ManualClock) -> Iterator[TestDatacenter]:
    """Yields a whole datacenter on `tenure_clock`: submit workflows, let hours pass, ask why. Nothing waits."""
    from tenure.testing.datacenter import TestDatacenter

    datacenter = TestDatacenter(clock=tenure_clock)
    try:
        yield datacenter
    finally:
        datacenter.close()


def _server(kind: str) -> Iterator[str]:
    with ExitStack() as stack:
        try:
            url = stack.enter_context(server(kind))
        except CannotBeHad as reason:
            pytest.skip(f"no {kind} for this test: {reason}")
        yield url


@pytest.fixture(scope="session")
def _tenure_redis() -> Iterator[str]:
    yield from _server("redis")


@pytest.fixture(scope="session")
def _tenure_nats() -> Iterator[str]:
    yield from _server("nats")


@pytest.fixture(scope="session")
def _tenure_postgres() -> Iterator[str]:
    yield from _server("postgres")


def _own_part(kind: str, url: str) -> str:
    from tenure.randomness import new_id

    return namespaced(kind, url, f"t{new_id()[:12]}")


@pytest.fixture
def tenure_redis_url(_tenure_redis: str) -> str:
    """Returns a real Redis or Valkey, in a namespace of this test's own. TENURE_TEST_REDIS_URL names one; else one is started."""
    return _own_part("redis", _tenure_redis)


@pytest.fixture
def tenure_nats_url(_tenure_nats: str) -> str:
    """Returns a real NATS JetStream, in a namespace of this test's own. TENURE_TEST_NATS_URL names one; else one is started."""
    return _own_part("nats", _tenure_nats)


@pytest.fixture
def tenure_postgres_url(_tenure_postgres: str) -> str:
    """Returns a real PostgreSQL, in a schema of this test's own. TENURE_TEST_POSTGRES_URL names one; else one is started."""
    return _own_part("postgres", _tenure_postgres)


@pytest.fixture
def tenure_sqlite_url(tmp_path: Path) -> str:
    """Returns a SQLite engine in a file of this test's own."""
    return f"sqlite:///{tmp_path / 'tenure.db'}"


START_S = 90.0


class CannotBeHad(Exception):
    """Why there is no such server here, and what would help."""


@contextmanager
def server(kind: str) -> Iterator[str]:
    """Yields the URL of a server of this kind: redis, nats or postgres."""
    variable = f"TENURE_TEST_{kind.upper()}_URL"
    if named := os.environ.get(variable):
        yield named
        return
    with tempfile.TemporaryDirectory(prefix=f"tenure-{kind}-") as folder:
        port = free_port()
        try:
            command, url = {"redis": _redis, "nats": _nats, "postgres": _postgres}[kind](Path(folder), port)
        except CannotBeHad as reason:
            raise CannotBeHad(f"{reason}, or set {variable}") from None
        with _running(command, Path(folder), port):
            yield url


def namespaced(kind: str, url: str, name: str) -> str:
    """Returns a part of the server for one test alone."""
    option = "schema" if kind == "postgres" else "namespace"
    return f"{url}{'&' if '?' in url else '?'}{option}={name}"


def free_port() -> int:
    """Returns a port on which nobody listens. It lies below those that the kernel gives to outgoing connections, one of which could take it first."""
    from tenure.randomness import fresh_random

    random = fresh_random()
    for _ in range(200):
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise CannotBeHad("there is no free port between 15000 and 32000")


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    raise CannotBeHad(f"install {' or '.join(names)}")


def _redis(folder: Path, port: int) -> tuple[list[str], str]:
    program = _program("valkey-server", "redis-server")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes"]
    return [program, *options, "--maxmemory-policy", "noeviction"], f"redis://127.0.0.1:{port}/0"


def _nats(folder: Path, port: int) -> tuple[list[str], str]:
    program = _program("nats-server")
    return [program, "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(folder)], f"nats://127.0.0.1:{port}"


def _postgres(folder: Path, port: int) -> tuple[list[str], str]:
    if os.getuid() == 0:
        raise CannotBeHad("PostgreSQL refuses to run as root: run the tests as another user")
    data = folder / "data"
    prepare = [_program("initdb"), "-D", str(data), "-U", "tenure", "-A", "trust", "--no-sync"]
    subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  a program of the PATH, our arguments
    options = ["-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(folder), "-F"]
    return [_program("postgres"), *options], f"postgresql://tenure@127.0.0.1:{port}/postgres"


@contextmanager
def _running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)  # noqa: S603  a program of the PATH
    try:
        _until_open(process, port, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_open(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    from tenure.clock import SystemClock

    clock = SystemClock()
    begun = clock.monotonic()
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or clock.monotonic() - begun > START_S:
                told = log.read_text(errors="replace")[-500:]
                raise CannotBeHad(f"it does not start: {told}") from None
            clock.sleep(0.05)
