"""Carries what operators decide about tokens at a gate to its datacenters.

A new token goes to each of them at once, with the operator's own token as proof; one that does not answer is named in the reply. A revocation
must not depend on that: each gate tells every datacenter the whole list of revoked ids, again and again, until it has heard it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from tenure.clock import Clock
from tenure.control.messages.tokens import CreateToken, ListTokens, RevokeToken, TellRevoked, TokenDone
from tenure.control.messages.wire import Handlers, Missing, Problem, Reply
from tenure.errors import NodeUnavailableError
from tenure.nodes.gate.datacenter_links import DatacenterLinks, DatacenterQueries
from tenure.nodes.loop_keeper import Loop
from tenure.nodes.token_keeper import REFRESH_S, TokenKeeper


class TokenSpread:
    """Part of a gate."""

    def __init__(
        self, keeper: TokenKeeper | None, links: DatacenterLinks, queries: DatacenterQueries, clock: Clock
    ) -> None:
        """Without a keeper, as in the simulator, it answers nothing and does nothing."""
        self._links, self._queries, self._clock = links, queries, clock
        self._told: dict[str, frozenset[str]] = {}
        """Maps each datacenter to the list that it has heard from this gate."""
        self.handlers: Handlers = {}
        self.loops: dict[str, Loop] = {}
        if keeper is not None:
            both = partial(self._everywhere, keeper)
            self.handlers = {CreateToken: both, RevokeToken: both, ListTokens: keeper.rows}
            self.loops = {"tokens": keeper.run, "revoked tokens": partial(self._tell_all, keeper)}

    async def _everywhere(self, keeper: TokenKeeper, request: CreateToken | RevokeToken) -> Reply:
        done = await keeper.handlers[type(request)](request)
        if not isinstance(done, TokenDone):
            return done
        answers = await asyncio.gather(*(self._one(name, request) for name in self._links.names))
        return msgspec.structs.replace(done, pending=tuple(one for one in answers if one is not None))

    async def _one(self, name: str, request: Any) -> Missing | None:
        try:
            reply = await self._queries.answer(msgspec.structs.replace(request, datacenter=name))
        except NodeUnavailableError as error:
            return Missing(datacenter=name, reason=error.fact)
        if isinstance(reply, TokenDone):
            return None
        return Missing(datacenter=name, reason=reply.fact if isinstance(reply, Problem) else type(reply).__name__)

    async def _tell_all(self, keeper: TokenKeeper) -> None:
        while True:
            await asyncio.gather(*(self._tell(name, keeper.revoked) for name in self._links.names))
            await self._clock.async_sleep(REFRESH_S)

    async def _tell(self, name: str, revoked: frozenset[str]) -> None:
        link = self._links.get(name)
        if link is None or self._told.get(name, frozenset()) == revoked:
            return
        try:
            reply = await link.ask(TellRevoked(ids=tuple(sorted(revoked))))
        except NodeUnavailableError:
            return
        if isinstance(reply, TokenDone):
            self._told[name] = revoked
