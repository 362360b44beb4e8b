"""Streams what a workflow emits to a listener: one item after the other, until the workflow can emit no more. It asks the node for page after page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from tenure.control.messages.jobs import Problem
from tenure.control.messages.outputs import GetOutput, OutputPage
from tenure.control.messages.wire import Reply, Request
from tenure.control.problems import refused
from tenure.control.stream_format import StreamItem
from tenure.errors import NodeUnavailableError

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
