"""The part of an evaluation that the blocking and the async inner loop share: its settings, its conversation, the beats around a model call.

A wait for the model is a declared silence with a bound: the lease is extended to cover it, and a wait beyond the bound is a hang like any
other. Each new streamed piece is a beat, at most a few per second; a repetition is none (document 003).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Generic

from tenure.agent.budget import BudgetTracker, Countdown, Deadline, Prices
from tenure.agent.calls import LOOK_S, Hangup, ThreadedCall, await_watched, run_watched
from tenure.agent.conversation import Conversation
from tenure.agent.events import ModelSaid
from tenure.agent.progress import IDLE_TURNS, Listener, ProgressJudge
from tenure.agent.prompt import ModelRequest, OnChunk, OutputT, Prompt
from tenure.agent.session import Session
from tenure.agent.tool_executor import ToolExecutionContext
from tenure.agent.tools import Resources
from tenure.backoff import Retry
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.record import Brake
from tenure.clock import Clock, SystemClock
from tenure.errors import (
    AgentError,
    LimitError,
    ProviderError,
    ProviderRateLimitedError,
    ProviderStalledError,
    ProviderUnavailableError,
)
from tenure.randomness import Random, fresh_random

_logger = logging.getLogger(__name__)

CHUNK_BEAT_S = 0.2
"""Streamed pieces beat at most once in this time."""


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
        provider: The name of what its model calls wait for. When that is down for most agents, theirs are not given up (docs/outages.md). The adapters of
            OpenAI and Anthropic know theirs.
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
    provider: str = ""
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


class ModelCallWatch:
    """Watches one model call: the pieces of its answer, the silence between them, the deadline, and whoever wants the work to end.

    Only content counts: the comments and pings by which a server keeps a connection open are no pieces. A piece that repeats an earlier answer keeps the
    call, but is no beat.
    """

    def __init__(self, config: InnerLoopConfig, countdown: Countdown, listener: Listener) -> None:
        self.clock = config.clock
        self._heartbeat, self._silence_s = config.heartbeat, config.model_silence_s
        self._countdown, self._listener = countdown, listener
        self._content_at = self.clock.monotonic()
        self._beat_due = -math.inf
        self._over: BaseException | None = None
        self.hangup = Hangup()

    def begin(self, request: ModelRequest) -> ModelRequest:
        """Returns the request of this call. Raises when the work was interrupted, also where no beat would find it out."""
        if self._heartbeat is not None:
            self._heartbeat.raise_if_interrupted()
        return replace(request, remaining_s=self._countdown.remaining_s, silence_s=self._silence_s, hangup=self.hangup)

    def piece(self, chunk: str, beat: Callable[[Callable[[], None]], None]) -> None:
        """Takes a piece of the answer. `beat` has the beat made where it counts: in the thread of the work."""
        if self._over is not None:
            raise self._over  # nobody waits for this call any more: its adapter leaves the stream
        if self._countdown.over:
            raise AgentError("the deadline is over")  # closes the stream; the conversation ends with that reason
        if not chunk:
            return
        now = self._content_at = self.clock.monotonic()
        if self._listener.hears(chunk) and self._heartbeat is not None and now >= self._beat_due:
            self._beat_due = now + CHUNK_BEAT_S
            beat(self._heartbeat.beat)

    def look(self) -> float:
        """Returns the seconds until the next look. Raises the reason when the call must be given up."""
        if self._heartbeat is not None:
            self._heartbeat.raise_if_interrupted()
        if self._countdown.over:
            raise AgentError("the deadline is over")
        left = self._content_at + self._silence_s - self.clock.monotonic()
        if left <= 0:
            raise ProviderStalledError(f"the model sent nothing of its answer for {self._silence_s:g} s")
        return min(left, self._countdown.remaining_s, LOOK_S)

    def given_up(self, reason: BaseException) -> None:
        self._over = reason
        self.hangup.now()


def complete_watched(
    complete: Callable[[ModelRequest, OnChunk], ModelSaid], request: ModelRequest, watch: ModelCallWatch
) -> ModelSaid:
    """Makes one model call in a thread of its own, so that its end does not depend on what it blocks in."""
    request = watch.begin(request)
    running = ThreadedCall(lambda: complete(request, on_chunk), "model-call")

    def on_chunk(chunk: str) -> None:
        watch.piece(chunk, running.in_waiting_thread)

    return run_watched(running, watch, watch.clock)


async def async_complete_watched(
    complete: Callable[[ModelRequest, OnChunk], Awaitable[ModelSaid]], request: ModelRequest, watch: ModelCallWatch
) -> ModelSaid:
    """Makes one model call in a task of its own."""
    work = asyncio.ensure_future(complete(watch.begin(request), lambda chunk: watch.piece(chunk, _call)))
    return await await_watched(work, watch, watch.clock)


def _call(function: Callable[[], None]) -> None:
    function()


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
    def _watching(self) -> Iterator[ModelCallWatch]:
        """Wraps one model call and yields its watch."""
        heartbeat = self._config.heartbeat
        watch = ModelCallWatch(self._config, self._countdown, self._progress.listen())
        if heartbeat is None or not self._progress.advancing:
            # A declared silence holds the stall clock, and an agent that repeats itself gets none.
            yield watch
        else:
            with heartbeat.silence(self._config.model_silence_s, "waiting for the model"):
                yield watch

    def _depending(self) -> AbstractContextManager[None]:
        """Names what a model call and the waits between its tries wait for."""
        heartbeat, provider = self._config.heartbeat, self._config.provider
        return heartbeat.depends(provider) if heartbeat is not None and provider else nullcontext()

    def _wait_after(self, error: AgentError, failures: int) -> float | None:
        """Returns how long to wait before the same call again, or None when the deadline is over. Raises when nothing helps."""
        if self._countdown.over:
            return None
        wait = None
        if isinstance(error, ProviderError):
            retry, heartbeat = self._config.model_retry, self._config.heartbeat
            if heartbeat is not None and error.retryable:
                heartbeat.call_failed()
                if heartbeat.brake is not Brake.NONE:
                    failures = min(failures, retry.attempts - 1)  # the provider is down for most: nobody gives up
            wait = retry.wait_s(error, failures, self._countdown.remaining_s, self._config.random)
        if wait is None:
            raise error
        _logger.warning("A model call failed (attempt %d), and is made again in %.1f s: %s", failures, wait, error)
        return wait

    def _is_held(self) -> bool:
        heartbeat = self._config.heartbeat
        return heartbeat is not None and heartbeat.brake is Brake.HELD and not self._countdown.over

    @contextmanager
    def _naps(self, seconds: float) -> Iterator[Iterator[float]]:
        """Declares a wait before the next call, and yields the naps that it consists of. Between two of them an interrupt ends the wait."""
        heartbeat, clock = self._config.heartbeat, self._config.clock
        until = clock.monotonic() + seconds

        def naps() -> Iterator[float]:
            # One that is held waits for its turn: others try first whether the provider is back.
            while (left := until - clock.monotonic()) > 0 or self._is_held():
                yield min(left, LOOK_S) if left > 0 else LOOK_S
                if heartbeat is not None:
                    heartbeat.raise_if_interrupted()

        if heartbeat is None:
            yield naps()
        else:
            with heartbeat.silence(seconds + 1.0, "waiting to call the model again"):
                yield naps()
