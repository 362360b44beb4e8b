"""Samples through an agent, each scored: a loop like any other, with a lease and a heartbeat of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tenure.agent.async_main_loop import AsyncMainLoop
from tenure.agent.evals import EvalRequest, EvalResult, Score
from tenure.agent.main_loop import MainLoop
from tenure.agent.model_call import PromptResponse
from tenure.agent.requests import MainLoopRequest
from tenure.agent.session_keeper import SessionKeeper
from tenure.engines.contracts import Mailbox, Message
from tenure.errors import Cancelled, LeaseLostError
from tenure.work.batch import call_thread_for
from tenure.work.mailbox_loop import MailboxLoop

_logger = logging.getLogger(__name__)

Evaluator = Callable[[Any, Any], Score]
"""From an output and what was expected to a score."""


class EvalLoop(MailboxLoop[EvalRequest[Any, Any], EvalResult]):
    """Runs each sample through a `MainLoop`'s own `prepare` and adapter, and scores the output.

    A sample whose worker dies comes again and goes on from its session. One that fails has a score of 0 and an error; with `dead_letters` it is
    tried again first. `heartbeat` is this loop's own: watchdogs and probes see it as they see every loop.
    """

    def __init__(
        self,
        *,
        loop: MainLoop[Any, Any] | AsyncMainLoop[Any, Any],
        evaluator: Evaluator,
        requests: Mailbox[EvalRequest[Any, Any], EvalResult],
        **settings: Any,
    ) -> None:
        settings.setdefault("lease_extender", loop.config.lease_extender)
        super().__init__(requests, **settings)
        self._loop = loop
        self._events: asyncio.Runner | None = None
        self._evaluator = evaluator

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 30,
    ) -> None:
        with ExitStack() as stack:
            if isinstance(self._loop, AsyncMainLoop):
                self._events = stack.enter_context(asyncio.Runner())
                self._hand_over = stack.enter_context(call_thread_for(self.requests, self.name))
            super().run(
                max_iterations=max_iterations,
                visibility_timeout=visibility_timeout,
                wait_time_seconds=wait_time_seconds,
            )

    def handle(self, message: Message[EvalRequest[Any, Any], EvalResult]) -> EvalResult:
        request = message.body
        begun = self.clock.monotonic()
        try:
            response = self._execute(message)
            score, error = self._judge(response, request)
        except (LeaseLostError, Cancelled):
            raise
        except Exception as failed:
            if self._dead_letters is not None:
                raise
            _logger.exception("%s: sample %s failed", self.name, request.key)
            response, error = None, f"{type(failed).__name__}: {failed}"
            score = Score(0, passed=False, reason="the work failed")
        return EvalResult(
            run_id=request.run_id,
            sample_id=request.sample.id,
            score=score,
            error=error,
            seconds=self.clock.monotonic() - begun,
            **({} if response is None else _costs(response)),
        )

    def _execute(self, message: Message[EvalRequest[Any, Any], EvalResult]) -> PromptResponse[Any]:
        request = message.body
        keeper = SessionKeeper(message, self.lease_lost) if self._loop.config.checkpoint_sessions else None
        asked = MainLoopRequest(request.sample.input, request.key)
        if isinstance(self._loop, MainLoop):
            return self._loop.execute(asked, heartbeat=self.heartbeat, keeper=keeper)[0]
        assert self._events is not None, "run() calls handle()"
        return self._events.run(self._loop.execute(asked, heartbeat=self.heartbeat, keeper=keeper))[0]

    def _judge(self, response: PromptResponse[Any], request: EvalRequest[Any, Any]) -> tuple[Score, str | None]:
        if not response.done:
            return Score(0, passed=False, reason=response.stop), f"{response.stop}: {response.detail}"
        return self._evaluator(response.output, request.sample.expected), None


def _costs(response: PromptResponse[Any]) -> dict[str, Any]:
    return {"stop": response.stop, "usage": response.usage, "tool_calls": response.tool_calls}
