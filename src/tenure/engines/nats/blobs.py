"""Values larger than a message: written in chunks under a name of their own, then named by somebody, later deleted.

A blob is never changed. What names it (a stored key, a journal's or the log's snapshot) is written after it, so whoever finds a name finds
the whole blob, or a newer name. `pointers` are small records that only move by compare-and-swap.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import NamedTuple

from tenure.engines.nats import address as faults
from tenure.engines.nats import streams
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.connection import NatsConnection
from tenure.engines.nats.streams import Names
from tenure.ids import new_id

_CHUNK = 524_288
_AT_ONCE = 8
_ROOM = 4_096  # of a server's max_payload, for headers


class Pointer(NamedTuple):
    data: bytes
    revision: int


class BlobGoneError(Exception):
    """It was deleted after its name was read: read the name again."""


class Blobs:
    def __init__(self, link: NatsConnection, names: Names) -> None:
        self._link, self._names = link, names

    async def open(self) -> None:
        subjects = [self._names.blob(">", "")[:-1], self._names.pointer(">")]
        config = streams.wanted(self._names.blob_stream, subjects, self._link.settings.replicas, max_msgs_per_subject=1)
        await streams.ensure(self._link, config)

    async def write(self, name: str, value: bytes) -> int:
        """The number of chunks."""
        size = min(_CHUNK, self._link.max_payload - _ROOM)
        chunks = [value[at : at + size] for at in range(0, len(value), size)] or [b""]
        for start in range(0, len(chunks), _AT_ONCE):
            few = enumerate(chunks[start : start + _AT_ONCE], start)
            await asyncio.gather(*(self._write_chunk(name, number, chunk) for number, chunk in few))
        return len(chunks)

    async def _write_chunk(self, name: str, number: int, chunk: bytes) -> None:
        await self._link.write(self._names.blob(name, number), chunk, {"Nats-Msg-Id": f"{name}.{number}"})

    async def read(self, name: str, chunks: int) -> bytes:
        """Raises `BlobGoneError`."""
        parts = []
        for start in range(0, chunks, _AT_ONCE):
            few = range(start, min(start + _AT_ONCE, chunks))
            parts += await asyncio.gather(*(self._read_chunk(name, number) for number in few))
        return b"".join(parts)

    async def _read_chunk(self, name: str, number: int) -> bytes:
        found = await self._last(self._names.blob(name, number))
        if found is None:
            raise BlobGoneError(name)
        return found.data

    async def delete(self, name: str) -> None:
        await self._link.ask(f"STREAM.PURGE.{self._names.blob_stream}", {"filter": self._names.blob(name, "*")})

    async def names(self) -> set[str]:
        """Returns the keys of all blobs, or of their first hundred thousand chunks."""
        everything = self._names.blob(">", "")[:-1]
        info = await self._link.ask(f"STREAM.INFO.{self._names.blob_stream}", {"subjects_filter": everything})
        return {subject.split(".")[2] for subject in info["state"].get("subjects") or ()}

    async def pointer(self, name: str) -> Pointer | None:
        return await self._last(self._names.pointer(name))

    async def move(self, name: str, data: bytes, revision: int) -> bool:
        """Write the pointer if it still is at this revision (0: if there is none)."""
        message_id = new_id()
        headers = {"Nats-Msg-Id": message_id, "Nats-Expected-Last-Subject-Sequence": str(revision)}
        try:
            await self._link.write(self._names.pointer(name), data, headers)
        except ApiError as error:
            if error.number not in faults.WRONG_LAST_SEQUENCE:
                raise
            return False
        return True

    async def _last(self, subject: str) -> Pointer | None:
        """From the stream's leader, never from a replica that may be behind."""
        try:
            answer = await self._link.ask(f"STREAM.MSG.GET.{self._names.blob_stream}", {"last_by_subj": subject})
        except ApiError as error:
            if error.number in faults.NOT_FOUND:
                return None
            raise
        message = answer["message"]
        return Pointer(base64.b64decode(message.get("data", "")), message["seq"])


def decode_pointer(pointer: Pointer) -> dict[str, int | str]:
    decoded: dict[str, int | str] = json.loads(pointer.data)
    return decoded
