"""The stream formats as the providers publish them, through the unpatched SDKs: each case is one that their documentation describes.

`docs/agents.md` has the addresses. The texts are ours; only the shape is theirs.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from tenure.agent import (
    Finish,
    InnerLoopConfig,
    ModelRetry,
    ModelSaid,
    Prompt,
    Session,
    StopReason,
    ToolContext,
    ToolResult,
    Usage,
    tool,
)
from tenure.agent.events import ToolAnswered, ToolCall, UserSaid
from tenure.agent.prompt import ModelRequest
from tenure.agent.provider_formats import messages_request
from tenure.agent.providers import AnthropicAdapter, OpenAIAdapter
from tenure.errors import ProviderRefusedError, ProviderStreamError, ProviderUnavailableError
from tenure.testing.model_server import ModelServer, Raw, Status, anthropic_events, data, event, openai_events

ONCE = InnerLoopConfig(model_retry=ModelRetry(attempts=1), model_silence_s=10)
THOUGHT = {"type": "thinking", "thinking": "It says four. Twice four is eight.", "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
CALLS = (ToolCall("id1", "double", '{"n": 4}'), ToolCall("id2", "double", "{}"))
EVERYTHING = ModelSaid("I double it.", CALLS, Usage(30, 20, 10), Finish.TOOLS, (THOUGHT, REDACTED))


@dataclass(frozen=True)
class Number:
    n: int = 1


@tool
def double(params: Number, *, context: ToolContext) -> ToolResult[int]:
    """Double a number."""
    return ToolResult.ok(2 * params.n)


PROMPT = Prompt[str]("double", "Double 4.", tools=(double,))


def adapter_of(provider: str, server: ModelServer) -> Any:
    if provider == "openai":
        return OpenAIAdapter("m", base_url=server.openai_url, api_key="none", loop=ONCE)
    return AnthropicAdapter("m", base_url=server.url, api_key="none", loop=ONCE)


class Talk:
    """One evaluation against a server that says exactly this."""

    def __init__(self, provider: str, *lines: Any) -> None:
        self.session = Session()
        with ModelServer(lines) as server:
            adapter = adapter_of(provider, server)
            try:
                self.response = adapter.evaluate(PROMPT, session=self.session)
            finally:
                adapter.close()
                self.requests = server.requests

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [
            (event.call.name, event.call.arguments) for event in self.session.events if isinstance(event, ToolAnswered)
        ]

    @property
    def said(self) -> ModelSaid:
        return next(event for event in self.session.events if isinstance(event, ModelSaid))


# What the local server streams is what the providers' own descriptions allow, and nothing beside it


def parsed(events: Iterable[str]) -> list[Any]:
    lines = [line for text in events for line in text.splitlines() if line.startswith("data: ")]
    return [msgspec.json.decode(line.removeprefix("data: ")) for line in lines if line != "data: [DONE]"]


def strangers(model: Any, path: str = "") -> list[str]:
    """Fields that the provider's description does not know."""
    if isinstance(model, list):
        return [name for part in model for name in strangers(part, path)]
    if not isinstance(model, pydantic.BaseModel):
        return []
    found = [f"{path}.{name}" for name in model.model_extra or {}]
    return found + [name for field in model.__class__.model_fields for name in strangers(getattr(model, field), field)]


def test_every_chunk_of_the_local_server_is_a_chat_completion_chunk() -> None:
    from openai.types.chat import ChatCompletionChunk

    for body in parsed(openai_events(EVERYTHING, "m", 6)):
        chunk = ChatCompletionChunk.model_validate(body, strict=True)
        assert set(strangers(chunk)) <= {"delta.reasoning_content"}  # vLLM's and DeepSeek's, not OpenAI's


def test_every_event_of_the_local_server_is_one_of_anthropics() -> None:
    from anthropic.types import RawMessageStreamEvent

    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(typing.get_args(RawMessageStreamEvent)[0])
    kinds = []
    for body in parsed(anthropic_events(EVERYTHING, "m", 6)):
        kinds.append(body["type"])
        if body["type"] != "ping":  # documented, and dropped by the SDK before it is parsed
            assert strangers(adapter.validate_python(body)) == []
    assert (kinds[0], kinds[1], kinds[2], kinds[-2:]) == (
        "message_start", "content_block_start", "ping", ["message_delta", "message_stop"],
    )  # fmt: skip


# OpenAI's chat completion chunks


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> str:
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None}
    return data({**base, "choices": choices, **more})


def piece(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    name = first.pop("name", None)
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "function": function, **first}]}


