"""Whatever arrives, opening and decoding give messages or a WireError, and nothing else. The inputs are counted."""

from __future__ import annotations

import contextlib
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gossip.one_node import CODECS
from tests.soak import sized

from tenure.errors import WireError
from tenure.gossip.messages import (
    Ack,
    Alive,
    Dead,
    IndirectPing,
    MemberState,
    NodeState,
    Ping,
    PingNack,
    PushPull,
    StreamRefusal,
    Suspect,
    User,
)
from tenure.gossip.sealing import PacketCodec
from tenure.gossip.stream import StreamInbox, seal_stream
from tenure.gossip.wire import decode, encode, encode_push_pull, encode_stream_user

ROUNDS = sized("damaged gossip packets", short=8_000, long=120_000)
HERE = ("127.0.0.1", 7946)
EXAMPLES = [
    encode(message)
    for message in (
        Ping(7, "web-1", HERE, "web-2", b"health"),
        IndirectPing(8, HERE, "web-1", True, HERE, "web-2"),
        Ack(7, b"\x01coordinate", b"health", 5),
        PingNack(8),
        Suspect(3, "web-1", "web-2"),
        Alive(4, "web-1", HERE, b"\xff\x81\xa4role\xa3web"),
        Dead(4, "web-1", "web-1"),
        User(b"\x00\x83\xa5LTime\x01\xa4Node\xa1a\xa5Prune\xc2"),
        StreamRefusal("no"),
    )
]
STREAMS = [
    encode_push_pull(
        PushPull(tuple(NodeState(f"n{i}", HERE, i, MemberState(i % 4), b"m" * i) for i in range(6)), True, b"u")
    ),
    encode_stream_user(b"hello"),
    *EXAMPLES[:3],
]


def mutate(random: Random, data: bytes) -> bytes:
    """One to four small damages: a flipped bit, a changed byte, a cut, a repeat, an insertion, a splice."""
    out = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(out) + 1)
        match random.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << random.randrange(8)
            case 1 if at < len(out):
                out[at] = random.choice((0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xDB, 0xDF, 0xFF))
            case 2:
                del out[at:]
            case 3:
                out[at:at] = out[max(0, at - random.randrange(20)) : at]
            case 4:
                out[at:at] = random.randbytes(random.randrange(8))
            case _:
                out[at:] = random.choice(EXAMPLES)[random.randrange(10) :]
    return bytes(out)


def outcome(codec: PacketCodec, datagram: bytes) -> str:
    try:
        for part in codec.open(datagram):
            decode(part)
    except WireError:
        return "refused"
    return "read"


@pytest.mark.parametrize("codec", CODECS)
def test_no_mutated_datagram_raises_anything_but_a_wire_error(codec: PacketCodec) -> None:
    random = Random(2026)
    seen = Counter[str]()
    for _ in range(ROUNDS):
        parts = random.choices(EXAMPLES, k=random.randint(1, 4))
        if random.random() < 0.5:  # damage inside of what is sealed, so that encryption does not shield the decoder
            parts = [mutate(random, part) for part in parts]
            datagram = codec.seal([part for part in parts if len(part) < 65_000] or [b"\x00"])
        else:
            datagram = mutate(random, codec.seal(parts, checksum=random.random() < 0.3))
        seen[outcome(codec, datagram)] += 1
    assert seen.total() == ROUNDS
    assert min(seen["read"], seen["refused"]) > ROUNDS / 50  # both paths were really walked


@pytest.mark.parametrize("codec", CODECS)
def test_no_mutated_stream_raises_anything_but_a_wire_error(codec: PacketCodec) -> None:
    random = Random(4)
    seen = Counter[str]()
    for _ in range(ROUNDS // 8):
        body = random.choice(STREAMS)
        if random.random() < 0.5:
            data = codec.stream_head + seal_stream(codec, mutate(random, body))
        else:
            data = mutate(random, codec.stream_head + seal_stream(codec, body))
        box = StreamInbox(codec, opened_by_peer=True)
        try:
            read = [box.feed_all(data[at : at + 37]) for at in range(0, len(data), 37)]
        except WireError:
            seen["refused"] += 1
        else:
            seen["read" if any(read) else "waiting"] += 1
    assert seen.total() == ROUNDS // 8
    assert min(seen["read"], seen["refused"]) > 0


@settings(max_examples=sized("invented gossip packets", short=600, long=20_000))
@given(st.binary(max_size=400), st.sampled_from(CODECS))
def test_arbitrary_bytes_are_read_or_refused(data: bytes, codec: PacketCodec) -> None:
    outcome(codec, data)
    box = StreamInbox(codec, opened_by_peer=True)
    with contextlib.suppress(WireError):
        box.feed_all(data)
