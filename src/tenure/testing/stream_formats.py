"""How the providers stream an answer, and how they refuse one: the form of the local model server. Pure.

Sources, read in November 2026; `docs/agents.md` lists which case comes from which:

- OpenAI: the chat completion chunk object (developers.openai.com/api/docs/guides/streaming-responses, and the SDK's `ChatCompletionChunk`, which is
  generated from the provider's OpenAPI description), the options of streaming (rubydoc.info/github/openai/openai-ruby, `ChatCompletionStreamOptions`)
- Anthropic: platform.claude.com/docs/en/build-with-claude/streaming and …/handling-stop-reasons, and the SDK's `RawMessageStreamEvent`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tenure.agent.events import Finish, ModelSaid

OPENAI_FINISHES = {Finish.TOOLS: "tool_calls", Finish.LENGTH: "length", Finish.REFUSED: "content_filter"}
ANTHROPIC_FINISHES = {Finish.TOOLS: "tool_use", Finish.LENGTH: "max_tokens", Finish.REFUSED: "refusal"}
_ANTHROPIC_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
                     413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip


def openai_events(said: ModelSaid, model: str, chars: int) -> Iterator[str]:
    """An answer as chunks, each with a null usage, then one chunk without choices that has it, then [DONE]."""
    base = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "service_tier": "default",
        "system_fingerprint": "fp_1", "usage": None,
    }  # fmt: skip

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return data({**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for block in said.thoughts:  # as servers of reasoning models do; OpenAI itself keeps them
        for piece in _pieces(block.get("thinking", ""), chars):
            yield chunk({"reasoning_content": piece})
    for piece in _pieces(said.text, chars):
        yield chunk({"content": piece})
    for index, call in enumerate(said.tool_calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        for piece in _pieces(call.arguments, chars):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, OPENAI_FINISHES.get(said.finish, "stop"))
    usage = {
        "prompt_tokens": said.usage.input_tokens,
        "completion_tokens": said.usage.output_tokens,
        "total_tokens": said.usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": said.usage.cached_tokens},
    }
    yield data({**base, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def anthropic_events(said: ModelSaid, model: str, chars: int) -> Iterator[str]:
    """An answer as message_start, content blocks with pings between them, message_delta and message_stop."""
    usage = {
        "input_tokens": said.usage.input_tokens - said.usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": said.usage.cached_tokens,
        "output_tokens": 1,  # a placeholder: the count comes with message_delta
    }
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage,
               "stop_reason": None, "stop_sequence": None}  # fmt: skip
    yield event("message_start", {"message": message})
    for index, (block, deltas) in enumerate(_blocks(said, chars)):
        yield event("content_block_start", {"index": index, "content_block": block})
        if index == 0:
            yield event("ping", {})
        for delta in deltas:
            yield event("content_block_delta", {"index": index, "delta": delta})
        yield event("content_block_stop", {"index": index})
    delta = {"stop_reason": ANTHROPIC_FINISHES.get(said.finish, "end_turn"), "stop_sequence": None}
    yield event("message_delta", {"delta": delta, "usage": {"output_tokens": said.usage.output_tokens}})
    yield event("message_stop", {})


def _blocks(said: ModelSaid, chars: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each block as it starts, and what is added to it."""
    for thought in said.thoughts:
        if thought["type"] == "redacted_thinking":
            yield dict(thought), []
            continue
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(thought["thinking"], chars)]
        signed = {"type": "signature_delta", "signature": thought["signature"]}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if said.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(said.text, chars)]
        yield {"type": "text", "text": ""}, deltas
    for call in said.tool_calls:
        # The first piece of a call's input is empty; the whole input is an object in the end.
        pieces = ["", *_pieces(call.arguments, chars)]
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas


def error_event(anthropic: bool) -> str:
    """An error in the middle of a stream, after a status of 200."""
    if anthropic:
        return event("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}})
    return data({"error": {"type": "server_error", "message": "Overloaded", "param": None, "code": None}})


def error_body(status: int, message: str, code: str, anthropic: bool) -> dict[str, Any]:
    """The body of a refusal."""
    if not anthropic:
        return {"error": {"message": message, "type": code or "error", "param": None, "code": code or None}}
    error: dict[str, Any] = {"type": _ANTHROPIC_ERRORS.get(status, "api_error"), "message": message}
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": "req_1"}


def event(kind: str, body: dict[str, Any]) -> str:
    return f"event: {kind}\n{data({'type': kind, **body})}"


def data(body: dict[str, Any]) -> str:
    return f"data: {msgspec.json.encode(body).decode()}\n\n"


def _pieces(text: str, chars: int) -> Iterator[str]:
    for start in range(0, len(text), chars):
        yield text[start : start + chars]
