"""How a node talks to its peers, as far as the simulator needs to know it.

Two kinds of traffic. Datagrams may be lost, doubled and overtaken: gossip. Requests are answered or fail, and when they
fail nobody knows whether the peer acted: the control plane, and gossip's streams (a push/pull is one request).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

Handler = Callable[[str, Any], Awaitable[Any]]
"""Answers requests: given the sender's address and the message, gives the reply."""
DatagramHandler = Callable[[str, bytes], object]

MAX_DATAGRAM_BYTES = 65_507


class Datagram(NamedTuple):
    sender: str
    data: bytes


class Transport(ABC):
    """One node's place in the network."""

    address: str

    @abstractmethod
    def send(self, to: str, data: bytes) -> None:
        """Send a datagram and hope. Never blocks, never says whether it arrived."""

    @abstractmethod
    async def receive(self) -> Datagram:
        """The next datagram."""

    @abstractmethod
    def on_datagram(self, handler: DatagramHandler | None) -> None:
        """Call this with each datagram, instead of queueing it for `receive`."""

    @abstractmethod
    async def request(self, to: str, message: Any, *, timeout: float) -> Any:
        """Ask a peer. Raises `TimeoutError` or `ConnectionError`; then the peer may or may not have acted."""

    @abstractmethod
    def serve(self, handler: Handler | None) -> None:
        """Answer requests with this. Without it they are refused."""

    @abstractmethod
    def close(self) -> None:
        """Stop sending and receiving."""
