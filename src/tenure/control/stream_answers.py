"""Answers a request with a stream of events, for as long as its caller listens, reads what it is sent, and is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

from aiohttp import web

from tenure.control.admission import Admission, AdmittedCaller, HttpLimits
from tenure.control.messages.operations import Operation
from tenure.control.messages.wire import Request
from tenure.control.problems import base_headers, full, problem, refused
from tenure.control.request_bounds import Visit
from tenure.control.streams import StreamFormat, StreamItem, encode, format_for, preamble
from tenure.errors import TenureError

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
