"""Reading a URL into settings, and what `tenure doctor` finds on a server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from tools.servers.redis import DURABLE, VOLATILE

from tenure.cli.root import tenure
from tenure.clock import ManualClock
from tenure.engines import Engine
from tenure.engines.contracts import Level
from tenure.engines.redis import RedisEngine, address
from tenure.engines.redis.address import read_url
from tenure.errors import (
    ConfigurationError,
    EngineFullError,
    EngineReadOnlyError,
    EngineRefusedError,
    EngineUnavailableError,
    EngineVersionError,
)
from tools.servers import Redis, Valkey


def test_every_part_of_a_url_is_read() -> None:
    settings = read_url("redis://me:s%40fe@db.example:7000/3?namespace=jobs&wait=2&pool=4&timeout=5")
    assert (settings.namespace, settings.wait, settings.pool, settings.timeout_s) == ("jobs", 2, 4, 5.0)
    connection = settings.connection
    assert (connection["host"], connection["port"], connection["db"]) == ("db.example", 7000, 3)
    assert (connection["username"], connection["password"], settings.secret) == ("me", "s@fe", "s@fe")
    assert settings.prefix == "{jobs}:"  # the braces keep all keys in one slot


def test_what_is_left_out_has_a_default() -> None:
    settings = read_url("redis://")
    connection = settings.connection
    assert (connection["host"], connection["port"], connection["db"]) == ("localhost", 6379, 0)
    assert (settings.namespace, settings.wait, settings.tls, settings.secret) == ("tenure", 0, False, "")


def test_the_password_is_never_shown() -> None:
    settings = read_url("redis://me:hunter2@host/0")
    assert settings.shown == "redis://me:***@host/0"
    assert "hunter2" not in repr(settings)


def test_the_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "hunter2")
    settings = read_url("redis://host")
    assert (settings.connection["password"], settings.secret) == ("hunter2", "hunter2")
    assert read_url("redis://:other@host").connection["password"] == "other"


def test_tls_is_on_for_rediss_and_verifies_unless_told_otherwise() -> None:
    settings = read_url("rediss://host?ssl_ca_certs=/ca.pem")
    assert settings.tls
    assert settings.connection["ssl_cert_reqs"] == "required"
    assert settings.connection["ssl_check_hostname"] is True
    assert settings.connection["ssl_ca_certs"] == "/ca.pem"
    assert read_url("rediss://host?ssl_cert_reqs=none").connection["ssl_check_hostname"] is False


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://host/zero", "database 'zero'"),
        ("redis://host:port/0", "port"),
        ("redis://host?namespace=a%7Bb", "namespace=a{b"),
        ("redis://host?wait=-1", "wait=-1"),
        ("redis://host?wait=some", "wait=some"),
        ("redis://host?timeout=0", "timeout=0"),
        ("redis://host?pool=0", "pool=0"),
        ("redis://host?wiat=1", "wiat"),
        ("redis://host?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
        ("rediss://host?ssl_cert_reqs=perhaps", "ssl_cert_reqs=perhaps"),
    ],
)
def test_what_cannot_be_read_is_named(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_url(url.replace("redis://", "redis://:hunter2@", 1))
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


Opened = Callable[..., RedisEngine]
Own = Callable[[Any], Any]


def found(engine: Engine, level: Level) -> str:
    return "\n".join(f"{what}: {remedy}" for at, what, remedy in engine.check() if at is level)


def test_a_durable_server_has_no_errors(own_server: Own) -> None:
    server = own_server(Valkey(DURABLE))
    with Engine.open(server.url) as engine:
        assert (found(engine, Level.ERROR), found(engine, Level.WARNING)) == ("", "")
        ok = found(engine, Level.OK)
    for text in ("Valkey 9", "on disk", "noeviction", "woken at once", "does not leave this machine"):
        assert text in ok
    done = CliRunner().invoke(tenure, ["doctor", "--engine", server.url])
    assert done.exit_code == 0, done.output
    assert "asynchronous failover" in done.output


def test_a_server_that_keeps_nothing_is_an_error(own_server: Own) -> None:
    server = own_server(Valkey(VOLATILE))
    done = CliRunner().invoke(tenure, ["doctor", "--engine", server.url])
    assert done.exit_code == 1
    assert "nothing is kept on disk" in done.output
    assert "appendfsync always" in done.output


def test_weaker_ways_to_keep_things_are_named(own_server: Own) -> None:
    server = own_server(Redis({"appendonly": "yes", "appendfsync": "everysec", "save": ""}))
    with Engine.open(server.url) as engine:
        assert "appendfsync is everysec" in found(engine, Level.WARNING)
        assert "Redis 6.2" in found(engine, Level.OK)
    snapshots = own_server(Valkey({"appendonly": "no", "save": "60 1"}))
    with Engine.open(snapshots.url) as engine:
        assert "only snapshots" in found(engine, Level.ERROR)


def test_a_server_that_would_evict_is_refused_and_without_a_limit_warned_of(own_server: Own) -> None:
    server = own_server(Valkey({**DURABLE, "maxmemory-policy": "allkeys-lru"}))
    with Engine.open(server.url) as engine:
        assert "maxmemory-policy is allkeys-lru" in found(engine, Level.WARNING)
        server.command("CONFIG", "SET", "maxmemory", "100mb")
        assert "maxmemory-policy is allkeys-lru" in found(engine, Level.ERROR)
    with pytest.raises(EngineRefusedError, match="allkeys-lru"):
        Engine.open(server.url)


def test_a_full_server_refuses_with_a_remedy_and_changes_nothing(own_server: Own) -> None:
    server = own_server(Valkey({**DURABLE, "maxmemory": "6mb"}))
    with Engine.open(server.url) as engine:
        mailbox = engine.mailbox("work")
        sent: list[str] = []

        def fill() -> None:
            while len(sent) < 100:
                sent.append(mailbox.send("x" * 200_000))

        with pytest.raises(EngineFullError, match="maxmemory"):
            fill()
        assert mailbox.approximate_count() == len(sent) > 0
        assert "of maxmemory is used" in found(engine, Level.WARNING)


def test_replicas_are_counted_and_waited_for(own_server: Own) -> None:
    primary = own_server(Valkey(DURABLE))
    replica = own_server(Valkey(DURABLE, replica_of=primary))
    with Engine.open(primary.url) as engine:
        assert "1 replica(s), and no write waits" in found(engine, Level.WARNING)
    with Engine.open(f"{primary.url}?wait=1") as engine:
        assert "when 1 of 1 replicas have it" in found(engine, Level.OK)
        replica.kill()
        assert "no write is acknowledged" in found(engine, Level.ERROR)
    replica.restart()
    with pytest.raises(EngineReadOnlyError, match="replica"):
        Engine.open(replica.url)


def test_an_older_server_is_refused(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    info = address.info
    monkeypatch.setattr(address, "info", lambda session: {**info(session), "redis_version": "6.0.16"})
    with pytest.raises(EngineVersionError, match=r"6\.2"):
        opened()


def test_clocks_that_differ_are_told(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened()
    monkeypatch.setattr(engine, "clock", ManualClock(wall=1_000.0))
    assert "ahead of this machine's" in found(engine, Level.WARNING)


def test_a_user_who_may_not_use_channels_is_told_which_right_is_missing(own_server: Own) -> None:
    server = own_server(Valkey(DURABLE))
    server.command("ACL", "SETUSER", "me", "on", ">secret", "~*", "resetchannels", "+@all")
    url = server.url.replace("redis://", "redis://me:secret@")
    with Engine.open(url) as engine:
        assert "&{tenure}:*" in found(engine, Level.ERROR)
        mailbox = engine.mailbox("work")
        mailbox.send("x")  # work is done all the same: only nobody is woken
        assert [message.body for message in mailbox.receive(1, 60, 1)] == ["x"]
        assert mailbox.receive(1, 60, 0.05) == []
    server.command("ACL", "SETUSER", "me", "-@write", "&*")
    with pytest.raises(EngineReadOnlyError, match="ACL SETUSER"):
        Engine.open(url)


def test_a_user_with_the_rights_that_the_remedy_names_is_enough(own_server: Own) -> None:
    server = own_server(Valkey(DURABLE))
    rights = ("on", ">secret", "~{tenure}:*", "&{tenure}:*", "+@all", "-@dangerous", "+info")
    server.command("ACL", "SETUSER", "me", *rights)
    with Engine.open(server.url.replace("redis://", "redis://me:secret@")) as engine:
        mailbox = engine.mailbox("work")
        mailbox.send("x")
        assert [message.body for message in mailbox.receive(1, 60, 1)] == ["x"]
        assert mailbox.receive(1, 60, 0.05) == []
        assert found(engine, Level.ERROR) == ""
        assert "may not read appendfsync" in found(engine, Level.WARNING)


def test_a_password_is_used_and_never_shown(own_server: Own, caplog: pytest.LogCaptureFixture) -> None:
    server = own_server(Valkey(VOLATILE, password="hunter2"))
    caplog.set_level(logging.DEBUG)
    with Engine.open(server.url) as engine:
        engine.mailbox("work").send("x")
        assert "hunter2" not in engine.url + repr(engine.check())
        server.kill()
        with pytest.raises(EngineUnavailableError) as lost:
            engine.mailbox("work").send("y")
        server.restart()
    for url in (server.url.replace("hunter2", "wrong-hunter3"), server.url.replace(":hunter2@", "")):
        with pytest.raises(ConfigurationError) as refused:
            Engine.open(url)
        assert "password" in refused.value.remedy
        assert "hunter" not in str(refused.value)
    assert "hunter" not in caplog.text + str(lost.value)
