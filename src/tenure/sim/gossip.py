"""Gossip over the simulated network: what a `GossipNode` needs, made of a simulated process's datagrams and requests.

A push/pull or a ping on a stream is one request. Machines get IP addresses, for gossip's wire carries nothing else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from tenure.errors import WireError
from tenure.gossip.messages import Address
from tenure.gossip.net.transport import GossipTransport, Inbox, PacketHandler, StreamHandler
from tenure.gossip.stream import StreamMessage
from tenure.sim.endpoint import Transport

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