DONE = "data: [DONE]\n\n"
OPENING = chunk({"role": "assistant", "content": ""})


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", StopReason.DONE), ("length", StopReason.LENGTH), ("content_filter", StopReason.REFUSED)],
)
def test_openai_every_finish_reason_of_an_answer_is_known(finish: str, stop: StopReason) -> None:
    talk = Talk("openai", Raw((OPENING, chunk({"content": "eight"}), chunk({}, finish), DONE)))
    assert talk.response.stop is stop


def test_openai_the_usage_comes_in_a_last_chunk_without_choices() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    last = chunk(choices=[], usage=usage)
    assert Talk("openai", Raw((OPENING, chunk({"content": "8"}, "stop"), last, DONE))).response.usage == Usage(7, 3)
    # vLLM: no list at all
    last = chunk(choices=None, usage=usage)
    assert Talk("openai", Raw((OPENING, chunk({"content": "8"}, "stop"), last, DONE))).response.usage == Usage(7, 3)


def test_openai_a_stream_without_usage_is_an_answer_all_the_same() -> None:
    talk = Talk("openai", Raw((OPENING, chunk({"content": "8"}, "stop"), DONE)))
    assert (talk.response.output, talk.response.usage) == ("8", Usage())


def test_openai_parallel_calls_are_told_apart_by_their_index_also_when_their_pieces_alternate() -> None:
    events = (
        OPENING,
        chunk(piece(0, "", id="a", type="function", name="double")),
        chunk(piece(1, "", id="b", type="function", name="double")),
        chunk(piece(1, '{"n"')),
        chunk(piece(0, '{"n": 4}')),
        chunk(piece(1, ": 5}")),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert Talk("openai", Raw(events), "8 and 10").calls == [("double", '{"n": 4}'), ("double", '{"n": 5}')]


def test_openai_calls_that_share_an_index_are_told_apart_by_their_ids_as_ollama_sends_them() -> None:
    events = (
        OPENING,
        chunk(piece(0, '{"n": 4}', id="a", type="function", name="double")),
        chunk(piece(0, '{"n": 5}', id="b", type="function", name="double")),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert Talk("openai", Raw(events), "8 and 10").calls == [("double", '{"n": 4}'), ("double", '{"n": 5}')]


def test_openai_a_fresh_id_in_each_piece_does_not_make_a_call_of_each() -> None:
    events = (
        OPENING,
        chunk(piece(0, '{"n"', id="a", type="function", name="double")),
        chunk(piece(0, ": 4}", id="a2")),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert Talk("openai", Raw(events), "8").calls == [("double", '{"n": 4}')]


def test_openai_a_refusal_has_its_own_field() -> None:
    talk = Talk(
        "openai", Raw((OPENING, chunk({"refusal": "I will "}), chunk({"refusal": "not."}), chunk({}, "stop"), DONE))
    )
    assert (talk.response.stop, talk.response.detail) == (StopReason.REFUSED, "I will not.")


def test_openai_comments_between_events_are_no_events() -> None:
    talk = Talk("openai", Raw((": keep alive\n\n", OPENING, ": keep alive\n\n", chunk({"content": "8"}, "stop"), DONE)))
    assert talk.response.output == "8"


def test_openai_an_error_in_the_stream_is_a_failure_that_may_be_tried_again() -> None:
    error = data({"error": {"message": "The server had an error", "type": "server_error", "code": None}})
    with pytest.raises(ProviderUnavailableError, match="had an error") as raised:
        Talk("openai", Raw((OPENING, chunk({"content": "ei"}), error)))
    assert raised.value.retryable


def test_openai_a_stream_that_ends_without_a_finish_reason_was_cut_off() -> None:
    with pytest.raises(ProviderStreamError):
        Talk("openai", Raw((OPENING, chunk({"content": "ei"}), DONE)))


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_streamed_reasoning_is_told_of_as_it_comes_and_is_no_answer(provider: str) -> None:
    heard: list[str] = []
    with ModelServer([ModelSaid("8", thoughts=(THOUGHT,))]) as server:
        adapter = adapter_of(provider, server)
        said = adapter.complete(ModelRequest("", [UserSaid("p", "4?")]), heard.append)
        adapter.close()
    assert ("".join(heard), said.text) == (THOUGHT["thinking"] + "8", "8")


# Anthropic's events


def message_start(**usage: int) -> str:
    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    counts = {"input_tokens": 7, "output_tokens": 1, **usage}
    return event("message_start", {"message": {**message, "stop_reason": None, "stop_sequence": None, "usage": counts}})


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> tuple[str, ...]:
    return (
        event("content_block_start", {"index": index, "content_block": start}),
        *(event("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        event("content_block_stop", {"index": index}),
    )


def message_end(reason: str = "end_turn", **usage: int) -> tuple[str, str]:
    body = {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 3, **usage}}
    return event("message_delta", body), event("message_stop", {})


TEXT = block(
    0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "ei"}, {"type": "text_delta", "text": "ght"}
)
PING = event("ping", {})


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", StopReason.DONE),
        ("stop_sequence", StopReason.DONE),
        ("max_tokens", StopReason.LENGTH),
        ("model_context_window_exceeded", StopReason.LENGTH),
        ("pause_turn", StopReason.LENGTH),
        ("refusal", StopReason.REFUSED),
    ],
)
def test_anthropic_every_stop_reason_of_an_answer_is_known(reason: str, stop: StopReason) -> None:
    assert Talk("anthropic", Raw((message_start(), *TEXT, *message_end(reason)))).response.stop is stop


def test_anthropic_no_stop_reason_of_the_sdk_is_unknown_here() -> None:
    from anthropic.types import StopReason as Published

    known = {"end_turn", "stop_sequence", "max_tokens", "model_context_window_exceeded", "pause_turn", "refusal"}
    assert set(typing.get_args(Published)) == {*known, "tool_use"}


def test_anthropic_pings_and_events_of_kinds_to_come_are_passed_over() -> None:
    news = event("weather_report", {"sky": "blue"})
    events = (PING, message_start(), PING, news, *TEXT[:2], PING, *TEXT[2:], PING, news, *message_end())
    assert Talk("anthropic", Raw(events)).response.output == "eight"


def test_anthropic_counts_are_cumulative_and_the_last_ones_count() -> None:
    first, stop = message_end(input_tokens=9, cache_read_input_tokens=20)
    events = (message_start(cache_read_input_tokens=20), *TEXT, message_end()[0], first, stop)
    assert Talk("anthropic", Raw(events)).response.usage == Usage(29, 3, 20)


def test_anthropic_a_calls_input_comes_in_pieces_of_json_and_may_have_none() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "double", "input": {}}
    events = (
        message_start(),
        *TEXT,
        *block(1, use, *({"type": "input_json_delta", "partial_json": part} for part in ("", '{"n', '": ', "4}"))),
        *block(2, {**use, "id": "t2"}),
        *message_end("tool_use"),
    )
    talk = Talk("anthropic", Raw(events), "8 and 2")
    assert talk.calls == [("double", '{"n": 4}'), ("double", "{}")]
    assert [part["content"] for part in talk.requests[1]["messages"][2]["content"]] == ["8", "2"]


