from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import WireError
from tenure.gossip.encodings import lzw_compress, lzw_decompress

# What Go's compress/lzw wrote into the push/pull of a Serf 0.9.4 agent.
SERF_WROTE = bytes.fromhex(
    "000d0c22a5e44d1a37c24a397943a6cc9c00acaacc2923670a9d3074ca3029e3a69900278748052143460ea93f0000045895c4cd983072dc"
    "604cf3c64d00524dca5c94f54f1029396fd8941975a78c185164c68caa59869493306dca989a28c74c8b30a4a0bc9143a799ac35a52c622c"
    "03609495396e4c052820404001b6865415b1c3910e132a69a2063035b7ee1c6e0200001b4cb8b0e1c388132b5eccb8b1e3c790234b9e4cb9"
    "b2e5cb98336bdeccb9b3e7cfa02397ba9bb7ccca8d66e8e46c2386e21c48aaa2d4a19887b45e5662e9d49963db61a0a914ad86011010"
)


def test_we_read_what_go_wrote_and_write_the_same_bytes() -> None:
    plain = lzw_decompress(SERF_WROTE, most=1000)
    assert len(plain) == 707
    assert b"serf-a" in plain
    assert lzw_compress(plain) == SERF_WROTE


@given(st.binary(max_size=4000))
def test_what_was_compressed_comes_back(data: bytes) -> None:
    assert lzw_decompress(lzw_compress(data), most=4000) == data


@given(st.lists(st.sampled_from([b"Node", b"Incarnation", b"\xa5alive", b"\x00"]), max_size=800))
def test_repeating_data_comes_back_and_becomes_smaller(words: list[bytes]) -> None:
    data = b"".join(words)
    packed = lzw_compress(data)
    assert lzw_decompress(packed, most=100_000) == data
    if len(data) > 500:
        assert len(packed) < len(data)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 3837, 3838, 3839, 3840, 4095, 4096, 8000, 60_000])
def test_it_survives_each_width_and_a_full_table(size: int) -> None:
    data = Random(size).randbytes(size)
    assert lzw_decompress(lzw_compress(data), most=size) == data


def test_a_bomb_is_stopped_at_the_bound() -> None:
    bomb = lzw_compress(b"\x00" * 5_000_000)
    assert len(bomb) < 10_000
    with pytest.raises(WireError, match="longer than 65536"):
        lzw_decompress(bomb, most=65_536)


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\xff" * 20, lzw_compress(b"hello world")[:-2]])
def test_nonsense_is_refused(damage: bytes) -> None:
    with pytest.raises(WireError):
        lzw_decompress(damage, most=1000)
