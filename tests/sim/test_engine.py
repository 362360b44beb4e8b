from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure.engines.contracts import term_margin
from tenure.errors import (
    EngineClosedError,
    EngineUnavailableError,
    ReceiptHandleExpiredError,
    SimulationForbiddenError,
)
from tenure.sim import ENGINE, Disturbance, Fault, FaultKind, Host, NetworkCut, NetworkLink, World, schedule
from tenure.sim.calls import PollTopic

Program = Callable[[Host], Awaitable[object]]


def play(world: World, *programs: Program, seconds: float = 100) -> None:
    for number, program in enumerate(programs):
        world.node(f"n{number}", program).start()  # type: ignore[arg-type]
    world.run_for(seconds)


def break_engine(world: World, **how: float) -> Disturbance:
    storm = Disturbance((ENGINE,), NetworkLink((0.0, 0.0), **how))  # type: ignore[arg-type]
    world.network.disturb(storm)
    return storm


async def append(host: Host, append_id: str = "x") -> int:
    journal = host.engine.journal("j")
    return await host.calls.run(journal.append, [b"e"], epoch=1, expect=0, append_id=append_id)


def test_a_call_takes_the_time_of_the_way_there_and_back() -> None:
    async def program(host: Host) -> None:
        begun = host.clock.monotonic()
        assert await append(host) == 1
        assert 0.2 <= host.clock.monotonic() - begun <= 0.4

    with World(link=NetworkLink((0.1, 0.2))) as world:
        play(world, program)


def test_a_refused_call_has_no_effect_and_a_forgotten_one_has() -> None:
    async def program(host: Host) -> None:
        with pytest.raises(EngineUnavailableError):
            await append(host)

    for how, last in (("break_before", 0), ("break_after", 1)):
        with World() as world:
            break_engine(world, **{how: 1.0})
            play(world, program)
            assert world.backend.engine.journal("j").head().seq == last


def test_a_late_call_takes_effect_after_its_caller_was_told_that_it_failed() -> None:
    seen: list[int] = []

    async def program(host: Host) -> None:
        with pytest.raises(EngineUnavailableError):
            await append(host)
        seen.append(world.backend.engine.journal("j").head().seq)
        await asyncio.sleep(10)
        seen.append(world.backend.engine.journal("j").head().seq)

    with World(5) as world:
        world.backend.late.append(1.0)
        play(world, program)
    assert seen == [0, 1]


def test_an_outage_and_a_cut_refuse_everybody_concerned_until_they_end() -> None:
    outcomes: list[tuple[str, str]] = []

    async def program(host: Host) -> None:
        for _ in range(2):
            try:
                await host.calls.run(host.engine.journal("j").head)
                outcomes.append((host.name, "answered"))
            except EngineUnavailableError:
                outcomes.append((host.name, "failed"))
            await asyncio.sleep(10)

    with World() as world:
        cut = NetworkCut(("n0",), (ENGINE,))
        world.network.cut(cut)
        world.at(5, world.network.mend, cut)
        play(world, program, program)
    assert sorted(outcomes) == [("n0", "answered"), ("n0", "failed"), ("n1", "answered"), ("n1", "answered")]


def test_a_request_that_left_before_a_crash_still_arrives() -> None:
    async def program(host: Host) -> None:
        await append(host)

    with World(link=NetworkLink((1.0, 1.0))) as world:
        world.at(0.5, lambda: world.nodes["n0"].crash())
        play(world, program)
        assert world.backend.engine.journal("j").head().seq == 1


def test_a_term_counts_by_the_holders_own_clock_from_before_it_asked() -> None:
    async def program(host: Host) -> None:
        election = host.engine.election("e")
        asked = host.clock.boottime()
        term = await host.calls.run(election.campaign, host.id, 10.0)
        assert term is not None
        assert host.clock.boottime() >= asked + 1.0
        assert term.safe_until == asked + 10.0 - term_margin(10.0)
        asked = host.clock.boottime()
        renewed = await host.calls.run(election.renew, term)
        assert renewed.safe_until == asked + 10.0 - term_margin(10.0)

    with World(link=NetworkLink((0.5, 0.5))) as world:
        play(world, program)


