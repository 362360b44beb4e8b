"""LZW as Go's compress/lzw writes it: least significant bit first, literals of 8 bits, codes of 9 to 12 bits.

memberlist compresses with it, so we have to. Knows nothing of messages. Decompression is bounded by the caller: 1 KB of
LZW can grow to more than a megabyte.
"""

from __future__ import annotations

from collections.abc import Generator

from tenure.errors import WireError

CLEAR = 256
END = 257
MAX_CODE = 4095
FIRST_WIDTH = 9
MAX_WIDTH = 12


def compress(data: bytes) -> bytes:
    """The codes of `data`, from a clear code to an end code."""
    out = bytearray()
    bits, filled = CLEAR, FIRST_WIDTH
    width, high, overflow = FIRST_WIDTH, END, 1 << FIRST_WIDTH
    table: dict[int, int] = {}
    known = table.get
    code = -1
    for byte in data:
        if code < 0:
            code = byte
            continue
        key = code << 8 | byte
        longer = known(key)
        if longer is not None:
            code = longer
            continue
        bits |= code << filled
        filled += width
        while filled >= 8:
            out.append(bits & 0xFF)
            bits >>= 8
            filled -= 8
        code = byte
        high += 1
        if high == overflow:
            width += 1
            overflow <<= 1
        if high == MAX_CODE:
            # The table is full. The clear code goes out in the widest codes; what follows starts anew.
            bits |= CLEAR << filled
            filled += width
            width, high, overflow = FIRST_WIDTH, END, 1 << FIRST_WIDTH
            table.clear()
            continue
        table[key] = high
    if code >= 0:
        bits |= code << filled
        filled += width
        high += 1
        if high == overflow:
            width += 1
        if high == MAX_CODE:
            bits |= CLEAR << filled
            filled += width
            width = FIRST_WIDTH
    bits |= END << filled
    filled += width
    out += bits.to_bytes((filled + 7) // 8, "little")
    return bytes(out)


def decompress(data: bytes, *, most: int) -> bytes:
    """What was compressed; `WireError` where the codes make no sense or the result would be longer than `most`."""
    steps = decompress_in_steps(data, most=most, step_bytes=len(data) + 1)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bytes(done.value)


def decompress_in_steps(data: bytes, *, most: int, step_bytes: int) -> Generator[int, None, bytearray]:
    """Returns what was compressed. After each `step_bytes` of input it yields how many bytes it has, so that its caller can do something else."""
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
    if code < len(entries):
        return entries[code]
    if code == len(entries) and last is not None:
        return last + last[:1]
    raise WireError(f"compressed data uses code {code}, which was never defined")
