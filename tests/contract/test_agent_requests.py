"""What a loop of agents relies on, on every engine: requests and results keep their types, and a session survives a redelivery."""

from __future__ import annotations

from dataclasses import dataclass

from tests.contract.case import EngineCase

from tenure.agent import (
    Budget,
    Deadline,
    InnerLoopConfig,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    Prompt,
    Session,
    StopReason,
    ToolContext,
    ToolResult,
    Usage,
    tool,
)
from tenure.backoff import Retry
from tenure.testing import ScriptedAdapter
from tenure.testing.model import calls
from tenure.work import DeadLetterPolicy, Ending


@dataclass(frozen=True)
class Ask:
    text: str


@dataclass(frozen=True)
class Answer:
    value: int


@dataclass(frozen=True)
class Step:
    n: int


ran: list[int] = []


@tool
def step(params: Step, *, context: ToolContext) -> ToolResult[int]:
    """Do a step."""
    ran.append(params.n)
    return ToolResult.ok(params.n)


class Agent(MainLoop[Ask, Answer]):
    def prepare(self, request: Ask) -> tuple[Prompt[Answer], Session]:
        return Prompt("agent", request.text, tools=(step,), output=Answer), Session()


def test_a_request_with_a_deadline_and_a_budget_and_its_result_survive(case: EngineCase) -> None:
    requests = case.engine.mailbox("agents", MainLoopRequest[Ask], MainLoopResult[Answer])
    replies = case.engine.mailbox("agent-replies", MainLoopResult[Answer])
    sent = MainLoopRequest(Ask("ü"), "r1", Deadline(1_700_000_123.5), Budget(max_total_tokens=5, max_cost=0.5))
    requests.send(sent, reply_to=replies)
    (message,) = requests.receive(1, case.s(10))
    assert message.body == sent
    result = MainLoopResult(
        request_id="r1", output=Answer(7), session_id="s1", stop=StopReason.DONE, usage=Usage(1, 2, 1), tool_calls=3
    )
    message.settle(result)
    (reply,) = replies.receive(1, case.s(10))
    assert reply.body == result


def test_an_agent_whose_provider_fails_goes_on_from_its_session_in_the_next_delivery(case: EngineCase) -> None:
    ran.clear()
    requests = case.engine.mailbox("agents", MainLoopRequest[Ask], MainLoopResult[Answer])
    replies = case.engine.mailbox("agent-replies", MainLoopResult[Answer])
    requests.send(MainLoopRequest(Ask("go"), "r1"), reply_to=replies)
    lines = [calls(("step", {"n": 1})), OSError("gone"), calls(("step", {"n": 2})), '{"value": 3}']
    agent = Agent(
        adapter=ScriptedAdapter(lines, loop=InnerLoopConfig(clock=case.clock)),
        requests=requests,
        clock=case.clock,
        dead_letters=DeadLetterPolicy(),
        retry=Retry(delay=0, max_delay=0),
    )
    # Real servers may take a moment to show it again; a manual clock does not move by itself.
    agent.run(max_iterations=2, visibility_timeout=60, wait_time_seconds=0 if case.exact else 10)
    (reply,) = replies.receive(1, case.s(10))
    assert (reply.body.output, reply.body.tool_calls, ran) == (Answer(3), 2, [1, 2])
    assert (agent.endings[Ending.FAILED], agent.endings[Ending.DONE]) == (1, 1)
