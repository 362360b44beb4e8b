"""The supervisor's side of one slot: its process, the channel to it, and the records that it may use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tenure.work.slots.control_channel import ControlChannel, DrainSlot, ServeRecords, SlotIntake, StartSlot
from tenure.work.slots.evidence import cannot_answer, dump_size, look_at_process, read_dump
from tenure.work.slots.processes import MARK, kill_tree, send


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

    process: subprocess.Popen[bytes]
    channel: ControlChannel
    folder: Path
    started: float
    state: SlotState = SlotState.STARTING
    seat: int | None = None
    records: list[int] = field(default_factory=list)
    killed_by_us: bool = False
    line_lost_at: float | None = None
    """Monotonic time at which its end of the control line was first seen closed."""
    last_trouble: str = ""
    """Its last complaint."""
    intake: SlotIntake = field(default_factory=lambda: SlotIntake(True, None))
    """The last intake that was sent to it. A new slot claims until it is told otherwise."""
    below: set[int] = field(default_factory=set)
    """Descendants that were killed with it. They become our children, so we have to reap them."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def dump_path(self) -> Path:
        return self.folder / f"stacks-{self.pid}.txt"

    def go(self, seat: int, records: list[int]) -> None:
        self.state, self.seat, self.records = SlotState.SERVING, seat, records
        self.channel.send(ServeRecords(records))

    def drain(self) -> None:
        self.channel.send(DrainSlot())

    def admit(self, intake: SlotIntake) -> None:
        """Sends the intake to the slot if it differs from the last one."""
        if intake != self.intake:
            self.intake = intake
            self.channel.send(intake)

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
        return {"stacks": text} if text else look_at_process(self.pid)

    def kill(self) -> None:
        self.killed_by_us = True
        self.below |= kill_tree(self.pid)

    def reap(self) -> Ended | None:
        """Reaps the process; returns None while it runs. wait4 also gives the peak memory, which is lost with the process."""
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            return Ended(0, "")
        if pid == 0:
            return None
        self.process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it again
        return Ended(status, f"{usage.ru_maxrss / 1024:.0f} MB")

    def close(self) -> None:
        self.channel.close()
        self.dump_path.unlink(missing_ok=True)


def spawn_slot(start: StartSlot, now: float) -> SlotProcess:
    """Starts a fresh interpreter in a session of its own, so that the terminal's Ctrl-C reaches only the supervisor."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-m", "tenure.work.slots.slot_main", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, MARK: start.incarnation},
        )
    channel = ControlChannel(ours)
    channel.send(start)
    ours.setblocking(False)
    return SlotProcess(process, channel, Path(start.folder), now)
