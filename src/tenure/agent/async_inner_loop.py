"""Runs the turns of one evaluation: makes the model calls and tool calls that its `Conversation` decides (document 003)."""

from __future__ import annotations

import itertools

# sync: from collections.abc import Callable
from collections.abc import Awaitable, Callable  # async only

from tenure.agent.evaluation import Evaluation, InnerLoopConfig
from tenure.agent.events import ModelSaid, ToolCall
from tenure.agent.model_call import ModelRequest, OnChunk, PromptResponse
from tenure.agent.off_loop import off_loop  # async only
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.session import Session
from tenure.agent.tool_executor import AsyncToolExecutor
from tenure.errors import AgentError, VisibilityExpansionRequired

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
        for failures in itertools.count(1):
            try:
                with self._listening() as on_chunk:
                    return await self._complete(self._timed(request), on_chunk)
            except AgentError as error:
                wait = self._wait_after(error, failures)
            if wait is None:
                break
            with self._waiting(wait):
                await self._config.clock.async_sleep(wait)
        return None

    async def _use(self, call: ToolCall) -> None:
        try:
            result = await self._executor.execute(call, context=self._tools)
        except VisibilityExpansionRequired as asked:
            self._conversation.sections_opened(call, asked)
            await self._commit()
            raise
        self._conversation.tool_answered(call, result)
