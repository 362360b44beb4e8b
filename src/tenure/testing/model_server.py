"""A model server on this machine that speaks both providers' stream formats, says what it is told, and misbehaves on demand.

    with ModelServer(["hello", calls(("read", {"path": "a"})), Status(429, {"retry-after": "1"})]) as server:
        adapter = OpenAIAdapter("any", base_url=server.openai_url, api_key="none")

`/v1/chat/completions` streams as OpenAI's chat completions do, `/v1/messages` as Anthropic's messages do. Lines are taken in turn; a function
of the request's JSON makes a line each time. The forms are from these sources, read in November 2026 (`docs/agents.md` lists which case
comes from which):

- OpenAI: the chat completion chunk object (developers.openai.com/api/docs/guides/streaming-responses, and the SDK's `ChatCompletionChunk`, which is
  generated from the provider's OpenAPI description), the options of streaming (rubydoc.info/github/openai/openai-ruby, `ChatCompletionStreamOptions`)
- Anthropic: platform.claude.com/docs/en/build-with-claude/streaming and …/handling-stop-reasons, and the SDK's `RawMessageStreamEvent`
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

OPENAI_FINISHES = {Finish.TOOLS: "tool_calls", Finish.LENGTH: "length", Finish.REFUSED: "content_filter"}
ANTHROPIC_FINISHES = {Finish.TOOLS: "tool_use", Finish.LENGTH: "max_tokens", Finish.REFUSED: "refusal"}
_ANTHROPIC_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
                     413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip


def openai_events(said: ModelSaid, model: str, chars: int) -> Iterator[str]:
    """Yields an answer as chunks, each with a null usage, then one chunk without choices that has it, then [DONE]."""
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
    """Yields an answer as message_start, content blocks with pings between them, message_delta and message_stop."""
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
    """Yields each block as it starts, and what is added to it."""
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
    """Returns an error in the middle of a stream, after a status of 200."""
    if anthropic:
        return event("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}})
    return data({"error": {"type": "server_error", "message": "Overloaded", "param": None, "code": None}})


def error_body(status: int, message: str, code: str, anthropic: bool) -> dict[str, Any]:
    """Returns the body of a refusal."""
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


@dataclass(frozen=True, slots=True)
class Status:
    """An answer with an error status."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "no"
    code: str = ""
    """The kind of error in the provider's words, where the status alone does not say it."""


@dataclass(frozen=True, slots=True)
class _Failing:
    """Streams so many events, then goes wrong."""

    said: ModelSaid
    after_events: int = 2


class StalledStream(_Failing):
    """Streams so many events, then sends nothing more and keeps the connection open."""


class CutStream(_Failing):
    """Streams so many events and half of the next one, then closes the connection."""


class BrokenJson(_Failing):
    """Streams so many events, then one whose JSON ends too early, as a whole event."""


class ErrorEvent(_Failing):
    """Streams so many events, then the provider's own error event."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Streams everything, a few bytes at a time."""

    said: ModelSaid
    bytes_each: int = 7
    pause_s: float = 0.001


@dataclass(frozen=True, slots=True)
class Raw:
    """Streams exactly this, event by event."""

    events: tuple[str, ...]


Fault = Status | StalledStream | CutStream | BrokenJson | Slow | ErrorEvent | Raw
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
        """Reports an error, but not a client that hangs up: that is what the tests are about, and no news; everything else is."""
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
        events = [event.encode() for event in self._events(answer, str(body.get("model")), anthropic)]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self._stream(answer, events, anthropic)
        except OSError:
            self.server.owner.broken_pipes += 1

    def _events(self, answer: ModelSaid | Fault, model: str, anthropic: bool) -> Iterable[str]:
        if isinstance(answer, Raw):
            return answer.events
        assert not isinstance(answer, Status)
        said = answer if isinstance(answer, ModelSaid) else answer.said
        encode = anthropic_events if anthropic else openai_events
        return encode(said, model, self.server.owner.piece_chars)

    def _stream(self, answer: ModelSaid | Fault, events: list[bytes], anthropic: bool) -> None:
        if isinstance(answer, ModelSaid | Raw):
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
        if isinstance(answer, StalledStream):
            self._until_they_hang_up()
        elif isinstance(answer, CutStream):
            self.wfile.write(following[: len(following) // 2])
        elif isinstance(answer, BrokenJson):
            self.wfile.write(following.rstrip()[:-8] + b"\n\n")
        else:
            self.wfile.write(error_event(anthropic).encode())

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
        data = msgspec.json.encode(error_body(answer.status, answer.message, answer.code, anthropic))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: `requests` has it all."""
