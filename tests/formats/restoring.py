"""Puts a recorded fixture back into a real engine, and tells what it was recorded to hold. `tests/fixtures/format1/README.md` says how they were made."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
import redis

from tools.servers import Nats

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "format1"
SPACE = "format1"


def payload(name: str) -> bytes:
    return lzma.decompress((FOLDER / f"{name}.xz").read_bytes())


def expected(name: str) -> dict[str, Any]:
    """What the recorder knew that it wrote, by its own books and not by reading the engine."""
    found: dict[str, Any] = msgspec.json.decode(gzip.decompress((FOLDER / f"{name}.expected.json.gz").read_bytes()))
    return found


class Restored:
    """An engine that holds a fixture: its URL, and the content that it must have."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url
        self.expected = expected(name)

    @property
    def datacenter(self) -> dict[str, Any]:
        found: dict[str, Any] = self.expected["datacenter"]
        return found

    @property
    def gate(self) -> dict[str, Any]:
        found: dict[str, Any] = self.expected["gate"]
        return found


def on_sqlite(request: pytest.FixtureRequest, folder: Path) -> Restored:
    path = folder / "tenure.db"
    path.write_bytes(payload("sqlite"))
    return Restored("sqlite", f"sqlite:///{path}")


def on_postgres(request: pytest.FixtureRequest, folder: Path) -> Restored:
    url: str = request.getfixturevalue("postgres_url")
    recorded = json.loads(payload("postgres"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SPACE} CASCADE")
        for statement in recorded["statements"]:
            connection.execute(statement)
        for table, (columns, rows) in recorded["tables"].items():
            with connection.cursor().copy(f'COPY {SPACE}."{table}" ({columns}) FROM STDIN') as copy:
                copy.write(rows)
        for sequence, last in recorded["sequences"].items():
            if last is not None:
                connection.execute("SELECT setval(%s, %s)", (f'{SPACE}."{sequence}"', last))
    return Restored("postgres", f"{url}{'&' if '?' in url else '?'}schema={SPACE}")


def on_redis(fixture: str) -> Callable[[pytest.FixtureRequest, Path], Restored]:
    def restore(request: pytest.FixtureRequest, folder: Path) -> Restored:
        url: str = request.getfixturevalue(fixture)
        client = redis.Redis.from_url(url)
        for one in json.loads(payload("redis")):
            key, value = raw(one["key"]), one["value"]
            client.delete(key)
            write = {
                "string": lambda key, value: client.set(key, raw(value)),
                "hash": lambda key, value: client.hset(key, mapping={raw(name): raw(held) for name, held in value}),
                "list": lambda key, value: client.rpush(key, *map(raw, value)),
                "set": lambda key, value: client.sadd(key, *map(raw, value)),
                "zset": lambda key, value: client.zadd(key, {raw(member): score for member, score in value}),
            }[one["type"]]
            write(key, value)
            if one["ttl_ms"] is not None:
                client.pexpire(key, one["ttl_ms"])
        client.close()
        return Restored("redis", f"{url}{'&' if '?' in url else '?'}namespace={SPACE}")

    return restore


def raw(value: Any) -> bytes:
    return b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()


class RestoredNats(Nats):
    """A server that starts on the recorded store."""

    def _prepare(self) -> None:
        with tarfile.open(fileobj=io.BytesIO(payload("nats"))) as archive:
            archive.extractall(self.folder, filter="data")


def on_nats(request: pytest.FixtureRequest, folder: Path) -> Restored:
    server = request.getfixturevalue("own_server")(RestoredNats())
    return Restored("nats", f"{server.url}?namespace={SPACE}")


ENGINES: dict[str, Callable[[pytest.FixtureRequest, Path], Restored]] = {
    "sqlite": on_sqlite,
    "postgres": on_postgres,
    "redis": on_redis("redis_url"),
    "valkey": on_redis("valkey_url"),
    "nats": on_nats,
}
