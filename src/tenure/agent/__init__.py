"""LLM agents as workers: loops, adapters and tools whose beats keep the lease (document 003)."""

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.agent.agent_loop import ContextHeartbeat as ContextHeartbeat
    from tenure.agent.agent_loop import ContextKeeper as ContextKeeper
    from tenure.agent.agent_loop import MainLoopConfig as MainLoopConfig
    from tenure.agent.agent_loop import MainLoopRequest as MainLoopRequest
    from tenure.agent.agent_loop import MainLoopResult as MainLoopResult
    from tenure.agent.approval import hand_over_tool as hand_over_tool
    from tenure.agent.async_loops import AsyncInnerLoop as AsyncInnerLoop
    from tenure.agent.async_loops import AsyncMainLoop as AsyncMainLoop
    from tenure.agent.async_loops import AsyncModelAdapter as AsyncModelAdapter
    from tenure.agent.async_loops import AsyncProviderAdapter as AsyncProviderAdapter
    from tenure.agent.budget import Budget as Budget
    from tenure.agent.budget import BudgetTracker as BudgetTracker
    from tenure.agent.budget import Countdown as Countdown
    from tenure.agent.budget import Deadline as Deadline
    from tenure.agent.budget import Prices as Prices
    from tenure.agent.budget import Spent as Spent
    from tenure.agent.evals import Dataset as Dataset
    from tenure.agent.evals import EvalLoop as EvalLoop
    from tenure.agent.evals import EvalReport as EvalReport
    from tenure.agent.evals import EvalRequest as EvalRequest
    from tenure.agent.evals import EvalResult as EvalResult
    from tenure.agent.evals import EvalRun as EvalRun
    from tenure.agent.evals import Sample as Sample
    from tenure.agent.evals import Score as Score
    from tenure.agent.evaluation import InnerLoopConfig as InnerLoopConfig
    from tenure.agent.evaluation import ModelRetry as ModelRetry
    from tenure.agent.events import Finish as Finish
    from tenure.agent.events import ModelSaid as ModelSaid
    from tenure.agent.events import ToolCall as ToolCall
    from tenure.agent.events import Usage as Usage
    from tenure.agent.loops import InnerLoop as InnerLoop
    from tenure.agent.loops import MainLoop as MainLoop
    from tenure.agent.loops import ModelAdapter as ModelAdapter
    from tenure.agent.loops import ProviderAdapter as ProviderAdapter
    from tenure.agent.progress import ProgressJudge as ProgressJudge
    from tenure.agent.prompt import ModelRequest as ModelRequest
    from tenure.agent.prompt import Prompt as Prompt
    from tenure.agent.prompt import PromptResponse as PromptResponse
    from tenure.agent.prompt import Section as Section
    from tenure.agent.prompt import StopReason as StopReason
    from tenure.agent.prompt import Visibility as Visibility
    from tenure.agent.session import Session as Session
    from tenure.agent.session import SessionKeeper as SessionKeeper
    from tenure.agent.session import SessionLog as SessionLog
    from tenure.agent.session import SessionSnapshot as SessionSnapshot
    from tenure.agent.session import open_session as open_session
    from tenure.agent.tool_executor import AsyncToolExecutor as AsyncToolExecutor
    from tenure.agent.tool_executor import ToolExecutionContext as ToolExecutionContext
    from tenure.agent.tool_executor import ToolExecutor as ToolExecutor
    from tenure.agent.tools import Resources as Resources
    from tenure.agent.tools import Tool as Tool
    from tenure.agent.tools import ToolContext as ToolContext
    from tenure.agent.tools import ToolResult as ToolResult
    from tenure.agent.tools import ToolUse as ToolUse
    from tenure.agent.tools import tool as tool
    from tenure.agent.tools import tools_used as tools_used
    from tenure.errors import VisibilityExpansionRequired as VisibilityExpansionRequired

__getattr__ = lazy_names(
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
        "tenure.errors": "VisibilityExpansionRequired",
        "tools": "Resources Tool ToolContext ToolResult ToolUse tool tools_used",
    },
)
