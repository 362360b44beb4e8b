"""Two formats of model calls: requests out, streamed pieces in. Pure.

`chat_request` and `ChatFold` speak chat completions (OpenAI, vLLM, Ollama and llama.cpp), `messages_request` and `MessagesFold` Anthropic's messages.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.agent.events import UNREADABLE, Finish, ModelSaid, ToolAnswered, ToolCall, Usage
from tenure.agent.prompt import ModelRequest, Turn
from tenure.agent.tools import closed
from tenure.errors import ProviderStreamError

_CHAT_FINISHES = {"stop": Finish.STOP, "tool_calls": Finish.TOOLS, "function_call": Finish.TOOLS, "length": Finish.LENGTH,
             "content_filter": Finish.REFUSED}  # fmt: skip


def chat_request(request: ModelRequest, model: str, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of one call."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    messages += [message for turn in request.turns if (message := _chat_message(turn)) is not None]
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in request.tools
        ]
    if request.output_schema is not None:
        schema = {"name": request.output_name, "schema": closed(request.output_schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {**body, **options}


def _chat_message(turn: Turn) -> dict[str, Any] | None:
    if isinstance(turn, ToolAnswered):
        return {"role": "tool", "tool_call_id": turn.call.id, "content": turn.text}
    if not isinstance(turn, ModelSaid):
        return {"role": "user", "content": turn.text}
    if not turn.text and not turn.tool_calls:
        return None  # an empty answer cannot be sent back; the correction after it says what was wrong
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.tool_calls
        ]
    return message


class ChatFold:
    """Puts an answer together from its chunks."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[list[str]] = []  # id, name, arguments
        self._at: dict[int, list[str]] = {}  # the call that a delta of this index adds to
        self._finish: Finish | None = None
        self._refused = False
        self._usage = Usage()

    def feed(self, chunk: Any) -> str:
        """Take a chunk; what it adds to the answer."""
        if chunk.usage is not None:
            cached = getattr(chunk.usage.prompt_tokens_details, "cached_tokens", None) or 0
            self._usage = Usage(chunk.usage.prompt_tokens or 0, chunk.usage.completion_tokens or 0, cached)
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        if choice.finish_reason is not None:
            self._finish = _CHAT_FINISHES.get(choice.finish_reason, Finish.STOP)
        delta = choice.delta
        if delta is None:
            return ""
        said = delta.content or ""
        if getattr(delta, "refusal", None):
            self._refused = True
            said += delta.refusal
        self._text.append(said)
        calls = "".join(self._call(part) for part in delta.tool_calls or ())
        return _reasoning(delta) + said + calls

    def _call(self, part: Any) -> str:
        index, function = part.index or 0, part.function
        call = self._at.get(index)
        # Ollama gives parallel calls one index and tells them apart by their ids; a name comes only with a call's first piece.
        if call is None or (part.id and part.id != call[0] and function is not None and function.name):
            call = self._at[index] = ["", "", ""]
            self._calls.append(call)
        call[0] = call[0] or part.id or ""
        if function is None:
            return ""
        name, arguments = function.name or "", function.arguments or ""
        call[1] += name
        call[2] += arguments
        return name + arguments

    def said(self) -> ModelSaid:
        """Returns the whole answer. Raises when the stream ended before the answer did."""
        if self._finish is None:
            raise ProviderStreamError("the provider's stream ended before its answer did")
        calls = tuple(
            # Local servers may leave the id out; it only has to be the same in our answer.
            ToolCall(id or f"call_{index}", name, arguments or "{}")
            for index, (id, name, arguments) in enumerate(self._calls)
        )
        finish = Finish.REFUSED if self._refused else self._finish
        return ModelSaid("".join(self._text), calls, self._usage, finish)


def _reasoning(delta: Any) -> str:
    """Returns the reasoning that some servers (vLLM, DeepSeek) stream before the answer. It is no part of the answer, and it is progress."""
    return getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None) or ""


# `end_turn` and `stop_sequence` are ends like any other. A paused turn (a loop of the provider's own tools reached its limit) is no answer.
_MESSAGES_FINISHES = {"tool_use": Finish.TOOLS, "max_tokens": Finish.LENGTH, "model_context_window_exceeded": Finish.LENGTH,
             "pause_turn": Finish.LENGTH, "refusal": Finish.REFUSED}  # fmt: skip


def messages_request(request: ModelRequest, model: str, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of one call."""
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
    except UNREADABLE:
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
                    self._finish = _MESSAGES_FINISHES.get(event.delta.stop_reason, Finish.STOP)
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
        """Returns the whole answer. Raises when the stream ended before the answer did."""
        if not self._over or self._finish is None:
            raise ProviderStreamError("the provider's stream ended before its answer did")
        calls = tuple(ToolCall(id, name, text or "{}") for _, (id, name, text) in sorted(self._calls.items()))
        thoughts = tuple(block for _, block in sorted(self._thoughts.items()))
        return ModelSaid("".join(self._text), calls, self._usage, self._finish, thoughts)
