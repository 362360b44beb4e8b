"""Anthropic's messages format: requests out, streamed events in. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.agent.events import Finish, ModelSaid, ToolAnswered, ToolCall, Usage
from tenure.agent.model_call import ModelRequest, Turn
from tenure.agent.tools import closed
from tenure.errors import ProviderStreamError

# `end_turn` and `stop_sequence` are ends like any other. A paused turn (a loop of the provider's own tools reached its limit) is no answer.
_FINISHES = {"tool_use": Finish.TOOLS, "max_tokens": Finish.LENGTH, "model_context_window_exceeded": Finish.LENGTH,
             "pause_turn": Finish.LENGTH, "refusal": Finish.REFUSED}  # fmt: skip


def messages_request(request: ModelRequest, model: str, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of one call."""
    body: dict[str, Any] = {"model": model, "messages": _messages(request), "stream": True}
    if request.system:
        body["system"] = request.system
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in request.tools
        ]
    if request.output_schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": closed(request.output_schema)}}
    return {**body, **options}


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    """User and assistant take turns: what comes from one side in a row is one message."""
    messages: list[dict[str, Any]] = []
    for turn in request.turns:
        role = "assistant" if isinstance(turn, ModelSaid) else "user"
        blocks = _blocks(turn)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    return messages


def _blocks(turn: Turn) -> list[dict[str, Any]]:
    if isinstance(turn, ToolAnswered):
        result = {"type": "tool_result", "tool_use_id": turn.call.id, "content": turn.text}
        return [result if turn.success else {**result, "is_error": True}]
    text = [{"type": "text", "text": turn.text}] if turn.text else []
    if not isinstance(turn, ModelSaid):
        return text
    # Thoughts come first, unchanged: a call that was thought about is refused without them.
    return [*turn.thoughts, *text] + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)}
        for call in turn.tool_calls
    ]


def _object(arguments: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return {}  # it was cut off; its answer in the transcript says that it did not fit
    return found if isinstance(found, dict) else {}


class MessagesFold:
    """Puts an answer together from its events."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[int, list[str]] = {}  # by index: id, name, arguments
        self._thoughts: dict[int, dict[str, str]] = {}  # by index: the block as it is sent back
        self._finish: Finish | None = None
        self._over = False
        self._usage = Usage()

    def feed(self, event: Any) -> str:
        """Take an event; what it adds to the answer."""
        match event.type:
            case "message_start":
                self._count(event.message.usage)
            case "content_block_start":
                return self._start(event.index, event.content_block)
            case "content_block_delta":
                return self._delta(event.index, event.delta)
            case "message_delta":
                if event.delta.stop_reason is not None:
                    self._finish = _FINISHES.get(event.delta.stop_reason, Finish.STOP)
                if event.usage is not None:
                    self._count(event.usage)
            case "message_stop":
                self._over = True
        return ""

    def _count(self, usage: Any) -> None:
        """Counts are cumulative; one that a later event leaves out stays."""
        cached, created = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        known = self._usage
        if usage.input_tokens is not None:
            cached = cached or 0
            known = Usage(usage.input_tokens + (created or 0) + cached, known.output_tokens, cached)
        self._usage = msgspec.structs.replace(known, output_tokens=usage.output_tokens or 0)

    def _start(self, index: int, block: Any) -> str:
        if block.type == "tool_use":
            self._calls[index] = [block.id, block.name, ""]
            return str(block.name)
        if block.type == "thinking":
            self._thoughts[index] = {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
        elif block.type == "redacted_thinking":
            self._thoughts[index] = {"type": "redacted_thinking", "data": block.data}
        return ""

    def _delta(self, index: int, delta: Any) -> str:
        if delta.type == "text_delta":
            self._text.append(delta.text)
            return str(delta.text)
        if delta.type == "input_json_delta" and index in self._calls:
            self._calls[index][2] += delta.partial_json
            return str(delta.partial_json)
        if delta.type == "thinking_delta" and index in self._thoughts:
            self._thoughts[index]["thinking"] += delta.thinking
            return str(delta.thinking)  # words like others: a model that thinks for minutes advances
        if delta.type == "signature_delta" and index in self._thoughts:
            self._thoughts[index]["signature"] += delta.signature
        return ""

    def said(self) -> ModelSaid:
        """The whole answer. Raises when the stream ended before the answer did."""
        if not self._over or self._finish is None:
            raise ProviderStreamError("the provider's stream ended before its answer did")
        calls = tuple(ToolCall(id, name, text or "{}") for _, (id, name, text) in sorted(self._calls.items()))
        thoughts = tuple(block for _, block in sorted(self._thoughts.items()))
        return ModelSaid("".join(self._text), calls, self._usage, self._finish, thoughts)
