"""What `tenure doctor` finds on servers that are set up badly, each a real one; passwords and certificates too."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from tools.servers.redis import DURABLE, VOLATILE

from tenure.cli.root import tenure
from tenure.clock import ManualClock
from tenure.engines import Engine, Level
from tenure.engines.redis import RedisEngine, examination
from tenure.errors import (
    ConfigurationError,
    EngineFullError,
    EngineReadOnlyError,
    EngineRefusedError,
    EngineUnavailableError,
    EngineVersionError,
)
from tools.servers import Redis, Valkey

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
    info = examination.info
    monkeypatch.setattr(examination, "info", lambda session: {**info(session), "redis_version": "6.0.16"})
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
