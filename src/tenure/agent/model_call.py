"""The values of an evaluation: the request of one model call, the response to a prompt, the reasons why an evaluation ends, and the retries of a call.

Pure: the caller passes the chance, and what is left of the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Generic

from tenure.agent.events import NO_USAGE, Corrected, ModelSaid, ToolAnswered, Usage, UserSaid
from tenure.agent.prompt import OutputT
from tenure.agent.tools import Resources, Tool, ToolUse
from tenure.backoff import Retry
from tenure.errors import LimitError, ProviderError, ProviderRateLimitedError, ProviderUnavailableError

Turn = UserSaid | Corrected | ModelSaid | ToolAnswered
OnChunk = Callable[[str], None]
"""The provider calls it with each piece of the answer as it streams. The call ends when it raises."""


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
    """The outcome of an evaluation. `output` is None unless it is `done`; then `detail` says what stopped it, with the evidence."""

    prompt_name: str
    text: str = ""
    output: OutputT | None = None
    stop: StopReason = StopReason.DONE
    detail: str = ""
    usage: Usage = NO_USAGE
    tool_calls: int = 0
    tools: Mapping[str, ToolUse] = field(default_factory=dict, compare=False)
    """Maps each tool to its calls on this request, earlier deliveries included."""

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
    """The seconds that are left of the deadline."""
    silence_s: float = 120.0
    """The longest wait for the next byte."""


def as_resources(given: Mapping[type[object], object] | Resources | None) -> Resources:
    return given if isinstance(given, Resources) else Resources(given)


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """How patient a loop is with its provider.

    Attributes:
        attempts: Calls in all, the first included.
        backoff: How long to wait where the provider does not say. Its own `max_attempts` does not count.
        most_wait_s: A provider that asks for more than this is taken as unavailable.
    """

    attempts: int = 5
    backoff: Retry = field(default_factory=lambda: Retry(delay=0.5, max_delay=30.0))
    most_wait_s: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise LimitError("ModelRetry.attempts", self.attempts, "1 or more")
        self.backoff.checked("ModelRetry")

    def wait_s(self, error: ProviderError, failures: int, remaining_s: float, random: Random) -> float | None:
        """Returns the seconds to wait before the next call, or None to give up."""
        if not error.retryable or failures >= self.attempts:
            return None
        wait = self.backoff.delay_s(failures, random.random())
        if isinstance(error, ProviderRateLimitedError | ProviderUnavailableError) and error.retry_after_s is not None:
            wait = max(wait, error.retry_after_s)
        return wait if wait <= self.most_wait_s and wait < remaining_s else None