def test_a_long_poll_wakes_at_once_for_a_message_and_holds_nobody_up() -> None:
    got: list[tuple[str, float]] = []

    async def consumer(host: Host) -> None:
        mailbox = host.engine.mailbox("m", str)
        for message in await host.calls.run(mailbox.receive, 1, 30, 20):
            got.append((message.body, world.now))
            await host.calls.run(message.acknowledge)

    async def producer(host: Host) -> None:
        await asyncio.sleep(7)
        await host.calls.run(host.engine.mailbox("m", str).send, "hello")

    with World(link=NetworkLink((0.001, 0.001))) as world:
        play(world, consumer, producer)
        assert world.backend.engine.mailbox("m").approximate_count() == 0
    assert got == [("hello", pytest.approx(7.002, abs=1e-5))]


def test_a_lease_found_by_a_long_poll_counts_from_when_it_was_found() -> None:
    left: list[float] = []

    async def consumer(host: Host) -> None:
        (message,) = await host.calls.run(host.engine.mailbox("m", str).receive, 1, 30, 60)
        left.append(message.lease_until - host.clock.boottime())

    with World(link=NetworkLink((0.5, 0.5))) as world:
        world.at(50, lambda: world.backend.engine.mailbox("m").send("x"))
        world.at(50.5, world.backend.touch, PollTopic("mailbox", "m"))
        play(world, consumer)
    assert left == [29.5]


def test_a_long_poll_that_finds_nothing_ends_when_its_time_is_up() -> None:
    async def consumer(host: Host) -> None:
        begun = host.clock.monotonic()
        mailbox = host.engine.mailbox("m", str)
        assert await host.calls.run(mailbox.receive, 1, 30, 20) == []
        assert host.clock.monotonic() - begun == pytest.approx(20.002, abs=1e-5)
        assert await host.calls.run(host.engine.journal("j").follow, 0, 5) == []

    with World(link=NetworkLink((0.001, 0.001))) as world:
        play(world, consumer)


def test_a_long_poll_gets_a_message_the_moment_its_lease_or_delay_runs_out() -> None:
    got: list[tuple[int, float]] = []

    async def consumer(host: Host) -> None:
        mailbox = host.engine.mailbox("m", str)
        await host.calls.run(mailbox.send, "x", delay=3)
        for _ in range(2):
            (message,) = await host.calls.run(mailbox.receive, 1, 5, 60)
            got.append((message.delivery_count, world.now))

    with World(link=NetworkLink((0.0, 0.0))) as world:
        play(world, consumer)
    assert got == [(1, 3.0), (2, 8.0)]


def test_a_follower_wakes_for_an_append_and_on_wake() -> None:
    seen: list[Any] = []

    async def follower(host: Host) -> None:
        journal = host.engine.journal("j")
        entries = await host.calls.run(journal.follow, 0, 60)
        seen.append(([entry.append_id for entry in entries], world.now))
        asyncio.get_running_loop().call_later(10, journal.wake)
        seen.append((await host.calls.run(journal.follow, 1, 60), world.now))

    async def appender(host: Host) -> None:
        await asyncio.sleep(5)
        await append(host)

    with World(link=NetworkLink((0.0, 0.0))) as world:
        play(world, follower, appender)
    assert seen == [(["x"], 5.0), ([], 15.0)]


@pytest.mark.parametrize("how", ["wake", "close", "close the engine"])
def test_a_long_poll_ends_empty_when_its_own_process_says_so(how: str) -> None:
    ended: list[tuple[list[Any], float]] = []

    async def consumer(host: Host) -> None:
        mailbox, journal = host.engine.mailbox("m", str), host.engine.journal("j")
        end = {"wake": mailbox.wake, "close": mailbox.close, "close the engine": host.engine.close}[how]
        asyncio.get_running_loop().call_later(10, end)
        if how == "close the engine":
            entries, found = await asyncio.gather(
                host.calls.run(journal.follow, 0, 60), host.calls.run(mailbox.receive, 1, 30, 60)
            )
            assert entries == []
        else:
            found = await host.calls.run(mailbox.receive, 1, 30, 60)
        ended.append((found, world.now))

    with World(link=NetworkLink((0.0, 0.0))) as world:
        play(world, consumer)
    assert ended == [([], 10.0)]


def test_a_crashed_process_claims_nothing_by_the_poll_that_it_left_behind() -> None:
    async def consumer(host: Host) -> None:
        await host.calls.run(host.engine.mailbox("m", str).receive, 1, 30, 60)

    with World() as world:
        world.at(5, lambda: world.nodes["n0"].crash())
        world.at(6, lambda: world.backend.engine.mailbox("m", str).send("x"))
        play(world, consumer)
        assert world.backend.engine.mailbox("m", str).depth().ready == 1


