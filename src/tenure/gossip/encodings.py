"""The two encodings under memberlist's messages: msgpack as go-msgpack speaks it, and LZW as Go's compress/lzw writes it.

go-msgpack speaks the old specification, in which strings and bytes are both "raw". msgspec writes only the new one (str8, bin8) and refuses raw values
that are not UTF-8, so this small codec is ours. It reads both specifications, returns every raw value as bytes, and never reads past its input:
`Incomplete` says how many bytes it needs, so that a stream can wait for them.

LZW here is least significant bit first, with literals of 8 bits and codes of 9 to 12 bits. The caller bounds decompression, because 1 KB can grow to
more than a megabyte.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping

from tenure.errors import WireError

MAX_DEPTH = 8
"""Nested values deeper than this are refused; memberlist uses two levels."""

Value = None | bool | int | float | bytes | list["Value"] | dict["Value", "Value"]


class Incomplete(WireError):
    """The input ends before the value does. `need` is the length that the input must have at least."""

    def __init__(self, need: int) -> None:
        self.need = need
        super().__init__(f"the message ends early: at least {need} bytes are needed")


def pack_uint(value: int) -> bytes:
    """Returns an unsigned integer in its shortest form."""
    if value < 0x80:
        return bytes((value,))
    if value <= 0xFF:
        return bytes((0xCC, value))
    if value <= 0xFFFF:
        return b"\xcd" + value.to_bytes(2, "big")
    if value <= 0xFFFFFFFF:
        return b"\xce" + value.to_bytes(4, "big")
    return b"\xcf" + value.to_bytes(8, "big")


def pack_raw(value: bytes) -> bytes:
    """Returns bytes, or text that was encoded already, as a raw value. The old specification has no raw8."""
    size = len(value)
    if size < 32:
        return bytes((0xA0 | size,)) + value
    if size <= 0xFFFF:
        return b"\xda" + size.to_bytes(2, "big") + value
    return b"\xdb" + size.to_bytes(4, "big") + value


def pack_list_head(size: int) -> bytes:
    """Returns the bytes that begin a list of `size` values."""
    return bytes((0x90 | size,)) if size < 16 else b"\xdc" + size.to_bytes(2, "big")


def pack_map_head(size: int) -> bytes:
    """Returns the bytes that begin a map of `size` pairs."""
    return bytes((0x80 | size,)) if size < 16 else b"\xde" + size.to_bytes(2, "big")


def pack_float(value: float) -> bytes:
    """Returns a number as a double."""
    return b"\xcb" + struct.pack(">d", value)


def pack(value: object) -> bytes:
    """Returns the bytes of a None, bool, int, float, str, bytes, list, tuple or mapping."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return pack_uint(value) if value >= 0 else b"\xd3" + value.to_bytes(8, "big", signed=True)
    if isinstance(value, float):
        return pack_float(value)
    if isinstance(value, str):
        return pack_raw(value.encode())
    if isinstance(value, bytes):
        return pack_raw(value)
    if isinstance(value, list | tuple):
        return pack_list_head(len(value)) + b"".join(map(pack, value))
    if isinstance(value, Mapping):
        return pack_map_head(len(value)) + b"".join(pack(key) + pack(item) for key, item in value.items())
    raise TypeError(f"a {type(value).__name__} cannot be packed")


# Maps each type byte to the number of bytes that follow it and hold the length, or the number itself.
_RAW_SIZES = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
_UINTS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_INTS = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_CONSTANTS: dict[int, bool | None] = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(data: bytes, at: int = 0, depth: int = 0) -> tuple[Value, int]:
    """Returns the value that starts at `at`, and the position after it."""
    if at >= len(data):
        raise Incomplete(at + 1)
    kind = data[at]
    at += 1
    if kind < 0x80:
        return kind, at
    if 0xA0 <= kind < 0xC0:
        return _take(data, at, kind & 0x1F)
    if kind < 0x90:
        return _pairs(data, at, kind & 0x0F, depth)
    if kind < 0xA0:
        return _items(data, at, kind & 0x0F, depth)
    if kind >= 0xE0:
        return kind - 0x100, at
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at
    return _sized(data, at, kind, depth)


def _sized(data: bytes, at: int, kind: int, depth: int) -> tuple[Value, int]:
    if kind in _UINTS:
        return _number(data, at, _UINTS[kind])
    if kind in _RAW_SIZES:
        size, at = _number(data, at, _RAW_SIZES[kind])
        return _take(data, at, size)
    if kind in _INTS:
        return _number(data, at, _INTS[kind], signed=True)
    if kind in (0xCA, 0xCB):
        size = 4 if kind == 0xCA else 8
        raw, at = _take(data, at, size)
        number: float = struct.unpack(">f" if size == 4 else ">d", raw)[0]
        return number, at
    if kind in _LISTS:
        size, at = _number(data, at, _LISTS[kind])
        return _items(data, at, size, depth)
    if kind in _MAPS:
        size, at = _number(data, at, _MAPS[kind])
        return _pairs(data, at, size, depth)
    raise WireError(f"the byte 0x{kind:02x} starts no msgpack value that memberlist uses")


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise Incomplete(end)
    return data[at:end], end


