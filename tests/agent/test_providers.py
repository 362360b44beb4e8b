"""The unpatched SDKs against a local server that streams as the providers' documentation says: sync and async, both providers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.patience import wait_until

from tenure.agent import (
    Deadline,
    Finish,
    InnerLoopConfig,
    ModelRetry,
    ModelSaid,
    Prompt,
    Section,
    Session,
    StopReason,
    ToolContext,
    ToolResult,
    Usage,
    tool,
)
from tenure.agent.events import ToolCall
from tenure.agent.providers import AnthropicAdapter, AsyncAnthropicAdapter, AsyncOpenAIAdapter, OpenAIAdapter
from tenure.backoff import Retry
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import SystemClock
from tenure.errors import (
    LeaseLostError,
    ProviderRateLimitedError,
    ProviderRefusedError,
    ProviderStalledError,
    ProviderStreamError,
    ProviderUnavailableError,
)
from tenure.testing.model import calls, says
from tenure.testing.model_server import BrokenJson, CutStream, ErrorEvent, ModelServer, Slow, StalledStream, Status

ADAPTERS = {
    "openai": OpenAIAdapter,
    "openai-async": AsyncOpenAIAdapter,
    "anthropic": AnthropicAdapter,
    "anthropic-async": AsyncAnthropicAdapter,
}
LONG = says("The answer is forty-two, and a good deal of text before it is told.", Usage(30, 20, 10))
FAST = ModelRetry(backoff=Retry(delay=0.01, max_delay=0.02))
ONCE = ModelRetry(attempts=1)


@dataclass(frozen=True)
class Number:
    n: int
    why: str = "because"


@tool
def double(params: Number, *, context: ToolContext) -> ToolResult[int]:
    """Double a number."""
    if params.n < 0:
        raise ValueError("only positive numbers")
    return ToolResult.ok(2 * params.n)


PROMPT = Prompt[str]("sum", "Double 4.", sections=(Section("r", "Rules", "Be brief."),), tools=(double,))


class Bench:
    """One adapter against one server."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.server: ModelServer

    @property
    def anthropic(self) -> bool:
        return self.kind.startswith("anthropic")

    def evaluate(
        self,
        lines: Any,
        prompt: Prompt[Any] = PROMPT,
        *,
        retry: ModelRetry = FAST,
        silence_s: float = 5,
        hangs_up: bool = False,
        **given: Any,
    ) -> Any:
        given.setdefault("session", Session())
        loop = InnerLoopConfig(model_retry=retry, model_silence_s=silence_s)
        with ModelServer(lines) as self.server:
            adapter = self.adapter(loop)
            wait = self.until_hung_up if hangs_up else lambda: None
            if not self.kind.endswith("async"):
                try:
                    return adapter.evaluate(prompt, **given)
                finally:
                    wait()  # before the client is closed: the stream itself has to hang up
                    adapter.close()

            async def run() -> Any:
                try:
                    return await adapter.evaluate(prompt, **given)
                finally:
                    await asyncio.to_thread(wait)
                    await adapter.close()

            return asyncio.run(run())

    def adapter(self, loop: InnerLoopConfig) -> Any:
        url = self.server.url if self.anthropic else self.server.openai_url
        return ADAPTERS[self.kind]("model-1", base_url=url, api_key="none", loop=loop)

    def until_hung_up(self) -> None:
        wait_until(lambda: self.server.broken_pipes)

    def until_asked(self) -> None:
        wait_until(lambda: hasattr(self, "server") and self.server.requests)


@pytest.fixture(params=list(ADAPTERS))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    return Bench(request.param)


def test_a_stream_of_text_is_put_together_with_its_usage(bench: Bench) -> None:
    response = bench.evaluate([LONG])
    assert (response.output, response.usage) == (LONG.text, Usage(30, 20, 10))
    request = bench.server.requests[0]
    assert request["model"] == "model-1"
    assert request["stream"] is True


