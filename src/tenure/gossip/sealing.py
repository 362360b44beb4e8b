"""Seals and opens the datagrams of a pool: several messages become one, which is compressed, checked, encrypted and labelled in memberlist's order.

The keys and the label of a pool are here; the meaning of messages is not. Opening trusts nothing: anything wrong is a `WireError`, and decompression
is bounded. Encryption is AES-GCM as memberlist frames it: a version byte, a nonce of 12 bytes, the ciphertext, a tag of 16. `cryptography` is an
optional package, and is imported when the first keyring is made.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tenure.errors import ConfigurationError, WireError
from tenure.gossip.encodings import lzw_compress, lzw_decompress
from tenure.gossip.messages import Kind
from tenure.gossip.wire import encode_compressed, take_bytes, take_uint, unpack_fields

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_SIZES = (16, 24, 32)
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = 1 + NONCE_BYTES + TAG_BYTES

# The version byte. Protocol 1 padded to AES blocks, as PKCS7 does; we read it and do not write it.
_PADDED = 0
_PLAIN = 1


def parse_key(text: str) -> bytes:
    """Returns the key in base64 text, as `tenure gossip keygen` and `serf keygen` print it. Raises `ConfigurationError`."""
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ConfigurationError("a gossip key is not base64", remedy="Make one with `tenure gossip keygen`") from error
    return _checked(key)


def format_key(key: bytes) -> str:
    """Returns a key in base64, as Serf's files and flags want it."""
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
    """The keys of a pool. The first encrypts; all are tried to decrypt. Install, use, remove changes a key without a moment of silence."""

    def __init__(
        self,
        keys: Iterable[bytes],
        *,
        entropy: Callable[[int], bytes],
        on_change: Callable[[tuple[bytes, ...]], None] | None = None,
    ) -> None:
        """`on_change` gets all keys, the primary one first, after each change. A file of keys follows a rotation so."""
        cipher = _aesgcm()
        self._cipher = cipher
        self._entropy = entropy
        self._keys: dict[bytes, AESGCM] = {_checked(key): cipher(key) for key in keys}
        self._on_change = on_change
        if not self._keys:
            raise ConfigurationError("a keyring has no key", remedy="Give at least one, or no keyring at all")

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys, the primary one first."""
        return tuple(self._keys)

    @property
    def primary(self) -> bytes:
        """The key that encrypts."""
        return next(iter(self._keys))

    def install(self, key: bytes) -> None:
        """Accepts messages that this key encrypted. Install a key on every node before any node uses it."""
        if _checked(key) not in self._keys:
            self._replace({**self._keys, key: self._cipher(key)})

    def use(self, key: bytes) -> None:
        """Encrypts with this key from now on."""
        if key not in self._keys:
            raise ConfigurationError("the key to use is not in the keyring", remedy="Install it first, on every node")
        if key != self.primary:
            self._replace({key: self._keys[key], **self._keys})

    def remove(self, key: bytes) -> None:
        """Accepts this key no longer."""
        if key not in self._keys:
            return
        if key == self.primary:
            raise ConfigurationError("the primary key cannot be removed", remedy="Use another key first")
        self._replace({kept: cipher for kept, cipher in self._keys.items() if kept != key})

    def _replace(self, keys: dict[bytes, AESGCM]) -> None:
        self._keys = keys
        if self._on_change is not None:
            self._on_change(self.keys)

    def encrypt(self, plain: bytes, associated: bytes) -> bytes:
        """Returns the message, encrypted with the primary key."""
        nonce = self._entropy(NONCE_BYTES)
        sealed = next(iter(self._keys.values())).encrypt(nonce, plain, associated)
        return bytes((_PLAIN,)) + nonce + sealed

    def decrypt(self, sealed: bytes, associated: bytes) -> bytes:
        """Returns the message, decrypted with whichever key opens it. Raises `WireError` where none does."""
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


MAX_LABEL_BYTES = 253
MAX_UNPACKED_BYTES = 128 * 1024
MAX_NESTING = 4
MAX_PARTS = 255

WORTH_COMPRESSING_BYTES = 48
"""Below this, LZW has never made a message of ours smaller, and trying costs more than the rest of sealing."""


def pack_compound(parts: Sequence[bytes]) -> bytes:
    """Returns several messages as one: 07, their number, each length, each body. A single message stays as it is."""
    if len(parts) == 1:
        return parts[0]
    if not 1 < len(parts) <= MAX_PARTS:
        raise ValueError(f"a compound message has {len(parts)} parts, and must have 1 to {MAX_PARTS}")
    lengths = b"".join(len(part).to_bytes(2, "big") for part in parts)
    return bytes((Kind.COMPOUND, len(parts))) + lengths + b"".join(parts)


def unpack_compound(body: bytes) -> list[bytes]:
    """Returns the bodies in a compound message."""
    if len(body) < 2:
        raise WireError("a compound message does not say how many parts it has")
    count = body[1]
    at = 2 + 2 * count
    if at > len(body):
        raise WireError(f"a compound message of {count} parts has no room for their lengths")
    parts = []
    for index in range(2, at, 2):
        end = at + int.from_bytes(body[index : index + 2], "big")
        if end > len(body):
            raise WireError("a compound message is cut off")
        parts.append(body[at:end])
        at = end
    return parts


def compressed_bytes(body: bytes, *, most: int) -> bytes:
    """Returns the compressed bytes in a compress message."""
    fields, _ = unpack_fields(body, 1)
    if take_uint(fields, b"Algo", 255) != 0:
        raise WireError("a message is compressed by an unknown algorithm")
    return take_bytes(fields, b"Buf", most)


def decompress_body(body: bytes, *, most: int) -> bytes:
    """Returns the message in a compress message."""
    return lzw_decompress(compressed_bytes(body, most=most), most=most)


class PacketCodec:
    """Seals and opens the datagrams of one pool."""

    def __init__(self, *, label: str = "", keyring: Keyring | None = None, compression: bool = True) -> None:
        self.label = label.encode()
        if len(self.label) > MAX_LABEL_BYTES:
            raise ConfigurationError(f"the label has {len(self.label)} bytes; at most {MAX_LABEL_BYTES} are allowed")
        self.keyring = keyring
        self.compression = compression
        self._head = bytes((Kind.LABEL, len(self.label))) + self.label if self.label else b""

    @property
    def overhead_bytes(self) -> int:
        """The bytes that sealing may add to a packet, beside the two bytes of each part."""
        encryption = OVERHEAD_BYTES if self.keyring is not None else 0
        return len(self._head) + 2 + 5 + encryption

    @property
    def stream_head(self) -> bytes:
        """The bytes that the side that opens a stream sends first: the label."""
        return self._head

    def seal(self, parts: Sequence[bytes], *, checksum: bool = False) -> bytes:
        """Returns one datagram. Give `checksum` for a receiver that is known to understand it; encryption has one of its own."""
        body = pack_compound(parts)
        if self.compression and len(body) >= WORTH_COMPRESSING_BYTES:
            smaller = encode_compressed(lzw_compress(body))
            if len(smaller) < len(body):
                body = smaller
        if self.keyring is not None:
            return self._head + self.keyring.encrypt(body, self.label)
        if checksum:
            body = b"\x0c" + zlib.crc32(body).to_bytes(4, "big") + body
        return self._head + body

    def open(self, datagram: bytes) -> list[bytes]:
        """Returns the bodies of the messages in a datagram."""
        body = self._without_label(datagram)
        if self.keyring is not None:
            body = self.keyring.decrypt(body, self.label)
        if body and body[0] == Kind.HAS_CRC:
            if len(body) < 6 or zlib.crc32(body[5:]) != int.from_bytes(body[1:5], "big"):
                raise WireError("the checksum of a packet is wrong")
            body = body[5:]
        parts: list[bytes] = []
        self._unfold(body, 0, parts)
        return parts

    def _unfold(self, body: bytes, depth: int, parts: list[bytes]) -> None:
        """Appends the messages in `body` to `parts`, through compound and compress messages in it."""
        if not body:
            raise WireError("a packet is empty")
        if body[0] not in (Kind.COMPOUND, Kind.COMPRESS):
            parts.append(body)
            return
        if depth >= MAX_NESTING:
            raise WireError(f"a packet is nested deeper than {MAX_NESTING}")
        if body[0] == Kind.COMPRESS:
            self._unfold(decompress_body(body, most=MAX_UNPACKED_BYTES), depth + 1, parts)
            return
        for part in unpack_compound(body):
            self._unfold(part, depth + 1, parts)
            if len(parts) > MAX_PARTS:
                raise WireError(f"a packet holds more than {MAX_PARTS} messages")

    def _without_label(self, datagram: bytes) -> bytes:
        head = self._head
        if head:
            if not datagram.startswith(head):
                raise WireError("a packet has not the label of this pool")
            return datagram[len(head) :]
        # Encrypted bytes begin with their version, which is 0 or 1. So a first byte of 244 is always a label.
        if datagram and datagram[0] == Kind.LABEL:
            raise WireError("a packet has a label, and this pool has none")
        return datagram
