"""Runs agents (document 003): the turns of one evaluation, adapters that evaluate prompts with a provider's models, and the loop that takes requests.

`AsyncInnerLoop` makes the model calls and tool calls that its `Conversation` decides. `AsyncProviderAdapter.evaluate` is the document's contract: a
prompt in, a response out, beats on the way. `AsyncModelAdapter` is for code that can make one model call: it brings the turns, the tools and the
beats around it. Neither knows a provider. `AsyncMainLoop` takes a request, evaluates its prompt with tools, and replies.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod

# sync: from collections.abc import Callable, Mapping
from collections.abc import Awaitable, Callable, Mapping  # async only
from dataclasses import replace
from typing import Any, Generic

from tenure.agent.agent_loop import (
    AgentLoop,
    ContextHeartbeat,
    ContextKeeper,
    Executed,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    Prepared,
    RequestExecution,
    UserRequestT,
    as_request,
    request_in,
    result_of,
    takes_resources,
)
from tenure.agent.budget import BudgetTracker, Deadline, Prices
from tenure.agent.calls import awaited, off_loop  # async only
from tenure.agent.evaluation import Evaluation, InnerLoopConfig, LoopSettings, async_complete_watched
from tenure.agent.events import ModelSaid, ToolCall
from tenure.agent.prompt import ModelRequest, OnChunk, OutputT, Prompt, PromptResponse
from tenure.agent.session import Keeper, Session
from tenure.agent.tool_executor import AsyncToolExecutor
from tenure.agent.tools import Resources
from tenure.beat.heartbeat import Heartbeat
from tenure.engines.contracts import Mailbox
from tenure.errors import AgentError, VisibilityExpansionRequired
from tenure.work.context import AsyncContext

AsyncCompletion = Callable[[ModelRequest, OnChunk], Awaitable[ModelSaid]]
"""Makes one model call, and calls `OnChunk` with each piece of the answer as it comes."""


class AsyncInnerLoop(Evaluation[OutputT]):
    """Runs one evaluation. Each step is durable before the next one begins."""

    def __init__(
        self,
        complete: AsyncCompletion,
        prompt: Prompt[OutputT],
        session: Session,
        config: InnerLoopConfig | None = None,
    ) -> None:
        super().__init__(prompt, session, config)
        self._complete = complete
        self._executor = AsyncToolExecutor(self._conversation.rendered.tools)

    async def run(self) -> PromptResponse[OutputT]:
        """Run the inner loop with automatic heartbeat."""
        await self._commit()
        while (step := self._conversation.next_step()) is not None:
            if isinstance(step, ToolCall):
                await self._use(step)
            else:
                self._beat()
                said = await self._get_completion(step)
                if said is not None:
                    self._conversation.model_said(said)
            await self._commit()
        await self._commit()  # the reason why it stopped
        return self._conversation.response

    async def _commit(self) -> None:
        if self._uncommitted:
            self._uncommitted = False
            await off_loop(self._session.commit)

    async def _get_completion(self, request: ModelRequest) -> ModelSaid | None:
        """Returns the model's answer, or None when the deadline came first."""
        with self._depending():
            for failures in itertools.count(1):
                try:
                    with self._watching() as watch:
                        return await async_complete_watched(self._complete, request, watch)
                except AgentError as error:
                    wait = self._wait_after(error, failures)
                if wait is None:
                    break
                with self._naps(wait) as naps:
                    for nap in naps:
                        await self._config.clock.async_sleep(nap)
        return None

    async def _use(self, call: ToolCall) -> None:
        try:
            result = await self._executor.execute(call, context=self._tools)
        except VisibilityExpansionRequired as asked:
            self._conversation.sections_opened(call, asked)
            await self._commit()
            raise
        self._conversation.tool_answered(call, result)


class AsyncProviderAdapter(ABC, Generic[OutputT]):
    """Evaluates prompts."""

    prices: Prices | None = None
    """The prices of its model, where they are known."""

    @abstractmethod
    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> PromptResponse[OutputT]:
        """Evaluate a prompt and return the response. A loop also gives `resources`, where an adapter takes them."""


class AsyncModelAdapter(LoopSettings, AsyncProviderAdapter[OutputT]):
    """Evaluates prompts for a subclass that writes `complete`: one call of the model."""

    @abstractmethod
    async def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        """Makes one model call. It calls `on_chunk` with each piece of the answer, and ends the call when that raises."""

    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
        resources: Mapping[type[object], object] | Resources | None = None,
    ) -> PromptResponse[OutputT]:
        config = replace(
            self.loop,
            deadline=deadline,
            budget_tracker=budget_tracker,
            heartbeat=heartbeat,
            resources=Resources.of(resources),
        )
        return await AsyncInnerLoop(self.complete, prompt, session, config).run()


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
        self._takes_resources = takes_resources(adapter.evaluate)

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
                response = await self._adapter.evaluate(
                    prompt, **execution.arguments(session, resources=self._takes_resources)
                )
            except VisibilityExpansionRequired as asked:
                await off_loop(execution.expand, session, asked)
            else:
                await awaited(self.finalize(prompt, session))
                return response
