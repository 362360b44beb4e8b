"""The control plane and the gossip plane of real nodes, over the simulated network.

Requests and replies of the control plane are the bytes that nodes send over HTTP. A request goes through its encoding, the table of operations and its
decoding; so a field that cannot be encoded, or a reply that is not in the table, fails here too. The address of a node is its name in the
simulation, so those that are asked have names such as "m1:1".

Gossip is made of a process's datagrams and requests: a push/pull or a ping on a stream is one request. Machines get IP addresses, because
gossip's wire carries nothing else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tenure.control.messages.operations import BY_NAME, decode_reply
from tenure.control.messages.wire import Problem, ProblemKind, Reply, Request
from tenure.control.request_decoding import read_body
from tenure.errors import ConfigurationError, NodeUnavailableError, WireError
from tenure.gossip.messages import Address
from tenure.gossip.net.transport import GossipTransport, Inbox, PacketHandler, StreamHandler
from tenure.gossip.stream import StreamMessage
from tenure.sim.endpoint import Transport
from tenure.sim.world import Host

_encode = msgspec.json.Encoder().encode


class SimCaller:
    """`AsyncCaller` over the simulated network."""

    def __init__(self, host: Host, heard: Callable[[Reply], None] | None = None) -> None:
        self._transport, self._heard = host.transport, heard

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        name = str(request.__struct_config__.tag)
        message = f"{name}\n".encode() + _encode(request)
        try:
            body: bytes = await self._transport.request(address, message, timeout=timeout)
        except (TimeoutError, ConnectionError) as error:
            raise NodeUnavailableError(f"{address} did not answer: {error}") from error
        reply = decode_reply(body)
        if self._heard is not None:
            self._heard(reply)
        return reply


def serve(host: Host, answer: Callable[[str, Request], Awaitable[Reply]]) -> None:
    """Answer requests of `SimCaller`s."""

    async def handle(sender: str, message: Any) -> bytes:
        name, _, body = message.partition(b"\n")
        try:
            request = read_body(BY_NAME[name.decode()], body)
        except ConfigurationError as error:
            return _encode(Problem(kind=ProblemKind.INVALID, fact=error.fact))
        return _encode(await answer(sender, request))

    host.transport.serve(handle)


PORT = 7946


class AddressBook:
    """Gives each machine of a world an address, in the order in which they are named."""

    def __init__(self) -> None:
        self._addresses: dict[str, Address] = {}
        self._names: dict[Address, str] = {}

    def address(self, name: str) -> Address:
        found = self._addresses.get(name)
        if found is None:
            host = ipaddress.ip_address("10.0.0.1") + len(self._addresses)
            found = self._addresses[name] = (str(host), PORT)
            self._names[found] = name
        return found

    def name(self, address: Address) -> str:
        """The machine there; one that nobody has for an address that nobody has."""
        return self._names.get(address, f"nobody at {address[0]}:{address[1]}")


class SimGossipTransport(GossipTransport):
    """One life of a simulated process, as gossip sees its network.

    `shared`: the process serves other requests too. Then its own handler gives those that are bytes to `answer`, and
    closing gossip leaves the process's transport open.
    """

    def __init__(self, transport: Transport, book: AddressBook, *, shared: bool = False) -> None:
        self._transport, self._book, self._shared = transport, book, shared
        self._inbox: Inbox | None = None
        self._streams: StreamHandler | None = None
        self._stream_failed: Callable[[], object] = lambda: None

    async def open(
        self,
        *,
        packets: PacketHandler,
        streams: StreamHandler,
        stream_failed: Callable[[], object],
        inbox: Inbox,
        stream_timeout_s: float,
    ) -> Address:
        self._inbox, self._streams, self._stream_failed = inbox, streams, stream_failed
        book = self._book
        self._transport.on_datagram(lambda sender, data: packets(book.address(sender), data))
        if not self._shared:
            self._transport.serve(self.answer)
        return book.address(self._transport.address)

    async def answer(self, sender: str, data: bytes) -> bytes | None:
        """Returns the answer to one gossip stream, or None where there is none."""
        if self._inbox is None or self._streams is None:
            return None
        try:
            message = self._inbox(True).feed_all(data)
        except WireError:
            message = None
        if message is None:
            self._stream_failed()
            return None
        return self._streams(self._book.address(sender), message)

    def send(self, to: Address, data: bytes) -> None:
        self._transport.send(self._book.name(to), data)

    async def exchange(self, to: Address, data: bytes, *, timeout_s: float) -> StreamMessage:
        assert self._inbox is not None
        answer = await self._transport.request(self._book.name(to), data, timeout=timeout_s)
        message = self._inbox(False).feed_all(answer) if answer else None
        if message is None:
            raise WireError("a stream ended before its message was complete")
        return message

    async def close(self) -> None:
        self._inbox = self._streams = None
        self._transport.on_datagram(None)
        if not self._shared:
            self._transport.close()
