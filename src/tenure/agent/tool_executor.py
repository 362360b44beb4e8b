"""Runs one tool call: beats around it, holds it to its promise, and undoes what a failed one did to the session.

A failure is an answer to the model, never an end of the agent. What does end it passes through: a lost lease, a cancellation, and the wish to
see more of the prompt.

Holds a tool to the beats that it promised.

The tool runs in a thread of its own and beats on a heartbeat of its own, which passes each beat on to the work's. When the promise is
broken, or the deadline is over, the call is given up: the thread cannot be killed, but it is cut off. Its beats keep nothing alive any more
and raise, and what it did to its fork of the session is thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from tenure.agent.approval import ask, ask_async, call_name
from tenure.agent.budget import Countdown, Deadline
from tenure.agent.calls import ThreadedCall, await_watched, in_thread, run_watched
from tenure.agent.events import UNREADABLE, ToolCall
from tenure.agent.progress import ProgressJudge
from tenure.agent.prompt import Prompt
from tenure.agent.session import Session
from tenure.agent.tools import UNKNOWN, Effort, Resources, Tool, ToolContext, ToolOutcome, ToolResult, count_tool_call
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import Clock, SystemClock
from tenure.errors import (
    AgentError,
    Cancelled,
    ConfigurationError,
    LeaseLostError,
    Permanent,
    RetryAfter,
    ToolSilentError,
    VisibilityExpansionRequired,
)

_logger = logging.getLogger(__name__)

ENDS_THE_WORK = (LeaseLostError, Cancelled, Permanent, RetryAfter, VisibilityExpansionRequired)
"""A tool raises one of these to end the work. The model hears of every other error, and goes on."""
_LONGEST_WAIT_S = 3600.0


class Leash:
    """The heartbeat that a tool beats on, and the wire to the work's own, which can be cut."""

    def __init__(self, tool: str, promise_s: float, work: Heartbeat | None, clock: Clock, countdown: Countdown) -> None:
        self.heartbeat = Heartbeat(self._pass_on, name=tool, clock=clock)
        self._countdown = countdown
        self._tool, self._promise_s = tool, promise_s
        self._work = work

    def _pass_on(self) -> None:
        if self._work is None:
            return
        try:
            # The tool runs in a thread of its own. It is watched here, so its beats are the work's.
            with self._work.thread():
                self._work.beat(self.heartbeat.progress, self.heartbeat.note)
        except Exception as error:
            # The work's time is over. A callback that raises is only logged, so the tool is told by its own beat.
            self.heartbeat.interrupt(error)

    def look(self) -> float:
        """Returns the seconds for which the tool may stay silent from now. Raises when it was silent for too long."""
        left = min(self._promise_s - self.heartbeat.elapsed(), self._countdown.remaining_s, _LONGEST_WAIT_S)
        if left > 0:
            return left
        if self._countdown.over:
            raise AgentError(f"tool {self._tool!r} was given up: the deadline is over")
        raise ToolSilentError(self._tool, self.heartbeat.elapsed(), self._promise_s)

    def given_up(self, reason: BaseException) -> None:
        """Cuts the tool off: one in a thread finds it out by its next beat or look."""
        self._work = None
        gone = Cancelled("nobody waits for this tool any more")
        self.heartbeat.interrupt(reason if isinstance(reason, AgentError) else gone)


@dataclass(frozen=True, slots=True)
class ToolExecutionContext:
    """Where a call runs."""

    prompt: Prompt[Any]
    session: Session
    deadline: Deadline | None = None
    heartbeat: Heartbeat | None = None
    resources: Resources = field(default_factory=Resources)
    progress: ProgressJudge = field(default_factory=ProgressJudge)
    clock: Clock = field(default_factory=SystemClock)
    countdown: Countdown | None = None

    def for_handler(self, session: Session, heartbeat: Heartbeat | None, call: ToolCall) -> ToolContext:
        given = (self.prompt, session, self.deadline, heartbeat, self.resources, self.running_deadline())
        return ToolContext(*given, call_id=call_name(self.session, call))

    def running_deadline(self) -> Countdown:
        if self.countdown is not None:
            return self.countdown
        return self.deadline.countdown(self.clock) if self.deadline is not None else Countdown(self.clock)


@contextmanager
def tool_execution(
    context: ToolExecutionContext, tool_call: ToolCall, *, label: str | None = None
) -> Iterator[Callable[[ToolResult[Any]], ToolResult[Any]]]:
    """Around one call: says in the log and on the heartbeat which tool runs, and counts. Gives what writes the effort into a result.

    `label` is what it is counted under, where the name comes from a model.
    """
    heartbeat, clock = context.heartbeat, context.clock
    label = tool_call.name if label is None else label
    begun, beats = clock.monotonic(), heartbeat.count if heartbeat is not None else 0
    before = "" if heartbeat is None else heartbeat.activity
    outcome = ToolOutcome.INTERRUPTED

    def effort() -> Effort:
        return Effort(clock.monotonic() - begun, heartbeat.count - beats if heartbeat is not None else 0)

    def measured(result: ToolResult[Any]) -> ToolResult[Any]:
        nonlocal outcome
        outcome = ToolOutcome.OK if result.success else ToolOutcome.FAILED
        return replace(result, effort=effort())

    if heartbeat is not None:
        heartbeat.note, heartbeat.activity = f"tool {tool_call.name}", f"tool {label}"
    # Only the tool's silence tells that it is down: it also raises for what a model got wrong.
    waits = nullcontext() if heartbeat is None else heartbeat.depends(f"tool:{label}"[:200], errors=False)
    try:
        with waits:
            yield measured
    finally:
        spent = effort()
        if heartbeat is not None:
            heartbeat.activity = before
        count_tool_call(label, outcome, spent.seconds, spent.beats)
        _logger.debug("Tool %s ran for %.3f s", tool_call.name, spent.seconds)


