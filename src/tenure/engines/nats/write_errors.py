"""Asks why a stream takes no writes.

A server that could not write to a stream (a full disk, most often) answers no write to it any more: not with an error either, and not when there is room
again, until it is started anew (measured with 2.15). Its questions are answered as ever. To a purge that finds nothing to remove it answers with the error of that write.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import nats.errors

from tenure.engines.nats.address import ApiError
from tenure.errors import EngineFullError, EngineUnavailableError

if TYPE_CHECKING:
    from tenure.engines.nats.connection import NatsConnection

_NO_ROOM = ("no space left on device", "disk quota exceeded", "file too large")
_CANNOT_PURGE = 10051
_WITHIN_S = 1.0


async def write_error(link: NatsConnection, stream: str) -> EngineUnavailableError | EngineFullError | None:
    """Returns the error that keeps the server from writing to this stream, or None where it has none, or does not answer in a second."""
    # No subject of ours begins with the name of a stream.
    nothing = json.dumps({"filter": f"{stream}.nothing"}).encode()
    try:
        message = await link.request(f"$JS.API.STREAM.PURGE.{stream}", nothing, _WITHIN_S)
        answer = json.loads(message.data)
    except (TimeoutError, OSError, ValueError, nats.errors.Error):
        return None
    if "error" not in answer or (refused := ApiError(answer["error"])).number != _CANNOT_PURGE:
        return None
    said = str(link.told(refused, f"writing to the stream {stream} of {link.settings.shown}").fact)
    if any(words in said for words in _NO_ROOM):
        again = "then restart the server: it writes to this stream again only then. Nothing was changed"
        return EngineFullError(said, remedy=f"Make room on the server's disk, {again}")
    return EngineUnavailableError(said, remedy="Mend the server's disk, then restart the server")
