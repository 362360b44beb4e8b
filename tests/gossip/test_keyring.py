from __future__ import annotations

import subprocess
import sys

import pytest

from tenure.errors import ConfigurationError, WireError
from tenure.gossip.sealing import Keyring, format_key, parse_key
from tenure.ids import secret_bytes

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
