"""How nodes ask each other in a simulation: what travels is what would travel over HTTP, encoded and decoded again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tenure.errors import NodeUnavailableError
from tenure.nodes.operations import decode_reply, decode_request
from tenure.nodes.wire import Reply, Request
from tenure.sim.node import Host

_encode = msgspec.json.Encoder().encode


class SimCaller:
    """`AsyncCaller` over the simulated network."""

    def __init__(self, host: Host) -> None:
        self._transport = host.transport

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        name = str(request.__struct_config__.tag)
        try:
            body: bytes = await self._transport.request(
                address, f"{name}\n".encode() + _encode(request), timeout=timeout
            )
        except (TimeoutError, ConnectionError) as error:
            raise NodeUnavailableError(f"{address} did not answer: {error}") from error
        return decode_reply(body)


def serve(host: Host, answer: Callable[[str, Request], Awaitable[Reply]]) -> None:
    """Answer requests of `SimCaller`s."""

    async def handle(sender: str, message: Any) -> bytes:
        name, _, body = message.partition(b"\n")
        return _encode(await answer(sender, decode_request(name.decode(), body)))

    host.transport.serve(handle)
