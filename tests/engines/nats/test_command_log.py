"""The log on a real server: it is compacted, those who fell behind start from the snapshot, and lost data is noticed."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from os import _exit
from typing import Any

import nats
import pytest
from tests.contract.case import Background
from tests.engines.nats.removing import remove_streams
from tests.patience import wait_until
from tools.servers.nats import Nats

from tenure.engines import Engine, Outgoing
from tenure.engines.contracts import Fence
from tenure.engines.nats import NatsEngine, commands
from tenure.errors import EngineClosedError, EngineUnavailableError, EngineWentBackError
from tools.servers import FaultProxy

pytestmark = pytest.mark.slow
Opened = Callable[..., NatsEngine]


def state_of(url: str, stream: str) -> Any:
    async def ask() -> Any:
        client = await nats.connect(url)
        try:
            return (await client.jsm().stream_info(stream)).state
        finally:
            await client.close()

    return asyncio.run(ask())


def churn(engine: Engine, rounds: int) -> None:
    mailbox = engine.mailbox("churn")
    for _ in range(rounds):
        mailbox.send_many([Outgoing("x" * 200)] * 10)
        mailbox.acknowledge_many(mailbox.receive(10))


def test_constant_traffic_keeps_the_log_short(opened: Opened, nats_url: str, namespace: str) -> None:
    engine = opened("&compact=8192")
    engine.mailbox("work").send({"kept": 1}, key="k", generation=4)
    engine.mailbox("work").send("leased")
    (held,) = engine.mailbox("work").receive(1, 600)
    term = engine.election("e").campaign("me", 600)
    engine.store("s").put("key", b"value", fence=Fence(3, 1))
    churn(engine, 150)
    wait_until(lambda: state_of(nats_url, f"{namespace}_log").bytes < 60_000)
    other = opened("&compact=8192")
    assert state_of(nats_url, f"{namespace}_log").first_seq > 100
    assert other.mailbox("work").depth() == (1, 0, 1)
    assert [message.body for message in other.mailbox("work").receive()] == ["leased"]
    held.acknowledge()
    current = other.election("e").current()
    assert term is not None
    assert current is not None
    assert current.epoch == term.epoch
    assert other.store("s").get("key") == b"value"
    blobs = state_of(nats_url, f"{namespace}_blobs")
    assert blobs.messages < 12  # old snapshots are gone


def test_one_that_was_cut_off_while_others_compacted_goes_on(
    through: NatsEngine, opened: Opened, proxy: FaultProxy
) -> None:
    through.mailbox("work").send("before")
    proxy.refuse()
    other = opened("&compact=8192")
    churn(other, 100)
    other.mailbox("work").send("after")
    proxy.heal()
    assert [m.body for m in through.mailbox("work").receive(10, 60, 20)] == ["before", "after"]
    assert through.mailbox("churn").depth() == (0, 0, 0)
    assert other.mailbox("work").depth() == (0, 0, 2)


def test_overwritten_and_refused_values_leave_no_blobs(opened: Opened, nats_url: str, namespace: str) -> None:
    engine = opened()
    store = engine.store("s")
    for number in range(5):
        store.put("key", b"x" * 600_000, fence=Fence(number, 0))
    assert store.get("key") == b"x" * 600_000
    store.delete("key")
    wait_until(lambda: state_of(nats_url, f"{namespace}_blobs").messages == 0)


def test_values_whose_writer_died_before_it_named_them_are_collected(opened: Opened) -> None:
    engine = opened()
    engine.store("s").put("key", b"value")
    for name in ("store-1000-orphan", "store-99999999999-on-its-way", "log-0-old", "journal-log-1-kept"):
        engine.call("test", engine.blobs.write, name, b"x")
    engine.store("s").put("short", b"value", ttl=0.01)
    time.sleep(0.05)
    engine.call("test", engine.log.compact)
    left = engine.call("test", engine.blobs.names)
    assert {"store-99999999999-on-its-way", "journal-log-1-kept"} < left
    assert not {"store-1000-orphan", "log-0-old"} & left
    assert len([name for name in left if name.startswith("log-")]) == 1
    assert engine.store("s").get("key") == b"value"
    wait_until(lambda: len([n for n in engine.call("test", engine.blobs.names) if n.startswith("store-")]) == 2)


def test_a_server_that_lost_its_data_is_refused_and_not_taken_for_an_empty_queue(
    opened: Opened, nats_url: str, namespace: str, through: NatsEngine, proxy: FaultProxy
) -> None:
    through.mailbox("work").send("precious")
    proxy.refuse()
    remove_streams(nats_url, namespace)
    opened().mailbox("work").send("other")
    proxy.heal()

    def refused() -> bool:
        try:
            through.mailbox("work").receive()
        except EngineWentBackError:
            return True
        except Exception:
            return False
        return False

    wait_until(refused)


def test_a_claim_whose_asker_is_gone_is_given_back(opened: Opened) -> None:
    engine = opened()
    engine.mailbox("work").send("x")
    claim = commands.Claim(engine.log.new_id(), "work", 1, 600.0, None, False)

    async def ask_and_leave() -> None:
        asking = asyncio.get_running_loop().create_task(engine.log.ask(claim))
        await asyncio.sleep(0)
        asking.cancel()

    engine.call("test", ask_and_leave)
    (message,) = engine.mailbox("work").receive(1, 60, 20)
    assert message.delivery_count == 1


def test_an_idle_consumer_writes_a_command_for_each_long_poll_and_none_in_between(opened: Opened) -> None:
    engine = opened()
    before = commands_of(engine)
    waiting = [Background(lambda: engine.mailbox("work").receive(1, 60, 0.5)) for _ in range(5)]
    assert [poll.result() for poll in waiting] == [[]] * 5
    assert engine.mailbox("work").receive() == []
    # Twice five where the machine stood still and the log had to be asked whether it is there; one was asked for here.
    assert 5 <= commands_of(engine) - before - 1 <= 10


def commands_of(engine: NatsEngine) -> int:
    """How many it has made."""
    return int(engine.log.new_id().rpartition(".")[2]) - 1


def test_engines_of_one_process_share_a_thread_which_ends_with_the_last(opened: Opened) -> None:
    def ours() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "tenure-nats"]

    known = ours()
    first, second = opened(), opened()
    assert len(ours()) == max(1, len(known))
    first.close()
    second.mailbox("work").send("x")
    second.close()
    assert len(ours()) <= len(known)
    with pytest.raises(EngineClosedError):
        second.mailbox("work")


def test_closing_ends_every_call_that_is_under_way(through: NatsEngine, proxy: FaultProxy) -> None:
    mailbox, journal = through.mailbox("work"), through.journal("log")
    journal.head()
    calls: list[Callable[[], object]] = [
        lambda: mailbox.receive(1, 60, 60),
        lambda: journal.follow(0, 60),
        lambda: through.store("s").put("k", b"v"),
        lambda: mailbox.send("x"),
    ]
    proxy.partition()
    waiting = [Background(call) for call in calls]
    time.sleep(0.3)
    through.close()
    ends: list[object] = []
    for call in waiting:
        try:
            ends.append(call.result(10))
        except (EngineClosedError, EngineUnavailableError) as error:
            ends.append(type(error))
    assert len(ends) == 4
    assert "x" not in ends
    proxy.heal()


def test_a_child_after_a_fork_must_open_its_own_engine(opened: Opened, nats_url: str, namespace: str) -> None:
    engine = opened()
    engine.mailbox("work").send("x")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"?"
        try:
            try:
                engine.mailbox("work")
            except EngineClosedError:
                told = b"refused"
            with Engine.open(f"{nats_url}?namespace={namespace}") as own:
                told += b" " + str(own.mailbox("work").depth().ready).encode()
        finally:
            os.write(writing, told)
            _exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as answer:
        assert answer.read() == b"refused 1"
    assert engine.mailbox("work").depth() == (1, 0, 0)


def test_engine_time_is_the_servers_and_does_not_go_back(opened: Opened) -> None:
    one, two = opened(), opened()
    times = [engine.now() for engine in (one, two) * 10]
    assert all(later >= earlier - 0.001 for earlier, later in pairwise(times))
    assert abs(times[-1] - time.time()) < 5
    assert one.now() <= one.now()


def test_a_second_server_with_a_password_gets_it_from_the_url_or_the_environment(
    own_server: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Nats = own_server(Nats(password="sesame"))
    with Engine.open(server.url) as engine:
        assert "sesame" not in engine.url
        assert "sesame" not in "".join(str(finding) for finding in engine.check())
    monkeypatch.setenv("NATS_USER", "tenure")
    monkeypatch.setenv("NATS_PASSWORD", "sesame")
    with Engine.open(f"nats://{server.host}:{server.port}") as engine:
        assert engine.mailbox("work").send("x")
