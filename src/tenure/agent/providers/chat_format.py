"""The chat-completions format, which OpenAI, vLLM, Ollama and llama.cpp speak: requests out, streamed chunks in. Pure."""

from __future__ import annotations

from typing import Any

from tenure.agent.events import Finish, ModelSaid, ToolAnswered, ToolCall, Usage
from tenure.agent.model_call import ModelRequest, Turn
from tenure.agent.tools import closed
from tenure.errors import ProviderStreamError

_FINISHES = {"stop": Finish.STOP, "tool_calls": Finish.TOOLS, "function_call": Finish.TOOLS, "length": Finish.LENGTH,
             "content_filter": Finish.REFUSED}  # fmt: skip


def chat_request(request: ModelRequest, model: str, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of one call."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    messages += [message for turn in request.turns if (message := _message(turn)) is not None]
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


def _message(turn: Turn) -> dict[str, Any] | None:
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
            self._finish = _FINISHES.get(choice.finish_reason, Finish.STOP)
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
        """The whole answer. Raises when the stream ended before the answer did."""
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
