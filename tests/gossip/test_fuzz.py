"""Whatever arrives, opening and decoding give messages or a WireError, and nothing else. The inputs are counted."""

from __future__ import annotations

import contextlib
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gossip.damage import EXAMPLES, STREAMS, mutate
from tests.gossip.one_node import CODECS
from tests.soak import sized

from tenure.errors import WireError
from tenure.gossip.sealing import PacketCodec
from tenure.gossip.stream import StreamInbox, seal_stream
from tenure.gossip.wire import decode

ROUNDS = sized("damaged gossip packets", short=8_000, long=120_000)


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
