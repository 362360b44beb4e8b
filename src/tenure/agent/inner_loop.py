"""Turns and tools around single model calls: the shells that do what a `Conversation` decides, with the beats of document 003.

A wait for the model is a declared silence with a bound: the lease is extended to cover it, and what goes on beyond the bound is a hang like any
other. Each streamed piece that is new is a beat, at most a few per second; a repetition is none.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic

from tenure.agent.adapter import ModelRequest, OnChunk, PromptResponse
from tenure.agent.budget import BudgetTracker
from tenure.agent.conversation import Conversation
from tenure.agent.deadline import Countdown, Deadline
from tenure.agent.events import ModelSaid, ToolCall
from tenure.agent.model_retry import ModelRetry
from tenure.agent.progress import IDLE_TURNS, ProgressJudge
from tenure.agent.prompt import OutputT, Prompt
from tenure.agent.session import Session
from tenure.agent.tool_executor import AsyncToolExecutor, ToolExecutionContext, ToolExecutor
from tenure.agent.tools import Resources
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import Clock, SystemClock
from tenure.errors import AgentError, LimitError, ProviderError, VisibilityExpansionRequired
from tenure.randomness import Random, fresh_random

_logger = logging.getLogger(__name__)

CHUNK_BEAT_S = 0.2
"""Streamed pieces beat at most once in this time."""

Completion = Callable[[ModelRequest, OnChunk], ModelSaid]
"""Makes one model call, and tells of each piece of the answer as it comes."""
AsyncCompletion = Callable[[ModelRequest, OnChunk], Awaitable[ModelSaid]]


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


class _Loop(Generic[OutputT]):
    """What the sync and the async loop share: the conversation, and the beats around a model call."""

    def __init__(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        config: InnerLoopConfig | None = None,
        commit: Callable[[], None] | None = None,
    ) -> None:
        self._config = config = config or InnerLoopConfig()
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
            commit=commit,
        )
        self._tools = ToolExecutionContext(
            prompt, session, deadline, config.heartbeat, config.resources, self._progress, clock, countdown
        )

    def _beat(self) -> None:
        """At the start of an iteration: a turn that repeated the one before has proved nothing."""
        if self._config.heartbeat is not None and self._progress.advancing:
            self._config.heartbeat.beat()

    @contextmanager
    def _listening(self) -> Iterator[OnChunk]:
        """Around one model call: what to tell of each piece of the answer."""
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
        """With the bounds of this attempt: earlier ones have used up some of the deadline."""
        return replace(request, remaining_s=self._countdown.remaining_s, silence_s=self._config.model_silence_s)

    def _wait_after(self, error: AgentError, failures: int) -> float | None:
        """How long to wait before the same call again; None when the deadline is over. Raises when nothing helps."""
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


class InnerLoop(_Loop[OutputT]):
    """Runs one evaluation: `complete` makes a model call."""

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
        while (step := self._conversation.next_step()) is not None:
            if isinstance(step, ToolCall):
                self._use(step)
            else:
                self._beat()
                said = self._get_completion(step)
                if said is not None:
                    self._conversation.model_said(said)
        return self._conversation.response

    def _get_completion(self, request: ModelRequest) -> ModelSaid | None:
        """The model's answer; None when the deadline came first."""
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
            raise
        self._conversation.tool_answered(call, result)


class AsyncInnerLoop(_Loop[OutputT]):
    """The same in an event loop. Each step is made durable before the next begins, in a thread: a disk or an engine may be slow."""

    def __init__(
        self,
        complete: AsyncCompletion,
        prompt: Prompt[OutputT],
        session: Session,
        config: InnerLoopConfig | None = None,
    ) -> None:
        self._uncommitted = False
        super().__init__(prompt, session, config, self._commit_later)
        self._session = session
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
        await self._commit()  # why it stopped
        return self._conversation.response

    def _commit_later(self) -> None:
        self._uncommitted = True

    async def _commit(self) -> None:
        if self._uncommitted:
            self._uncommitted = False
            await asyncio.to_thread(self._session.commit)

    async def _get_completion(self, request: ModelRequest) -> ModelSaid | None:
        """The model's answer; None when the deadline came first."""
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
