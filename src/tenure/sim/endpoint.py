"""One process's end of the simulated network.

Two kinds of traffic. Datagrams may be lost, doubled and overtaken: gossip. Requests are answered or fail, and when they
fail nobody knows whether the peer acted: the control plane, and gossip's streams (a push/pull is one request).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tenure.errors import LimitError
from tenure.sim.loop import SimLoop
from tenure.sim.network import Network, copied

Handler = Callable[[str, Any], Awaitable[Any]]
"""Answers requests: given the sender's address and the message, gives the reply."""
DatagramHandler = Callable[[str, bytes], object]

MAX_DATAGRAM_BYTES = 65_507


class Datagram(NamedTuple):
    sender: str
    data: bytes


RECEIVE_BUFFER = 4_096
"""At most this many datagrams wait for a process that does not take them. Further ones are lost, as in a full socket buffer."""


class Exchange:
    """One request and its one answer."""

    __slots__ = ("future", "message", "source", "target")

    def __init__(self, source: Transport, target: str, message: Any, future: asyncio.Future[Any] | None = None) -> None:
        self.source, self.target, self.message = source, target, message
        self.future: asyncio.Future[Any] = future or source.loop.create_future()

    def again(self) -> Exchange:
        """Returns a copy of the request, to be handled once more; its answer goes to the waiter of this one."""
        return Exchange(self.source, self.target, copied(self.message), self.future)

    def succeed(self, reply: Any) -> None:
        if not self.future.done() and not self.source.loop.dead:
            self.future.set_result(reply)

    def expire(self) -> None:
        self.fail(TimeoutError(f"{self.target} did not answer in time"))

    def fail(self, error: Exception) -> None:
        if not self.future.done() and not self.source.loop.dead:
            self.future.set_exception(error)


class Transport:
    """The place in the network of one life of a simulated process. After a crash whatever it sends is dropped."""

    def __init__(self, network: Network, address: str, loop: SimLoop) -> None:
        self.address, self.loop = address, loop
        self.serving: dict[Exchange, asyncio.Task[None]] = {}
        """Requests that this process has taken and not answered, in order, and who works on them."""
        self._network = network
        self._handler: Handler | None = None
        self._on_datagram: DatagramHandler | None = None
        self._inbox: deque[Datagram] = deque()
        self._receivers: list[asyncio.Future[None]] = []
        self._closed = False
        network.bind(self)

    @property
    def serves(self) -> bool:
        return self._handler is not None

    def send(self, to: str, data: bytes) -> None:
        """Sends a datagram and hopes. Never blocks, never says whether it arrived."""
        if len(data) > MAX_DATAGRAM_BYTES:
            raise LimitError("datagram", f"{len(data):,} bytes", f"at most {MAX_DATAGRAM_BYTES:,} bytes")
        if self._may_send():
            self._network.send(self.address, to, bytes(data))

    def _may_send(self) -> bool:
        if self._closed and not self.loop.dead:
            raise ConnectionError(f"the transport of {self.address} is closed")
        return not self._closed and not self.loop.dead

    async def receive(self) -> Datagram:
        """Returns the next datagram."""
        while not self._inbox:
            if self._closed:
                raise ConnectionError(f"the transport of {self.address} is closed")
            arrived: asyncio.Future[None] = self.loop.create_future()
            self._receivers.append(arrived)
            await arrived
        return self._inbox.popleft()

    def on_datagram(self, handler: DatagramHandler | None) -> None:
        """Calls `handler` with each datagram, instead of queueing it for `receive`."""
        self._on_datagram = handler
        while handler is not None and self._inbox:
            self.loop.call_soon(handler, *self._inbox.popleft())

    def deliver(self, sender: str, data: bytes) -> None:
        """Takes a datagram that the network brings. A stopped process finds it when it goes on."""
        if self._on_datagram is not None:
            self.loop.call_soon(self._on_datagram, sender, data)
        elif len(self._inbox) < RECEIVE_BUFFER:
            self._inbox.append(Datagram(sender, data))
            self._wake()

    def _wake(self) -> None:
        receivers, self._receivers = self._receivers, []
        for arrived in receivers:  # all of them look, and those that find nothing wait again
            if not arrived.done():
                arrived.set_result(None)

    async def request(self, to: str, message: Any, *, timeout: float) -> Any:
        """Asks a peer. Raises `TimeoutError` or `ConnectionError`; then the peer may or may not have acted."""
        if not self._may_send():
            await self.loop.create_future()  # the process is dead: nothing comes back, ever
        exchange = Exchange(self, to, copied(message))
        self._network.ask(exchange)
        timer = self.loop.call_later(timeout, exchange.expire)
        heard = False
        try:
            reply = await exchange.future
            heard = True
            return reply
        except ConnectionError:
            heard = True  # there is no connection left to hang up
            raise
        finally:
            timer.cancel()
            if not heard:
                self._network.hang_up(exchange)

    def serve(self, handler: Handler | None) -> None:
        """Answers requests with this. Without it they are refused."""
        self._handler = handler

    def begin(self, exchange: Exchange) -> None:
        """Takes a request that the network brings."""
        self.serving[exchange] = self.loop.create_task(self._answer(exchange))

    def hung_up(self, exchange: Exchange) -> None:
        """The network calls this when the caller waits no more: as on a real connection, the handler is cancelled wherever it is."""
        task = self.serving.pop(exchange, None)
        if task is not None:
            task.cancel()

    async def _answer(self, exchange: Exchange) -> None:
        if self._handler is None:
            return self._end(exchange, error=ConnectionResetError(f"{self.address} stopped serving"))
        try:
            reply = await self._handler(exchange.source.address, exchange.message)
        except Exception as error:
            # A handler maps its errors to replies; one that raises is a bug, and ends the run.
            self.loop.call_exception_handler({"message": "a request handler raised", "exception": error})
            return self._end(exchange, error=ConnectionResetError(f"{self.address} failed"))
        return self._end(exchange, reply=copied(reply))

    def _end(self, exchange: Exchange, reply: Any = None, error: Exception | None = None) -> None:
        if not self.loop.dead and self.serving.pop(exchange, None) is not None:
            self._network.answer(exchange, reply, error)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._network.unbind(self)
            self._wake()
