"""Tools that ask a person first, and agents that hand work to other agents. Both wait without holding a slot.

An agent in a workflow waits as the workflow does (docs/waiting.md): its attempt is suspended, its session is in the checkpoint, and the next attempt
comes to the same tool call, whose answer is there by then. An agent outside of a workflow has nobody to ask.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from tenure.agent.events import ModelSaid, ToolCall
from tenure.agent.session import Session
from tenure.agent.tools import Tool, ToolContext, ToolResult
from tenure.errors import ConfigurationError, JobFailed, WaitTimeoutError
from tenure.work.context import AsyncContext, BaseContext, Context, current_or_none
from tenure.work.registry import Workflow

_NAME_CHARS = 200


def call_name(session: Session, call: ToolCall) -> str:
    """Names a call within its session, the same in every attempt: by its turn, because some models number their calls anew in each."""
    return f"{sum(isinstance(event, ModelSaid) for event in session.events)}-{call.id}"


def approval_event(session: Session, call: ToolCall) -> str:
    """Returns the name of the signal that answers for this one call. A second answer can never be taken for that of a later call."""
    return f"approve {call.name} {call_name(session, call)}"[:_NAME_CHARS]


def verdict(tool: Tool[Any, Any], payload: Any) -> ToolResult[Any] | None:
    """Returns None when a person approved, else the answer that the model reads.

    A signal without a payload approves, because its name says so; `true` and `{"approved": true}` do. Anything else refuses: a word that nobody
    understands must not pay.
    """
    said = payload if isinstance(payload, dict) else {"approved": payload is None or payload}
    if said.get("approved") is True:
        return None
    by = f" by {said['by']}" if isinstance(said.get("by"), str) else ""
    why = f": {said['reason']}" if isinstance(said.get("reason"), str) else ""
    return ToolResult.error(f"the call of {tool.name} was refused{by}{why}")


def _unanswered(tool: Tool[Any, Any]) -> ToolResult[Any]:
    return ToolResult.error(f"nobody approved the call of {tool.name} within {tool.approval_timeout_s:g} s")


def ask(tool: Tool[Any, Any], params: Any, session: Session, call: ToolCall) -> ToolResult[Any] | None:
    """Returns None when the call may be made. Suspends the workflow until a person has answered."""
    if not tool.asks(params):
        return None
    context = _workflow_of(f"tool {tool.name!r} needs approval")
    if not isinstance(context, Context):
        raise ConfigurationError(f"tool {tool.name!r} needs approval", remedy="Use AsyncMainLoop in an async workflow")
    try:
        event = approval_event(session, call)
        return verdict(tool, context.wait_event(event, timeout=tool.approval_timeout_s))
    except WaitTimeoutError:
        return _unanswered(tool)


async def ask_async(tool: Tool[Any, Any], params: Any, session: Session, call: ToolCall) -> ToolResult[Any] | None:
    """Returns None when the call may be made; see `ask`."""
    if not tool.asks(params):
        return None
    context = _workflow_of(f"tool {tool.name!r} needs approval")
    if not isinstance(context, AsyncContext):
        raise ConfigurationError(f"tool {tool.name!r} needs approval", remedy="Use AsyncMainLoop in an async workflow")
    try:
        event = approval_event(session, call)
        return verdict(tool, await context.wait_event(event, timeout=tool.approval_timeout_s))
    except WaitTimeoutError:
        return _unanswered(tool)


def _workflow_of(what: str) -> BaseContext:
    context = current_or_none()
    if context is None:
        raise ConfigurationError(
            f"{what}, and no workflow runs here that could wait",
            remedy="Run the agent inside a workflow: agent.execute_in(ctx, request)",
        )
    return context


def _wrong_kind(workflow: Workflow[..., Any], awaits: str) -> ConfigurationError:
    return ConfigurationError(
        f"the tool that hands {workflow.name} over does not fit the workflow of its agent",
        remedy=f"Make it with hand_over_tool(…, awaits={awaits}): True in an async workflow, False in any other",
    )


def hand_over_tool(
    workflow: Workflow[..., Any],
    *,
    name: str | None = None,
    description: str = "",
    awaits: bool = False,
    needs_approval: bool | Callable[[Any], bool] = False,
) -> Tool[Any, Any]:
    """Returns a tool with which an agent hands work to another: the workflow runs as a child job, and its result is the tool's.

    The parameters are the workflow's own. The child is named by the tool call, so that it is submitted once; the agent waits for it without holding a
    slot. A child that failed is an answer to the model. `awaits`: for agents in async workflows.
    """

    def hand_over(params: Any, *, context: ToolContext) -> ToolResult[Any]:
        own = _workflow_of(f"{workflow.name} is handed over")
        if not isinstance(own, Context):
            raise _wrong_kind(workflow, "True")
        try:
            return ToolResult.ok(own.wait_job(own.submit(workflow, msgspec.to_builtins(params), key=context.call_id)))
        except JobFailed as error:
            return ToolResult.error(str(error))

    async def hand_over_async(params: Any, *, context: ToolContext) -> ToolResult[Any]:
        own = _workflow_of(f"{workflow.name} is handed over")
        if not isinstance(own, AsyncContext):
            raise _wrong_kind(workflow, "False")
        try:
            child = await own.submit(workflow, msgspec.to_builtins(params), key=context.call_id)
            return ToolResult.ok(await own.wait_job(child))
        except JobFailed as error:
            return ToolResult.error(str(error))

    described = description or inspect.cleandoc(workflow.function.__doc__ or "").split("\n\n")[0]
    handler: Callable[..., Any] = hand_over_async if awaits else hand_over
    tool_name = name or workflow.name.replace(".", "_")
    return Tool(tool_name, described, workflow.argument_type, handler, needs_approval=needs_approval)
