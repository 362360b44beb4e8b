"""A loop of agents: takes a request, evaluates its prompt with tools, replies (document 003)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable  # async only
from typing import Any, Generic

from tenure.agent.agent_loop import AgentLoop, Executed, Prepared, RequestExecution
from tenure.agent.async_adapter import AsyncProviderAdapter
from tenure.agent.in_workflow import ContextHeartbeat, ContextKeeper, request_in
from tenure.agent.model_call import PromptResponse
from tenure.agent.off_loop import awaited, off_loop  # async only
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.requests import MainLoopConfig, MainLoopRequest, MainLoopResult, UserRequestT, as_request, result_of
from tenure.agent.session import Session
from tenure.agent.session_keeper import Keeper
from tenure.beat.heartbeat import Heartbeat
from tenure.engines.contracts import Mailbox
from tenure.errors import VisibilityExpansionRequired
from tenure.work.context import AsyncContext


class AsyncMainLoop(AgentLoop[UserRequestT, OutputT], ABC, Generic[UserRequestT, OutputT]):
    """Evaluates requests from a mailbox. Write `prepare`, and `finalize` where something is to be done at the end.

    Without `requests`, call `execute` here and now, or `execute_in` inside a workflow.

    Other settings (`name`, `dead_letters`, `retry`, `on_lease_lost`, `clock`, …) are those of `MailboxLoop`. It takes one request at a time, in a
    thread like every loop. For several at a time, run several.
    """

    awaits = True  # async only

    def __init__(
        self,
        *,
        adapter: AsyncProviderAdapter[OutputT],
        requests: Mailbox[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]] | None = None,
        config: MainLoopConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(requests, config, settings)
        self._adapter = adapter
        self._prices = adapter.prices

    @abstractmethod
    # sync: def prepare(self, request: UserRequestT) -> Prepared[OutputT]:
    def prepare(self, request: UserRequestT) -> Prepared[OutputT] | Awaitable[Prepared[OutputT]]:  # async only
        """Returns the prompt that answers this request, and the session it runs in."""

    # sync: def finalize(self, prompt: Prompt[OutputT], session: Session) -> None:
    def finalize(self, prompt: Prompt[OutputT], session: Session) -> Awaitable[None] | None:  # async only
        """The loop calls this after a good or a clearly ended evaluation, before the reply."""
        return None  # async only

    async def execute(
        self,
        request: UserRequestT | MainLoopRequest[UserRequestT],
        *,
        heartbeat: Heartbeat | None = None,
        keeper: Keeper | None = None,
    ) -> Executed[OutputT]:
        """Evaluates one request here and now, without a mailbox. Raises what the adapter raises."""
        request_event = as_request(request)
        execution = self._execution(request_event, heartbeat)
        prompt, session = await awaited(self.prepare(request_event.request))
        if keeper is not None:
            await off_loop(keeper.resume, session)
        session.request_id = request_event.request_id
        try:
            return await self._evaluate(execution, prompt, session), session
        finally:
            if keeper is not None:
                keeper.release(session)

    async def execute_in(
        self, context: AsyncContext, request: UserRequestT | MainLoopRequest[UserRequestT], *, name: str = "agent"
    ) -> MainLoopResult[OutputT]:
        """Evaluates one request inside a workflow, and goes on from the session that an earlier attempt left.

        A workflow that runs several agents gives each a `name`. Raises what the adapter raises: the workflow's own retries decide.
        """
        asked = request_in(context, request, name)
        response, session = await self.execute(
            asked, heartbeat=ContextHeartbeat(context), keeper=ContextKeeper(context, name)
        )
        return result_of(asked.request_id, response, session)

    async def _evaluate(
        self, execution: RequestExecution[OutputT], prompt: Prompt[OutputT], session: Session
    ) -> PromptResponse[OutputT]:
        while True:
            try:
                response = await self._adapter.evaluate(prompt, **execution.arguments(session))
            except VisibilityExpansionRequired as asked:
                await off_loop(execution.expand, session, asked)
            else:
                await awaited(self.finalize(prompt, session))
                return response
