"""The output of a workflow while it runs: items with offsets, durable when `ctx.emit` returns, each once over all attempts.

An item is known by its place. A later attempt runs the code again, and what it emits at a place that is taken is there already. Steps, waits and checkpoints
remember how many items came before them, so an attempt that goes on behind them goes on at the right place. Items lie in chunks in the engine's store, each
written under the fence of its delivery. This file knows no nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.attempt_data import OUTPUT_TTL_S, output_about, output_key, output_prefix
from tenure.codec import sealed
from tenure.engines.contracts import Fence, Message, Store
from tenure.errors import EngineCorruptError, LimitError, SerializationError, WorkError

if TYPE_CHECKING:
    from tenure.work.attempt_handle import AttemptHandle

MOST_ITEMS = 100_000
"""The most items of one workflow."""
MOST_BYTES = 16 << 20
MOST_ITEM_BYTES = 65_536
CHUNK_BYTES = 16_384
"""The last chunk is written anew with each item, until it has so many bytes."""


class OutputChunk(msgspec.Struct, array_like=True):
    """A part of the output, as the store keeps it."""

    first: int = 0
    """The offset of its first item."""
    before: int = 0
    """The bytes of all items before it."""
    items: list[tuple[float, int, bytes]] = []
    """(when, attempt, JSON) of each item."""
    marks: dict[int, int] = {}
    """Maps the newest saved checkpoints to the number of items that came before them."""

    @property
    def end(self) -> int:
        return self.first + len(self.items)

    @property
    def size(self) -> int:
        return sum(len(data) for _, _, data in self.items)


_decoder = msgspec.msgpack.Decoder(OutputChunk)


def read_chunk(data: bytes) -> OutputChunk:
    """Returns a chunk as it was written; raises `EngineCorruptError` for anything else."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineCorruptError(f"a chunk of a job's output cannot be read: {error}") from error


def put_chunk(store: Store, message: Message[Any, Any], job_id: str, workflow_id: str, data: bytes) -> None:
    """Writes a chunk under the fence of a delivery. Raises where the lease is lost, or a later delivery has written it."""
    message.extend_visibility(0)  # the engine has to count the delivery before its fence is used (RULINGS 7)
    key = output_key(output_prefix(job_id, workflow_id), read_chunk(data).first)
    store.put(key, data, fence=Fence(*message.fence), ttl=OUTPUT_TTL_S)


def last_chunk(store: Store, job_id: str, workflow_id: str) -> bytes:
    """Returns the last chunk of an output; nothing where there is none."""
    found = store.scan(output_prefix(job_id, workflow_id), limit=1, reverse=True)
    return found[0][1] if found else b""


class OutputStream:
    """The output of one attempt. Its methods may be called from several threads; those that write wait for the engine."""

    def __init__(self, handle: AttemptHandle) -> None:
        self._handle, self._lock = handle, threading.Lock()
        self._last: OutputChunk | None = None
        """The last chunk; None until the first item."""
        self._resumed = 0
        """Names the checkpoint that this attempt went on from; 0 for none."""
        self.place = 0
        """The place of the next item."""

    def went_past(self, place: int) -> None:
        """Notes that a recorded step comes next, which had so many items before it."""
        with self._lock:
            self.place = max(self.place, place)

    def resumed_from(self, mark: int) -> None:
        """Notes that the code asked for its checkpoint, and goes on from there."""
        self._resumed = mark

    def emit(self, items: Sequence[Any]) -> None:
        """Appends items. They are durable when this returns."""
        encoded = [self._encoded(one) for one in items]
        with self._lock:
            last = self._opened()
            now, attempt = self._handle.clock.wall(), self._handle.occupant.attempt
            fresh = encoded[max(0, last.end - self.place) :]
            for data in fresh:
                self._check_room(last, data)
                if last.items and last.size + len(data) > CHUNK_BYTES:
                    self._write(last)
                    last = OutputChunk(last.end, last.before + last.size, [], dict(last.marks))
                last.items = [*last.items, (now, attempt, data)]
            if fresh:
                self._write(last)
            self._last = last
            self.place += len(encoded)
        if fresh:
            self._handle.show(binds=True)

    def mark(self, checkpoint: int) -> None:
        """Remembers how many items come before a checkpoint that is about to be saved."""
        with self._lock:
            if self._last is None or checkpoint in self._last.marks:
                return
            # The one before it counts as well: the new one may never be saved.
            newest = list(self._last.marks.items())[-1:]
            self._last.marks = {**dict(newest), checkpoint: self.place}
            self._write(self._last)

    def _opened(self) -> OutputChunk:
        if self._last is None:
            if not self._handle.delivery.item.managed:
                raise WorkError(
                    "work without a leader cannot emit",
                    remedy="Submit it as a job: tenure submit, Client.submit or embedded()",
                )
            data = self._handle.ask_engine(self._handle.delivery.last_output) if self._handle.may_have_steps else b""
            self._last = read_chunk(data) if data else OutputChunk()
            self.place = max(self.place, self._last.marks.get(self._resumed, 0))
        return self._last

    def _write(self, chunk: OutputChunk) -> None:
        data = msgspec.msgpack.encode(chunk)
        self._handle.ask_engine(lambda: self._handle.delivery.put_output(data))

    def _encoded(self, item: Any) -> bytes:
        handle = self._handle
        try:
            data = msgspec.json.encode(item)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SerializationError(
                f"an emitted item of type {type(item).__name__} cannot be written as JSON: {error}",
                remedy="Emit plain JSON types, a dataclass or a msgspec.Struct",
            ) from error
        data = sealed(handle.codec, data, output_about(handle.occupant.job, handle.occupant.workflow_id))
        if len(data) > MOST_ITEM_BYTES:
            raise LimitError(
                "an emitted item",
                f"{len(data):,} bytes",
                f"at most {MOST_ITEM_BYTES:,} bytes",
                remedy="Emit its address",
            )
        return data

    def _check_room(self, last: OutputChunk, data: bytes) -> None:
        size = last.before + last.size + len(data)
        if last.end >= MOST_ITEMS or size > MOST_BYTES:
            raise LimitError(
                "the output of this workflow",
                f"{last.end + 1:,} items of {size:,} bytes",
                f"at most {MOST_ITEMS:,} items of {MOST_BYTES:,} bytes",
                remedy="Emit fewer or shorter items, or put them into a store of your own",
            )


def output_items(
    store: Store, job_id: str, workflow_id: str, after: int, limit: int, most_bytes: int
) -> tuple[list[tuple[int, float, int, bytes]], bool]:
    """Returns (offset, when, attempt, JSON) of the items from an offset on, and True when more follow. At least one, whatever its size."""
    prefix = output_prefix(job_id, workflow_id)
    found: list[tuple[int, float, int, bytes]] = []
    size = 0
    page = store.scan(prefix, limit=1, reverse=True, after=output_key(prefix, after + 1))
    data = page[0][1] if page else None
    while data is not None:
        chunk = read_chunk(data)
        for offset, (at, attempt, item) in enumerate(chunk.items, chunk.first):
            if offset < after:
                continue
            size += len(item)
            if len(found) >= limit or (found and size > most_bytes):
                return found, True
            found.append((offset, at, attempt, item))
        data = store.get(output_key(prefix, chunk.end)) if chunk.items else None
    return found, False
