"""A slot process, as its supervisor sees it: its channel, its seat, its stacks and its end."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tenure.work.slots.frames import DrainSlot, FrameChannel, ServeRecords
from tenure.work.slots.processes import (
    cannot_answer,
    dump_size,
    kill_tree,
    look_at_process,
    read_dump,
    read_stat,
    send,
)
from tenure.work.stack_text import stack_evidence


class SlotState(StrEnum):
    STARTING = "starting"
    SPARE = "spare"
    SERVING = "serving"


class Ended(NamedTuple):
    """The end of a slot process."""

    status: int  # as waitpid gives it
    peak_memory: str


@dataclass(eq=False)
class SlotProcess:
    """A running slot process."""

    pid: int
    channel: FrameChannel
    folder: Path
    started: float
    state: SlotState = SlotState.STARTING
    seat: int | None = None
    records: list[int] = field(default_factory=list)
    killed_by_us: bool = False
    line_lost_at: float | None = None
    """Monotonic time at which its end of the channel was first seen closed."""
    last_trouble: str = ""
    """Its last complaint."""
    spawned: bool = False
    """True for one that was our child from its start. One that was forked becomes it a moment later."""
    below: set[int] = field(default_factory=set)
    """Descendants that were killed with it. They become our children, so we have to reap them."""

    @property
    def dump_path(self) -> Path:
        return self.folder / f"stacks-{self.pid}.txt"

    def go(self, seat: int, records: list[int]) -> None:
        self.state, self.seat, self.records = SlotState.SERVING, seat, records
        self.channel.send(ServeRecords(records))

    def drain(self) -> None:
        self.channel.send(DrainSlot())

    def ask_for_stacks(self) -> tuple[dict[str, str], int]:
        """Asks the slot to dump its stacks. Returns /proc's facts if it cannot run a handler, else the offset at which the dump will begin."""
        if cannot_answer(self.pid):
            facts = look_at_process(self.pid)
            facts["stack_of_python"] = "not to be had: the process is stopped, so what /proc shows is all there is"
            return facts, 0
        offset = dump_size(self.dump_path)
        send(self.pid, signal.SIGUSR1)
        return {}, offset

    def read_stacks(self, offset: int) -> dict[str, str]:
        text = read_dump(self.dump_path, offset)
        return stack_evidence(text) or look_at_process(self.pid)

    def kill(self) -> None:
        self.killed_by_us = True
        self.below |= kill_tree(self.pid)

    def reap(self) -> Ended | None:
        """Reaps the process; returns None while it runs. wait4 also gives the peak memory, which is lost with the process."""
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            # A slot that was forked just now is told of before it becomes our child.
            return None if not self.spawned and read_stat(self.pid) is not None else Ended(0, "")
        if pid == 0:
            return None
        return Ended(status, f"{usage.ru_maxrss / 1024:.0f} MB")

    def close(self) -> None:
        self.channel.close()
        self.dump_path.unlink(missing_ok=True)
