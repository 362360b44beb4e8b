from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gossip.damage import encode_stream_user
from tests.gossip.one_node import CODECS
from tests.gossip.strategies import push_pulls

from tenure.errors import WireError
from tenure.gossip.encodings import lzw_compress, pack
from tenure.gossip.messages import MemberState, NodeState, Ping, PushPull, StreamRefusal, User
from tenure.gossip.net.transport import MAX_STREAMS_EACH, HeldStream, StreamBudget, UdpTcpTransport
from tenure.gossip.sealing import PacketCodec
from tenure.gossip.stream import MAX_STREAM_BYTES, STEP_BYTES, StreamInbox, StreamMessage, seal_stream
from tenure.gossip.wire import encode, encode_compressed, encode_push_pull


def receive(codec: PacketCodec, data: bytes, sizes: Random | None = None, *, opened_by_peer: bool = True):
    box = StreamInbox(codec, opened_by_peer=opened_by_peer)
    at = 0
    while at < len(data):
        size = sizes.randint(1, 40) if sizes else len(data)
        message = box.feed_all(data[at : at + size])
        at += size
        if message is not None:
            assert at >= len(data)
            return message
    return None


@settings(max_examples=60)
@given(push_pulls, st.sampled_from(CODECS), st.booleans(), st.randoms(use_true_random=False))
def test_a_push_pull_comes_back_however_it_is_cut(state: PushPull, codec: PacketCodec, opened: bool, rnd) -> None:
    data = (codec.stream_head if opened else b"") + seal_stream(codec, encode_push_pull(state))
    assert receive(codec, data, rnd, opened_by_peer=opened) == state


@pytest.mark.parametrize("codec", CODECS)
def test_pings_user_messages_and_refusals_travel_on_streams_too(codec: PacketCodec) -> None:
    for body, message in [
        (encode(Ping(3, "b", ("10.0.0.1", 1), "a")), Ping(3, "b", ("10.0.0.1", 1), "a")),
        (encode_stream_user(b"x" * 5000), User(b"x" * 5000)),
        (encode(StreamRefusal("no")), StreamRefusal("no")),
    ]:
        data = codec.stream_head + seal_stream(codec, body)
        assert receive(codec, data, Random(1)) == message
        assert receive(codec, data) == message


def test_a_node_that_cannot_be_read_does_not_hide_the_others() -> None:
    good = NodeState("good", ("10.0.0.1", 7), 1, MemberState.ALIVE)
    body = encode_push_pull(PushPull((good,)))
    body = body.replace(b"\xa5Nodes\x01", b"\xa5Nodes\x02") + pack({"Name": b"\xff\xfe", "Addr": b"\x01\x02"})
    state = receive(PacketCodec(), body)
    assert state == PushPull((good,), skipped=1)


def test_a_stream_that_trickles_is_parsed_from_where_it_stopped() -> None:
    state = PushPull(tuple(NodeState(f"node-{i}", ("10.0.0.1", i + 1), i, MemberState.ALIVE) for i in range(2000)))
    data = encode_push_pull(state)
    box = StreamInbox(PacketCodec(), opened_by_peer=True)
    for at in range(len(data) - 1):
        assert box.feed_all(data[at : at + 1]) is None
        assert len(box._buffer) < 200  # what was parsed is gone: the next byte costs one node, not two thousand
    assert box.feed_all(data[-1:]) == state


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a\xff\xff\xff\xff", "encrypted, and this pool has no keys"),
        (b"\xf4\x01x", "this pool has none"),
        (b"\x09" + pack({"Algo": 0, "Buf": b"\xff\xff\xff"}), "never defined"),
        (b"\x06" + pack({"Nodes": 2_000_000, "UserStateLen": 0}), "Nodes is 2000000"),
        (b"\x06" + pack({"Nodes": 0, "UserStateLen": 1 << 30}), "UserStateLen is"),
        (b"\x09\x81\xa3Buf\xdb\xff\xff\xff\xff", "announces more than"),
        (b"\x63\x80", "unknown type"),
    ],
)
def test_a_malformed_stream_is_refused_before_it_is_awaited(data: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        receive(PacketCodec(), data)


def test_an_encrypted_pool_takes_no_plain_stream() -> None:
    keyed = next(codec for codec in CODECS if codec.keyring and not codec.label)
    with pytest.raises(WireError, match="not encrypted"):
        receive(keyed, encode(Ping(1)))
    with pytest.raises(WireError, match="at most"):
        receive(keyed, b"\x0a\xff\xff\xff\xff")


def test_a_compressed_body_that_is_cut_off_inside_is_refused_at_once() -> None:
    body = encode_push_pull(PushPull((NodeState("good", ("10.0.0.1", 7), 1, MemberState.ALIVE),)))
    with pytest.raises(WireError, match="cut off"):
        receive(PacketCodec(), seal_stream(PacketCodec(), body[:-3]))


def test_no_more_is_taken_than_the_limit() -> None:
    box = StreamInbox(PacketCodec(), opened_by_peer=True, most=10_000)
    head = b"\x06" + pack({"Nodes": 1000, "UserStateLen": 0})
    box.feed_all(head)
    filler = pack({"Name": "n", "Addr": bytes(4), "Port": 1, "Meta": b"m" * 400})
    for _ in range(24):
        box.feed_all(filler)
    with pytest.raises(WireError, match="more than 10000"):
        box.feed_all(filler * 4)


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
