"""A consumer in a simulation: its exchanges travel, wait without holding anybody up, and may be made again when their answer was lost."""

from __future__ import annotations

import asyncio

import pytest
from tests.sim.test_engine import break_engine, play

from tenure.engines.contracts import Settlement
from tenure.errors import EngineUnavailableError
from tenure.sim import Host, NetworkLink, World


def test_an_exchange_settles_at_once_and_wakes_for_any_of_its_mailboxes() -> None:
    got: list[tuple[str, float]] = []

    async def consumer(host: Host) -> None:
        made = host.engine.consumer(str, str)
        made.cover([["a"], ["b", "c"]])
        settled: list[Settlement[str, str]] = []
        while len(got) < 3:
            done = await host.calls.run(made.exchange, settled, visibility_timeout=30, wait_time_seconds=20)
            assert done.lost == []
            settled = [Settlement(message, f"{message.body} done") for message in done.messages]
            got.extend((message.mailbox, world.now) for message in done.messages)
        await host.calls.run(made.exchange, settled, max_messages=0)

    async def producer(host: Host) -> None:
        replies = host.engine.mailbox("replies", str)
        for name in "cab":
            await asyncio.sleep(30)  # longer than the poll before it waits
            sent_at = world.now
            await host.calls.run(host.engine.mailbox(name, str).send, name, reply_to="replies")
            (answer,) = await host.calls.run(replies.receive, 1, 30, 60)
            assert (answer.body, world.now - sent_at) == (f"{name} done", pytest.approx(0.006, abs=0.002))
            await host.calls.run(answer.acknowledge)

    with World(link=NetworkLink((0.001, 0.001))) as world:
        play(world, consumer, producer)
        assert [world.backend.engine.mailbox(name).approximate_count() for name in "abc"] == [0, 0, 0]
    assert [name for name, _ in got] == ["c", "a", "b"]


@pytest.mark.parametrize("how", ["break_before", "break_after"])
def test_an_exchange_that_failed_is_made_again_and_nothing_is_stranded_or_done_twice(how: str) -> None:
    ended: list[str] = []

    async def program(host: Host) -> None:
        work = host.engine.mailbox("work", str)
        made = host.engine.consumer(str, str)
        made.cover([["work"], ["more"]])
        for body in ("first", "second"):
            await host.calls.run(work.send, body, reply_to="replies")
        (first,) = (await host.calls.run(made.exchange, visibility_timeout=60)).messages
        storm = break_engine(world, **{how: 1.0})
        with pytest.raises(EngineUnavailableError):
            await host.calls.run(made.exchange, [Settlement(first, "done")], visibility_timeout=60, claim_id="c")
        world.network.calm(storm)
        again = await host.calls.run(made.exchange, [Settlement(first, "done")], visibility_timeout=60, claim_id="c")
        assert (again.lost, [message.body for message in again.messages]) == ([], ["second"])
        assert again.messages[0].delivery_count == 1
        assert (await host.calls.run(made.extend, again.messages, 90)) == []
        assert again.messages[0].lease_until > host.clock.boottime() + 80
        await host.calls.run(made.exchange, [Settlement(again.messages[0], "done")], max_messages=0)
        ended.append(how)

    with World(link=NetworkLink((0.001, 0.001))) as world:
        play(world, program)
        assert world.backend.engine.mailbox("replies").depth() == (2, 0, 0)
        assert world.backend.engine.mailbox("work").depth() == (0, 0, 0)
    assert ended == [how]


@pytest.mark.parametrize("how", ["wake", "close", "cover"])
def test_a_waiting_exchange_ends_or_looks_again_when_its_own_process_says_so(how: str) -> None:
    ended: list[tuple[int, float]] = []

    async def program(host: Host) -> None:
        made = host.engine.consumer()
        made.cover([["a"]])
        await host.calls.run(host.engine.mailbox("b").send, "x")
        poll = asyncio.ensure_future(host.calls.run(made.exchange, wait_time_seconds=50))
        await asyncio.sleep(5)
        if how == "cover":
            made.cover([["b"]])
        else:
            getattr(made, how)()
        ended.append((len((await poll).messages), world.now))

    with World(link=NetworkLink((0.001, 0.001))) as world:
        play(world, program)
    [(found, at)] = ended
    assert found == (how == "cover")
    assert at == pytest.approx(5.002, abs=0.01)