class _Executor:
    """Finds and parses tools, and beats around their calls, for both executors."""

    def __init__(self, tools: Iterable[Tool[Any, Any]] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def _label(self, call: ToolCall) -> str:
        return call.name if call.name in self._tools else UNKNOWN

    def _prepare(self, call: ToolCall) -> tuple[Tool[Any, Any], Any] | ToolResult[Any]:
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolResult.error(f"there is no tool {call.name!r}; there are {sorted(self._tools)}")
        try:
            return tool, tool.parse(call.arguments)
        except UNREADABLE as error:
            return ToolResult.error(f"the arguments do not fit: {error}")

    def _beat_before(self, call: ToolCall, context: ToolExecutionContext) -> None:
        # The same call again is no step until its result says otherwise.
        if context.heartbeat is not None and context.progress.expects_news(call):
            context.heartbeat.beat()

    def _beat_after(self, call: ToolCall, result: ToolResult[Any], context: ToolExecutionContext) -> None:
        if context.progress.tool_answered(call, result.text()) and context.heartbeat is not None:
            context.heartbeat.beat()


def checked(tool: Tool[Any, Any], result: object) -> ToolResult[Any]:
    """Returns the handler's result when a model can read it, else a result that says why not."""
    if not isinstance(result, ToolResult):
        result = ToolResult.error(f"tool {tool.name!r} returned a {type(result).__name__}, not a ToolResult")
    try:
        result.text()
    except (TypeError, ValueError, RecursionError) as error:
        return ToolResult.error(f"what tool {tool.name!r} returned cannot be written as JSON: {error}")
    return result


def failed(tool: Tool[Any, Any], error: Exception) -> ToolResult[Any]:
    _logger.info("Tool %s failed", tool.name, exc_info=error)
    return ToolResult.error(f"{type(error).__name__}: {error}")


class ToolExecutor(_Executor):
    """Executes tools with automatic heartbeats: one before and one after each call that is news."""

    def execute(self, tool_call: ToolCall, *, context: ToolExecutionContext) -> ToolResult[Any]:
        self._beat_before(tool_call, context)
        with tool_execution(context, tool_call, label=self._label(tool_call)) as measured:
            result = measured(self._execute_tool_with_snapshot(tool_call, context))
        self._beat_after(tool_call, result, context)
        return result

    def _execute_tool_with_snapshot(self, tool_call: ToolCall, context: ToolExecutionContext) -> ToolResult[Any]:
        found = self._prepare(tool_call)
        if isinstance(found, ToolResult):
            return found
        tool, params = found
        if tool.is_async:
            raise ConfigurationError(
                f"tool {tool.name!r} is async", remedy="Use it with an async adapter and AsyncMainLoop"
            )
        if (refused := ask(tool, params, context.session, tool_call)) is not None:
            return refused
        if tool.beat_every_s is not None:
            return self._leashed(tool, tool.beat_every_s, params, context, tool_call)
        snapshot = context.session.snapshot()
        try:
            inner = context.for_handler(context.session, context.heartbeat, tool_call)
            result = checked(tool, tool.handler(params, context=inner))
        except ENDS_THE_WORK:
            context.session.rollback(snapshot)
            raise
        except Exception as error:
            result = failed(tool, error)
        if not result.success:
            context.session.rollback(snapshot)
        return result

    def _leashed(
        self, tool: Tool[Any, Any], promise_s: float, params: Any, context: ToolExecutionContext, call: ToolCall
    ) -> ToolResult[Any]:
        countdown, fork = context.running_deadline(), context.session.fork()
        leash = Leash(tool.name, promise_s, context.heartbeat, context.clock, countdown)
        inner = context.for_handler(fork, leash.heartbeat, call)
        running = ThreadedCall(lambda: checked(tool, tool.handler(params, context=inner)), f"tool-{tool.name}")
        try:
            result = run_watched(running, leash, context.clock)
        except ENDS_THE_WORK:
            raise
        except Exception as error:
            return failed(tool, error)
        if result.success:
            context.session.adopt(fork)
        return result


class AsyncToolExecutor(_Executor):
    """Executes tools from an event loop: it awaits async tools and runs the others in a thread, so that the loop goes on."""

    async def execute(self, tool_call: ToolCall, *, context: ToolExecutionContext) -> ToolResult[Any]:
        self._beat_before(tool_call, context)
        with tool_execution(context, tool_call, label=self._label(tool_call)) as measured:
            result = measured(await self._execute_tool_with_fork(tool_call, context))
        self._beat_after(tool_call, result, context)
        return result

    async def _execute_tool_with_fork(self, tool_call: ToolCall, context: ToolExecutionContext) -> ToolResult[Any]:
        found = self._prepare(tool_call)
        if isinstance(found, ToolResult):
            return found
        tool, params = found
        if (refused := await ask_async(tool, params, context.session, tool_call)) is not None:
            return refused
        promise_s = tool.beat_every_s if tool.beat_every_s is not None else float("inf")
        fork = context.session.fork()
        leash = Leash(tool.name, promise_s, context.heartbeat, context.clock, context.running_deadline())
        inner = context.for_handler(fork, leash.heartbeat, tool_call)
        try:
            work: asyncio.Future[Any]
            if tool.is_async:
                work = asyncio.ensure_future(tool.handler(params, context=inner))
            else:
                work = in_thread(lambda: tool.handler(params, context=inner), f"tool-{tool.name}")
            result = checked(tool, await await_watched(work, leash, context.clock))
        except ENDS_THE_WORK:
            raise
        except Exception as error:
            return failed(tool, error)
        if result.success:
            context.session.adopt(fork)
        return result
