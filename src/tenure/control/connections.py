"""Limits the connections of a node's port: their number, and the bytes that each may send before the server sees a request.

`GuardedConnection` stands between a socket and the HTTP library. The library collects the head of a request for as long as its lines come,
up to a megabyte for each connection, before the server can ask for a token. So the guard counts the bytes of unfinished heads, for
each connection and for all together, and gives a head a deadline. It parses nothing but the empty line that ends a head.

All connections share one receive buffer, because asyncio fills it and hands it over in one step. Bytes that a client sends faster than the
server takes them stay in the kernel, where they slow the client down.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto

from tenure.byte_budget import ByteBudget
from tenure.control.admission import HttpLimits

READ_BYTES = 16 << 10
"""The most bytes of one read of a connection, and so the most that can arrive between two looks at its counters."""
AHEAD_BYTES = 16 << 10
"""The bytes of its next request that a client may send before it has the answer to the last one."""
HANDSHAKE_S = 10
GOODBYE_S = 5
"""The seconds that the client may take to close TLS properly."""
_END = b"\r\n\r\n"
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\nServer: tenure\r\n\r\n"
)


class ConnectionPhase(Enum):
    """The phases of a connection between two requests and within one."""

    HEAD = auto()
    """Idle, or the head of a request is arriving. Such a connection may be closed to make room."""
    REQUEST = auto()
    """A head is complete; its body is arriving, or the answer is being made."""
    LINGERING = auto()
    """The last answer is out and the body was not read: the library reads and discards the rest for a second, so that the answer arrives."""
    CLOSING = auto()
    """The connection ignores everything that still arrives."""


class PortConnections:
    """All connections of one port. Runs on the event loop's thread."""

    def __init__(
        self,
        limits: HttpLimits,
        most: int,
        make: Callable[[], asyncio.Protocol],
        on_drop: Callable[[str], None] = lambda bound: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`make` returns the library's protocol for one connection; `on_drop` gets the name of the bound for which one is closed."""
        self.limits, self.make, self.on_drop, self._tls = limits, make, on_drop, tls
        self.heads: ByteBudget[GuardedConnection] = ByteBudget(limits.head_bytes_total)
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._most = most
        self._open: dict[asyncio.Protocol, GuardedConnection] = {}
        self._by_address: Counter[str] = Counter()
        # The connections in phase HEAD; the one that has been in it for longest is first.
        self._idle: dict[GuardedConnection, None] = {}
        # The connections that have not finished their TLS handshake, oldest first. They are in none of the other tables.
        self._handshakes: dict[TlsConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def accept(self) -> asyncio.BaseProtocol:
        """Returns the protocol of a new connection. asyncio calls it for each."""
        connection = GuardedConnection(self)
        return connection if self._tls is None else TlsConnection(connection, self, self._tls)

    def handshake_began(self, connection: TlsConnection) -> None:
        """Counts a handshake. Beyond the bound, the one that has taken longest is closed: an honest one takes milliseconds."""
        self._handshakes[connection] = None
        if len(self._handshakes) > self.limits.handshakes:
            self.on_drop("handshakes")
            oldest = next(iter(self._handshakes))
            self.handshake_ended(oldest)
            oldest.drop()

    def handshake_ended(self, connection: TlsConnection) -> None:
        """Stops counting a handshake, which succeeded or failed. A second call does nothing."""
        self._handshakes.pop(connection, None)

    def drop_handshakes(self) -> None:
        """Closes unfinished handshakes, because the port closes. The library closes the other connections."""
        for connection in list(self._handshakes):
            connection.drop()

    def of(self, handler: asyncio.BaseProtocol) -> GuardedConnection:
        """Returns the connection of one of the library's protocols."""
        return self._open[handler]  # type: ignore[index]

    def admit(self, connection: GuardedConnection) -> asyncio.Protocol | None:
        """Returns the library's protocol for a new connection; None where there is no room, and no idle connection to close."""
        address = connection.address
        if self._by_address[address] >= self.limits.connections_each and not self._make_room(address):
            self.on_drop("connections_each")
            return None
        if len(self._open) >= self._most and not self._make_room(self._by_address.most_common(1)[0][0]):
            self.on_drop("connections")
            return None
        handler = self.make()
        self._open[handler] = connection
        self._by_address[address] += 1
        self._idle[connection] = None
        return handler

    def leave(self, connection: GuardedConnection, handler: asyncio.Protocol) -> None:
        self._idle.pop(connection, None)
        self.heads.release(connection)
        if self._open.pop(handler, None) is not None:
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def became(self, connection: GuardedConnection, phase: ConnectionPhase) -> None:
        """Notes the phase of a connection. `_idle` keeps the connections that may be closed in the order in which they became idle."""
        self._idle.pop(connection, None)
        if phase is ConnectionPhase.HEAD:
            self._idle[connection] = None
        elif connection.head_counts:
            connection.head_counts = False
            self.heads.release(connection)

    def head_grew(self, connection: GuardedConnection, size: int) -> None:
        connection.head_counts = True
        for loser in self.heads.hold(connection, connection.address, size):
            self.on_drop("head_bytes_total")
            loser.drop()

    def _make_room(self, address: str) -> bool:
        """Closes the connection of `address` that is idle for longest; where it has none and the port is full, that of any address.

        Returns False where it closed none.
        """
        found = next((one for one in self._idle if one.address == address), None)
        if found is None and len(self._open) >= self._most:
            found = next(iter(self._idle), None)
        if found is None:
            return False
        found.drop()
        return True


class TlsConnection(SSLProtocol):
    """asyncio's TLS with a small buffer and a counted handshake.

    asyncio gives each connection a buffer of 256 KB before it has sent a byte: 1,000 unfinished handshakes took 300 MB. A TLS record has 16 KB.
    """

    max_size = READ_BYTES

    def __init__(self, connection: GuardedConnection, connections: PortConnections, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        # asyncio sets it when the handshake has ended. No task awaits it, so the callback takes its error: asyncio would log it otherwise.
        done: asyncio.Future[None] = loop.create_future()
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        super().__init__(
            loop,
            connection,
            context,
            done,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=GOODBYE_S,
        )
        self._port = connections
        self._socket: asyncio.Transport | None = None
        self._guarded = connection
        connection.on_made = lambda: connections.handshake_ended(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        super().connection_made(transport)
        self._port.handshake_began(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._socket = None
        # Break the reference cycle, so that Python frees this object's memory now, and not when the garbage collector runs.
        self._guarded.on_made = lambda: None
        self._port.handshake_ended(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close at once, without a word."""
        if self._socket is not None:
            self._socket.abort()


class GuardedConnection(asyncio.BufferedProtocol):
    """One connection. It passes all bytes on to the library's protocol, as long as they stay within the bounds."""

    def __init__(self, connections: PortConnections) -> None:
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._handler: asyncio.Protocol | None = None
        self._phase = ConnectionPhase.HEAD
        self._head_bytes = 0
        self.head_counts = False  # whether the budget of heads has this one; most heads come whole, and are never in it
        self._tail = b""  # the last three bytes of the head, in case its end is cut in two
        self._deadline: asyncio.TimerHandle | None = None
        # Bytes after the head: of the body, of which `_body_bytes` are announced, and of what the client sends too early.
        self._after_head = 0
        self._body_bytes: int | None = None
        self._is_last = False
        self.address = ""
        self.on_made: Callable[[], None] = lambda: None  # tells the TLS connection below that its handshake is over

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.on_made()
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._handler = self._connections.admit(self)
        if self._handler is None:
            transport.abort()
        else:
            self._handler.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connections.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._handler is None or self._phase is ConnectionPhase.CLOSING:
            return
        data = bytes(self._connections.buffer[:nbytes])
        if self._within_bounds(data):
            self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received() if self._handler is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._transport = None
        handler, self._handler = self._handler, None
        if handler is not None:
            self._connections.leave(self, handler)
            handler.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.resume_writing()

    # Called by the server

    def begin(self, body_bytes: int | None) -> None:
        """Begins a request. `body_bytes` is the length that its head announces; None for a chunked body."""
        self._body_bytes = body_bytes
        # The guard did not see the end of a head whose lines end in LF alone.
        if self._phase is not ConnectionPhase.REQUEST:
            self._enter(ConnectionPhase.REQUEST)

    def body_read(self) -> None:
        """Notes that the body was read. After a chunked body the connection serves no further request: the guard does not parse chunks, so it
        does not know at which byte the next head begins."""
        if self._body_bytes is None:
            self._body_bytes = self._after_head = 0
            self._is_last = True

    def finish(self, *, body_is_complete: bool) -> bool:
        """Ends a request, whose answer is made. Returns False where the connection must be closed after it.

        The connection goes on only where the next byte is certainly the first of a new head. Otherwise the guard could not count that head.
        """
        if not body_is_complete:
            self._enter(ConnectionPhase.LINGERING)
            return False
        if self._is_last or self._body_bytes is None or self._after_head > self._body_bytes:
            self._enter(ConnectionPhase.CLOSING)
            return False
        self._head_bytes, self._tail = 0, b""
        self._enter(ConnectionPhase.HEAD)
        return True

    def drop(self) -> None:
        """Close at once, without a word."""
        if self._transport is not None:
            self._connections.became(self, ConnectionPhase.CLOSING)
            self._transport.abort()

    # Counting

    def _enter(self, phase: ConnectionPhase) -> None:
        self._stop_clock()
        self._phase = phase
        self._connections.became(self, phase)

    def _within_bounds(self, data: bytes) -> bool:
        if self._phase is ConnectionPhase.HEAD:
            return self._take_head(data)
        if self._phase is ConnectionPhase.REQUEST:
            self._after_head += len(data)
            early = self._after_head - self._body_bytes if self._body_bytes is not None else 0
            if early > AHEAD_BYTES:
                self._connections.on_drop("ahead_bytes")
                self.drop()
                return False
        return True

    def _take_head(self, data: bytes) -> bool:
        limits = self._connections.limits
        # Empty lines before a request do not end its head, but they count as its bytes.
        text = data if self._tail else data.lstrip(b"\r\n")
        end = (self._tail + text).find(_END)
        if end >= 0:
            self._after_head = len(self._tail) + len(text) - end - len(_END)
            # Until `begin` gets the length of the body, any bytes may be a part of it.
            self._body_bytes = None
            self._enter(ConnectionPhase.REQUEST)
            self._head_bytes += len(data) - self._after_head
        else:
            self._head_bytes += len(data)
            self._tail = (self._tail + text)[-3:]
            if self._deadline is None:  # most heads come whole, and need none
                self._deadline = asyncio.get_running_loop().call_later(limits.head_s, self._is_late)
        if self._head_bytes > limits.head_bytes:
            self._refuse_head()
            return False
        if end < 0:
            self._connections.head_grew(self, self._head_bytes)
        return self._transport is not None and not self._transport.is_closing()

    def _refuse_head(self) -> None:
        assert self._transport is not None
        self._connections.on_drop("head_bytes")
        self._enter(ConnectionPhase.CLOSING)
        self._transport.write(_TOO_LARGE)
        self._transport.close()

    def _is_late(self) -> None:
        self._deadline = None
        self._connections.on_drop("head_s")
        self.drop()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
