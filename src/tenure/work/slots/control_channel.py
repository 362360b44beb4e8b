"""The messages between a supervisor and one slot: JSON lines over a socket pair.

The engine's URL and the token travel here and not on a command line, because every user of the machine can read command lines.
"""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from tenure.work.slots.settings import SlotSettings

_LIMIT = 1 << 20


class StartSlot(msgspec.Struct, frozen=True, tag="start"):
    """The first line to a slot: everything that it needs before it imports anything."""

    engine_url: str
    modules: list[str]
    board: str
    records: list[int]
    incarnation: str
    folder: str
    supervisor: int
    settings: dict[str, Any]
    worker: str = ""
    """The worker's name, which exclude lists use; the incarnation where it has no other."""

    def slot_settings(self) -> SlotSettings:
        return SlotSettings(**{**self.settings, "more_queues": tuple(self.settings.get("more_queues", ()))})


class ServeRecords(msgspec.Struct, frozen=True, tag="go"):
    """Tells a spare slot to claim work and to use these records."""

    records: list[int]


class CancelAttempt(msgspec.Struct, frozen=True, tag="cancel"):
    """Tells the slot that the cancel word of this record was set. The board decides; this line only saves the wait for the next look."""

    record: int


class DrainSlot(msgspec.Struct, frozen=True, tag="drain"):
    """Tells the slot to claim nothing more, and to end when it is idle."""


class SlotIntake(msgspec.Struct, frozen=True, tag="intake"):
    """Tells the slot to claim new work or not. `peers` counts the other workers that could do the same work; None changes nothing."""

    open: bool
    peers: int | None = 0


class SlotReady(msgspec.Struct, frozen=True, tag="ready"):
    """The slot has imported its modules and can serve these workflows."""

    workflows: list[str]


class SlotBroken(msgspec.Struct, frozen=True, tag="broken"):
    """The slot cannot serve: an import failed, or the engine could not be opened."""

    reason: str
    trace: str


class SlotTrouble(msgspec.Struct, frozen=True, tag="trouble"):
    """A complaint for the supervisor's log; the slot goes on."""

    text: str


ControlLine = StartSlot | ServeRecords | CancelAttempt | DrainSlot | SlotIntake | SlotReady | SlotBroken | SlotTrouble
_decoder = msgspec.json.Decoder(ControlLine)


class ControlChannel:
    """One end of the line. `read` returns the lines that have arrived; an empty list with `open` False means that the other side is gone.

    Neither side trusts the other to read at once or to write what can be read: user code runs in the process at the other end.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.open = True
        self._pending = b""
        self._unsent = b""

    def send(self, line: ControlLine) -> bool:
        """Returns False when the other side is gone. When the socket's buffer is full, `flush` sends the rest later."""
        self._unsent += msgspec.json.encode(line) + b"\n"
        return self.flush()

    def flush(self) -> bool:
        """Sends the bytes that did not fit before."""
        while self._unsent and self.open:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                self.open = len(self._unsent) <= _LIMIT
                break
            except OSError:
                self.open = False
        return self.open

    def read(self) -> list[ControlLine]:
        try:
            chunk = self.socket.recv(65_536)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.open = False
            return []
        *whole, self._pending = (self._pending + chunk).split(b"\n")
        if len(self._pending) > _LIMIT:
            self.open = False
            return []
        return [_decode(line) for line in whole]

    def close(self) -> None:
        self.open = False
        self.socket.close()


def _decode(line: bytes) -> ControlLine:
    """Decodes a line. One that cannot be read becomes a `SlotTrouble`: user code may have written it, and it must not end the reader."""
    try:
        found: ControlLine = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        return SlotTrouble(f"a line of {len(line):,} bytes on the control line cannot be read: {error}")
    return found
