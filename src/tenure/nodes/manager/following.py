"""Gives somebody who cannot follow a redirect the leader's answer from a standby: a browser sends neither tokens nor questions to another host."""

from __future__ import annotations

from tenure.errors import NodeUnavailableError
from tenure.nodes.calling.awaiting import HttpCaller
from tenure.nodes.manager.manager import Manager
from tenure.nodes.messages.client import Problem, ProblemKind, Redirect
from tenure.nodes.messages.operations import BY_NAME
from tenure.nodes.messages.wire import Reply, Request

PATIENCE_S = 10.0


class Following:
    """Asks in the name of whoever asked, with their token: what they may not do, they may not do through us either."""

    def __init__(self, manager: Manager, caller: HttpCaller) -> None:
        self._manager, self._caller = manager, caller

    async def __call__(self, request: Request, token: str) -> Reply | None:
        """None where this node should answer: it leads, nobody is known to, or the leader does not answer and any manager can tell."""
        address = self._manager.leader_address
        if not address:
            return None
        wait_s: float = getattr(request, "wait_s", 0.0)
        try:
            reply = await self._caller.ask(address, request, PATIENCE_S + wait_s, token=token)
        except NodeUnavailableError as error:
            if BY_NAME[str(request.__struct_config__.tag)].reads:
                return None
            return Problem(kind=ProblemKind.UNAVAILABLE, fact=error.fact, remedy="Ask again", retryable=True)
        # It is asked without our header, so it passes nothing on: a request travels once.
        return None if isinstance(reply, Redirect) else reply
