"""What `tenure doctor` finds on NATS servers that are set up badly, each a real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig
from tools.servers.nats import Nats, NatsCluster
from tools.servers.process import free_port

from tenure.engines import Engine
from tenure.engines.contracts import Level
from tenure.engines.nats import NatsEngine, examination
from tenure.errors import ConfigurationError, EngineRefusedError, EngineUnavailableError

pytestmark = pytest.mark.slow
Opened = Callable[..., NatsEngine]


def found(engine: Engine, level: Level) -> str:
    return "\n".join(f"{what}: {remedy}" for at, what, remedy in engine.check() if at is level)


def test_one_replica_and_late_syncing_are_warned_of(opened: Opened) -> None:
    engine = opened()
    assert found(engine, Level.ERROR) == ""
    assert "1 replica" in found(engine, Level.WARNING)
    assert "sync_interval" in found(engine, Level.WARNING)
    assert "JetStream is on" in found(engine, Level.OK)


def until_found(engine: Engine, level: Level, text: str) -> str:
    """Replicas of a new stream, and of a server that is gone, take as long as the cluster takes to notice."""
    deadline = time.monotonic() + 60
    while text not in (said := found(engine, level)):
        assert time.monotonic() < deadline, f"never said {text!r}, but {engine.check()}"
        time.sleep(0.2)
    return said


def test_three_replicas_are_current_or_named(own_server: Callable[[Any], Any]) -> None:
    cluster: NatsCluster = own_server(NatsCluster())
    with Engine.open(f"{cluster.url}?replicas=3&namespace=replicated") as engine:
        until_found(engine, Level.OK, "3 replicas, all current")
        leader = cluster.leader_of("replicated_log")
        gone = next(server for server in cluster.servers if server is not leader)
        gone.kill()
        assert "Start again" in until_found(engine, Level.WARNING, f"not current: {gone.member} (heard of ")


def test_replicas_that_are_not_current_are_named_with_how_long_they_were_silent() -> None:
    others = [{"name": "b", "current": True}, {"name": "c", "current": False, "active": 12 * 10**9}]
    assert examination.replication("log", 3, others).what == "log has 3 replicas; not current: c (heard of 12 s ago)"
    assert examination.replication("log", 3, others).level is Level.WARNING
    assert examination.replication("log", 3, others[:1]).level is Level.OK


def test_a_limit_that_drops_messages_in_silence_is_refused(nats_url: str, namespace: str, opened: Opened) -> None:
    async def make(**settings: Any) -> None:
        client = await nats.connect(nats_url)
        try:
            await client.jetstream().add_stream(
                StreamConfig(name=f"{namespace}_log", subjects=[f"{namespace}.log"], **settings)
            )
        finally:
            await client.close()

    asyncio.run(make(max_age=60, max_msgs=1_000))
    with pytest.raises(EngineRefusedError, match="max_msgs=1000") as refused:
        opened()
    assert "max_age" in str(refused.value)


def test_a_server_without_jetstream_or_room_for_a_message_is_refused(own_server: Callable[[Any], Any]) -> None:
    small: Nats = own_server(Nats(config="max_payload: 64KB"))
    with pytest.raises(EngineRefusedError, match="max_payload"):
        Engine.open(small.url)


def test_more_replicas_than_servers_is_refused(opened: Opened) -> None:
    with pytest.raises(EngineRefusedError, match="replicas"):
        opened("&replicas=3")


def test_a_wrong_password_and_no_server_at_all_are_told_apart(own_server: Callable[[Any], Any]) -> None:
    server: Nats = own_server(Nats(password="sesame"))
    with pytest.raises(ConfigurationError) as refused:
        Engine.open(f"nats://tenure:wrong@{server.host}:{server.port}?timeout=2")
    assert "wrong" not in str(refused.value)
    with pytest.raises(EngineUnavailableError):
        Engine.open(f"nats://127.0.0.1:{free_port()}?timeout=1")


def test_versions_are_read_from_what_servers_call_themselves() -> None:
    assert examination.version_of("2.15.1") == (2, 15)
    assert examination.version_of("v2.9.0-beta.1") == (2, 9)
    assert examination.version_of("?") == (0, 0)
