"""Sends requests to nodes from an event loop, without threads: over one connection for each request under way, kept for the next request.

`h11` reads and writes HTTP/1.1; this file owns the sockets, the bounds and the reuse of connections. The other end is `control/transport.py`, or a proxy
before it. `Route` finds the node of a cluster that can answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import h11
import msgspec

from tenure.control.caller import MAX_REPLY_BYTES, parse_address, read_answer, redirected
from tenure.control.messages.wire import Problem, Redirect, Reply, Request, path_of
from tenure.control.tls import ClientTls, Reached, unanswered
from tenure.errors import ConfigurationError, NodeUnavailableError, UntrustedPeerError

_encode = msgspec.json.Encoder().encode
_HEAD_BYTES = 65_536
_READ_BYTES = 16_384


class AsyncCaller(Protocol):
    """Asks another node. The simulator brings its own, on which requests travel and get lost."""

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        """Returns the reply. Raises `NodeUnavailableError`; then the node may have acted or not, and asking again is safe."""


class _Broken(Exception):
    """The connection ended within an answer, or its bytes are no HTTP answer."""


class _Ended(_Broken):
    """The connection ended before an answer began."""


class _HungUp(Exception):
    """A new connection over TLS ended before an answer began."""


class HttpAnswer(NamedTuple):
    """The parts of an HTTP answer that a caller reads."""

    status: int
    retry_after: str
    body: bytes


class _Connection:
    """One connection to a node. It carries one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)

    async def exchange(self, request: h11.Request, body: bytes) -> HttpAnswer:
        """Sends one request and returns the answer. Raises `_Broken` or `OSError`; then the connection is of no more use."""
        try:
            parts = (self._http.send(request), self._http.send(h11.Data(body)), self._http.send(h11.EndOfMessage()))
            self.writer.write(b"".join(part for part in parts if part))
            await self.writer.drain()
            return await self._read()
        except h11.ProtocolError as error:
            raise _Broken(f"its answer is no HTTP: {error}") from error

    async def _read(self) -> HttpAnswer:
        head: h11.Response | None = None
        body, size = [], 0
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(_READ_BYTES)
                if not data and head is None:
                    raise _Ended("the connection ended")
                self._http.receive_data(data)
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > MAX_REPLY_BYTES:
                    raise _Broken(f"the answer is larger than {MAX_REPLY_BYTES:,} bytes")
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                after = next((value for name, value in head.headers if name == b"retry-after"), b"")
                return HttpAnswer(head.status_code, after.decode("latin-1"), b"".join(body))
            elif not isinstance(event, h11.InformationalResponse):
                raise _Ended("the connection ended")

    def reusable(self) -> bool:
        """Prepares the connection for the next request; False where the node closes it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True


class HttpCaller:
    """Asks over HTTP. For one event loop."""

    def __init__(self, *, token: str = "", source: str = "", tls: ClientTls | None = None) -> None:
        """`source`: the address of this machine to speak from, where it has several; empty: as the system chooses.
        Without `tls`, `TENURE_CA`, `TENURE_CERT` and `TENURE_KEY` name the files."""
        self._tls = tls if tls is not None else ClientTls.from_environment()
        self._token = token
        self._source = (source, 0) if source else None
        self._kept: dict[str, list[_Connection]] = {}

    async def ask(self, address: str, request: Request, timeout: float, *, token: str = "") -> Reply:
        """Returns the reply. `token` replaces this caller's own, where the node passes on a request of another caller."""
        try:
            async with asyncio.timeout(timeout):
                return read_answer(*await self._ask(address, request, token or self._token))
        except _HungUp as error:
            raise unanswered(address, error, Reached.PEER) from error
        except (OSError, EOFError, _Broken, TimeoutError, msgspec.DecodeError) as error:
            raise unanswered(address, error, Reached.NOBODY) from error

    async def _ask(self, address: str, request: Request, token: str) -> HttpAnswer:
        body = _encode(request)
        head = _head(address, request, token, len(body))
        while kept := self._kept.get(address):
            try:
                return await self._exchange(address, kept.pop(), head, body)
            except (OSError, EOFError, _Broken):
                continue  # the node may have closed this kept connection; only a new one shows if the node is there
        secure = self._tls.context_for(address)
        try:
            host, port = parse_address(address)
            opened = await asyncio.open_connection(host, port, limit=_HEAD_BYTES, local_addr=self._source, ssl=secure)
        except (UnicodeError, OverflowError, ConfigurationError) as error:
            # The address came from a journal or from another node, and cannot be reached. That is no fault of this node's code.
            raise _Broken(f"{address[:100]!r} is no address: {error}") from error
        try:
            return await self._exchange(address, _Connection(*opened), head, body)
        except (ConnectionError, EOFError, _Ended, ssl.SSLEOFError) as error:
            if secure is None:
                raise
            raise _HungUp(str(error)) from error

    async def _exchange(self, address: str, connection: _Connection, head: h11.Request, body: bytes) -> HttpAnswer:
        whole = False
        try:
            answer = await connection.exchange(head, body)
            whole = connection.reusable()
            return answer
        finally:
            # A cancelled exchange closes its connection, too: the next request would read the rest of this answer as its own.
            if whole:
                self._kept.setdefault(address, []).append(connection)
            else:
                connection.writer.close()

    def close(self) -> None:
        for connections in self._kept.values():
            for connection in connections:
                # `abort`, because no request is under way on a kept connection, and closing TLS properly would need the loop to go on.
                connection.writer.transport.abort()
        self._kept.clear()


