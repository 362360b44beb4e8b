from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gossip.one_node import CODECS
from tests.gossip.strategies import messages

from tenure.errors import ConfigurationError, WireError
from tenure.gossip.encodings import lzw_compress
from tenure.gossip.sealing import Keyring, PacketCodec, format_key, pack_compound, parse_key
from tenure.gossip.wire import decode, encode, encode_compressed
from tenure.randomness import secret_bytes


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


OLD, NEW = bytes(16), bytes(range(32))


def ring(*keys: bytes) -> Keyring:
    return Keyring(keys, entropy=secret_bytes)


@pytest.mark.parametrize("size", [16, 24, 32])
def test_three_key_sizes_are_allowed(size: int) -> None:
    keys = ring(b"k" * size)
    assert keys.decrypt(keys.encrypt(b"hello", b"label"), b"label") == b"hello"


def test_the_frame_is_version_nonce_ciphertext_and_tag() -> None:
    sealed = ring(OLD).encrypt(b"hello", b"")
    assert sealed[0] == 1
    assert len(sealed) == 1 + 12 + 5 + 16


def test_the_padded_frame_of_protocol_1_is_read_too() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    sealed = b"\x00" + bytes(12) + AESGCM(OLD).encrypt(bytes(12), b"hello" + b"\x0b" * 11, b"")
    assert ring(OLD).decrypt(sealed, b"") == b"hello"
    bad = b"\x00" + bytes(12) + AESGCM(OLD).encrypt(bytes(12), b"hello\x63", b"")
    with pytest.raises(WireError, match="padding"):
        ring(OLD).decrypt(bad, b"")


def test_the_label_is_authenticated() -> None:
    sealed = ring(OLD).encrypt(b"hello", b"one pool")
    with pytest.raises(WireError, match="none of our keys"):
        ring(OLD).decrypt(sealed, b"another pool")


def test_a_rotation_never_has_a_moment_in_which_two_nodes_cannot_read_each_other() -> None:
    nodes = [ring(OLD), ring(OLD), ring(OLD)]

    def all_understand_each_other() -> bool:
        return all(b.decrypt(a.encrypt(b"x", b""), b"") == b"x" for a in nodes for b in nodes)

    for step in (lambda n: n.install(NEW), lambda n: n.use(NEW), lambda n: n.remove(OLD)):
        for node in nodes:
            step(node)
            assert all_understand_each_other()
    assert [node.keys for node in nodes] == [(NEW,)] * 3
    with pytest.raises(WireError):
        nodes[0].decrypt(ring(OLD).encrypt(b"x", b""), b"")


def test_wrong_steps_are_refused_with_what_to_do() -> None:
    keys = ring(OLD)
    with pytest.raises(ConfigurationError, match="Install it first"):
        keys.use(NEW)
    with pytest.raises(ConfigurationError, match="Use another key first"):
        keys.remove(OLD)
    keys.remove(NEW)  # absent already: nothing to do
    with pytest.raises(ConfigurationError, match="15 bytes, and must have 16, 24 or 32"):
        keys.install(b"k" * 15)
    with pytest.raises(ConfigurationError, match="no key"):
        ring()


def test_a_key_is_written_as_serf_writes_it() -> None:
    assert parse_key(format_key(NEW)) == NEW
    with pytest.raises(ConfigurationError, match="not base64"):
        parse_key("not a key!")


@pytest.mark.parametrize("sealed", [b"", b"\x01" * 28, b"\x07" * 60])
def test_what_cannot_be_ours_is_refused(sealed: bytes) -> None:
    with pytest.raises(WireError):
        ring(OLD).decrypt(sealed, b"")


def test_cryptography_is_imported_only_when_a_keyring_is_made() -> None:
    check = "import sys, tenure.gossip; print('cryptography' in sys.modules, 'prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_machine_without_cryptography_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'tenure\[gossip-encryption\]'"):
        ring(OLD)
