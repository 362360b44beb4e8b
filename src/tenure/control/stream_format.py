"""Encodes the items of a stream of events: server-sent events for browsers, one JSON document a line for programs."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


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
