"""Jobs that are submitted in a transaction of each driver that people use, on a real PostgreSQL with a real manager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.docs.page_blocks import ROOT, blocks_of
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, datacenter

from tenure import submit_in, submit_in_async, workflow
from tenure.client.client import Client
from tenure.engines import Engine
from tenure.errors import EngineError, UnknownJobError
from tools.servers import Postgres

__all__ = ["datacenter"]


def by_psycopg(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        kept = submit_in(connection, "encode", {"path": "psycopg"})
        connection.commit()
        lost = submit_in(connection, "encode", {"path": "psycopg"})
        connection.rollback()
    return [kept, lost]


@workflow
def encode(ctx: Any, path: str) -> int:
    return len(path)


def by_the_page(url: str) -> list[str]:
    """Runs the block of docs/clients.md as it is printed, and then with an error inside its transaction."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE film (path text)")
    (code,) = [block.code for block in blocks_of(ROOT / "docs/clients.md") if block.run_by]
    names: dict[str, Any] = {"url": url, "encode": encode}
    exec(compile(code, "clients.md", "exec"), names)
    kept = names["job_id"]
    with pytest.raises(ZeroDivisionError):
        exec(compile(code + "    1 / 0\n", "clients.md", "exec"), names)
    return [kept, names["job_id"]]


def by_sqlalchemy(url: str) -> list[str]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        kept = submit_in(session, "encode", {"path": "a session"})
        session.commit()
        lost = submit_in(session, "encode", {"path": "a session"})
        session.rollback()
    engine.dispose()
    return [kept, lost]


def by_django(url: str) -> list[str]:
    from django.conf import settings
    from django.db import connection, transaction

    parts = psycopg.conninfo.conninfo_to_dict(url)
    if not settings.configured:
        where = {"NAME": parts["dbname"], "USER": parts["user"], "HOST": parts["host"], "PORT": parts.get("port", "")}
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **where}})
        django.setup()
    with transaction.atomic():
        kept = submit_in(connection, "encode", {"path": "django"})
    lost = ""
    try:
        with transaction.atomic():
            lost = submit_in(connection, "encode", {"path": "django"})
            raise LookupError
    except LookupError:
        pass
    connection.close()
    return [kept, lost]


async def by_async_drivers(url: str) -> list[list[str]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        first = await submit_in_async(connection, "encode", {"path": "async psycopg"})
        await connection.commit()
        second = await submit_in_async(connection, "encode", {"path": "async psycopg"})
        await connection.rollback()
    raw = await asyncpg.connect(url)
    async with raw.transaction():
        third = await submit_in_async(raw, "encode", {"path": "asyncpg"})
    undone = raw.transaction()
    await undone.start()
    fourth = await submit_in_async(raw, "encode", {"path": "asyncpg"})
    await undone.rollback()
    await raw.close()
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    async with AsyncSession(engine) as session:
        fifth = await submit_in_async(session, "encode", {"path": "an async session"})
        await session.commit()
        sixth = await submit_in_async(session, "encode", {"path": "an async session"})
        await session.rollback()
    await engine.dispose()
    return [[first, second], [third, fourth], [fifth, sixth]]


def known(client: Client, job_id: str) -> bool:
    try:
        client.job(job_id)
    except UnknownJobError:
        return False
    return True


@pytest.mark.slow
def test_a_job_exists_if_and_only_if_its_transaction_commits_with_every_driver(
    own_server: Callable[[Any], Any], datacenter: Datacenter
) -> None:
    server = own_server(Postgres())
    datacenter.url = server.url
    with psycopg.connect(server.url) as connection, pytest.raises(EngineError, match="no engine of Tenure"):
        submit_in(connection, "encode", {"path": "before there is an engine"})
    Engine.open(server.url).close()
    # No manager is up.
    pairs = [
        by_psycopg(server.url),
        by_the_page(server.url),
        by_sqlalchemy(server.url),
        *asyncio.run(by_async_drivers(server.url)),
    ]
    datacenter.manager("m-1")
    datacenter.until_led()
    pairs.append(by_django(server.url))
    client = datacenter.client
    for kept, _ in pairs:
        wait_until(lambda kept=kept: known(client, kept), why=datacenter.said)
    assert [known(client, lost) for _, lost in pairs] == [False] * len(pairs)
    datacenter.close()
