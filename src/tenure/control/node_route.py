"""Finds the node of a cluster that can answer a request."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.control.async_caller import AsyncCaller
from tenure.control.messages.jobs import Problem, Redirect
from tenure.control.messages.wire import Reply, Request
from tenure.errors import NodeUnavailableError, UntrustedPeerError

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
                    address, hops = reply.address, hops + 1
                elif isinstance(reply, Problem) and reply.retryable:
                    said.append(f"{address}: {reply.fact}")
                    break
                else:
                    self.preferred = address
                    return reply
        if self.addresses and self.preferred not in self.addresses:
            self.preferred = self.addresses[
                0
            ]  # the preferred one was a leader that is gone; the configured nodes know the next one
        raise NodeUnavailableError("; ".join(said) or "no address is known")
