"""Holds the facts about one request that the parts of the server share while they answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

    from tenure.control.body_reader import BodyInMemory
    from tenure.control.connections import GuardedConnection


class Visit:
    """One request, from the end of its head until its answer is made."""

    __slots__ = ("began", "body", "connection", "name", "request", "request_id")

    def __init__(self, request: web.BaseRequest, connection: GuardedConnection, request_id: str, began: float) -> None:
        self.request, self.connection, self.request_id, self.began = request, connection, request_id, began
        self.name = ""  # the operation's, once it is known
        self.body: BodyInMemory | None = None  # while it is read, and until the request is answered

    @property
    def is_chunked(self) -> bool:
        """True when the body says its length only as it comes."""
        return bool(self.request.headers.get("Transfer-Encoding"))
