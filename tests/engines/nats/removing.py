"""Takes away what a test made on a server that others use too."""

from __future__ import annotations

import asyncio

import nats
from nats.js.errors import NotFoundError


def remove_streams(url: str, namespace: str) -> None:
    asyncio.run(_remove(url, namespace))


async def _remove(url: str, namespace: str) -> None:
    client = await nats.connect(url.split(","))
    try:
        manager = client.jsm()
        for stream in await manager.streams_info():
            name = stream.config.name or ""
            if name.startswith(f"{namespace}_"):
                try:
                    await manager.delete_stream(name)
                except NotFoundError:
                    continue
    finally:
        await client.close()
