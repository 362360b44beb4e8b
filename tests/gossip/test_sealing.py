from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gossip.one_node import CODECS
from tests.gossip.strategies import messages

from tenure.errors import ConfigurationError, WireError
from tenure.gossip.encodings import lzw_compress
from tenure.gossip.sealing import PacketCodec, pack_compound
from tenure.gossip.wire import decode, encode, encode_compressed


@settings(max_examples=40)
@given(st.lists(messages, min_size=1, max_size=12), st.booleans(), st.sampled_from(CODECS))
def test_messages_come_back_from_a_datagram(sent: list, checksum: bool, codec: PacketCodec) -> None:
    parts = [encode(message) for message in sent]
    opened = codec.open(codec.seal(parts, checksum=checksum))
    assert [decode(part) for part in opened] == sent


def test_sealing_adds_no_more_than_it_says() -> None:
    parts = [bytes((0, number)) + b"incompressible?"[:number] for number in range(10)]
    plain = sum(len(part) + 2 for part in parts)
    for codec in CODECS:
        assert len(codec.seal(parts, checksum=True)) <= plain + codec.overhead_bytes


def test_a_pool_refuses_the_datagrams_of_another() -> None:
    for codec, other in itertools.permutations(CODECS, 2):
        if (codec.label, codec.keyring is None) == (other.label, other.keyring is None):
            continue
        with pytest.raises(WireError):
            decode(other.open(codec.seal([b"\x00\x82\xa5SeqNo\x05\xa4Node\xa1a"]))[0])


def test_compression_is_used_only_where_it_helps() -> None:
    codec = PacketCodec()
    assert codec.seal([b"\x08" + bytes(range(200))])[0] == 8
    assert codec.seal([b"\x08" + b"ab" * 100])[0] == 9


def test_a_flipped_bit_is_noticed_by_the_checksum() -> None:
    codec = PacketCodec(compression=False)
    good = codec.seal([b"\x08hello"], checksum=True)
    for bit in range(8, len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError):
            codec.open(bytes(bad))


@pytest.mark.parametrize(
    ("datagram", "why"),
    [
        (b"", "empty"),
        (b"\x07", "how many parts"),
        (b"\x07\x05\x00", "no room for their lengths"),
        (b"\x07\x01\x00\x09abc", "cut off"),
        (b"\x07\x01\x00\x00", "empty"),
        (b"\x09\x81\xa4Algo\x05", "unknown algorithm"),
        (b"\x0c\x00\x00\x00\x00\x08", "checksum"),
        (b"\xf4\x03abc\x08", "this pool has none"),
        (encode_compressed(lzw_compress(b"\x08" + b"0" * 200_000)), "longer than"),
    ],
)
def test_a_malformed_datagram_is_refused_with_its_reason(datagram: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        PacketCodec().open(datagram)


def test_packets_in_packets_in_packets_end() -> None:
    body = b"\x08x"
    for _ in range(6):
        body = b"\x07\x01" + len(body).to_bytes(2, "big") + body
    with pytest.raises(WireError, match="nested deeper"):
        PacketCodec().open(body)
    wide = pack_compound([pack_compound([b"\x08"] * 100)] * 3)
    with pytest.raises(WireError, match="more than 255 messages"):
        PacketCodec().open(wide)


def test_a_label_has_a_largest_length() -> None:
    PacketCodec(label="x" * 253)
    with pytest.raises(ConfigurationError, match="254 bytes"):
        PacketCodec(label="x" * 254)