def _number(data: bytes, at: int, size: int, *, signed: bool = False) -> tuple[int, int]:
    raw, end = _take(data, at, size)
    return int.from_bytes(raw, "big", signed=signed), end


def _items(data: bytes, at: int, size: int, depth: int) -> tuple[list[Value], int]:
    _check_depth(depth)
    items: list[Value] = []
    for _ in range(size):
        item, at = unpack(data, at, depth + 1)
        items.append(item)
    return items, at


def _pairs(data: bytes, at: int, size: int, depth: int) -> tuple[dict[Value, Value], int]:
    _check_depth(depth)
    pairs: dict[Value, Value] = {}
    for _ in range(size):
        key, at = unpack(data, at, depth + 1)
        if isinstance(key, list | dict):
            raise WireError("a msgpack map has a list or a map as a key")
        pairs[key], at = unpack(data, at, depth + 1)
    return pairs, at


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise WireError(f"msgpack values are nested deeper than {MAX_DEPTH}")


CLEAR = 256
END = 257
MAX_CODE = 4095
FIRST_WIDTH = 9
MAX_WIDTH = 12


def lzw_compress(data: bytes) -> bytes:
    """Returns `data` as LZW codes, from a clear code to an end code."""
    return _pack_codes(_lzw_codes(data))


def _lzw_codes(data: bytes) -> list[int]:
    """Returns the codes of `data`. A clear code follows each code that fills the table, the last one included, as in Go."""
    codes = [CLEAR]
    table: dict[int, int] = {}
    known, emit = table.get, codes.append
    high, code = END, -1
    for byte in data:
        if code < 0:
            code = byte
            continue
        key = code << 8 | byte
        longer = known(key)
        if longer is not None:
            code = longer
            continue
        emit(code)
        code = byte
        high += 1
        if high == MAX_CODE:
            emit(CLEAR)
            table.clear()
            high = END
            continue
        table[key] = high
    if code >= 0:
        emit(code)
        if high + 1 == MAX_CODE:
            emit(CLEAR)
    emit(END)
    return codes


def _pack_codes(codes: list[int]) -> bytes:
    """Returns the codes as bits. Codes get one bit wider each time that the table has outgrown their width; a clear code starts anew."""
    out = bytearray()
    bits = filled = 0
    width, high, overflow = FIRST_WIDTH, END, 1 << FIRST_WIDTH
    for code in codes:
        bits |= code << filled
        filled += width
        while filled >= 8:
            out.append(bits & 0xFF)
            bits >>= 8
            filled -= 8
        if code == CLEAR:
            width, high, overflow = FIRST_WIDTH, END, 1 << FIRST_WIDTH
            continue
        high += 1
        if high == overflow:
            width += 1
            overflow <<= 1
    if filled:
        out.append(bits)
    return bytes(out)


def lzw_decompress(data: bytes, *, most: int) -> bytes:
    """Returns the bytes that were compressed. Raises `WireError` where the codes make no sense or the result is longer than `most`."""
    steps = lzw_decompress_in_steps(data, most=most, step_bytes=len(data) + 1)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bytes(done.value)


def lzw_decompress_in_steps(data: bytes, *, most: int, step_bytes: int) -> Generator[int, None, bytearray]:
    """Does the same in steps. After each `step_bytes` of input it yields the length of the result so far, so that its caller can do something else."""
    out = bytearray()
    literals = [bytes((i,)) for i in range(256)] + [b"", b""]
    entries = list(literals)
    width, mask = FIRST_WIDTH, (1 << FIRST_WIDTH) - 1
    overflow = 1 << FIRST_WIDTH
    bits = filled = 0
    last: bytes | None = None
    for start in range(0, len(data), step_bytes):
        for byte in data[start : start + step_bytes]:
            bits |= byte << filled
            filled += 8
            if filled < width:
                continue
            code = bits & mask
            bits >>= width
            filled -= width
            if code == END:
                return out
            if code == CLEAR:
                entries = list(literals)
                width, overflow, last = FIRST_WIDTH, 1 << FIRST_WIDTH, None
                mask = overflow - 1
                continue
            entry = _entry(entries, code, last)
            out += entry
            if len(out) > most:
                raise WireError(f"decompressed data is longer than {most} bytes")
            if last is not None and len(entries) <= MAX_CODE:
                entries.append(last + entry[:1])
            last = entry
            if len(entries) >= overflow and width < MAX_WIDTH:
                width += 1
                overflow <<= 1
                mask = overflow - 1
        yield len(out)
    raise WireError("compressed data ends without an end code")


def _entry(entries: list[bytes], code: int, last: bytes | None) -> bytes:
    """Returns the bytes of a code. The one after the last entry is not in the table yet: it is the last entry and its first byte."""
    if code < len(entries):
        return entries[code]
    if code == len(entries) and last is not None:
        return last + last[:1]
    raise WireError(f"compressed data uses code {code}, which was never defined")
