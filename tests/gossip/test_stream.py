from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gossip.one_node import CODECS
from tests.gossip.strategies import push_pulls

from tenure.errors import WireError
from tenure.gossip.encodings import pack
from tenure.gossip.messages import MemberState, NodeState, Ping, PushPull, StreamRefusal, User
from tenure.gossip.sealing import PacketCodec
from tenure.gossip.stream import StreamInbox, seal_stream
from tenure.gossip.wire import encode, encode_push_pull, encode_stream_user


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
