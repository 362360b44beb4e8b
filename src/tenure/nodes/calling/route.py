"""Finding whoever can answer among the nodes of one cluster."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.errors import NodeUnavailableError, UntrustedPeerError
from tenure.nodes.calling.awaiting import AsyncCaller
from tenure.nodes.messages.client import Problem, Redirect
from tenure.nodes.messages.wire import Reply, Request

MOST_HOPS = 3


class Route:
    """The nodes of one cluster, and which of them answered last. Redirects are followed; a node that cannot help is passed over."""

    def __init__(self, caller: AsyncCaller, addresses: Iterable[str]) -> None:
        self._caller = caller
        self.addresses = list(dict.fromkeys(addresses))
        self.preferred = self.addresses[0] if self.addresses else ""

    async def ask(self, request: Request, timeout_s: float) -> Reply:
        """The first answer that settles it: not a redirect, and no problem that another node may not have.

        Raises `NodeUnavailableError` when nobody had one; `timeout_s` is for each of them.
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
            self.preferred = self.addresses[0]  # a leader that is gone; those that we were given know the next
        raise NodeUnavailableError("; ".join(said) or "no address is known")
