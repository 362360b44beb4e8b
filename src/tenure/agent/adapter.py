# Generated from async_adapter.py by tools/generate_sync.py: change that file, then run the tool.

"""Adapters evaluate prompts with a provider's models (document 003).

`ProviderAdapter.evaluate` is the document's contract: a prompt in, a response out, beats on the way. `ModelAdapter` is for code that can
make one model call: it brings the turns, the tools and the beats around it. Neither knows a provider.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Generic

from tenure.agent.budget import BudgetTracker, Prices
from tenure.agent.deadline import Deadline
from tenure.agent.evaluation import LoopSettings
from tenure.agent.events import ModelSaid
from tenure.agent.inner_loop import InnerLoop
from tenure.agent.model_call import ModelRequest, OnChunk, PromptResponse, as_resources
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.session import Session
from tenure.agent.tools import Resources
from tenure.beat.heartbeat import Heartbeat


class ProviderAdapter(ABC, Generic[OutputT]):
    """Evaluates prompts."""

    prices: Prices | None = None
    """The prices of its model, where they are known."""

    @abstractmethod
    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
        resources: Mapping[type[object], object] | Resources | None = None,
    ) -> PromptResponse[OutputT]:
        """Evaluate a prompt and return the response."""


class ModelAdapter(LoopSettings, ProviderAdapter[OutputT]):
    """Evaluates prompts for a subclass that writes `complete`: one call of the model."""

    @abstractmethod
    def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        """Makes one model call. It calls `on_chunk` with each piece of the answer, and ends the call when that raises."""

    def evaluate(
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
            resources=as_resources(resources),
        )
        return InnerLoop(self.complete, prompt, session, config).run()
