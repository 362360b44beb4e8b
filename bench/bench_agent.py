"""What our loop costs on top of the SDK: per model call and per tool call, against the same SDK in a bare loop on the same local server."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import openai

from bench.harness import Report
from tenure.agent import Prompt, Session, ToolContext, ToolResult, tool
from tenure.agent.providers import OpenAIAdapter
from tenure.beat import Heartbeat, LeaseExtender
from tenure.testing import ScriptedAdapter, create_test_message
from tenure.testing.model import calls, says
from tenure.testing.model_server import ModelServer

TURNS = 40
CALLS = 500


@dataclass(frozen=True)
class Number:
    n: int


@tool
def double(params: Number, *, context: ToolContext) -> ToolResult[int]:
    """Double a number."""
    return ToolResult.ok(2 * params.n)


def agent(request: dict[str, Any]) -> Any:
    """One tool call per turn, then the answer."""
    done = sum(message["role"] == "tool" for message in request["messages"])
    return calls(("double", {"n": done})) if done < TURNS else says("done")


def run(report: Report) -> None:
    with ModelServer([agent]) as server:
        adapter: OpenAIAdapter[str] = OpenAIAdapter("m", base_url=server.openai_url, api_key="none")
        client = openai.OpenAI(base_url=server.openai_url, api_key="none", max_retries=0)
        report.compare(
            "one turn: a streamed model call and a tool call",
            lambda: ours(adapter),
            lambda: bare(client),
            beside="the SDK in a bare loop",
            unit="ms",
            at_most=1.5,
            rounds=7,
        )
        adapter.close()
        client.close()
    report.value("our part of a model call", model_call_us(), "µs", most=1_000)
    report.value("our part of a tool call", tool_call_us(), "µs", most=1_000)


def ours(adapter: OpenAIAdapter[str]) -> float:
    prompt = Prompt[str]("bench", "Go.", tools=(double,))
    heartbeat = Heartbeat()
    begun = time.perf_counter()
    with LeaseExtender().attach(create_test_message(), heartbeat):
        response = adapter.evaluate(prompt, session=Session(), heartbeat=heartbeat)
    assert response.tool_calls == TURNS
    return (time.perf_counter() - begun) / (TURNS + 1) * 1_000


def bare(client: openai.OpenAI) -> float:
    """What one writes without us: no lease, no beats, no session, no schema check, no budget."""
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    function = {"name": "double", "description": "Double a number.", "parameters": parameters}
    tools: Any = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    begun = time.perf_counter()
    while True:
        text, name, arguments, id = "", "", "", ""
        stream = client.chat.completions.create(
            model="m", messages=messages, tools=tools, stream=True, stream_options={"include_usage": True}
        )
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or ():
                    id = part.id or id
                    if part.function is not None:
                        name += part.function.name or ""
                        arguments += part.function.arguments or ""
        if not name:
            return (time.perf_counter() - begun) / (TURNS + 1) * 1_000
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        messages.append({"role": "assistant", "content": text or None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": id, "content": str(2 * json.loads(arguments)["n"])})


def model_call_us() -> float:
    """A model that answers at once: what is left is ours. Each answer is new, and a whole conversation is one evaluation."""
    lines = [calls(("double", {"n": number})) for number in range(CALLS // 5)]
    adapter = ScriptedAdapter([*lines, "done"])
    begun = time.perf_counter()
    adapter.evaluate(Prompt[str]("bench", "Go.", tools=(double,)), session=Session(), heartbeat=Heartbeat())
    return (time.perf_counter() - begun) / len(lines) * 1e6 - tool_call_us()


def tool_call_us() -> float:
    """Many calls in one answer."""
    adapter = ScriptedAdapter([calls(*(("double", {"n": number}) for number in range(CALLS))), "done"])
    begun = time.perf_counter()
    adapter.evaluate(Prompt[str]("bench", "Go.", tools=(double,)), session=Session(), heartbeat=Heartbeat())
    return (time.perf_counter() - begun) / CALLS * 1e6
