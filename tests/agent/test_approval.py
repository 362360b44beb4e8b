"""The answer of a person to a tool that asks first: what approves, what refuses, and who cannot be asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.agent.approval import ask, hand_over_tool, verdict
from tenure.agent.events import ToolCall
from tenure.agent.session import Session
from tenure.agent.tools import Tool, ToolResult
from tenure.errors import ConfigurationError
from tenure.work.context import Context
from tenure.work.registry import workflow


class Price(msgspec.Struct):
    euros: float


def pay(params: Price, *, context: Any) -> ToolResult[str]:
    return ToolResult.ok("paid")


TOOL = Tool("pay", "Pays.", Price, pay, needs_approval=lambda params: params.euros > 100)


@pytest.mark.parametrize("payload", [None, True, {"approved": True}, {"approved": True, "by": "ada"}])
def test_a_signal_without_a_word_against_it_approves(payload: Any) -> None:
    assert verdict(TOOL, payload) is None


@pytest.mark.parametrize(
    "payload",
    [False, "no", "", 0, 1, [], {}, {"approved": False}, {"approved": "no"}, {"approve": False}, {"by": "ada"}],
)
def test_anything_else_refuses_and_is_never_taken_for_a_yes(payload: Any) -> None:
    refused = verdict(TOOL, payload)
    assert refused is not None
    assert not refused.success
    assert "refused" in refused.message


def test_the_model_reads_who_refused_and_why() -> None:
    refused = verdict(TOOL, {"approved": False, "by": "ada", "reason": "too dear"})
    assert refused is not None
    assert refused.message.endswith("was refused by ada: too dear")


def test_outside_of_a_workflow_nobody_can_be_asked_and_what_needs_no_answer_passes() -> None:
    call = ToolCall("call-0", "pay")
    assert ask(TOOL, Price(20), Session(), call) is None
    with pytest.raises(ConfigurationError, match="no workflow runs here") as refused:
        ask(TOOL, Price(200), Session(), call)
    assert "execute_in" in refused.value.remedy


@workflow
def other(ctx: Context, topic: str) -> str:
    """Looks something up."""
    return topic


def test_a_tool_that_hands_over_says_where_it_can_be_used() -> None:
    tool = hand_over_tool(other)
    assert (tool.name, tool.description) == (other.name, "Looks something up.")
    with pytest.raises(ConfigurationError, match="handed over, and no workflow runs here"):
        tool.handler(None, context=None)  # type: ignore[misc, arg-type]
