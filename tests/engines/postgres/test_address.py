"""Reading a URL into settings, and what `tenure doctor` finds on a server."""

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
from tenure.engines import Engine
from tenure.engines.contracts import Level
from tenure.engines.postgres import PostgresEngine, address
from tenure.engines.postgres.address import read_url
from tenure.errors import ConfigurationError, EngineReadOnlyError, EngineRefusedError, EngineUnavailableError
from tools.servers import Postgres


def test_options_of_ours_and_of_libpq_are_told_apart() -> None:
    settings = read_url(
        "postgresql://u:s%2Fx@h:5433/db?schema=mine&pool=3&notify=off&poll=0.5&timeout=8&sslmode=require"
    )
    assert (settings.schema, settings.pool, settings.notify, settings.poll_s, settings.timeout_s) == (
        "mine",
        3,
        False,
        0.5,
        8,
    )
    info = settings.conninfo
    assert (info["user"], info["password"], info["host"], info["port"], info["dbname"]) == (
        "u",
        "s/x",
        "h",
        "5433",
        "db",
    )
    assert (info["sslmode"], info["application_name"], info["connect_timeout"]) == ("require", "tenure", "4")
    assert "schema" not in info


def test_defaults_are_a_schema_named_tenure_and_notifications() -> None:
    settings = read_url("postgresql://h/db")
    assert (settings.schema, settings.pool, settings.notify) == ("tenure", 10, True)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://h/db?schema=Upper", "schema=Upper"),
        ("postgresql://h/db?schema=pg_own", "schema=pg_own"),
        ('postgresql://h/db?schema=a"b', "schema="),
        ("postgresql://h/db?pool=0", "pool=0"),
        ("postgresql://h/db?notify=maybe", "notify=maybe"),
        ("postgresql://h/db?timeout=nan", "timeout=nan"),
        ("postgresql://h/db?shema=x", "nobody reads: shema"),
        ("postgresql://u:s3cret%zz@h/db", "special characters percent-encoded"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_and_without_the_password(url: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error) as caught:
        read_url(url)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(caught.value.__cause__)


def test_several_hosts_go_to_the_client_as_they_are() -> None:
    info = read_url("postgresql://a:1,b:2/db?target_session_attrs=read-write").conninfo
    assert (info["host"], info["port"], info["target_session_attrs"]) == ("a,b", "1,2", "read-write")


def test_settings_that_are_printed_do_not_tell_the_password() -> None:
    assert "s3cret" not in repr(read_url("postgresql://u:s3cret@h/db"))


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
    monkeypatch.setattr(address, "_OLD_TRANSACTION_S", 0.05)
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
    monkeypatch.setattr(address, "_NOTIFY_S", 0.1)
    settings = read_url(f"{postgres_url}?schema={schema}")
    opened()
    with psycopg.connect(postgres_url, autocommit=True) as session:
        # As a transaction pooler: LISTEN goes to another session than the one that waits.
        execute = session.execute
        monkeypatch.setattr(
            session, "execute", lambda query, *rest: execute("SELECT 1") if "LISTEN" in query else execute(query, *rest)
        )
        (finding,) = address.notifications(session, settings)
    assert finding.level is Level.ERROR
    assert "notify=off" in finding.remedy
    (finding,) = address.notifications(None, read_url(f"{postgres_url}?notify=off&poll=2"))
    assert "poll every 2 s" in finding.what


def test_a_clock_that_differs_is_shown(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as session:
        (finding,) = address.clocks(session, ManualClock(wall=1_700_000_000.0))
        assert finding.level is Level.WARNING
        (finding,) = address.clocks(session, SystemClock())
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
