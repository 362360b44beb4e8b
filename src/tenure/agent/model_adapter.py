"""Adapters for whoever can make one model call: they bring the turns, the tools and the beats around it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from tenure.agent.adapter import (
    AsyncProviderAdapter,
    ModelRequest,
    OnChunk,
    PromptResponse,
    ProviderAdapter,
    as_resources,
)
from tenure.agent.budget import BudgetTracker, Prices
from tenure.agent.deadline import Deadline
from tenure.agent.events import ModelSaid
from tenure.agent.inner_loop import AsyncInnerLoop, InnerLoop, InnerLoopConfig
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.session import Session
from tenure.agent.tools import Resources
from tenure.beat.heartbeat import Heartbeat


class LoopSettings:
    """What every such adapter has: how its loop runs, and what its model costs."""

    prices: Prices | None = None

    def __init__(self, *, loop: InnerLoopConfig | None = None, prices: Prices | None = None) -> None:
        """`loop` has the settings of the inner loop; what belongs to one evaluation is filled in by `evaluate`."""
        self.loop = loop or InnerLoopConfig()
        self.prices = prices


class ModelAdapter(LoopSettings, ProviderAdapter[OutputT]):
    """Write `complete`: one call of the model."""

    @abstractmethod
    def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        """Make one model call; `on_chunk` is told of each piece of the answer and ends the call by raising."""

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


class AsyncModelAdapter(LoopSettings, AsyncProviderAdapter[OutputT]):
    """The same in an event loop."""

    @abstractmethod
    async def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        """Make one model call; `on_chunk` is told of each piece of the answer and ends the call by raising."""

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
            resources=as_resources(resources),
        )
        return await AsyncInnerLoop(self.complete, prompt, session, config).run()
