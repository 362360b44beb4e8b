# Generated from async_inner_loop.py by tools/generate_sync.py: change that file, then run the tool.

"""Runs the turns of one evaluation: makes the model calls and tool calls that its `Conversation` decides (document 003)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tenure.agent.evaluation import Evaluation, InnerLoopConfig
from tenure.agent.events import ModelSaid, ToolCall
from tenure.agent.model_call import ModelRequest, OnChunk, PromptResponse
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.session import Session
from tenure.agent.tool_executor import ToolExecutor
from tenure.errors import AgentError, VisibilityExpansionRequired

Completion = Callable[[ModelRequest, OnChunk], ModelSaid]
"""Makes one model call, and calls `OnChunk` with each piece of the answer as it comes."""


class InnerLoop(Evaluation[OutputT]):
    """Runs one evaluation. Each step is durable before the next one begins."""

    def __init__(
        self,
        complete: Completion,
        prompt: Prompt[OutputT],
        session: Session,
        config: InnerLoopConfig | None = None,
    ) -> None:
        super().__init__(prompt, session, config)
        self._complete = complete
        self._executor = ToolExecutor(self._conversation.rendered.tools)

    def run(self) -> PromptResponse[OutputT]:
        """Run the inner loop with automatic heartbeat."""
        self._commit()
        while (step := self._conversation.next_step()) is not None:
            if isinstance(step, ToolCall):
                self._use(step)
            else:
                self._beat()
                said = self._get_completion(step)
                if said is not None:
                    self._conversation.model_said(said)
            self._commit()
        self._commit()  # the reason why it stopped
        return self._conversation.response

    def _commit(self) -> None:
        if self._uncommitted:
            self._uncommitted = False
            self._session.commit()

    def _get_completion(self, request: ModelRequest) -> ModelSaid | None:
        """Returns the model's answer, or None when the deadline came first."""
        for failures in itertools.count(1):
            try:
                with self._listening() as on_chunk:
                    return self._complete(self._timed(request), on_chunk)
            except AgentError as error:
                wait = self._wait_after(error, failures)
            if wait is None:
                break
            with self._waiting(wait):
                self._config.clock.sleep(wait)
        return None

    def _use(self, call: ToolCall) -> None:
        try:
            result = self._executor.execute(call, context=self._tools)
        except VisibilityExpansionRequired as asked:
            self._conversation.sections_opened(call, asked)
            self._commit()
            raise
        self._conversation.tool_answered(call, result)
