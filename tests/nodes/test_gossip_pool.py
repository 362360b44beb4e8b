"""Workers and managers in one gossip pool over real loopback sockets: what the pool says of a worker, and that nothing waits for it."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.changed import changed
from tests.nodes.cast import Cast
from tests.patience import wait_until_async

from tenure.cli.leaders import manager as manager_command
from tenure.cli.worker import worker as worker_command
from tenure.clock import ManualClock, SystemClock
from tenure.control.messages.nodes import ManagerNode
from tenure.engines.aio import calls_for
from tenure.engines.memory import MemoryEngine
from tenure.errors import ConfigurationError, EngineUnavailableError
from tenure.gossip import Keyring, format_address, format_key
from tenure.gossip.encodings import pack
from tenure.gossip.sealing import PacketCodec
from tenure.health.node_states import HealthPiggyback, NodeType
from tenure.health.overload import OverloadState
from tenure.logs import NodeLog, log_to
from tenure.nodes.gossip_pool import (
    MANAGERS,
    NODES,
    EngineSeeds,
    Pool,
    address_towards,
    file_keyring,
    gossip_name,
    keyring_of,
    pooled,
)
from tenure.nodes.manager.manager_health import WorkFlow
from tenure.nodes.manager.operator_handlers import Presence
from tenure.nodes.manager.serving import tell_pool
from tenure.nodes.pool_settings import PoolSettings
from tenure.randomness import secret_bytes

CLOCK = SystemClock()


def enter(
    name: str, kind: NodeType, *join: str, said: list[str] | None = None, found: EngineSeeds | None = None
) -> Any:
    settings = PoolSettings("127.0.0.1:0", join, label=f"test-{id(asyncio.get_running_loop())}")
    return pooled(settings, name, kind, clock=CLOCK, log=log_to((said if said is not None else []).append), found=found)


def test_a_leader_learns_by_gossip_that_a_worker_lives_how_it_is_and_that_it_left() -> None:
    async def story() -> None:
        async with enter("m-1", NodeType.MANAGER) as leader:
            assert isinstance(leader, Pool)
            assert leader.word("w-1") is None
            alive = lambda: (word := leader.word("w-1")) is not None and word.alive  # noqa: E731
            cast = Cast()
            async with enter("w-1", NodeType.WORKER, format_address(leader.node.address)) as worker:
                await wait_until_async(alive)
                assert leader.word("m-1") is None  # a manager of that name is no worker
                cast.begin(silent_s=1.0)
                worker.tell_slots(cast.view(), OverloadState.BUSY, cast.incarnation)
                await wait_until_async(lambda: leader.word("w-1").health)
                health = leader.word("w-1").health
                assert (health.capacity, health.waiting, health.advancing) == (1, 1, 1)
                assert (health.overload_state, health.node_type) == (OverloadState.BUSY, NodeType.WORKER)
                tags = lambda: leader.node.member(gossip_name(NodeType.WORKER, "w-1")).tags  # noqa: E731
                await wait_until_async(lambda: tags().get("incarnation") == "w-1#1")
                assert (tags()["role"], tags()["name"]) == ("worker", "w-1")
                cast.come_back()
                worker.tell_slots(cast.view(), OverloadState.HEALTHY, cast.incarnation)
                await wait_until_async(lambda: leader.word("w-1").start == "w-1#2")
                own = partial(worker.node.health, gossip_name(NodeType.WORKER, "w-1"))
                sequence = own().sequence
                worker.tell_slots(cast.view(), OverloadState.HEALTHY, cast.incarnation)
                assert own().sequence == sequence  # nothing new, nothing said
            await wait_until_async(lambda: not alive())
            assert leader.word("w-1") == ("w-1#2", False, None)

    asyncio.run(story())


class TellsNobody:
    """Stands for a gossip node: it keeps what it was told."""

    health: HealthPiggyback | None = None

    def set_tags(self, tags: Any) -> None: ...

    def set_health(self, health: HealthPiggyback) -> None:
        self.health = health


def test_a_worker_tells_what_it_completed_and_what_could_be_expected_of_it() -> None:
    """Document 001, `HealthPiggyback.throughput` and `expected_throughput`: neither is a constant."""
    clock, node = ManualClock(), TellsNobody()
    pool = Pool(node, "w-1", NodeType.WORKER, clock=clock)  # type: ignore[arg-type]
    cast = Cast()
    cast.begin(silent_s=1.0)
    cast.begin(silent_s=1.0)
    for second in range(180):
        view = changed(cast.view(), completed=second // 10)  # two at work, and one completed each 10 s
        pool.tell_slots(view, OverloadState.HEALTHY, cast.incarnation)
        clock.advance(1)
    assert node.health is not None
    assert node.health.throughput in (2, 3)  # the interval slides in pieces
    assert node.health.expected_throughput == 3
    for _ in range(31):
        pool.tell_slots(view, OverloadState.HEALTHY, cast.incarnation)
        clock.advance(1)
    assert (node.health.throughput, node.health.expected_throughput) == (0, 3)


def test_a_manager_tells_its_load() -> None:
    """Document 001, `HealthPiggyback.overload_state`: a manager whose event loop wakes late is not healthy."""

    class Late(ManualClock):
        late_s = 0.0

        async def async_sleep(self, seconds: float) -> None:
            self.advance(seconds + self.late_s)
            if self.monotonic() > self.end:
                raise asyncio.CancelledError

    class Led:
        closed, ledger = "", SimpleNamespace(seq=1)

        def workers(self) -> tuple[()]:
            return ()

        def flow(self) -> WorkFlow:
            return WorkFlow(0, 2, 3.0, 1)

    clock, node = Late(), TellsNobody()
    pool = Pool(node, "m-1", NodeType.MANAGER, clock=clock)  # type: ignore[arg-type]
    for late_s, state in ((0.0, "healthy"), (3.0, "overloaded"), (0.0, "healthy")):
        clock.late_s, clock.end = late_s, clock.monotonic() + 60
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(tell_pool(Led(), pool, clock))  # type: ignore[arg-type]
        assert node.health is not None
        assert (node.health.overload_state, node.health.throughput, node.health.expected_throughput) == (state, 2, 3)


def test_seeds_that_do_not_answer_are_said_once_and_nothing_waits_for_them() -> None:
    async def story() -> None:
        said: list[str] = []
        async with enter("w-1", NodeType.WORKER, "127.0.0.1:9", said=said) as pool:
            assert pool is not None
            await wait_until_async(lambda: any("without it" in line for line in said))
        assert sum("without it" in line for line in said) == 1

    asyncio.run(story())


def test_without_an_address_there_is_no_pool_and_seeds_alone_are_a_mistake() -> None:
    async def story() -> None:
        async with pooled(PoolSettings(), "w-1", NodeType.WORKER, clock=CLOCK, log=NodeLog("worker")) as pool:
            assert pool is None

    asyncio.run(story())
    result = CliRunner().invoke(manager_command, ["--engine", "memory://", "--join", "127.0.0.1:7946"])
    assert result.exit_code == 2
    assert "--join needs --gossip or --gossip-key-file" in result.output


def test_with_a_key_a_node_gossips_where_it_reaches_its_engine_from(tmp_path: Path) -> None:
    path, said = tmp_path / "keys", list[str]()
    path.write_text(f"{format_key(bytes(32))}\n")
    for url in ("sqlite:///t.db", "redis://:word@127.0.0.1:6379/0", "nats://127.0.0.1:1,nats://127.0.0.2:2"):
        assert address_towards(url) == "127.0.0.1:0"

    async def story() -> None:
        settings, log = PoolSettings(key_file=str(path)), log_to(said.append)
        place, engine = partial(pooled, clock=CLOCK, log=log), MemoryEngine(CLOCK)
        at = partial(EngineSeeds, engine, calls_for(engine))
        async with place(settings, "w-1", NodeType.WORKER, found=at("sqlite:///t.db")) as pool:
            assert pool is not None
            assert pool.node.address[0] == "127.0.0.1"
        async with place(PoolSettings(), "w-1", NodeType.WORKER, found=at("sqlite:///t.db")) as pool:
            assert pool is None  # no key, no pool
        async with place(settings, "w-1", NodeType.WORKER, found=at("redis://nowhere.invalid/0")) as pool:
            assert pool is None
        assert "say --gossip HOST:PORT" in said[-1]

    asyncio.run(story())


@pytest.mark.parametrize("command", [[manager_command], [worker_command, "app:none"]])
def test_no_node_gossips_beyond_loopback_without_a_key_unless_it_says_so(command: list[Any]) -> None:
    program, *arguments = command
    result = CliRunner().invoke(program, [*arguments, "--engine", "memory://", "--gossip", "0.0.0.0:0"])
    assert result.exit_code == 1
    assert "gossip on 0.0.0.0:0 has no key" in result.output
    assert "--gossip-no-key" in result.output
    assert keyring_of(PoolSettings("0.0.0.0:0", no_key=True)) is None


def test_a_key_that_was_rotated_by_gossip_survives_a_restart(tmp_path: Path) -> None:
    """`serf keys -install`, `-use` and `-remove` reach a node as queries. Its file follows, or the node would be shut out at its next start."""
    old, new = bytes(32), bytes(range(32))
    path = tmp_path / "keys"
    path.write_text(f"{format_key(old)}\n")
    settings = PoolSettings("127.0.0.1:0", key_file=str(path))

    async def story() -> None:
        async with pooled(settings, "w-1", NodeType.WORKER, clock=CLOCK, log=NodeLog("worker")) as pool:
            assert pool is not None
            for name, key in (("install-key", new), ("use-key", new), ("remove-key", old)):
                asked = {"LTime": 3, "ID": 7, "Addr": bytes((127, 0, 0, 1)), "Port": 9, "Name": f"_serf_{name}"}
                body = b"\x08\x04" + pack({**asked, "Payload": b"\x07" + pack({"Key": key})})
                sealed = PacketCodec(label="tenure", keyring=Keyring([old, new], entropy=secret_bytes)).seal([body])
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                    stranger.sendto(sealed, pool.node.address)
                await wait_until_async(lambda name=name: steps[name] == path.read_text().split())

    steps = {
        "install-key": [format_key(old), format_key(new)],
        "use-key": [format_key(new), format_key(old)],
        "remove-key": [format_key(new)],
    }
    asyncio.run(story())
    again = keyring_of(settings)
    assert again is not None
    assert again.keys == (new,)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["keys"]


def test_a_file_that_cannot_follow_the_rotation_is_told_to_who_asked(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "keys"
    path.parent.mkdir()
    path.write_text(f"{format_key(bytes(32))}\n")
    keyring = file_keyring(path)
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(ConfigurationError, match=r"could not be written: No such file"):
        keyring.install(bytes(range(32)))
    assert len(keyring.keys) == 2  # this process can read the new key all the same


def entry(address: str) -> bytes:
    return msgspec.json.encode({"node": {"name": "m"}, "at": 1.0, "gossip": address})


def test_nodes_find_each_other_through_the_engine() -> None:
    """No node is told where another gossips. A worker joins the manager that the engine lists; what is no entry hides none."""

    async def story() -> None:
        with MemoryEngine() as engine:
            store, found = engine.store(NODES), EngineSeeds(engine, calls_for(engine))
            for key, value in (("a", b"\xff{"), ("b", entry("no address:x")), ("c", b"{}"), ("d", b"[]")):
                store.put(f"{MANAGERS}{key}", value)
            async with enter("m-1", NodeType.MANAGER, found=found) as first:
                store.put(f"{MANAGERS}m-1", entry(format_address(first.node.address)))
                assert await found.read() == [first.node.address]
                async with (
                    enter("w-1", NodeType.WORKER, found=found) as worker,
                    enter("m-2", NodeType.MANAGER, found=found) as second,
                ):
                    for one in (first, worker, second):
                        await wait_until_async(lambda one=one: sum(member.is_here for member in one.node.members) == 3)

    asyncio.run(story())


class AwayEngine(MemoryEngine):
    def store(self, name: str) -> Any:
        raise EngineUnavailableError("it is away")


def test_an_engine_that_is_away_is_said_once_and_nothing_waits_for_it() -> None:
    async def story() -> None:
        said: list[str] = []
        with AwayEngine() as engine:
            found = EngineSeeds(engine, calls_for(engine))
            async with enter("w-1", NodeType.WORKER, said=said, found=found) as pool:
                assert pool is not None
                await wait_until_async(lambda: any("without it" in line for line in said))

    asyncio.run(story())


def test_a_manager_writes_where_it_gossips_into_its_entry() -> None:
    async def story() -> None:
        clock = ManualClock()
        with MemoryEngine(clock) as engine:
            calls = calls_for(engine)
            node = ManagerNode(
                name="m-1", address="m-1:8470", leads=True, epoch=1, seq=7, version="0", skew_s=0, started_at=0, heard_s_ago=0
            )  # fmt: skip
            presence = Presence(engine, calls, clock, node=lambda: node, now=lambda: 5.0, gossip="10.0.0.1:7946")
            running = asyncio.create_task(presence.run())
            await wait_until_async(lambda: engine.store(NODES).list())
            assert await EngineSeeds(engine, calls).read() == [("10.0.0.1", 7946)]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
