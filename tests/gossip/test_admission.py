"""Peers on real sockets that send too much, or nonsense: a node stays itself, answers others meanwhile, and grows no further than it said."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import socket
import tracemalloc
from collections.abc import AsyncIterator
from random import Random
from time import thread_time
from typing import Any

import pytest
from tests.gossip.damage import EXAMPLES, STREAMS, mutate
from tests.patience import wait_until_async
from tests.soak import sized

from tenure.clock import ManualClock
from tenure.gossip import Complaint, GossipNode, GossipSettings, PoolWarning
from tenure.gossip.encodings import lzw_compress
from tenure.gossip.messages import Ack, Address, Alive, MemberState, NodeState, Ping, PushPull
from tenure.gossip.net.admission import EACH_SHARE, MAX_SOURCES, MessageBudget, StateAnswers
from tenure.gossip.net.transport import stream_exchange
from tenure.gossip.sealing import MAX_PARTS, PacketCodec
from tenure.gossip.stream import StreamInbox, seal_stream
from tenure.gossip.wire import decode, encode, encode_compressed, encode_push_pull

CODEC = PacketCodec(label="tenure")
DAMAGED = sized("damaged datagrams to a live gossip node", short=6_000, long=400_000)
DAMAGED_STREAMS = sized("damaged streams to a live gossip node", short=400, long=20_000)
LONGEST_STEP_S = 0.1
"""The CPU time between two rounds of the loop. A state of 12,000 nodes that was merged at once took more than twice that."""


def invented(count: int, prefix: str = "x") -> PushPull:
    return PushPull(
        tuple(
            NodeState(f"{prefix}-{n}", (f"10.{n >> 8 & 255}.{n & 255}.1", 7946), 5, MemberState.ALIVE)
            for n in range(count)
        )
    )


@contextlib.asynccontextmanager
async def listening(**changes: Any) -> AsyncIterator[GossipNode]:
    """A node that probes nobody while a test lasts: those who were invented do not answer."""
    settings = GossipSettings.lan(**{"probe_interval_s": 3_600.0, "gossip_interval_s": 3_600.0, **changes})
    async with GossipNode("me", settings=settings) as node:
        yield node


async def push(node: GossipNode, state: PushPull) -> PushPull:
    data = CODEC.stream_head + seal_stream(CODEC, encode_push_pull(state))
    answer = await stream_exchange(node.address, data, StreamInbox(CODEC, opened_by_peer=False), timeout_s=60.0)
    assert isinstance(answer, PushPull)
    return answer


class LoopWatch:
    """Measures the CPU time that the longest round of the loop took. Other processes on the machine do not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = thread_time()
            await asyncio.sleep(0.001)
            self.longest_s = max(self.longest_s, thread_time() - before)

    async def __aenter__(self) -> LoopWatch:
        # A collection would walk over the objects of all tests that ran in this process before, and cost the loop 0.2 s.
        gc.collect()
        gc.freeze()
        return self

    async def __aexit__(self, *_: object) -> None:
        gc.unfreeze()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.mark.asyncio
async def test_a_large_state_is_merged_in_steps_and_holds_up_nobody() -> None:
    """582 KB put in 100,000 members and blocked a leader's loop for 4.6 s; six such streams cost it the leadership."""
    data = CODEC.stream_head + seal_stream(CODEC, encode_push_pull(invented(12_000)))
    async with listening(max_members=12_000) as node:
        async with LoopWatch() as watch:
            _, writer = await asyncio.open_connection(*node.address)
            writer.write(data)
            await wait_until_async(lambda: node.counters.members_refused == 1)
        assert watch.longest_s < LONGEST_STEP_S, watch.longest_s
        writer.close()
        # It still answers, with all that it took in, and encodes that once for all who ask in the same second.
        answers = await asyncio.gather(*(push(node, PushPull(())) for _ in range(3)))
        assert [len(answer.nodes) for answer in answers] == [12_000] * 3


def test_a_large_answer_is_encoded_once_in_a_second() -> None:
    clock = ManualClock()
    answers = StateAnswers(clock)
    first = answers.encode(invented(1_001, "a"))
    assert answers.encode(invented(1_001, "b")) is first
    small = invented(3)
    assert answers.encode(small) == encode_push_pull(small)
    clock.advance(1.0)
    assert answers.encode(invented(1_001, "b")) == encode_push_pull(invented(1_001, "b"))


@pytest.mark.asyncio
async def test_a_state_with_more_nodes_than_a_pool_may_have_is_refused_by_its_head() -> None:
    async with listening(max_members=1_000) as node:
        reader, writer = await asyncio.open_connection(*node.address)
        body = encode_push_pull(invented(1_001))
        writer.write(CODEC.stream_head + body[:2_000])  # the rest never comes
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        assert (len(node.members), node.counters.streams_failed) == (1, 1)


@pytest.mark.asyncio
async def test_a_full_pool_refuses_names_says_so_once_and_goes_on_with_those_it_knows() -> None:
    warnings: list[PoolWarning] = []
    async with listening(max_members=4) as node:
        node.on_event(lambda event: isinstance(event, PoolWarning) and warnings.append(event))
        await push(node, invented(4))
        await push(node, invented(4))
        assert sorted(member.name for member in node.members) == ["me", "x-0", "x-1", "x-2"]
        assert [one.complaint for one in warnings] == [Complaint.POOL_FULL]
        newer = NodeState("x-2", ("10.0.2.1", 7946), 9, MemberState.ALIVE, b"meta")
        await push(node, PushPull((newer,)))
        found = node.member("x-2")
        assert found is not None
        assert found.incarnation == 9


