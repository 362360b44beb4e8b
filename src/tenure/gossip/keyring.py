"""The keys of a pool: the first encrypts, all are tried to decrypt, so that keys can be changed while the pool runs.

AES-GCM as memberlist frames it: a version byte, a nonce of 12 bytes, the ciphertext, a tag of 16. `cryptography` is an
extra and is imported when the first keyring is made, not before.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tenure.errors import ConfigurationError, WireError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_SIZES = (16, 24, 32)
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = 1 + NONCE_BYTES + TAG_BYTES

_PADDED = 0  # protocol 1 padded to AES blocks, as PKCS7 does
_PLAIN = 1


def parse_key(text: str) -> bytes:
    """A key as `tenure gossip keygen` and `serf keygen` print it: base64."""
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ConfigurationError("a gossip key is not base64", remedy="Make one with `tenure gossip keygen`") from error
    return _checked(key)


def format_key(key: bytes) -> str:
    """Base64, as Serf's files and flags want it."""
    return base64.b64encode(key).decode()


def _checked(key: bytes) -> bytes:
    if len(key) not in KEY_SIZES:
        raise ConfigurationError(
            f"a gossip key has {len(key)} bytes, and must have 16, 24 or 32",
            remedy="Make one with `tenure gossip keygen`",
        )
    return key


def _aesgcm() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError(
            "encrypted gossip needs the package cryptography",
            remedy="pip install 'tenure[gossip-encryption]'",
        ) from error
    return AESGCM


class Keyring:
    """Install, use, remove: the three steps that change a key without a moment of silence."""

    def __init__(self, keys: Iterable[bytes], *, entropy: Callable[[int], bytes]) -> None:
        self._cipher = _aesgcm()
        self._entropy = entropy
        self._keys: dict[bytes, AESGCM] = {}
        for key in keys:
            self.install(key)
        if not self._keys:
            raise ConfigurationError("a keyring has no key", remedy="Give at least one, or no keyring at all")

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The primary key first."""
        return tuple(self._keys)

    @property
    def primary(self) -> bytes:
        """The key that encrypts."""
        return next(iter(self._keys))

    def install(self, key: bytes) -> None:
        """Accept what this key encrypted. Do it on every node before anybody uses the key."""
        self._keys.setdefault(_checked(key), self._cipher(key))

    def use(self, key: bytes) -> None:
        """Encrypt with this key from now on."""
        if key not in self._keys:
            raise ConfigurationError("the key to use is not in the keyring", remedy="Install it first, on every node")
        self._keys = {key: self._keys[key], **self._keys}

    def remove(self, key: bytes) -> None:
        """Accept this key no longer."""
        if key not in self._keys:
            return
        if key == self.primary:
            raise ConfigurationError("the primary key cannot be removed", remedy="Use another key first")
        del self._keys[key]

    def encrypt(self, plain: bytes, associated: bytes) -> bytes:
        """What the primary key makes of it."""
        nonce = self._entropy(NONCE_BYTES)
        sealed = next(iter(self._keys.values())).encrypt(nonce, plain, associated)
        return bytes((_PLAIN,)) + nonce + sealed

    def decrypt(self, sealed: bytes, associated: bytes) -> bytes:
        """What any of the keys can open."""
        from cryptography.exceptions import InvalidTag

        if len(sealed) < OVERHEAD_BYTES:
            raise WireError(f"{len(sealed)} bytes are too few for an encrypted message")
        version = sealed[0]
        if version not in (_PADDED, _PLAIN):
            raise WireError(f"encryption version {version} is unknown; a peer without keys sends such bytes")
        nonce, body = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        for cipher in self._keys.values():
            try:
                plain = cipher.decrypt(nonce, body, associated)
            except InvalidTag:
                continue
            return _unpad(plain) if version == _PADDED else plain
        raise WireError("none of our keys opens the message")


def _unpad(plain: bytes) -> bytes:
    if not plain or not 1 <= plain[-1] <= 16 or plain[-1] > len(plain):
        raise WireError("the padding of an encrypted message is wrong")
    return plain[: -plain[-1]]