def _head(address: str, request: Request, token: str, size: int) -> h11.Request:
    headers = [
        ("Host", address.rpartition("//")[2]),
        ("Content-Type", "application/json"),
        ("Content-Length", str(size)),
    ]
    if token:
        headers.append(("Authorization", f"Bearer {token}"))
    return h11.Request(method="POST", target=path_of(request), headers=headers)


class ConfiguredCaller:
    """Asks only the addresses that an operator named. A node shows its token to whomever it asks, and others may tell it whom to ask."""

    def __init__(self, caller: AsyncCaller, addresses: Iterable[str]) -> None:
        self._caller, self._allowed = caller, {address.rpartition("//")[2] for address in addresses}

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        if address.rpartition("//")[2] not in self._allowed:
            raise NodeUnavailableError(
                f"{address[:100]} is none of the gates that this node was told of", remedy="Name it: --gate HOST:PORT"
            )
        return await self._caller.ask(address, request, timeout)


MOST_HOPS = 3


class Route:
    """The nodes of one cluster, and the one that answered last. It follows redirects, and passes over a node that cannot help."""

    def __init__(self, caller: AsyncCaller, addresses: Iterable[str]) -> None:
        self._caller = caller
        self.addresses = list(dict.fromkeys(addresses))
        self.preferred = self.addresses[0] if self.addresses else ""

    async def ask(self, request: Request, timeout_s: float) -> Reply:
        """Returns the first final answer: neither a redirect, nor a problem that another node may not have.

        Raises `NodeUnavailableError` when no node had one. `timeout_s` bounds the request to each node.
        """
        said, asked = [], set[str]()
        for first in [self.preferred, *self.addresses]:
            address, hops = first, 0
            while address and address not in asked and hops < MOST_HOPS:
                asked.add(address)
                try:
                    reply = await self._caller.ask(address, request, timeout_s)
                except NodeUnavailableError as error:
                    said.append(str(error) if isinstance(error, UntrustedPeerError) else error.fact)
                    break
                if isinstance(reply, Redirect):
                    said.append(f"{address} says that {reply.address} leads")
                    address, hops = redirected(address, reply.address), hops + 1
                elif isinstance(reply, Problem) and reply.retryable:
                    said.append(f"{address}: {reply.fact}")
                    break
                else:
                    self.preferred = address
                    return reply
        if self.addresses and self.preferred not in self.addresses:
            # The preferred one was a leader that is gone; the configured nodes know the next one.
            self.preferred = self.addresses[0]
        raise NodeUnavailableError("; ".join(said) or "no address is known")
