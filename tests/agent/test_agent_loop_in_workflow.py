"""Agents inside workflows: the context's beats, silences, cancellation, checkpoint and deadline are the agent's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tenure.agent import (
    AsyncMainLoop,
    InnerLoopConfig,
    MainLoop,
    MainLoopResult,
    Prompt,
    Session,
    StopReason,
    Tool,
    ToolContext,
    ToolResult,
)
from tenure.beat.board import BeatBoard
from tenure.beat.record import Occupant, Phase
from tenure.clock import ManualClock
from tenure.engines import InMemoryMailbox, MemoryEngine
from tenure.errors import Cancelled, ConfigurationError
from tenure.logs import NodeLog
from tenure.testing import AsyncScriptedAdapter, ScriptedAdapter
from tenure.testing.model import calls, says
from tenure.work.attempt_handle import AttemptHandle
from tenure.work.context import AsyncContext, Context
from tenure.work.delivery import CancelCode, EngineDelivery, WorkItem
from tenure.work.settler import Settler


@dataclass(frozen=True)
class Step:
    n: int


class Bench:
    """Attempts at one workflow: a board in memory, a mailbox, a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.mailbox: InMemoryMailbox[Any, Any] = InMemoryMailbox(body=WorkItem, clock=self.clock)
        self.board = BeatBoard.private(1)
        self.mailbox.send(WorkItem(workflow="w"), key="job/w")
        self.ran: list[int] = []
        self.answers: list[str] = []

    def attempt(self, **changes: Any) -> AttemptHandle:
        [message] = self.mailbox.receive(1, 60)
        occupant = Occupant(ticket=message.ticket, job="job", workflow="w", attempt=1, queue="q", stall_s=30, **changes)
        self.board.records[0].occupy(Phase.RUNNING, occupant, self.clock.monotonic())
        settler = Settler(MemoryEngine(), clock=self.clock, random=Random(1), log=NodeLog("worker"))
        delivery = EngineDelivery(message, "q", settler, self.clock)
        return AttemptHandle(self.board.records[0], delivery, occupant, self.clock)

    def again(self, **changes: Any) -> AttemptHandle:
        """The next attempt, after the lease of this one is over."""
        self.clock.advance(61)
        return self.attempt(**changes)

    @property
    def steps(self) -> int:
        return self.board.records[0].read().steps

    def step(self, params: Step, *, context: ToolContext) -> ToolResult[str]:
        self.ran.append(params.n)
        return ToolResult.ok(self.answers.pop(0) if self.answers else str(params.n))

    def agent(self, *lines: Any) -> Agent:
        adapter = ScriptedAdapter(lines, loop=InnerLoopConfig(clock=self.clock, model_silence_s=10))
        agent = Agent(adapter=adapter, clock=self.clock)
        agent.tool, agent.script = Tool("step", "Do a step.", Step, self.step), adapter
        return agent


class Agent(MainLoop[str, str]):
    tool: Tool[Any, Any]
    script: ScriptedAdapter

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt("agent", request, tools=(self.tool,)), Session()


class AsyncAgent(AsyncMainLoop[str, str]):
    tool: Tool[Any, Any]

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt("agent", request, tools=(self.tool,)), Session()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.board.close()


def call(n: int) -> Any:
    return calls(("step", {"n": n}))


def test_the_beats_of_an_agent_are_the_beats_of_its_workflow(bench: Bench) -> None:
    result = bench.agent(call(1), call(2), "done").execute_in(Context(bench.attempt()), "go")
    assert (result.output, result.tool_calls, bench.ran) == ("done", 2, [1, 2])
    assert bench.steps > 6  # per model call and around each tool call


def test_an_agent_that_repeats_itself_proves_nothing_to_the_supervisor_though_it_saves(bench: Bench) -> None:
    bench.answers = ["pending"] * 9
    seen: list[int] = []

    def again(request: Any) -> Any:
        seen.append(bench.steps)
        return call(1)

    context = Context(bench.attempt())
    result = bench.agent(*[again] * 9).execute_in(context, "go")
    assert result.stop is StopReason.SPINNING
    # What the third call finds, and every one after it: nothing since the second turn, which repeated the first.
    assert seen[1] > seen[0]
    assert len(set(seen[2:])) == 1
    assert context.saved["sessions"]["agent"].count("tool_answered") == 6


