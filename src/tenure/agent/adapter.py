"""What a provider of models has to do for us, and what it answers.

`ProviderAdapter.evaluate` is the document's contract: a prompt in, a response out, beats on the way. `ModelAdapter` is the same for whoever can
make one model call: it brings the loop around it. Neither knows a provider.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic

from tenure.agent.budget import BudgetTracker, Prices
from tenure.agent.deadline import Deadline
from tenure.agent.events import NO_USAGE, Corrected, ModelSaid, ToolAnswered, Usage, UserSaid
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.session import Session
from tenure.agent.tool_use import ToolUse
from tenure.agent.tools import Resources, Tool
from tenure.beat.heartbeat import Heartbeat

Turn = UserSaid | Corrected | ModelSaid | ToolAnswered
OnChunk = Callable[[str], None]
"""Told of each piece of the answer as it streams; raising ends the call."""


class StopReason(StrEnum):
    """Why an evaluation ended."""

    DONE = "done"
    BUDGET = "budget"  # a limit of the budget is reached
    DEADLINE = "deadline"
    SPINNING = "spinning"  # the same again and again
    TURNS = "turns"  # more model calls than one evaluation may make
    LENGTH = "length"  # the model's answer was cut off at its limit
    REFUSED = "refused"  # the model, or the provider's filter, will not answer
    OUTPUT = "output"  # the answer does not fit the output type, after all retries


@dataclass(frozen=True)
class PromptResponse(Generic[OutputT]):
    """What an evaluation came to. `output` is None unless it is `done`; then `detail` says what stopped it, with the evidence."""

    prompt_name: str
    text: str = ""
    output: OutputT | None = None
    stop: StopReason = StopReason.DONE
    detail: str = ""
    usage: Usage = NO_USAGE
    tool_calls: int = 0
    tools: Mapping[str, ToolUse] = field(default_factory=dict, compare=False)
    """What each tool was used for on this request, earlier deliveries included."""

    @property
    def done(self) -> bool:
        return self.stop is StopReason.DONE


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call."""

    system: str
    turns: Sequence[Turn]
    tools: tuple[Tool[Any, Any], ...] = ()
    output_schema: dict[str, Any] | None = None
    output_name: str = "output"
    remaining_s: float = float("inf")
    """What is left of the deadline."""
    silence_s: float = 120.0
    """The longest wait for the next byte."""


class ProviderAdapter(ABC, Generic[OutputT]):
    """Evaluates prompts."""

    prices: Prices | None = None
    """Of its model, where known."""

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


class AsyncProviderAdapter(ABC, Generic[OutputT]):
    """Evaluates prompts in an event loop."""

    prices: Prices | None = None

    @abstractmethod
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
        """Evaluate a prompt and return the response."""


def as_resources(given: Mapping[type[object], object] | Resources | None) -> Resources:
    return given if isinstance(given, Resources) else Resources(given)
