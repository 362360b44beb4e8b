"""Frames over a socket pair, between a supervisor and each of its slots.

A frame is a magic word, a length and a struct as MessagePack. Both sides keep what does not fit into the socket: a full buffer means "wait",
never "gone". The socket is also the lifeline: when one process is gone, the other one sees that the channel is no longer open. User code runs
in the process of a slot and can write anything to the socket; a reader skips bytes that are no frame, and says so.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any

import msgspec

from tenure.backoff import Retry
from tenure.engines.contracts import Ticket
from tenure.served_workflow import ServedWorkflow
from tenure.work.slots.settings import SlotSettings

_MAGIC = b"TnFr"
_HEADER = struct.Struct("<4sI")
MOST_FRAME_BYTES = 64 << 20
"""A longer frame is no frame: every body, checkpoint and result has a limit far below this."""
READ_BYTES = 1 << 18
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of bytes that are no frame, and of a body that is no work."""


class StartSlot(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """The first frame to a slot: everything that it needs before it imports anything. It names no engine and no token."""

    modules: list[str]
    board: str
    claims: str
    incarnation: str
    folder: str
    supervisor: int
    settings: dict[str, Any]
    worker: str = ""
    """The worker's name, which results carry; the incarnation where it has no other."""

    def slot_settings(self) -> SlotSettings:
        return SlotSettings(**{**self.settings, "more_queues": tuple(self.settings.get("more_queues", ()))})


class ServeRecords(msgspec.Struct, frozen=True, array_like=True, tag="go"):
    """Tells a spare slot that work follows, and which records of the board it uses."""

    records: list[int]


class CancelAttempt(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Tells the slot that the cancel word of this record was set. The board decides; this frame only saves the wait for the next look."""

    record: int


class DrainSlot(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """Tells the slot to start nothing more, and to end when it is idle."""


class HandOver(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="work"):
    """Gives a claimed item to a slot. The body is as it was sent: the supervisor did not decode it."""

    number: int
    """Names the claim between a supervisor and its slots. It grows with each claim."""
    entry: int
    """The entry of the claim page that names the ticket; -1 where none was free, or the ticket did not fit."""
    queue: str
    lane: str
    ticket: Ticket
    body: bytes
    saved: bytes | None


class SlotAnswer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """Answers a `SlotRequest`: the data, or the name and the words of an error."""

    ref: int
    data: bytes = b""
    error: str = ""
    fact: str = ""
    remedy: str = ""


class SlotReady(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The slot has imported its modules and can serve these workflows."""

    workflows: list[ServedWorkflow]


class SlotBroken(msgspec.Struct, frozen=True, array_like=True, tag="broken"):
    """The slot cannot serve: an import failed."""

    reason: str
    trace: str


class SlotTrouble(msgspec.Struct, frozen=True, array_like=True, tag="trouble"):
    """A complaint for the supervisor's log; the slot goes on."""

    text: str


class WorkFinished(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="done"):
    """The outcome of an item: an encoded `WorkResult`. The supervisor settles it."""

    number: int
    seconds: float
    """The time for which the item occupied its record, from which the supervisor learns how many to claim ahead."""
    ok: bool
    result: bytes
    log: str = ""
    """Names the log file of the attempt; empty when it logged nothing."""
    retry: Retry | None = None
    """The workflow's policy; only a failure needs it."""


class WorkDeclined(msgspec.Struct, frozen=True, array_like=True, tag="declined"):
    """The slot did not start this item, and will not: it was withdrawn, its lease is over, or the slot drains."""

    number: int


class SlotRequest(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Asks the supervisor to do something for an attempt. Requests of one item, and its outcome, are executed in the order sent."""

    ref: int
    number: int
    kind: str
    data: bytes | None


SlotFrame = (
    StartSlot
    | ServeRecords
    | CancelAttempt
    | DrainSlot
    | HandOver
    | SlotAnswer
    | SlotReady
    | SlotBroken
    | SlotTrouble
    | WorkFinished
    | WorkDeclined
    | SlotRequest
)
_encode = msgspec.msgpack.Encoder().encode


def _decoder_of(frames: Any) -> msgspec.msgpack.Decoder[SlotFrame]:
    """Returns the decoder of a union of structs. A type checker does not accept a union where a class is wanted."""
    return msgspec.msgpack.Decoder(frames)


_decode = _decoder_of(SlotFrame).decode


class FrameChannel:
    """One end of the channel. `send` is safe to call from several threads; one thread reads.

    A socket that does not block keeps what does not fit, and `flush` sends it later; one that blocks waits.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.open = True
        self._unread = bytearray()
        self._unsent = bytearray()
        self._sending = threading.Lock()
        """Two threads that send at once would cut each other's frames."""

    def send(self, *frames: SlotFrame) -> bool:
        """Sends the frames in one go. Returns False when the other side is gone."""
        with self._sending:
            for frame in frames:
                body = _encode(frame)
                self._unsent += _HEADER.pack(_MAGIC, len(body))
                self._unsent += body
            return self._flush()

    def flush(self) -> bool:
        """Sends what did not fit before."""
        if not self._unsent:
            return self.open
        with self._sending:
            return self._flush()

    def _flush(self) -> bool:
        while self._unsent and self.open:
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                break
            except OSError:
                self.open = False
            else:
                del self._unsent[:sent]
        return self.open

    @property
    def unsent(self) -> int:
        """Returns the number of bytes that `flush` has yet to send."""
        return len(self._unsent)

    def read(self, *, to_the_end: bool = False) -> list[SlotFrame]:
        """Returns the whole frames that have arrived. It waits for some where the socket blocks.

        An empty list with `open` False means that the other side is gone. `to_the_end` reads all that there is from a socket that does not block.
        """
        while True:
            try:
                chunk = self.socket.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self.open = False
                break
            self._unread += chunk
            if not to_the_end:
                break
        return self._whole_frames()

    def _whole_frames(self) -> list[SlotFrame]:
        found: list[SlotFrame] = []
        unread, place = self._unread, 0
        while len(unread) - place >= _HEADER.size:
            magic, length = _HEADER.unpack_from(unread, place)
            if magic != _MAGIC or length > MOST_FRAME_BYTES:
                skipped = self._next_frame(place + 1) - place
                found.append(SlotTrouble(f"{skipped:,} bytes on the channel are no frame"))
                place += skipped
                continue
            end = place + _HEADER.size + length
            if len(unread) < end:
                break
            found.append(_read_frame(bytes(memoryview(unread)[place + _HEADER.size : end])))
            place = end
        del unread[:place]
        return found

    def _next_frame(self, place: int) -> int:
        """Returns the place of the next magic word, or of the last bytes, which may be the beginning of one."""
        found = self._unread.find(_MAGIC, place)
        return found if found >= 0 else max(place, len(self._unread) - len(_MAGIC) + 1)

    def close(self) -> None:
        self.open = False
        self.socket.close()


def _read_frame(body: bytes) -> SlotFrame:
    try:
        return _decode(body)
    except UNREADABLE as error:
        return SlotTrouble(f"a frame of {len(body):,} bytes cannot be read: {error}")
