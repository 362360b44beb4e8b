"""From messages to one datagram and back: compound, compression, checksum, encryption, label, in memberlist's order.

A pool's secrets and its label live here; what the messages mean does not. Opening never trusts: whatever is wrong is a
`WireError`, and what comes out of a decompression is bounded.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from tenure.errors import ConfigurationError, WireError
from tenure.gossip import lzw
from tenure.gossip.keyring import OVERHEAD_BYTES, Keyring
from tenure.gossip.messages import Kind
from tenure.gossip.wire import encode_compressed, take_bytes, take_uint, unpack_fields

MAX_LABEL_BYTES = 253
MAX_DATAGRAM_BYTES = 65_535
MAX_UNPACKED_BYTES = 128 * 1024
MAX_NESTING = 4
MAX_PARTS = 255

# Below this, LZW has never made a message of ours smaller, and trying costs more than all the rest.
WORTH_COMPRESSING_BYTES = 48


def pack_compound(parts: Sequence[bytes]) -> bytes:
    """Several messages as one: 07, how many, each length, each body."""
    if len(parts) == 1:
        return parts[0]
    if not 1 < len(parts) <= MAX_PARTS:
        raise ValueError(f"a compound message has {len(parts)} parts, and must have 1 to {MAX_PARTS}")
    lengths = b"".join(len(part).to_bytes(2, "big") for part in parts)
    return bytes((Kind.COMPOUND, len(parts))) + lengths + b"".join(parts)


def unpack_compound(body: bytes) -> list[bytes]:
    """The bodies in a compound message."""
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
    """What a compress message carries, still compressed."""
    fields, _ = unpack_fields(body, 1)
    if take_uint(fields, b"Algo", 255) != 0:
        raise WireError("a message is compressed by an unknown algorithm")
    return take_bytes(fields, b"Buf", most)


def decompress_body(body: bytes, *, most: int) -> bytes:
    """What a compress message carries."""
    return lzw.decompress(compressed_bytes(body, most=most), most=most)


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
        """What sealing may add to a packet, apart from the two bytes of each part."""
        encryption = OVERHEAD_BYTES if self.keyring is not None else 0
        return len(self._head) + 2 + 5 + encryption

    @property
    def stream_head(self) -> bytes:
        """What the side that opens a stream sends first."""
        return self._head

    def seal(self, parts: Sequence[bytes], *, checksum: bool = False) -> bytes:
        """One datagram. `checksum` for a receiver that is known to understand it; encryption has its own."""
        body = pack_compound(parts)
        if self.compression and len(body) >= WORTH_COMPRESSING_BYTES:
            smaller = encode_compressed(lzw.compress(body))
            if len(smaller) < len(body):
                body = smaller
        if self.keyring is not None:
            return self._head + self.keyring.encrypt(body, self.label)
        if checksum:
            body = b"\x0c" + zlib.crc32(body).to_bytes(4, "big") + body
        return self._head + body

    def open(self, datagram: bytes) -> list[bytes]:
        """The bodies of the messages in a datagram."""
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
        # Encrypted bytes may begin with any byte only after their version, which is 0 or 1: 244 is always a label.
        if datagram and datagram[0] == Kind.LABEL:
            raise WireError("a packet has a label, and this pool has none")
        return datagram
