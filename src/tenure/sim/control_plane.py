"""The control plane in a simulation: requests and replies as the bytes that nodes send over HTTP.

What a node is asked goes through its encoding, the table of operations and its decoding; so a field that cannot be encoded, or a reply that is not
in the table, fails here too. The address of a node is its name in the simulation, so those that are asked have names such as "m1:1".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tenure.control.messages.jobs import Problem, ProblemKind
from tenure.control.messages.operations import BY_NAME, decode_reply
from tenure.control.messages.wire import Reply, Request
from tenure.control.request_decoding import read_body
from tenure.errors import ConfigurationError, NodeUnavailableError
from tenure.sim.node import Host

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
