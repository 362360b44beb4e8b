"""Streams from strangers: what they cost is known at each step, bounded for all together, and never holds up the event loop for long."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tenure.errors import WireError
from tenure.gossip.encodings import lzw_compress, pack
from tenure.gossip.messages import MemberState, NodeState, Ping, PushPull, User
from tenure.gossip.net.transport import MAX_STREAMS_EACH, HeldStream, StreamBudget, UdpTcpTransport
from tenure.gossip.sealing import PacketCodec
from tenure.gossip.stream import MAX_STREAM_BYTES, STEP_BYTES, StreamInbox, StreamMessage, seal_stream
from tenure.gossip.wire import encode, encode_compressed, encode_push_pull

NODES = tuple(NodeState(f"node-{n}", ("10.0.0.1", n + 1), n, MemberState.ALIVE, b"m" * 100) for n in range(500))
STATE = PushPull(NODES)


@pytest.mark.parametrize("codec", [PacketCodec(compression=False), PacketCodec()])
def test_a_large_state_is_parsed_in_steps(codec: PacketCodec) -> None:
    box, steps = StreamInbox(codec, opened_by_peer=True), 0
    message = box.feed(seal_stream(codec, encode_push_pull(STATE)))
    while message is None:
        assert box.has_work
        message, steps = box.feed(b""), steps + 1
    assert message == STATE
    assert steps >= len(encode_push_pull(STATE)) // STEP_BYTES


def test_an_announced_length_costs_nothing() -> None:
    box = StreamInbox(PacketCodec(), opened_by_peer=True)
    box.feed(b"\x08" + pack({"UserMsgLen": MAX_STREAM_BYTES - 100}))
    assert box.held_bytes < 100
    box.feed(b"x" * 5_000)
    assert 5_000 <= box.held_bytes < 5_100


def test_what_was_parsed_and_what_was_unpacked_count() -> None:
    plain = encode_push_pull(STATE)
    box = StreamInbox(PacketCodec(), opened_by_peer=True)
    assert box.feed_all(plain[:-1]) is None
    assert box.held_bytes > 500 * 600
    box = StreamInbox(PacketCodec(), opened_by_peer=True)
    box.feed(encode_compressed(lzw_compress(b"\x08" + bytes(1_000_000))))
    assert box.held_bytes < 10_000
    box.feed(b"")
    assert box.held_bytes > 100_000


def test_a_node_that_is_larger_than_a_step_is_refused() -> None:
    box = StreamInbox(PacketCodec(), opened_by_peer=True)
    huge = pack({"Name": "n", "Addr": bytes(4), "Port": 1, "Meta": b"m" * 2 * STEP_BYTES})
    with pytest.raises(WireError, match="one node of a push/pull takes more"):
        box.feed_all(b"\x06" + pack({"Nodes": 2, "UserStateLen": 0}) + huge)


# With sockets


class Listening:
    """A transport, and what it was sent."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.transport, self.heard, self.failed = UdpTcpTransport(), list[StreamMessage](), 0
        self._answer = answer

    async def open(self, timeout_s: float = 30.0) -> tuple[str, int]:
        return await self.transport.open(
            packets=lambda source, data: None,
            streams=self._hear,
            stream_failed=self._fail,
            inbox=lambda opened: StreamInbox(PacketCodec(), opened_by_peer=opened),
            stream_timeout_s=timeout_s,
        )

    def _hear(self, source: tuple[str, int], message: StreamMessage) -> bytes | None:
        self.heard.append(message)
        return self._answer

    def _fail(self) -> None:
        self.failed += 1


@pytest.mark.asyncio
async def test_one_address_has_only_so_many_streams_and_the_oldest_make_room() -> None:
    listening = Listening()
    host, port = await listening.open()
    streams = [await asyncio.open_connection(host, port) for _ in range(MAX_STREAMS_EACH + 10)]
    async with asyncio.timeout(30):
        for reader, _ in streams[:10]:
            assert await reader.read() == b""
    assert listening.failed == 10
    streams[-1][1].write(encode(Ping(1, "n")))
    async with asyncio.timeout(30):
        assert await streams[-1][0].read() == b""
    assert listening.heard == [Ping(1, "n")]
    for _, writer in streams:
        writer.close()
    await listening.transport.close()


@pytest.mark.asyncio
async def test_a_stream_ends_by_its_deadline() -> None:
    listening = Listening()
    host, port = await listening.open(timeout_s=0.2)
    reader, writer = await asyncio.open_connection(host, port)
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    assert listening.failed == 1
    writer.close()
    await listening.transport.close()


@pytest.mark.asyncio
async def test_streams_give_way_when_they_hold_too_much_and_a_small_one_is_heard() -> None:
    listening = Listening()
    host, port = await listening.open()
    announced = b"\x08" + pack({"UserMsgLen": MAX_STREAM_BYTES - 100})
    crowd = []
    for _ in range(4):  # 6 MB each; two fit into the budget
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(announced + bytes(6 * 1024 * 1024))
        crowd.append((reader, writer))
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):  # it had sent more than was read
            assert await crowd[0][0].read() == b""
        _, small = await asyncio.open_connection(host, port)
        small.write(encode(Ping(1, "n")))
        while not listening.heard:
            await asyncio.sleep(0.01)
    assert listening.heard == [Ping(1, "n")]
    assert listening.failed >= 1
    for _, writer in [*crowd, (None, small)]:
        writer.transport.abort()
    await listening.transport.close()


@pytest.mark.asyncio
async def test_a_stream_that_gave_way_says_so() -> None:
    budget = StreamBudget(most=1_000)
    async with asyncio.timeout(10) as deadline:
        with budget.stream(("10.0.0.1", 1), deadline) as alone:
            alone.hold(900)
            with pytest.raises(WireError, match="hold more than 1000 bytes"):
                alone.hold(1_001)
        with budget.stream(("10.0.0.1", 1), deadline) as after:
            assert isinstance(after, HeldStream)
            after.hold(1_000)


def test_a_user_message_that_is_complete_is_given_whatever_its_size() -> None:
    body = b"\x08" + pack({"UserMsgLen": 100_000}) + bytes(100_000)
    box = StreamInbox(PacketCodec(), opened_by_peer=True)
    assert box.feed_all(encode_compressed(lzw_compress(body))) == User(bytes(100_000))
