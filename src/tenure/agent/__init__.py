"""LLM agents as workers: loops, adapters and tools whose beats keep the lease (document 003)."""

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.agent.agent_loop import ContextHeartbeat, ContextKeeper, MainLoopConfig, MainLoopRequest, MainLoopResult
    from tenure.agent.approval import hand_over_tool
    from tenure.agent.async_loops import AsyncInnerLoop, AsyncMainLoop, AsyncModelAdapter, AsyncProviderAdapter
    from tenure.agent.budget import Budget, BudgetTracker, Countdown, Deadline, Prices, Spent
    from tenure.agent.evals import Dataset, EvalLoop, EvalReport, EvalRequest, EvalResult, EvalRun, Sample, Score
    from tenure.agent.evaluation import InnerLoopConfig, ModelRetry
    from tenure.agent.events import Finish, ModelSaid, ToolCall, Usage
    from tenure.agent.loops import InnerLoop, MainLoop, ModelAdapter, ProviderAdapter
    from tenure.agent.progress import ProgressJudge
    from tenure.agent.prompt import ModelRequest, Prompt, PromptResponse, Section, StopReason, Visibility
    from tenure.agent.session import Session, SessionKeeper, SessionLog, SessionSnapshot, open_session
    from tenure.agent.tool_executor import AsyncToolExecutor, ToolExecutionContext, ToolExecutor
    from tenure.agent.tools import Resources, Tool, ToolContext, ToolResult, ToolUse, tool, tools_used
    from tenure.errors import VisibilityExpansionRequired

__all__ = [
    "AsyncInnerLoop",
    "AsyncMainLoop",
    "AsyncModelAdapter",
    "AsyncProviderAdapter",
    "AsyncToolExecutor",
    "Budget",
    "BudgetTracker",
    "ContextHeartbeat",
    "ContextKeeper",
    "Countdown",
    "Dataset",
    "Deadline",
    "EvalLoop",
    "EvalReport",
    "EvalRequest",
    "EvalResult",
    "EvalRun",
    "Finish",
    "InnerLoop",
    "InnerLoopConfig",
    "MainLoop",
    "MainLoopConfig",
    "MainLoopRequest",
    "MainLoopResult",
    "ModelAdapter",
    "ModelRequest",
    "ModelRetry",
    "ModelSaid",
    "Prices",
    "ProgressJudge",
    "Prompt",
    "PromptResponse",
    "ProviderAdapter",
    "Resources",
    "Sample",
    "Score",
    "Section",
    "Session",
    "SessionKeeper",
    "SessionLog",
    "SessionSnapshot",
    "Spent",
    "StopReason",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolExecutionContext",
    "ToolExecutor",
    "ToolResult",
    "ToolUse",
    "Usage",
    "Visibility",
    "VisibilityExpansionRequired",
    "hand_over_tool",
    "open_session",
    "tool",
    "tools_used",
]

_find = lazy_names(
    __name__,
    {
        "agent_loop": "ContextHeartbeat ContextKeeper MainLoopConfig MainLoopRequest MainLoopResult",
        "approval": "hand_over_tool",
        "async_loops": "AsyncInnerLoop AsyncMainLoop AsyncModelAdapter AsyncProviderAdapter",
        "budget": "Budget BudgetTracker Countdown Deadline Prices Spent",
        "evals": "Dataset EvalLoop EvalReport EvalRequest EvalResult EvalRun Sample Score",
        "evaluation": "InnerLoopConfig ModelRetry",
        "events": "Finish ModelSaid ToolCall Usage",
        "loops": "InnerLoop MainLoop ModelAdapter ProviderAdapter",
        "progress": "ProgressJudge",
        "prompt": "ModelRequest Prompt PromptResponse Section StopReason Visibility",
        "session": "Session SessionKeeper SessionLog SessionSnapshot open_session",
        "tool_executor": "AsyncToolExecutor ToolExecutionContext ToolExecutor",
        "tools": "Resources Tool ToolContext ToolResult ToolUse tool tools_used",
    },
)


def __getattr__(name: str) -> object:
    if name == "VisibilityExpansionRequired":
        from tenure.errors import VisibilityExpansionRequired

        return VisibilityExpansionRequired
    return _find(name)
