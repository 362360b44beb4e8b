"""A model server on this machine that speaks both providers' stream formats, says what it is told, and misbehaves on demand.

    with ModelServer(["hello", calls(("read", {"path": "a"})), Status(429, {"retry-after": "1"})]) as server:
        adapter = OpenAIAdapter("any", base_url=server.openai_url, api_key="none")

`/v1/chat/completions` streams as OpenAI's chat completions do, `/v1/messages` as Anthropic's messages do: in the form that the official SDKs read. Lines are taken in turn; a function of the request's JSON makes a line each time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

from tenure.agent.events import Finish, ModelSaid
from tenure.testing.model import says


@dataclass(frozen=True, slots=True)
class Status:
    """An answer with an error status."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "no"


@dataclass(frozen=True, slots=True)
class Stall:
    """Streams so many events, then sends nothing more and keeps the connection open."""

    said: ModelSaid
    after_events: int = 2


@dataclass(frozen=True, slots=True)
class Cut:
    """Streams so many events and half of the next one, then closes the connection."""

    said: ModelSaid
    after_events: int = 2


@dataclass(frozen=True, slots=True)
class BrokenJson:
    """Streams so many events, then one whose JSON ends too early, as a whole event."""

    said: ModelSaid
    after_events: int = 2


@dataclass(frozen=True, slots=True)
class Slow:
    """Streams everything, a few bytes at a time."""

    said: ModelSaid
    bytes_each: int = 7
    pause_s: float = 0.001


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """Streams so many events, then the provider's own error event."""

    said: ModelSaid
    after_events: int = 2


Fault = Status | Stall | Cut | BrokenJson | Slow | ErrorEvent
Line = ModelSaid | str | Fault | Callable[[dict[str, Any]], "ModelSaid | str | Fault"]


class ModelServer:
    """Answers with these lines in turn; the last one for ever, when it is a function."""

    def __init__(self, lines: Iterable[Line] = (), *, piece_chars: int = 6) -> None:
        self.requests: list[dict[str, Any]] = []
        """The JSON of every request so far."""
        self.broken_pipes = 0
        """How often a client hung up in the middle of an answer."""
        self.piece_chars = piece_chars
        self._lines = list(lines)
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._http = _Http(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="model-server", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The `base_url` for OpenAI's SDK; Anthropic's takes `url`."""
        return f"{self.url}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer_to(self, request: dict[str, Any]) -> ModelSaid | Fault:
        with self._lock:
            self.requests.append(request)
            line = self._lines[0] if self._lines else Status(500, message="the script has no more lines")
            if not (callable(line) and len(self._lines) == 1):
                del self._lines[:1]
        answer = line(request) if callable(line) else line
        return says(answer) if isinstance(answer, str) else answer


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, owner: ModelServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what the tests are about, and no news; everything else is."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def do_POST(self) -> None:
        body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
        anthropic = self.path.endswith("/messages")
        answer = self.server.owner.answer_to(body)
        if isinstance(answer, Status):
            self._refuse(answer, anthropic)
            return
        said = answer if isinstance(answer, ModelSaid) else answer.said
        encode = anthropic_events if anthropic else openai_events
        events = [event.encode() for event in encode(said, str(body.get("model")), self.server.owner.piece_chars)]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self._stream(answer, events, anthropic)
        except OSError:
            self.server.owner.broken_pipes += 1

    def _stream(self, answer: ModelSaid | Fault, events: list[bytes], anthropic: bool) -> None:
        if isinstance(answer, ModelSaid):
            for event in events:
                self.wfile.write(event)
            return
        if isinstance(answer, Slow):
            data = b"".join(events)
            for start in range(0, len(data), answer.bytes_each):
                self.wfile.write(data[start : start + answer.bytes_each])
                self.server.owner.closing.wait(answer.pause_s)
            return
        assert not isinstance(answer, Status)
        self.wfile.write(b"".join(events[: answer.after_events]))
        following = events[answer.after_events]
        if isinstance(answer, Stall):
            self._until_they_hang_up()
        elif isinstance(answer, Cut):
            self.wfile.write(following[: len(following) // 2])
        elif isinstance(answer, BrokenJson):
            self.wfile.write(following.rstrip()[:-8] + b"\n\n")
        else:
            self.wfile.write(_error_event(anthropic).encode())

    def _until_they_hang_up(self) -> None:
        self.connection.settimeout(0.05)
        while not self.server.owner.closing.is_set():
            try:
                if not self.connection.recv(1):
                    self.server.owner.broken_pipes += 1
                    return
            except TimeoutError:
                continue

    def _refuse(self, answer: Status, anthropic: bool) -> None:
        error = {"type": "error", "message": answer.message}
        data = msgspec.json.encode({"type": "error", "error": error} if anthropic else {"error": error})
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: `requests` has it all."""


def _pieces(text: str, chars: int) -> Iterator[str]:
    for start in range(0, len(text), chars):
        yield text[start : start + chars]


def openai_events(said: ModelSaid, model: str, chars: int) -> Iterator[str]:
    """An answer as chunks of `chat.completion.chunk`, then the usage, then [DONE]."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return _data({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(said.text, chars):
        yield chunk({"content": piece})
    for index, call in enumerate(said.tool_calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        for piece in _pieces(call.arguments, chars):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    finishes = {Finish.TOOLS: "tool_calls", Finish.LENGTH: "length", Finish.REFUSED: "content_filter"}
    yield chunk({}, finishes.get(said.finish, "stop"))
    usage = {
        "prompt_tokens": said.usage.input_tokens,
        "completion_tokens": said.usage.output_tokens,
        "total_tokens": said.usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": said.usage.cached_tokens},
    }
    yield _data({**base, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def anthropic_events(said: ModelSaid, model: str, chars: int) -> Iterator[str]:
    """An answer as message_start, content blocks, message_delta and message_stop, with a ping in between."""
    usage = {
        "input_tokens": said.usage.input_tokens - said.usage.cached_tokens,
        "cache_read_input_tokens": said.usage.cached_tokens,
        "output_tokens": 1,
    }
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage,
               "stop_reason": None, "stop_sequence": None}  # fmt: skip
    yield _event("message_start", {"message": message})
    blocks: list[tuple[dict[str, Any], str, str]] = []
    if said.text:
        blocks.append(({"type": "text", "text": ""}, "text", said.text))
    for call in said.tool_calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        blocks.append((block, "partial_json", call.arguments))
    for index, (block, part, content) in enumerate(blocks):
        yield _event("content_block_start", {"index": index, "content_block": block})
        if index == 0:
            yield _event("ping", {})
        kind = "text_delta" if part == "text" else "input_json_delta"
        for piece in _pieces(content, chars):
            yield _event("content_block_delta", {"index": index, "delta": {"type": kind, part: piece}})
        yield _event("content_block_stop", {"index": index})
    finishes = {Finish.TOOLS: "tool_use", Finish.LENGTH: "max_tokens", Finish.REFUSED: "refusal"}
    delta = {"stop_reason": finishes.get(said.finish, "end_turn"), "stop_sequence": None}
    yield _event("message_delta", {"delta": delta, "usage": {"output_tokens": said.usage.output_tokens}})
    yield _event("message_stop", {})


def _error_event(anthropic: bool) -> str:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    return _event("error", {"error": error}) if anthropic else _data({"error": error})


def _event(kind: str, body: dict[str, Any]) -> str:
    return f"event: {kind}\n{_data({'type': kind, **body})}"


def _data(body: dict[str, Any]) -> str:
    return f"data: {msgspec.json.encode(body).decode()}\n\n"
