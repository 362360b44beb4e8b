"""The bytes of one page of the state, as they are stored: records, compressed; for a page of waiting jobs a head behind them; in chunks with checksums. Pure.

`page_heads` has the heads. They stand behind the records, where a release without them reads over them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from tenure.errors import EngineVersionError
from tenure.jobs.model import ArchivedJob, JobInfo, Tombstone

CHUNK_BYTES = 4_194_304
"""The most bytes under one key. A page whose records have grown beyond it takes several."""
LEVEL = 1
"""The records of a page are alike: this level leaves 3 in 100 bytes of them, and takes a sixth of the time of the usual one."""
_COMPRESSED = b"\x78"
"""The first byte of what is compressed. No page that is not begins with it, because the code of a map in msgpack is above 0x7f."""
_HEADED = b"head"
"""The last bytes of a page with a head. The four before them are the length of the head."""
_FOOTER = len(_HEADED) + 4

Section = Literal["jobs", "archive", "tombstones"]
SECTIONS: tuple[Section, ...] = ("jobs", "archive", "tombstones")


class SavedRecords(NamedTuple):
    """The records of one page, and what its head says of them."""

    compressed: bytes
    size: int
    """The bytes of the records before they were compressed."""
    head: bytes = b""
    """Empty for a page without one."""

    @property
    def stored(self) -> bytes:
        if not self.head:
            return self.compressed
        return b"".join((self.compressed, self.head, len(self.head).to_bytes(4, "little"), _HEADED))


def parted(stored: bytes) -> tuple[bytes, bytes]:
    """Returns the records of a stored page, and its head; empty where it has none."""
    if not stored.startswith(_COMPRESSED) or not stored.endswith(_HEADED):
        return stored, b""
    size = int.from_bytes(stored[-_FOOTER : -len(_HEADED)], "little")
    end = len(stored) - _FOOTER - size
    # Compressed records of a page without a head may end so, too, once in 2**32 pages. What is not a head is then no head, and the records are whole.
    return (stored[:end], stored[end:-_FOOTER]) if end > 0 else (stored, b"")


def chunks_of(stored: bytes) -> Iterator[bytes]:
    for start in range(0, len(stored), CHUNK_BYTES):
        part = stored[start : start + CHUNK_BYTES]
        yield zlib.crc32(part).to_bytes(4, "little") + part


def joined(chunks: Iterable[bytes]) -> bytes | None:
    """Returns the bytes of a page as they are stored; None where a checksum is wrong."""
    parts: list[bytes] = []
    for chunk in chunks:
        if zlib.crc32(chunk[4:]).to_bytes(4, "little") != chunk[:4]:
            return None
        parts.append(chunk[4:])
    return b"".join(parts)


class Unpacked(NamedTuple):
    """The records of a page that was read, and how they are held in memory."""

    encoded: bytes
    compressed: bytes


def unpacked(section: Section, stored: bytes, size: int) -> Unpacked:
    """Returns the records of a page, `size` bytes at most, whatever stands behind them. Pages of the time before they were compressed are as they are.

    Raises `EngineVersionError`.
    """
    if not stored.startswith(_COMPRESSED):
        return Unpacked(stored, zlib.compress(stored, LEVEL))
    inflating = zlib.decompressobj()
    try:
        encoded = inflating.decompress(stored, max(1, size))
    except zlib.error as error:
        raise EngineVersionError(f"a page of {section} cannot be read: {error}") from error
    if not inflating.eof:
        raise EngineVersionError(
            f"a page of {section} cannot be read: it has more than the {size} bytes that it should"
        )
    behind = len(inflating.unused_data)
    return Unpacked(encoded, stored[:-behind] if behind else stored)


def read_page(section: Section, encoded: bytes) -> dict[str, Any]:
    """Returns the records of a page, by their ids, in their order. Raises `EngineVersionError`."""
    try:
        records: dict[str, Any] = _DECODERS[section].decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineVersionError(f"a page of {section} cannot be read: {error}") from error
    return records


_DECODERS: dict[Section, msgspec.msgpack.Decoder[Any]] = {
    "jobs": msgspec.msgpack.Decoder(dict[str, JobInfo]),
    "archive": msgspec.msgpack.Decoder(dict[str, ArchivedJob]),
    "tombstones": msgspec.msgpack.Decoder(dict[str, Tombstone]),
}