@pytest.mark.asyncio
async def test_a_flood_of_messages_is_cut_and_another_node_is_answered_meanwhile() -> None:
    async with listening(messages_per_s=300) as node:
        flood, honest = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        with flood, honest:
            honest.setblocking(False)
            for packet in range(60):
                names = range(packet * 30, packet * 30 + 30)
                parts = [encode(Alive(1, f"f-{n}", ("10.1.1.1", n + 1))) for n in names]
                flood.sendto(CODEC.seal(parts), node.address)
            honest.sendto(CODEC.seal([encode(Ping(7, "me"))]), node.address)
            async with asyncio.timeout(60):
                answer = await asyncio.get_running_loop().sock_recv(honest, 2_000)
        assert any(decode(part) == Ack(7) for part in CODEC.open(answer))
        assert node.counters.messages_refused > 0
        assert len(node.members) < 60 * 30 / 2


@pytest.mark.asyncio
async def test_a_datagram_that_is_larger_than_any_honest_one_is_not_even_opened() -> None:
    bomb = CODEC.stream_head + encode_compressed(lzw_compress(bytes(120_000)))
    large = CODEC.stream_head + encode_compressed(Random(1).randbytes(50_000))
    async with listening() as node:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            before = thread_time()
            for _ in range(50):
                stranger.sendto(large, node.address)
            stranger.sendto(bomb, node.address)
            await wait_until_async(lambda: node.counters.malformed == 51)
            # Decompressing fifty of them would take seconds.
            assert thread_time() - before < 1.0


def test_one_address_uses_a_third_of_the_messages_and_all_together_no_more_than_all() -> None:
    budget, packet = MessageBudget(900), [b""] * MAX_PARTS
    one: Address = ("10.0.0.1", 1)
    assert sum(len(budget.admit(10.0, one, packet)) for _ in range(20)) == 900 // EACH_SHARE
    others = sum(len(budget.admit(10.0, ("10.0.0.2", port), packet)) for port in range(20))
    assert others == 900 - 900 // EACH_SHARE
    assert len(budget.admit(10.5, one, packet)) == 150  # half a second later, half of its share
    assert len(budget.admit(99.0, one, packet)) == MAX_PARTS


def test_the_addresses_that_are_counted_are_bounded() -> None:
    budget = MessageBudget(100_000_000)
    tracemalloc.start()
    try:
        for number in range(MAX_SOURCES):
            budget.admit(1.0, (f"10.0.0.{number}", 1), [b""])
        full, _ = tracemalloc.get_traced_memory()
        for number in range(4 * MAX_SOURCES):
            budget.admit(1.0, (f"10.0.{number}", 2), [b""])
        assert tracemalloc.get_traced_memory()[0] < 2 * full
    finally:
        tracemalloc.stop()


@pytest.mark.asyncio
async def test_damaged_datagrams_and_streams_harm_no_node_and_its_memory_stays_flat(
    capsys: pytest.CaptureFixture[str],
) -> None:
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    random = Random(2026)
    async with listening(max_members=200) as node:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            await damaged_datagrams(node, stranger, random, DAMAGED // 4)
            await damaged_streams(node, random, DAMAGED_STREAMS // 4)
            gc.collect()
            before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
            await damaged_datagrams(node, stranger, random, DAMAGED - DAMAGED // 4)
            await damaged_streams(node, random, DAMAGED_STREAMS - DAMAGED_STREAMS // 4)
        grown_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024 - before_mb
        with capsys.disabled():
            print(f"\n{DAMAGED:,} damaged datagrams, {DAMAGED_STREAMS:,} damaged streams: {grown_mb:.1f} MB more")
        assert not raised
        assert node.counters.malformed > DAMAGED / 10
        assert len(node.members) <= 200
        assert grown_mb < 8
        assert (await push(node, PushPull(()))).nodes[0].name == "me"


async def damaged_datagrams(node: GossipNode, stranger: socket.socket, random: Random, count: int) -> None:
    """Sends them in small batches, and waits for each: a full buffer would lose them unread."""
    for _ in range(0, count, 50):
        seen = node.counters.packets_received
        for _ in range(50):
            parts = random.choices(EXAMPLES, k=random.randint(1, 4))
            if random.random() < 0.7:
                data = CODEC.seal([mutate(random, part)[:900] for part in parts])
            else:
                data = mutate(random, CODEC.seal(parts))
            stranger.sendto(data[:1_400], node.address)
        await wait_until_async(lambda seen=seen: node.counters.packets_received == seen + 50)


async def damaged_streams(node: GossipNode, random: Random, count: int) -> None:
    for _ in range(count):
        body = random.choice(STREAMS)
        data = CODEC.stream_head + seal_stream(CODEC, mutate(random, body))
        reader, writer = await asyncio.open_connection(*node.address)
        writer.write(data if random.random() < 0.7 else mutate(random, data))
        writer.write_eof()
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()