def test_anthropic_thoughts_are_no_answer_and_go_back_signed_and_unchanged_before_the_call() -> None:
    talk = Talk("anthropic", EVERYTHING, "8 and 2")
    assert talk.response.output == "8 and 2"
    assert talk.said.thoughts == (THOUGHT, REDACTED)
    sent_back = talk.requests[1]["messages"][1]["content"]
    assert [part["type"] for part in sent_back] == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert sent_back[:2] == [THOUGHT, REDACTED]


@pytest.mark.parametrize("kind", ["overloaded_error", "api_error", "rate_limit_error"])
def test_anthropic_an_error_after_a_status_of_200_is_a_failure_that_may_be_tried_again(kind: str) -> None:
    error = event("error", {"error": {"type": kind, "message": "Overloaded"}})
    with pytest.raises(ProviderUnavailableError, match="Overloaded") as raised:
        Talk("anthropic", Raw((message_start(), *TEXT[:2], error)))
    assert raised.value.retryable


def test_anthropic_a_stream_without_message_stop_was_cut_off() -> None:
    with pytest.raises(ProviderStreamError):
        Talk("anthropic", Raw((message_start(), *TEXT, message_end()[0])))


# Refusals


@pytest.mark.parametrize(
    ("provider", "code"),
    [
        ("openai", "insufficient_quota"),
        ("openai", "credit_balance_exhausted"),
        ("anthropic", "enforced_spend_limit_reached"),
    ],
)
def test_a_429_that_means_no_more_money_is_not_waited_for(provider: str, code: str) -> None:
    with pytest.raises(ProviderRefusedError, match="pay first") as raised:
        Talk(provider, Status(429, message="pay first", code=code))
    assert not raised.value.retryable


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"n": "\ud800"}'], ids=["without end", "half a character"])
def test_a_call_whose_arguments_nobody_could_read_is_sent_back_empty(arguments: str) -> None:
    said = ModelSaid("", (ToolCall("id1", "double", arguments),), Usage(), Finish.TOOLS)
    sent = messages_request(ModelRequest("", [UserSaid("p", "4?"), said]), "m", {})
    assert sent["messages"][-1]["content"] == [{"type": "tool_use", "id": "id1", "name": "double", "input": {}}]
