"""Streams to a listener: their formats (server-sent events for browsers, one JSON document a line for programs), and a workflow's output as a stream.

The stream of an output asks the node for page after page, until the workflow can emit no more. A request is answered with a stream for as long as its caller
listens, reads what it is sent, and is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.control.admission import Admission, AdmittedCaller, HttpLimits
from tenure.control.messages.job_output import GetOutput, OutputPage
from tenure.control.messages.operations import Operation
from tenure.control.messages.wire import Problem, Reply, Request
from tenure.control.problems import base_headers, full, problem, refused
from tenure.control.request_bounds import Visit
from tenure.errors import NodeUnavailableError, TenureError

if TYPE_CHECKING:
    from aiohttp import web


class StreamItem(NamedTuple):
    """One item of a stream."""

    what: str
    """`event`, `gap`, `progress` or `beat`."""
    cursor: str
    name: str = ""
    """An event's type."""
    data: bytes = b""
    """JSON on one line."""


RETRY_MS = 500
"""The milliseconds that a browser waits before it resumes."""


class StreamFormat(StrEnum):
    """The formats that a listener may ask for with `Accept`."""

    SSE = "text/event-stream"
    LINES = "application/x-ndjson"


def format_for(accept: str) -> StreamFormat | None:
    """Returns the format that the header asks for, or None for one page of JSON. A browser's or curl's `*/*` gets server-sent events."""
    for part in accept.lower().split(","):
        match part.partition(";")[0].strip():
            case "text/event-stream" | "*/*" | "text/*" | "":
                return StreamFormat.SSE
            case "application/x-ndjson" | "application/jsonl" | "application/json-lines":
                return StreamFormat.LINES
            case "application/json" | "application/*":
                return None
    return StreamFormat.SSE


def preamble(form: StreamFormat) -> bytes:
    return f"retry: {RETRY_MS}\n\n".encode() if form is StreamFormat.SSE else b""


def encode(told: StreamItem, form: StreamFormat) -> bytes:
    """Encodes one item of a stream. Its JSON has no line break in it, so one `data:` line holds it."""
    return _sse(told) if form is StreamFormat.SSE else _line(told)


def _sse(told: StreamItem) -> bytes:
    if told.what == "beat":
        # An id without data moves a browser's `lastEventId` and tells its page nothing.
        return b": beat\nid: " + told.cursor.encode() + b"\n\n"
    name = told.name if told.what == "event" else told.what
    return b"id: " + told.cursor.encode() + b"\nevent: " + name.encode() + b"\ndata: " + told.data + b"\n\n"


def _line(told: StreamItem) -> bytes:
    head = b'{"what":"' + told.what.encode() + b'","cursor":"' + told.cursor.encode() + b'"'
    if told.what == "beat":
        return head + b"}\n"
    return head + b',"' + told.what.encode() + b'":' + told.data + b"}\n"


WAIT_S = 10.0
"""The seconds for which one page waits for an item. Then the listener gets a beat."""


async def output_stream(
    answer: Callable[[str, Request], Awaitable[Reply]], request: GetOutput
) -> AsyncGenerator[list[StreamItem], None]:
    """Yields items in batches. The cursor of an item is the offset behind it, from which a listener resumes."""
    first = True
    while True:
        page = await answer("a listener", msgspec.structs.replace(request, wait_s=0.0 if first else WAIT_S))
        if not isinstance(page, OutputPage):
            if first and isinstance(page, Problem):
                raise refused(page)
            raise NodeUnavailableError("this node cannot answer for the job any more")  # the listener resumes elsewhere
        told = [StreamItem("event", str(one.offset + 1), "item", msgspec.json.encode(one)) for one in page.items]
        if page.ended and not page.more:
            yield [*told, StreamItem("event", str(page.next), "end", b"{}")]
            return
        yield told or [StreamItem("beat", str(page.next))]
        request, first = msgspec.structs.replace(request, after=page.next), False


Streams = Callable[[Any], AsyncGenerator[list[StreamItem], None]]
"""Takes a request that streams, and yields batches for as long as the caller listens."""


class StreamAnswers:
    """The streams of one port."""

    def __init__(self, streams: Streams, admission: Admission, limits: HttpLimits) -> None:
        self._streams, self._admission, self._limits = streams, admission, limits

    def form_of(self, request: web.BaseRequest, operation: Operation) -> StreamFormat | None:
        """Returns the format of the stream that a request asks for; None for one answer."""
        if not operation.streams or request.method != "GET":
            return None
        return format_for(request.headers.get("Accept", ""))

    async def answer(
        self, visit: Visit, caller: AdmittedCaller, message: Request, form: StreamFormat
    ) -> web.StreamResponse:
        from aiohttp import web  # the simulator's nodes stream to no port, and run where there is no aiohttp

        if not self._admission.waiting.enter(caller.key):
            raise full()
        headers = {"Content-Type": form.value, "X-Accel-Buffering": "no", **base_headers(visit.request_id)}
        response = web.StreamResponse(headers=headers)
        try:
            async with aclosing(self._streams(message)) as stream:
                try:
                    batch = await anext(stream)
                except TenureError as error:
                    raise refused(problem(error)) from error
                await response.prepare(visit.request)
                async with asyncio.timeout(self._limits.send_s):
                    await response.write(preamble(form) + b"".join(encode(told, form) for told in batch))
                with suppress(TenureError):  # the stream ends, and the listener resumes at another node
                    async for batch in stream:
                        if not self._admission.still_knows(caller):
                            break
                        async with asyncio.timeout(self._limits.send_s):
                            await response.write(b"".join(encode(told, form) for told in batch))
                with suppress(ConnectionError):
                    await response.write_eof()
                return response
        except (ConnectionError, TimeoutError):
            # The listener is gone, or has read nothing for `send_s`.
            if visit.request.transport is not None:
                visit.request.transport.abort()
            return response
        finally:
            self._admission.waiting.leave(caller.key)
