"""What our loop costs on top of the SDK, per model call and per tool call, against the same SDK in a bare loop on the same local server.

Three shapes of work: a model call alone, many tool calls in one answer, and one tool call per turn, which is what agents mostly do. `our part` is the same without
the SDK and the server: a scripted model that answers at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import openai

from bench.harness import Report
from tenure.agent import Prompt, Session, ToolContext, ToolResult, tool
from tenure.agent.providers import OpenAIAdapter
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender
from tenure.testing import ScriptedAdapter, create_test_message
from tenure.testing.model import calls, says
from tenure.testing.model_server import ModelServer

TURNS = 40
CALLS = 200


@dataclass(frozen=True)
class Number:
    n: int


@tool
def double(params: Number, *, context: ToolContext) -> ToolResult[int]:
    """Double a number."""
    return ToolResult.ok(2 * params.n)


def model(request: dict[str, Any]) -> Any:
    """Says "done" to `say`, calls `CALLS` tools at once for `many`, and one per turn for `turns`."""
    asked = next(message["content"] for message in request["messages"] if message["role"] == "user")
    done = sum(message["role"] == "tool" for message in request["messages"])
    if asked == "many" and not done:
        return calls(*(("double", {"n": number}) for number in range(CALLS)))
    if asked == "turns" and done < TURNS:
        return calls(("double", {"n": done}))
    return says("done")


def run(report: Report) -> None:
    # Whole calls in few pieces, so that the cost of parsing pieces, which is the SDK's, does not hide ours.
    with ModelServer([model], piece_chars=64) as server:
        adapter: OpenAIAdapter[str] = OpenAIAdapter("m", base_url=server.openai_url, api_key="none")
        client = openai.OpenAI(base_url=server.openai_url, api_key="none", max_retries=0)
        for name, asked, units, tool_calls in (
            ("a streamed model call", "say", 1, 0),
            ("a tool call", "many", CALLS, CALLS),
            ("one turn: a streamed model call and a tool call", "turns", TURNS + 1, TURNS),
        ):
            ways = (partial(ours, adapter, asked), partial(bare, client, asked))
            compare(report, name, *(partial(per_unit, way, units, tool_calls) for way in ways))
        adapter.close()
        client.close()
    report.value("our part of a model call", model_call_us(), "µs", most=1_000)
    report.value("our part of a tool call", tool_call_us(), "µs", most=1_000)


def compare(report: Report, name: str, ours: Callable[[], float], bare: Callable[[], float]) -> None:
    report.compare(name, ours, bare, beside="the SDK in a bare loop", unit="ms", at_most=1.5, rounds=7)


def per_unit(evaluate: Callable[[], int], units: int, tool_calls: int) -> float:
    """Milliseconds per unit of work; short work several times, so that a round lasts long enough to be measured."""
    times = max(1, TURNS // units)
    begun = time.perf_counter()
    made = [evaluate() for _ in range(times)]
    took = time.perf_counter() - begun
    assert made == [tool_calls] * times
    return took / (times * units) * 1_000


def ours(adapter: OpenAIAdapter[str], asked: str) -> int:
    """The whole of it: lease, beats, session, checked arguments, budget. How many tool calls there were."""
    heartbeat = Heartbeat()
    with LeaseExtender().attach(create_test_message(), heartbeat):
        response = adapter.evaluate(
            Prompt[str]("bench", asked, tools=(double,)), session=Session(), heartbeat=heartbeat
        )
    return response.tool_calls


def bare(client: openai.OpenAI, asked: str) -> int:
    """What one writes without us: no lease, no beats, no session, no schema check, no budget."""
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    function = {"name": "double", "description": "Double a number.", "parameters": parameters}
    tools: Any = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "user", "content": asked}]
    made = 0
    while True:
        text, found = "", dict[int, dict[str, Any]]()
        stream = client.chat.completions.create(
            model="m", messages=messages, tools=tools, stream=True, stream_options={"include_usage": True}
        )
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or ():
                    call = found.setdefault(
                        part.index, {"id": part.id, "type": "function", "function": {"name": "", "arguments": ""}}
                    )
                    if part.function is not None:
                        call["function"]["name"] += part.function.name or ""
                        call["function"]["arguments"] += part.function.arguments or ""
        if not found:
            return made
        messages.append({"role": "assistant", "content": text or None, "tool_calls": list(found.values())})
        for call in found.values():
            number = json.loads(call["function"]["arguments"])["n"]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(2 * number)})
            made += 1


def model_call_us() -> float:
    """A model that answers at once: what is left is ours. Each answer is new, and a whole conversation is one evaluation."""
    lines = [calls(("double", {"n": number})) for number in range(100)]
    adapter = ScriptedAdapter([*lines, "done"])
    begun = time.perf_counter()
    adapter.evaluate(Prompt[str]("bench", "Go.", tools=(double,)), session=Session(), heartbeat=Heartbeat())
    return (time.perf_counter() - begun) / len(lines) * 1e6 - tool_call_us()


def tool_call_us() -> float:
    """Many calls in one answer."""
    adapter = ScriptedAdapter([calls(*(("double", {"n": number}) for number in range(500))), "done"])
    begun = time.perf_counter()
    adapter.evaluate(Prompt[str]("bench", "Go.", tools=(double,)), session=Session(), heartbeat=Heartbeat())
    return (time.perf_counter() - begun) / 500 * 1e6
