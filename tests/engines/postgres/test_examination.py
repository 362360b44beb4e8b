"""What `tenure doctor` finds on servers that are set up badly, each a real one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from tenure.cli.root import tenure
from tenure.clock import ManualClock, SystemClock
from tenure.engines import Engine, Level
from tenure.engines.postgres import PostgresEngine, examination
from tenure.engines.postgres.url import read_url
from tenure.errors import ConfigurationError, EngineReadOnlyError, EngineRefusedError, EngineUnavailableError
from tools.servers import Postgres

Opened = Callable[..., PostgresEngine]


def found(engine: Engine, level: Level) -> str:
    return "\n".join(f"{what}: {remedy}" for at, what, remedy in engine.check() if at is level)


@pytest.mark.slow
def test_settings_that_make_an_acknowledged_write_losable_are_errors(own_server: Callable[[Any], Any]) -> None:
    server = own_server(Postgres({"fsync": "off", "synchronous_commit": "off", "autovacuum": "off"}))
    with Engine.open(server.url) as engine:
        errors = found(engine, Level.ERROR)
    for text in ("fsync is off", "synchronous_commit is off", "autovacuum is off", "Set synchronous_commit = on"):
        assert text in errors
    done = CliRunner().invoke(tenure, ["doctor", "--engine", server.url])
    assert done.exit_code == 1
    assert "synchronous_commit is off" in done.output
    assert "not promised" in done.output


@pytest.mark.slow
def test_a_server_with_full_durability_has_no_errors(own_server: Callable[[Any], Any]) -> None:
    server = own_server(Postgres({}))
    with Engine.open(server.url) as engine:
        assert found(engine, Level.ERROR) == ""
        assert found(engine, Level.WARNING) == ""
        assert "notifications arrive" in found(engine, Level.OK)
    done = CliRunner().invoke(tenure, ["doctor", "--engine", server.url])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_standbys_are_asked_whether_they_wait(own_server: Callable[[Any], Any]) -> None:
    server = own_server(Postgres({"wal_level": "replica", "max_wal_senders": "4"}))
    with closing(psycopg.connect(f"{server.url}?replication=true", autocommit=True)) as standby:
        standby.pgconn.send_query(b"START_REPLICATION PHYSICAL 0/0")  # streams, as an asynchronous standby does
        threading.Event().wait(0.3)
        with Engine.open(server.url) as engine:
            assert "asynchronous standby" in found(engine, Level.WARNING)
    server.execute(sql.SQL("ALTER ROLE tenure SET synchronous_commit = 'local'"))
    server.execute(sql.SQL("ALTER SYSTEM SET synchronous_standby_names = 'elsewhere'"))
    server.execute(sql.SQL("SELECT pg_reload_conf()"))
    threading.Event().wait(0.3)
    with Engine.open(server.url) as engine:
        assert "synchronous_commit is local" in found(engine, Level.WARNING)


def test_rights_that_are_missing_are_named(opened: Opened, postgres_server: Postgres, schema: str) -> None:
    opened()
    name = sql.Identifier(schema)
    postgres_server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    postgres_server.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(name, name))
    postgres_server.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {} TO {}").format(name, name))
    url = postgres_server.url.replace("tenure@", f"{schema}@")
    with Engine.open(f"{url}?schema={schema}") as engine:
        assert "DELETE on message" in found(engine, Level.ERROR)
        assert "GRANT SELECT, INSERT, UPDATE, DELETE" in found(engine, Level.ERROR)
        engine.mailbox("work").send(1)
        (message,) = engine.mailbox("work").receive()
        with pytest.raises(EngineReadOnlyError, match="permission denied"):
            message.acknowledge()
    postgres_server.execute(sql.SQL("DROP OWNED BY {}").format(name))
    postgres_server.execute(sql.SQL("DROP ROLE {}").format(name))


def test_an_old_transaction_and_few_connections_are_warnings(
    opened: Opened, postgres_url: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(examination, "_OLD_TRANSACTION_S", 0.05)
    engine = opened("&pool=500")
    with psycopg.connect(postgres_url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM pg_class")
        threading.Event().wait(0.2)
        warnings = found(engine, Level.WARNING)
    assert "no dead row can be removed" in warnings
    assert "takes up to 501" in warnings


def test_notifications_that_do_not_arrive_are_found(
    opened: Opened, schema: str, postgres_url: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(examination, "_NOTIFY_S", 0.1)
    settings = read_url(f"{postgres_url}?schema={schema}")
    opened()
    with psycopg.connect(postgres_url, autocommit=True) as session:
        # As a transaction pooler: LISTEN goes to another session than the one that waits.
        execute = session.execute
        monkeypatch.setattr(
            session, "execute", lambda query, *rest: execute("SELECT 1") if "LISTEN" in query else execute(query, *rest)
        )
        (finding,) = examination.notifications(session, settings)
    assert finding.level is Level.ERROR
    assert "notify=off" in finding.remedy
    (finding,) = examination.notifications(None, read_url(f"{postgres_url}?notify=off&poll=2"))
    assert "poll every 2 s" in finding.what


def test_a_clock_that_differs_is_shown(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as session:
        (finding,) = examination.clocks(session, ManualClock(wall=1_700_000_000.0))
        assert finding.level is Level.WARNING
        (finding,) = examination.clocks(session, SystemClock())
        assert finding.level is Level.OK


def test_a_database_that_is_not_utf8_is_refused(postgres_server: Postgres, schema: str) -> None:
    create = "CREATE DATABASE {} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    postgres_server.execute(sql.SQL(create).format(sql.Identifier(schema)))
    with pytest.raises(EngineRefusedError, match="LATIN1"):
        Engine.open(postgres_server.url_of(schema))
    postgres_server.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(schema)))


def test_a_read_only_database_says_so_for_every_write(opened: Opened, postgres_server: Postgres, schema: str) -> None:
    opened()
    url = f"{postgres_server.url}?schema={schema}&options=-c%20default_transaction_read_only%3Don"
    with Engine.open(url) as engine, pytest.raises(EngineReadOnlyError, match="connect to the primary"):
        engine.mailbox("work").send(1)


@pytest.mark.slow
def test_wrong_passwords_users_and_databases_are_told_apart_and_never_repeated(
    own_server: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server(Postgres(password="s3cret/+%"))
    with Engine.open(server.url) as engine:
        engine.mailbox("work").send(1)
        assert "s3cret" not in engine.url
        assert "s3cret" not in repr(engine.check())
    cases = {
        server.url.replace("s3cret", "wr0ng"): (ConfigurationError, "Check the password"),
        server.url_of("nowhere"): (ConfigurationError, "Create the database"),
    }
    for url, (kind, remedy) in cases.items():
        with pytest.raises(kind, match=remedy) as caught:
            Engine.open(url)
        assert "s3cret" not in str(caught.value)
        assert "wr0ng" not in str(caught.value)
    server.kill()
    with pytest.raises(EngineUnavailableError, match="refused") as lost:
        Engine.open(server.url)
    assert "s3cret" not in f"{lost.value} {lost.value.__cause__}"
    done = CliRunner().invoke(tenure, ["doctor", "--engine", server.url])
    assert done.exit_code == 1
    assert "refused" in done.output
    assert "s3cret" not in done.output + caplog.text
