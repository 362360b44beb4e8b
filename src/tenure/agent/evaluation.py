"""The part of an evaluation that the blocking and the async inner loop share: its settings, its conversation, the beats around a model call.

A wait for the model is a declared silence with a bound: the lease is extended to cover it, and a wait beyond the bound is a hang like any
other. Each new streamed piece is a beat, at most a few per second; a repetition is none (document 003).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic

from tenure.agent.budget import BudgetTracker, Countdown, Deadline, Prices
from tenure.agent.conversation import Conversation
from tenure.agent.model_call import ModelRequest, ModelRetry, OnChunk
from tenure.agent.progress import IDLE_TURNS, ProgressJudge
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.session import Session
from tenure.agent.tool_executor import ToolExecutionContext
from tenure.agent.tools import Resources
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import Clock, SystemClock
from tenure.errors import AgentError, LimitError, ProviderError
from tenure.randomness import Random, fresh_random

_logger = logging.getLogger(__name__)

CHUNK_BEAT_S = 0.2
"""Streamed pieces beat at most once in this time."""


@dataclass(frozen=True, slots=True)
class InnerLoopConfig:
    """How one evaluation runs.

    Attributes:
        max_turns: Model calls that one evaluation may make.
        idle_turns: Turns without progress after which it is spinning.
        output_retries: How often the model may correct an answer that does not fit the output type.
        model_silence_s: The longest wait for the next piece of a model's answer that is not a hang. It is declared as a silence, so the lease
            lasts at least this long after a model call began: a hang is not seen earlier.
        model_retry: When a call that failed is made again.
    """

    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    heartbeat: Heartbeat | None = None
    resources: Resources = field(default_factory=Resources)
    max_turns: int = 200
    idle_turns: int = IDLE_TURNS
    output_retries: int = 2
    model_silence_s: float = 120.0
    model_retry: ModelRetry = field(default_factory=ModelRetry)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=fresh_random)

    def __post_init__(self) -> None:
        for name, least in (("max_turns", 1), ("idle_turns", 1), ("output_retries", 0)):
            if getattr(self, name) < least:
                raise LimitError(f"InnerLoopConfig.{name}", getattr(self, name), f"{least} or more")
        if not 0 < self.model_silence_s <= 86_400:
            raise LimitError("InnerLoopConfig.model_silence_s", self.model_silence_s, "above 0 and at most 86,400 s")


class LoopSettings:
    """The settings that every adapter with an inner loop has: how the loop runs, and what its model costs."""

    prices: Prices | None = None

    def __init__(self, *, loop: InnerLoopConfig | None = None, prices: Prices | None = None) -> None:
        """`loop` has the settings of the inner loop; `evaluate` fills in those that belong to one evaluation."""
        self.loop = loop or InnerLoopConfig()
        self.prices = prices


class Evaluation(Generic[OutputT]):
    """One evaluation of a prompt on a session. A subclass makes the calls; this class decides and beats."""

    def __init__(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        config: InnerLoopConfig | None = None,
    ) -> None:
        self._config = config = config or InnerLoopConfig()
        self._session, self._uncommitted = session, False
        deadline, clock = config.deadline, config.clock
        countdown = deadline.countdown(clock) if deadline is not None else Countdown(clock)
        self._countdown = countdown
        self._progress = ProgressJudge(config.idle_turns)
        self._conversation = Conversation(
            prompt,
            session,
            budget=config.budget_tracker or BudgetTracker(),
            countdown=countdown,
            progress=self._progress,
            max_turns=config.max_turns,
            output_retries=config.output_retries,
            commit=self._commit_later,
        )
        self._tools = ToolExecutionContext(
            prompt, session, deadline, config.heartbeat, config.resources, self._progress, clock, countdown
        )

    def _commit_later(self) -> None:
        """The conversation calls this after each step. The loop commits before the next step: in an event loop that needs an await."""
        self._uncommitted = True

    def _beat(self) -> None:
        """Beats at the start of an iteration, unless the turn before only repeated itself: that proves nothing."""
        if self._config.heartbeat is not None and self._progress.advancing:
            self._config.heartbeat.beat()

    @contextmanager
    def _listening(self) -> Iterator[OnChunk]:
        """Wraps one model call and yields the function that takes each piece of the answer."""
        heartbeat, clock, countdown = self._config.heartbeat, self._config.clock, self._countdown
        listener = self._progress.listen()
        due = -float("inf")
        if heartbeat is not None:
            heartbeat.raise_if_interrupted()  # also where no beat would find it out

        def on_chunk(chunk: str) -> None:
            nonlocal due
            if countdown.over:
                raise AgentError("the deadline is over")  # closes the stream; the conversation ends with that reason
            if listener.hears(chunk) and heartbeat is not None and (now := clock.monotonic()) >= due:
                due = now + CHUNK_BEAT_S
                heartbeat.beat()

        if heartbeat is None or not self._progress.advancing:
            # Silence begins and ends with a beat, and an agent that repeats itself gets none.
            yield on_chunk
        else:
            with heartbeat.silence(self._config.model_silence_s, "waiting for the model"):
                yield on_chunk

    def _timed(self, request: ModelRequest) -> ModelRequest:
        """Returns the request with the bounds of this attempt: earlier ones have used up some of the deadline."""
        return replace(request, remaining_s=self._countdown.remaining_s, silence_s=self._config.model_silence_s)

    def _wait_after(self, error: AgentError, failures: int) -> float | None:
        """Returns how long to wait before the same call again, or None when the deadline is over. Raises when nothing helps."""
        if self._countdown.over:
            return None
        wait = None
        if isinstance(error, ProviderError):
            wait = self._config.model_retry.wait_s(error, failures, self._countdown.remaining_s, self._config.random)
        if wait is None:
            raise error
        _logger.warning("A model call failed (attempt %d), and is made again in %.1f s: %s", failures, wait, error)
        return wait

    @contextmanager
    def _waiting(self, seconds: float) -> Iterator[None]:
        if self._config.heartbeat is None:
            yield
        else:
            with self._config.heartbeat.silence(seconds + 1.0, "waiting to call the model again"):
                yield
