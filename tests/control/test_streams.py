"""A stream of what a workflow emits asks for page after page, and ends with the workflow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.control.messages.job_output import GetOutput, OutputItem, OutputPage
from tenure.control.messages.wire import Problem, ProblemKind, Redirect, Reply, Request
from tenure.control.problems import Refused
from tenure.control.streams import StreamFormat, encode, output_stream
from tenure.errors import NodeUnavailableError


def page(*items: Any, first: int = 0, ended: bool = False, more: bool = False) -> OutputPage:
    made = tuple(OutputItem(offset=first + n, item=one, at=1.0, attempt=1) for n, one in enumerate(items))
    return OutputPage(job_id="j", workflow="w", items=made, next=first + len(items), more=more, ended=ended)


def stream(*pages: Reply) -> tuple[list[bytes], list[GetOutput]]:
    asked: list[GetOutput] = []
    left = list(pages)

    async def answer(sender: str, request: Request) -> Reply:
        assert isinstance(request, GetOutput)
        asked.append(request)
        return left.pop(0)

    async def told() -> list[bytes]:
        source = output_stream(answer, GetOutput(job_id="j"))
        return [encode(one, StreamFormat.SSE) async for batch in source for one in batch]

    return asyncio.run(told()), asked


def test_each_item_is_an_event_and_a_quiet_spell_is_a_beat() -> None:
    told, asked = stream(page("a", more=True), page("b", first=1), page(first=2), page("c", first=2, ended=True))
    assert [one.split(b"\n")[1] for one in told] == [
        b"event: item",
        b"event: item",
        b"id: 2",
        b"event: item",
        b"event: end",
    ]
    assert told[0].startswith(b'id: 1\nevent: item\ndata: {"offset":0,"item":"a"')
    assert [(one.after, one.wait_s) for one in asked] == [(0, 0.0), (1, 10.0), (2, 10.0), (2, 10.0)]


def test_a_job_that_nobody_knows_is_refused_and_a_node_that_lost_the_lead_ends_the_stream() -> None:
    with pytest.raises(Refused):
        stream(Problem(kind=ProblemKind.UNKNOWN, fact="no such job"))
    with pytest.raises(NodeUnavailableError):
        stream(page("a"), Redirect(address="x:1", epoch=1))
