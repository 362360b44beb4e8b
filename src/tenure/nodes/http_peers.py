"""Requests to other nodes over HTTP, from an event loop: the asking half of `transport`."""

from __future__ import annotations

import aiohttp
import msgspec

from tenure.errors import NodeUnavailableError
from tenure.nodes.calling import MAX_REPLY_BYTES
from tenure.nodes.operations import decode_reply
from tenure.nodes.wire import Reply, Request, path_of

MOST_CONNECTIONS = 16
"""To one node."""
_encode = msgspec.json.Encoder().encode


class HttpPeers:
    """Connections that stay open between requests. Make it inside the running loop, and close it."""

    def __init__(self, *, token: str = "") -> None:
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=MOST_CONNECTIONS),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def ask(self, address: str, request: Request, timeout_s: float) -> Reply:
        """Raises `NodeUnavailableError`; then nobody knows whether the node acted."""
        try:
            async with self._session.post(
                f"http://{address}{path_of(request)}",
                data=_encode(request),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as answer:
                body = await answer.content.read(-1)
                if len(body) > MAX_REPLY_BYTES:
                    raise NodeUnavailableError(f"{address} answered with more than {MAX_REPLY_BYTES:,} bytes")
                return decode_reply(body)
        except TimeoutError as error:
            raise NodeUnavailableError(f"{address} did not answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError, msgspec.DecodeError) as error:
            raise NodeUnavailableError(f"{address} did not answer: {error or type(error).__name__}") from error

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> HttpPeers:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