def test_a_model_call_is_a_silence_that_the_supervisor_sees(bench: Bench) -> None:
    handle = bench.attempt()
    seen: list[float] = []

    def answer(request: Any) -> Any:
        seen.append(handle.record.read().silent_until - bench.clock.monotonic())
        return call(1) if len(seen) == 1 else says("done")

    bench.agent(answer, answer).execute_in(Context(handle), "go")
    assert seen == [10, 10]
    assert handle.record.read().silent_until == 0


def test_the_next_attempt_goes_on_from_the_session_of_the_last(bench: Bench) -> None:
    with pytest.raises(OSError, match="gone"):
        bench.agent(call(1), call(2), OSError("gone")).execute_in(Context(bench.attempt()), "go")
    again = bench.agent(call(3), "done")
    result = again.execute_in(Context(bench.again()), "go")
    assert (bench.ran, result.output, result.tool_calls) == ([1, 2, 3], "done", 3)
    assert len(again.script.requests[0].turns) == 5


def test_several_agents_of_one_workflow_keep_a_session_each_beside_what_the_workflow_saves(bench: Bench) -> None:
    context = Context(bench.attempt())
    context.checkpoint({"page": 7})
    assert bench.agent(call(1), "planned").execute_in(context, "plan", name="plan").output == "planned"
    with pytest.raises(OSError, match="gone"):
        bench.agent(call(2), OSError("gone")).execute_in(context, "write", name="write")
    context = Context(bench.again())
    assert context.resume["page"] == 7
    assert bench.agent().execute_in(context, "plan", name="plan").output == "planned", "without another model call"
    assert bench.agent("written").execute_in(context, "write", name="write").output == "written"
    assert bench.ran == [1, 2]


def test_a_cancelled_attempt_ends_its_agent_at_the_next_beat(bench: Bench) -> None:
    handle = bench.attempt()

    def cancelled(request: Any) -> Any:
        handle.cancel(CancelCode.CANCEL)
        bench.clock.advance(1)
        return call(1)

    with pytest.raises(Cancelled, match="cancelled by request"):
        bench.agent(cancelled).execute_in(Context(handle), "go")
    assert bench.ran == []


def test_an_agent_whose_lease_is_gone_saves_nothing_more_and_ends(bench: Bench) -> None:
    context = Context(bench.attempt())

    def late(request: Any) -> Any:
        bench.clock.advance(61)
        return call(1)

    with pytest.raises(Cancelled, match="lease was lost"):
        bench.agent(late).execute_in(context, "go")
    assert Context(bench.attempt()).resume["sessions"]["agent"].count("\n") == 2, "the header and the request"


def test_the_deadline_of_the_attempt_is_the_agents_with_a_margin_for_its_result(bench: Bench) -> None:
    handle = bench.attempt(deadline=bench.clock.boottime() + 20)

    def slow(request: Any) -> Any:
        bench.clock.advance(19.5)
        return call(1)

    result = bench.agent(slow).execute_in(Context(handle), "go")
    assert (result.stop, bench.ran) == (StopReason.DEADLINE, [])


def test_an_async_agent_does_the_same(bench: Bench) -> None:
    def agent(*lines: Any) -> AsyncAgent:
        adapter = AsyncScriptedAdapter(lines, loop=InnerLoopConfig(clock=bench.clock, model_silence_s=10))
        made = AsyncAgent(adapter=adapter, clock=bench.clock)
        made.tool = Tool("step", "Do a step.", Step, bench.step)
        return made

    async def run(handle: AttemptHandle, *lines: Any) -> MainLoopResult[str]:
        return await agent(*lines).execute_in(AsyncContext(handle), "go")

    with pytest.raises(OSError, match="gone"):
        asyncio.run(run(bench.attempt(), call(1), OSError("gone")))
    assert bench.steps > 3
    assert asyncio.run(run(bench.again(), call(2), "done")).tool_calls == 2
    assert bench.ran == [1, 2]


def test_a_loop_without_a_mailbox_says_how_it_is_run(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="execute_in"):
        bench.agent().run()
