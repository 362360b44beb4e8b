"""The schema makes itself, once, whoever comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql

from tenure.engines import Engine
from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres import schema as schema_module
from tenure.errors import EngineReadOnlyError, EngineVersionError
from tools.servers import Postgres

Opened = Callable[..., PostgresEngine]


def test_ten_processes_that_start_at_once_make_one_schema(opened: Opened) -> None:
    failed: list[BaseException] = []

    def start() -> None:
        try:
            opened()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    opened().mailbox("work").send(1)


def test_a_schema_that_a_newer_tenure_made_is_refused_and_left_alone(
    opened: Opened, postgres_url: str, schema: str
) -> None:
    opened().mailbox("work").send("x")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        set_version = sql.SQL("UPDATE {}.meta SET value = '99' WHERE name = 'version'").format(sql.Identifier(schema))
        connection.execute(set_version)
        with pytest.raises(EngineVersionError, match=r"version 99.*Upgrade Tenure"):
            opened()
        count = sql.SQL("SELECT count(*) FROM {}.message").format(sql.Identifier(schema))
        assert connection.execute(count).fetchone() == (1,)


def test_functions_of_an_older_version_are_made_anew_and_data_stay(
    opened: Opened, postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened().mailbox("work").send("x")
    # A step as a later version will have one: no new tables, the functions again.
    monkeypatch.setattr("tenure.engines.postgres.schema.VERSION", schema_module.VERSION + 1)
    assert [message.body for message in opened().mailbox("work").receive()] == ["x"]
    with psycopg.connect(postgres_url) as connection:
        ask = sql.SQL("SELECT value FROM {}.meta WHERE name = 'version'").format(sql.Identifier(schema))
        assert connection.execute(ask).fetchone() == (str(schema_module.VERSION),)


def test_functions_of_a_lower_revision_are_replaced_and_the_version_stays(
    opened: Opened, postgres_url: str, schema: str
) -> None:
    """As the first release left them: no revision is written down, and `lease` is not there."""
    opened().mailbox("work").send("x")
    at = sql.Identifier(schema)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DELETE FROM {}.meta WHERE name = 'functions'").format(at))
        lease = "(text, int, float8, bigint, smallint, int, float8, boolean, timestamptz, boolean)"
        connection.execute(sql.SQL("DROP FUNCTION {}.lease" + lease).format(at))
        assert [message.body for message in opened().mailbox("work").receive()] == ["x"]
        kept = connection.execute(sql.SQL("SELECT name, value FROM {}.meta ORDER BY name").format(at)).fetchall()
        assert ("functions", str(schema_module.REVISION)) in kept
        assert ("version", str(schema_module.VERSION)) in kept


def test_functions_of_a_higher_revision_are_used_as_they_are(opened: Opened, postgres_url: str, schema: str) -> None:
    opened().mailbox("work").send("x")
    at = sql.Identifier(schema)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("UPDATE {}.meta SET value = '99' WHERE name = 'functions'").format(at))
        assert [message.body for message in opened().mailbox("work").receive()] == ["x"]
        ask = sql.SQL("SELECT value FROM {}.meta WHERE name = 'functions'").format(at)
        assert connection.execute(ask).fetchone() == ("99",)


def test_a_process_of_the_first_release_claims_as_it_did(opened: Opened, postgres_url: str, schema: str) -> None:
    """It runs on while a newer one replaces the functions, and unpacks 12 columns."""
    opened().mailbox("work").send("x")
    call = sql.SQL("SELECT * FROM {}.claim('work', 5, 60, 7, 1::smallint, NULL, NULL, true)").format(
        sql.Identifier(schema)
    )
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        ((*row,),) = connection.execute(call).fetchall()
    assert (len(row), row[2], row[10], row[11]) == (12, 1, b'"x"', 0)


def test_a_migration_that_fails_half_way_leaves_nothing(
    opened: Opened, postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tenure.engines.postgres.schema.render", _broken_functions)
        with pytest.raises(Exception, match="syntax error"):
            opened()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() == (0,)
    opened().mailbox("work").send(1)


def _broken_functions(name: str, schema_name: str) -> str:
    real = {"tables.sql": _real_render("tables.sql", schema_name)}
    return real.get(name, "CREATE FUNCTION nonsense")


_real_render = schema_module.render


def test_schemas_in_one_database_do_not_meet(postgres_url: str, opened: Opened, schema: str) -> None:
    other = f"{schema}_b"
    first = opened()
    with Engine.open(f"{postgres_url}?schema={other}") as second:
        first.mailbox("work").send("first")
        assert second.mailbox("work").receive(1, 60, 0.2) == []
        second.mailbox("work").send("second")
        assert [message.body for message in first.mailbox("work").receive(5)] == ["first"]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(other)))


def test_a_user_who_may_not_create_a_schema_is_told_what_to_grant(postgres_server: Postgres, schema: str) -> None:
    postgres_server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(schema)))
    url = postgres_server.url.replace("tenure@", f"{schema}@")
    with pytest.raises(EngineReadOnlyError, match="GRANT CREATE ON DATABASE"):
        Engine.open(f"{url}?schema={schema}")
    postgres_server.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(schema)))
