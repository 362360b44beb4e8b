"""Requests to a node from an event loop, without threads: a connection for each that is under way, kept for the next.

The other end is `transport.py`. What is understood of HTTP/1.1 is what an answer of a node can be: a status, headers, and a body of a
given length or in chunks.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple, Protocol

import msgspec

from tenure.nodes.calling.blocking import MAX_REPLY_BYTES, parse_address, read_answer
from tenure.nodes.calling.distrust import Reached, unanswered
from tenure.nodes.calling.tls import ClientTls
from tenure.nodes.messages.wire import Reply, Request, path_of

_encode = msgspec.json.Encoder().encode
_HEAD_BYTES = 65_536


class AsyncCaller(Protocol):
    """How a node asks another. The simulator brings its own, on which requests travel and get lost."""

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        """Raises `NodeUnavailableError`; then nobody knows whether the node acted, and asking again is safe."""


class _Broken(Exception):
    """The connection ended, or what came is no answer."""


class _Ended(_Broken):
    """It ended before an answer began."""


class _HungUp(Exception):
    """A new connection over TLS ended before an answer began."""


class Answer(NamedTuple):
    """What came over HTTP, as far as it is looked at."""

    status: int
    retry_after: str
    body: bytes


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpCaller:
    """Asks over HTTP. For one event loop."""

    def __init__(self, *, token: str = "", source: str = "", tls: ClientTls | None = None) -> None:
        """`source`: the address of this machine to speak from, where it has several; empty: as the system chooses.
        Without `tls`, what `TENURE_CA`, `TENURE_CERT` and `TENURE_KEY` say."""
        self._tls = tls if tls is not None else ClientTls.from_environment()
        self._token = token
        self._source = (source, 0) if source else None
        self._kept: dict[str, list[Line]] = {}

    async def ask(self, address: str, request: Request, timeout: float, *, token: str = "") -> Reply:
        """`token`: instead of our own, where somebody else asks through us."""
        try:
            async with asyncio.timeout(timeout):
                return read_answer(*await self._ask(address, request, token or self._token))
        except _HungUp as error:
            raise unanswered(address, error, Reached.PEER) from error
        except (OSError, EOFError, _Broken, TimeoutError, msgspec.DecodeError) as error:
            raise unanswered(address, error, Reached.NOBODY) from error

    async def _ask(self, address: str, request: Request, token: str) -> Answer:
        data = _encoded(address, request, token)
        while kept := self._kept.get(address):
            try:
                return await self._exchange(address, kept.pop(), data)
            except (OSError, EOFError, _Broken):
                continue  # it may have been closed since: a new one tells whether the node is there
        host, port = parse_address(address)
        secure = self._tls.context_for(address)
        line = await asyncio.open_connection(host, port, limit=_HEAD_BYTES, local_addr=self._source, ssl=secure)
        try:
            return await self._exchange(address, line, data)
        except (ConnectionError, EOFError, _Ended, ssl.SSLEOFError) as error:
            if secure is None:
                raise
            raise _HungUp(str(error)) from error

    async def _exchange(self, address: str, line: Line, data: bytes) -> Answer:
        reader, writer = line
        whole = False
        try:
            writer.write(data)
            await writer.drain()
            answer, stays = await _read_answer(reader)
            whole = stays
            return answer
        finally:
            # Also where we were cancelled in the middle: half an answer would be taken for the start of the next.
            if whole:
                self._kept.setdefault(address, []).append(line)
            else:
                writer.close()

    def close(self) -> None:
        for lines in self._kept.values():
            for _, writer in lines:
                # Nothing is under way on them, and a farewell over TLS would need a loop that goes on.
                writer.transport.abort()
        self._kept.clear()


def _encoded(address: str, request: Request, token: str) -> bytes:
    body = _encode(request)
    head = [
        f"POST {path_of(request)} HTTP/1.1",
        f"Host: {address.rpartition('//')[2]}",
        "Content-Type: application/json",
    ]
    if token:
        head.append(f"Authorization: Bearer {token}")
    head += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


async def _read_answer(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """Status, `Retry-After` and body, and whether the connection may be used again."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise _Broken("the head of its answer is too large") from error
    except asyncio.IncompleteReadError as error:
        raise _Ended("the connection ended") from error
    status, *lines = head.split("\r\n")
    if not status.startswith("HTTP/1."):
        raise _Broken(f"{status[:40]!r} is no HTTP")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await _read_exactly(reader, _size(headers.get("content-length", ""), 10))
    stays = headers.get("connection", "").lower() != "close" and status.startswith("HTTP/1.1")
    return Answer(_size(status[9:12], 10), headers.get("retry-after", ""), body), stays


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    left = MAX_REPLY_BYTES
    while size := _size((await reader.readline()).decode("latin-1").split(";")[0].strip(), 16):
        left -= size
        if left < 0:
            raise _Broken(f"the answer is larger than {MAX_REPLY_BYTES:,} bytes")
        parts.append((await _read_exactly(reader, size + 2))[:-2])
    while (await reader.readline()).strip():
        continue  # trailers
    return b"".join(parts)


async def _read_exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    if size > MAX_REPLY_BYTES + 2:
        raise _Broken(f"the answer is larger than {MAX_REPLY_BYTES:,} bytes")
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise _Broken("the connection ended in the middle of an answer") from error


def _size(text: str, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        raise _Broken(f"{text[:40]!r} is no length") from None
    if size < 0:
        raise _Broken(f"{size} is no length")
    return size
