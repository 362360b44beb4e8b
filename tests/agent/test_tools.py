"""What each tool was used for: calls, failures, seconds and beats, in the session, in the result and in the metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tenure.agent import (
    Budget,
    BudgetTracker,
    InnerLoopConfig,
    MainLoopResult,
    Prompt,
    Session,
    StopReason,
    Tool,
    ToolContext,
    ToolResult,
    ToolUse,
)
from tenure.agent.agent_loop import result_of
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender, LeaseExtenderConfig
from tenure.clock import ManualClock
from tenure.engines import Engine
from tenure.errors import Cancelled
from tenure.testing import AsyncScriptedAdapter, ScriptedAdapter, create_test_message
from tenure.testing.model import calls


@dataclass(frozen=True)
class Step:
    seconds: float


class Rig:
    """A tool of its own name per test: the process's counters are shared."""

    def __init__(self, name: str, *lines: Any, asynchronous: bool = False) -> None:
        self.name, self.clock = name, ManualClock()
        self.heartbeat, self.session = Heartbeat(clock=self.clock), Session()
        self.asynchronous, self.lines = asynchronous, lines
        self.seen: list[str] = []

    def step(self, params: Step, *, context: ToolContext) -> ToolResult[str]:
        self.seen.append(self.heartbeat.activity)
        context.beat()
        self.clock.advance(params.seconds)
        if params.seconds > 5:
            raise ValueError("too long")
        return ToolResult.ok(f"{len(self.seen)}")

    async def async_step(self, params: Step, *, context: ToolContext) -> ToolResult[str]:
        return self.step(params, context=context)

    def run(self, **given: Any) -> Any:
        handler = self.async_step if self.asynchronous else self.step
        prompt = Prompt[str]("p", "go", tools=(Tool(self.name, "Do a step.", Step, handler),))
        loop = InnerLoopConfig(clock=self.clock)
        given = {"session": self.session, "heartbeat": self.heartbeat, **given}
        if self.asynchronous:
            return asyncio.run(AsyncScriptedAdapter(self.lines, loop=loop).evaluate(prompt, **given))
        return ScriptedAdapter(self.lines, loop=loop).evaluate(prompt, **given)

    def sample(self, metric: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(metric, {"tool": self.name, **labels})


@pytest.mark.parametrize("asynchronous", [False, True])
def test_calls_failures_seconds_and_beats_are_counted_per_tool(asynchronous: bool) -> None:
    name = f"step_{asynchronous}"
    rig = Rig(
        name, calls((name, {"seconds": 2}), (name, {"seconds": 3})), calls((name, {"seconds": 6})), "done",
        asynchronous=asynchronous,
    )  # fmt: skip
    response = rig.run()
    assert response.tools == rig.session.tools_used == {name: ToolUse(calls=3, failures=1, seconds=11.0, beats=3)}
    assert rig.sample("tenure_tool_calls_total", outcome="ok") == 2
    assert rig.sample("tenure_tool_calls_total", outcome="failed") == 1
    assert rig.sample("tenure_tool_seconds_total") == 11
    assert rig.sample("tenure_tool_beats_total") == 3
    assert (rig.seen, rig.heartbeat.activity) == ([f"tool {name}"] * 3, "")


def test_they_are_in_the_result_that_is_sent_and_survive_it() -> None:
    rig = Rig("sent", calls(("sent", {"seconds": 2})), "done")
    sent = result_of("r1", rig.run(), rig.session)
    with Engine.open("memory://") as engine:
        replies = engine.mailbox("replies", MainLoopResult[str])
        replies.send(sent)
        (message,) = replies.receive()
    assert message.body == sent
    assert sent.tools == {"sent": ToolUse(1, 0, 2.0, 1)}


def test_an_earlier_delivery_counts() -> None:
    first = Rig("kept", calls(("kept", {"seconds": 2})), OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        first.run()
    second = Rig("kept", calls(("kept", {"seconds": 3})), "done")
    second.session.restore(first.session.encode())
    assert second.run().tools == {"kept": ToolUse(2, 0, 5.0, 2)}


def test_a_call_that_was_never_made_is_not_counted() -> None:
    rig = Rig("refused", calls(("refused", {"seconds": 1}), ("refused", {"seconds": 2})))
    response = rig.run(budget_tracker=BudgetTracker(Budget(max_tool_calls=1)))
    assert response.stop is StopReason.BUDGET
    assert response.tools["refused"].calls == 1


def test_a_name_that_the_model_made_up_is_no_label_of_its_own() -> None:
    before = REGISTRY.get_sample_value("tenure_tool_calls_total", {"tool": "unknown", "outcome": "failed"}) or 0
    rig = Rig("real", calls(("made_up_name", {})), "done")
    assert rig.run().tools["made_up_name"].failures == 1
    after = REGISTRY.get_sample_value("tenure_tool_calls_total", {"tool": "unknown", "outcome": "failed"})
    assert after == before + 1
    assert REGISTRY.get_sample_value("tenure_tool_calls_total", {"tool": "made_up_name", "outcome": "failed"}) is None


def test_work_that_is_cancelled_in_a_tool_counts_as_interrupted() -> None:
    rig = Rig("cancelled", calls(("cancelled", {"seconds": 1})))
    rig.heartbeat.on_beat = lambda: rig.heartbeat.interrupt(Cancelled("enough")) if rig.heartbeat.activity else None
    with pytest.raises(Cancelled):
        rig.run()
    assert rig.sample("tenure_tool_calls_total", outcome="interrupted") == 1


def test_the_renewals_of_the_lease_are_counted_per_tool() -> None:
    rig = Rig("renewing", calls(("renewing", {"seconds": 1}), ("renewing", {"seconds": 2})), "done")
    extender = LeaseExtender(LeaseExtenderConfig(interval=0), kind="per-tool")
    with extender.attach(create_test_message(clock=rig.clock), rig.heartbeat):
        rig.run()
    labels = {"kind": "per-tool", "during": "tool renewing", "outcome": "granted"}
    assert REGISTRY.get_sample_value("tenure_lease_extensions_total", labels) == 2
