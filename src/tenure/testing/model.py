"""A model that says what a test wrote down, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tenure.agent.async_loops import AsyncModelAdapter
from tenure.agent.budget import Prices
from tenure.agent.evaluation import InnerLoopConfig, LoopSettings
from tenure.agent.events import Finish, ModelSaid, ToolCall, Usage
from tenure.agent.loops import ModelAdapter
from tenure.agent.prompt import ModelRequest, OnChunk

Line = ModelSaid | str | BaseException | Callable[[ModelRequest], ModelSaid]


def calls(*named: tuple[str, Any], text: str = "", usage: Usage | None = None) -> ModelSaid:
    """Returns an answer that calls tools: `calls(("read", {"path": "a"}), ("read", {"path": "b"}))`."""
    made = tuple(
        ToolCall(
            f"call-{number}", name, arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        )
        for number, (name, arguments) in enumerate(named)
    )
    return ModelSaid(text, made, usage or Usage(10, 5), Finish.TOOLS)


def says(text: str, usage: Usage | None = None) -> ModelSaid:
    """Returns a final answer."""
    return ModelSaid(text, (), usage or Usage(10, 5))


class _Scripted(LoopSettings):
    """The part that both adapters share: the lines, and the requests that came."""

    def __init__(
        self, lines: Iterable[Line], *, loop: InnerLoopConfig | None = None, prices: Prices | None = None
    ) -> None:
        super().__init__(loop=loop, prices=prices)
        self._lines = iter(lines)
        self.requests: list[ModelRequest] = []
        """The requests that the model got so far."""

    def _next(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        self.requests.append(request)
        line = next(self._lines, None)
        assert line is not None, "the script has no more lines for this model"
        if isinstance(line, BaseException):
            raise line
        said = says(line) if isinstance(line, str) else line if isinstance(line, ModelSaid) else line(request)
        for start in range(0, len(said.text), 8):
            on_chunk(said.text[start : start + 8])
        for call in said.tool_calls:
            on_chunk(call.name)
            on_chunk(call.arguments)
        return said


class ScriptedAdapter(_Scripted, ModelAdapter[Any]):
    """Answers with these lines in turn: text, an answer, a function of the request, or an error to raise."""

    def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        return self._next(request, on_chunk)


class AsyncScriptedAdapter(_Scripted, AsyncModelAdapter[Any]):
    """Answers from a script, in an event loop."""

    async def complete(self, request: ModelRequest, on_chunk: OnChunk) -> ModelSaid:
        return self._next(request, on_chunk)
