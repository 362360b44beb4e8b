"""The messages between a supervisor and one slot: JSON lines over a socket pair.

The engine's URL and the token travel here and not on a command line, because every user of the machine can read command lines.
"""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from tenure.work.line_channel import LineChannel, decoder_of
from tenure.work.slots.settings import SlotSettings


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
_decoder: msgspec.json.Decoder[ControlLine] = decoder_of(ControlLine)


class ControlChannel(LineChannel[ControlLine]):
    """One end of the control line. A line that cannot be read becomes a `SlotTrouble`: user code may have written it."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end, _decoder, unreadable=SlotTrouble)
