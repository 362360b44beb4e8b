"""What a supervisor tells its slots of the worker's peers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tenure.work.slots.control_channel import SlotIntake
from tenure.work.slots.slot_pool import SlotProcess


class _Line:
    """The supervisor's end of a control channel, which writes down what it is given."""

    def __init__(self) -> None:
        self.sent: list[object] = []

    def send(self, line: object) -> None:
        self.sent.append(line)


def test_a_slot_hears_that_its_worker_is_alone_once_a_leader_has_said_so() -> None:
    line = _Line()
    slot = SlotProcess(cast("Any", SimpleNamespace(pid=1)), cast("Any", line), Path(), 0.0)
    slot.admit(SlotIntake(True, None))
    assert line.sent == [], "nobody has said anything yet"
    slot.admit(SlotIntake(True, 0))
    slot.admit(SlotIntake(True, 0))
    assert line.sent == [SlotIntake(True, 0)]