def test_a_lease_is_only_longer_once_the_answer_is_here() -> None:
    leases: list[float] = []

    async def consumer(host: Host) -> None:
        mailbox = host.engine.mailbox("m", str)
        await host.calls.run(mailbox.send, "x")
        asked = host.clock.boottime()
        (message,) = await host.calls.run(mailbox.receive, 1, 30)
        leases.append(message.lease_until - asked)
        storm = break_engine(world, break_after=1.0)
        with pytest.raises(EngineUnavailableError):
            await host.calls.run(message.extend_visibility, 300)
        leases.append(message.lease_until - asked)
        world.network.calm(storm)
        again = host.clock.boottime()
        await host.calls.run(message.extend_visibility, 300)
        leases.append(message.lease_until - again)
        await asyncio.sleep(1_000)
        with pytest.raises(ReceiptHandleExpiredError):
            await host.calls.run(message.acknowledge)

    with World() as world:
        play(world, consumer, seconds=2_000)
    assert leases == [30, 30, 300]


def test_straight_calls_happen_at_once_and_may_not_wait() -> None:
    async def program(host: Host) -> None:
        mailbox = host.engine.mailbox("m", str)
        mailbox.send("x", key="k")
        (message,) = mailbox.receive()
        message.settle if message.reply_to else message.acknowledge()
        with pytest.raises(SimulationForbiddenError, match=r"calls\.run"):
            mailbox.receive(wait_time_seconds=5)
        break_engine(world, break_after=1.0)
        with pytest.raises(EngineUnavailableError):
            mailbox.send("y")
        assert world.backend.engine.mailbox("m").approximate_count() == 1
        host.engine.close()
        with pytest.raises(EngineClosedError):
            mailbox.send("z")

    with World() as world:
        play(world, program)


def test_every_part_of_the_contract_is_reached_through_a_connection() -> None:
    async def program(host: Host) -> None:
        run, engine = host.calls.run, host.engine
        store = engine.store("s")
        await run(store.put, "k", b"v")
        assert await run(store.get, "k") == b"v"
        assert await run(store.list) == ["k"]
        assert await run(store.delete, "k")
        box, replies = engine.mailbox("m", str, str, max_delivery_count=1), engine.mailbox("r", str)
        await run(box.send, "a", reply_to=replies)
        (message,) = await run(box.receive)
        adopted = box.adopt(message.ticket)
        await run(adopted.settle, "done")
        (reply,) = await run(replies.receive)
        assert reply.body == "done"
        await run(box.send, "b")
        (message,) = await run(box.receive)
        await run(message.nack)
        assert await run(box.dead_letters.count) == 1
        assert await run(box.depth) == (0, 0, 0)
        assert abs(await run(engine.now) - world.backend.engine.now()) < 1

    with World() as world:
        play(world, program)


def test_datacenters_have_engines_of_their_own_that_fail_alone() -> None:
    seen: dict[str, object] = {}

    async def program(host: Host) -> None:
        await asyncio.sleep(1)
        try:
            seen[host.name] = await append(host)
        except EngineUnavailableError:
            seen[host.name] = "failed"

    with World() as world:
        for name in ("a", "b"):
            world.node(f"{name}-node", program, engine=f"{name}-engine").start()
        assert world.engines == ("a-engine", "b-engine")
        schedule(world, [Fault(0.0, FaultKind.ENGINE_OUTAGE, ("a-engine",), 5.0)])
        world.run_for(10)
        assert world.backend_of("b-engine").engine.journal("j").head().seq == 1
        assert world.backend_of("a-engine").engine.journal("j").head().seq == 0
    assert seen == {"a-node": "failed", "b-node": 1}


def test_a_split_node_still_reaches_the_engine_and_a_partitioned_one_does_not() -> None:
    for kind, reaches in ((FaultKind.SPLIT, True), (FaultKind.PARTITION, False)):
        with World() as world:
            for name in ("a", "b"):
                world.node(name)
            schedule(world, [Fault(0.0, kind, ("a",), 5.0)])
            world.run_for(1)
            assert not world.network.reachable("a", "b")
            assert world.network.reachable("a", ENGINE) is reaches
            assert world.network.reachable(ENGINE, "a") is reaches
