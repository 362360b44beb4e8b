"""A research agent that asks before it spends: free sources at once, paid ones when a person approves, the summary by another agent.

It runs inside a workflow. While it waits, for a person or for the other agent, it holds no slot; its session goes on where it was.

python examples/careful_research_agent.py
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure import embedded, workflow
from tenure.agent import (
    MainLoop,
    ModelAdapter,
    ModelRequest,
    ModelSaid,
    Prompt,
    Session,
    ToolContext,
    ToolResult,
    hand_over_tool,
    tool,
)
from tenure.agent.events import UserSaid
from tenure.testing import ScriptedAdapter
from tenure.testing.model import calls, says

FREE = 0.0
bought: list[str] = []


@dataclass(frozen=True)
class Purchase:
    source: str
    price: float


@tool(needs_approval=lambda purchase: purchase.price > FREE, approval_timeout_s=3 * 86_400)
def read_source(params: Purchase, *, context: ToolContext) -> ToolResult[str]:
    """Read a source, and pay its price."""
    if params.price > FREE:
        bought.append(f"{params.source} for {params.price:.2f}, call {context.call_id}")
    return ToolResult.ok(f"{params.source} says that the Jeddah Light is 133 metres tall")


@workflow
def summarise(ctx: Any, text: str) -> str:
    """Sum a text up in one line."""
    return str(Agent(adapter=model()).execute_in(ctx, text).output)


class Agent(MainLoop[str, str]):
    tools: tuple[Any, ...] = ()

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        return Prompt("work", request, tools=self.tools), Session()


class Researcher(Agent):
    tools = (read_source, hand_over_tool(summarise))


@workflow
def research(ctx: Any, question: str) -> str:
    result = Researcher(adapter=model()).execute_in(ctx, question)
    return result.output or f"no answer: {result.error}"


ANSWERS = {
    "Which lighthouse is the tallest?": (
        calls(("read_source", {"source": "the almanac", "price": 0.0})),
        calls(("read_source", {"source": "the journal", "price": 30.0})),
        calls(("summarise", {"text": "133 metres, says the journal"})),
        says("The tallest lighthouse is the Jeddah Light: 133 metres."),
    ),
    "133 metres, says the journal": (says("133 metres."),),
}


def model() -> ModelAdapter[Any]:
    """The model of this example says what is written down here, whichever attempt asks. An OpenAIAdapter takes its place."""

    def answer(request: ModelRequest) -> ModelSaid:
        asked = next(turn.text for turn in request.turns if isinstance(turn, UserSaid))
        return ANSWERS[asked][sum(isinstance(turn, ModelSaid) for turn in request.turns)]

    return ScriptedAdapter([answer] * len(ANSWERS) * 4)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded(Path(folder), workflows=[research, summarise], slots=1, mode="threads") as datacenter,
    ):
        job = datacenter.submit(research, question="Which lighthouse is the tallest?")
        while not (waits := job.status().workflows[0].waits_for).startswith("signal"):
            job.status()
        print(f"it waits for {waits}")
        job.signal(waits.split("'")[1], {"approved": True, "by": "ada"})
        print(job.wait(timeout=60))


if __name__ == "__main__":
    main()