def test_tool_calls_are_made_and_their_results_sent_back_in_the_providers_form(bench: Bench) -> None:
    two = ModelSaid(
        "I double both.",
        (ToolCall("id1", "double", '{"n": 4}'), ToolCall("id2", "double", '{"n": -1}')),
        finish=Finish.TOOLS,
    )
    session = Session()
    response = bench.evaluate([two, "8, and no"], session=session)
    assert (response.output, response.tool_calls) == ("8, and no", 2)
    first, second = bench.server.requests
    if bench.anthropic:
        assert first["tools"][0]["input_schema"]["required"] == ["n"]
        assert first["system"] == "## Rules\nBe brief."
        assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
        assert second["messages"][1]["content"][1] == {
            "type": "tool_use",
            "id": "id1",
            "name": "double",
            "input": {"n": 4},
        }
        results = second["messages"][2]["content"]
        assert results[0] == {"type": "tool_result", "tool_use_id": "id1", "content": "8"}
        assert results[1]["is_error"] is True
    else:
        assert first["tools"][0]["function"]["parameters"]["required"] == ["n"]
        roles = [message["role"] for message in second["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool"]
        assert second["messages"][3] == {"role": "tool", "tool_call_id": "id1", "content": "8"}
        assert second["messages"][4]["content"] == "Error: ValueError: only positive numbers"


def test_structured_output_is_asked_for_with_a_closed_schema_and_parsed(bench: Bench) -> None:
    response = bench.evaluate(['{"n": 8, "why": "it is"}'], Prompt[Number]("number", "x", output=Number))
    assert response.output == Number(8, "it is")
    request = bench.server.requests[0]
    schema = (
        request["output_config"]["format"]["schema"]
        if bench.anthropic
        else request["response_format"]["json_schema"]["schema"]
    )
    assert (schema["required"], schema["additionalProperties"]) == (["n", "why"], False)


def test_429_waits_as_long_as_the_provider_asks_and_then_succeeds(bench: Bench) -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    response = bench.evaluate([Status(429, {"retry-after": "0.3"}), LONG])
    assert response.done
    assert clock.monotonic() - begun >= 0.3


def test_a_wait_that_goes_beyond_the_deadline_is_not_begun(bench: Bench) -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    with pytest.raises(ProviderRateLimitedError) as error:
        bench.evaluate([Status(429, {"retry-after": "600"}), LONG], deadline=Deadline.after(300))
    assert error.value.retry_after_s == 600
    assert clock.monotonic() - begun < 120


@pytest.mark.parametrize("status", [500, 503, 529])
def test_a_server_error_is_tried_again(bench: Bench, status: int) -> None:
    assert bench.evaluate([Status(status), Status(status), LONG]).done
    assert len(bench.server.requests) == 3


def test_attempts_are_bounded(bench: Bench) -> None:
    with pytest.raises(ProviderUnavailableError, match="status 500"):
        bench.evaluate([Status(500)] * 9)
    assert len(bench.server.requests) == 5


@pytest.mark.parametrize("status", [400, 401, 404])
def test_what_the_provider_refuses_is_not_tried_again(bench: Bench, status: int) -> None:
    with pytest.raises(ProviderRefusedError) as error:
        bench.evaluate([Status(status, message="bad key")])
    assert (error.value.status, len(bench.server.requests)) == (status, 1)
    assert "bad key" in str(error.value)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (StalledStream(LONG, 4), ProviderStalledError),
        (CutStream(LONG, 4), ProviderStreamError),
        (BrokenJson(LONG, 4), ProviderStreamError),
        (ErrorEvent(LONG, 4), ProviderUnavailableError),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else "",
)
def test_a_stream_that_breaks_in_the_middle_is_known_for_what_it_is_and_tried_again(
    bench: Bench, fault: Any, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        bench.evaluate([fault], retry=ONCE, silence_s=0.4)
    session = Session()
    response = bench.evaluate([fault, LONG], silence_s=0.4, session=session)
    assert response.output == LONG.text
    assert sum(isinstance(event, ModelSaid) for event in session.events) == 1, "half an answer leaves no trace"


def test_slow_bytes_are_an_answer_and_its_pieces_are_beats(bench: Bench) -> None:
    heartbeat = Heartbeat()
    response = bench.evaluate([Slow(says("abcdef" * 20), 40, 0.03)], heartbeat=heartbeat, silence_s=3)
    assert response.output == "abcdef" * 20
    assert heartbeat.count > 4


def test_nobody_listening_is_unavailable(bench: Bench) -> None:
    with ModelServer() as server:
        gone = server.url
    adapter: Any = ADAPTERS[bench.kind]("m", base_url=gone, api_key="none", loop=InnerLoopConfig(model_retry=ONCE))
    run: Any = asyncio.run if bench.kind.endswith("async") else lambda response: response
    with pytest.raises(ProviderUnavailableError, match="out of reach"):
        run(adapter.evaluate(PROMPT, session=Session()))


def test_a_lost_lease_hangs_up_in_the_middle_of_the_stream(bench: Bench) -> None:
    heartbeat = Heartbeat()
    beats = 0

    def count() -> None:
        nonlocal beats
        beats += 1
        if beats == 3:  # iteration, silence, then the first piece of the stream
            heartbeat.interrupt(LeaseLostError("m", "gone"))

    heartbeat.on_beat = count
    with pytest.raises(LeaseLostError):
        bench.evaluate([StalledStream(LONG, 4)], heartbeat=heartbeat, hangs_up=True)
    assert (len(bench.server.requests), bench.server.broken_pipes) == (1, 1)


def test_a_call_that_is_interrupted_while_nothing_comes_ends_at_once_and_is_not_made_again(
    bench: Bench,
) -> None:
    heartbeat = Heartbeat()

    def interrupts(request: dict[str, Any]) -> StalledStream:
        heartbeat.interrupt(LeaseLostError("m", "gone"))  # from another thread, while nobody beats
        return StalledStream(LONG, 0)

    with pytest.raises(LeaseLostError):
        bench.evaluate([interrupts, LONG], heartbeat=heartbeat, silence_s=3_600, hangs_up=True)
    assert (len(bench.server.requests), bench.server.broken_pipes) == (1, 1)


@pytest.mark.parametrize("kind", ["openai-async", "anthropic-async"])
def test_cancelling_the_task_hangs_up_at_once_also_while_nothing_comes(kind: str) -> None:
    bench = Bench(kind)

    async def cancelled() -> None:
        with ModelServer([StalledStream(LONG, 4)]) as bench.server:
            adapter = bench.adapter(InnerLoopConfig(model_silence_s=3_600))
            task = asyncio.ensure_future(adapter.evaluate(PROMPT, session=Session()))
            await asyncio.to_thread(bench.until_asked)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(bench.until_hung_up)  # before the client is closed
            await adapter.close()

    asyncio.run(asyncio.wait_for(cancelled(), 60))
    assert (len(bench.server.requests), bench.server.broken_pipes) == (1, 1)


def test_the_deadline_hangs_up_in_the_middle_of_the_stream_and_is_a_clear_result(bench: Bench) -> None:
    response = bench.evaluate([StalledStream(LONG, 4)], deadline=Deadline.after(0.5))
    assert response.stop is StopReason.DEADLINE


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.REFUSED])
def test_the_reason_why_the_model_stopped_is_read(bench: Bench, finish: Finish) -> None:
    assert bench.evaluate([ModelSaid("half", finish=finish)]).stop == finish.value


def test_a_whole_agent_runs_through_the_sdk(bench: Bench) -> None:
    lines = [calls(("double", {"n": n})) for n in range(10)]
    response = bench.evaluate([*lines, "done"])
    assert (response.output, response.tool_calls) == ("done", 10)
