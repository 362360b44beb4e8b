"""Fetches the leader's answer for a caller that cannot follow a redirect: a browser sends neither tokens nor requests to another host."""

from __future__ import annotations

from tenure.control.async_caller import HttpCaller
from tenure.control.messages.jobs import Problem, ProblemKind, Redirect
from tenure.control.messages.operations import BY_NAME
from tenure.control.messages.wire import Reply, Request
from tenure.errors import NodeUnavailableError
from tenure.nodes.manager.manager import Manager

PATIENCE_S = 10.0
"""The seconds that the leader may take for its answer, beyond the `wait_s` of the request."""


class Following:
    """Asks the leader in the name of the caller, with its token if it gave one: the caller may do no more through this node than at the leader."""

    def __init__(self, manager: Manager, caller: HttpCaller) -> None:
        self._manager, self._caller = manager, caller

    async def __call__(self, request: Request, token: str) -> Reply | None:
        """Returns the leader's answer; None when this node should answer: it leads, it knows no leader, or the leader does not answer a read."""
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
        # We ask without the header that the caller gave us, so the other node passes nothing on: a request travels once.
        return None if isinstance(reply, Redirect) else reply
