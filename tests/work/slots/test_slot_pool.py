"""The pool's end of a slot's channel, with a process that has ended and a launcher that starts nothing."""

from __future__ import annotations

import os
import selectors
import socket
from pathlib import Path

from tests.patience import wait_until

from tenure.clock import SystemClock
from tenure.logs import NodeLog, log_to
from tenure.work.delivery import WorkFailure
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.slots.frames import FrameChannel, SlotFrame, SlotReady, WorkFinished
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.slot_pool import SlotPool
from tenure.work.slots.slot_process import SlotProcess

CLOCK = SystemClock()


class ArrivingSlots:
    """A launcher whose slots are already there."""

    asked, pid, failure, refusal = 0, 0, "", ""

    def __init__(self) -> None:
        self.came: list[SlotProcess] = []
        self.dead = set[int]()

    def launch(self, start: object) -> bool:
        return False

    def arrived(self) -> list[SlotProcess]:
        came, self.came = self.came, []
        return came

    def end(self) -> None:
        return None


class Listener:
    """Notes what the pool tells its supervisor."""

    def __init__(self) -> None:
        self.said: list[SlotFrame] = []
        self.died = 0

    def slot_ready(self) -> None:
        return None

    def slot_seated(self, slot: SlotProcess) -> None:
        return None

    def slot_said(self, slot: SlotProcess, frames: list[SlotFrame]) -> None:
        self.said += frames

    def slot_died(self, slot: SlotProcess, failure: WorkFailure) -> None:
        self.died += 1


def ended_slot(folder: Path, *last_words: SlotFrame) -> SlotProcess:
    """Returns a slot whose process said this and ended."""
    ours, theirs = socket.socketpair()
    with theirs:
        FrameChannel(theirs).send(*last_words)
        pid = os.posix_spawn("/bin/true", ["true"], {})
    ours.setblocking(False)
    return SlotProcess(pid, FrameChannel(ours), folder, CLOCK.monotonic(), spawned=True)


def pool_of(
    selector: selectors.BaseSelector, folder: Path, launcher: ArrivingSlots, listener: Listener, log: NodeLog
) -> SlotPool:
    return SlotPool(
        SlotSettings(slots=1),
        selector,
        modules=[],
        board=folder,
        claims=folder,
        folder=folder,
        incarnation="i-1",
        worker="w-1",
        launcher=launcher,  # type: ignore[arg-type]
        clock=CLOCK,
        log=log,
        listener=listener,
        errors=IsolatedErrors(log),
    )


def test_what_a_slot_said_before_it_ended_is_heard_though_sending_saw_its_end_first(tmp_path: Path) -> None:
    """Its outcome was lost else, and its work ran again. Its socket stayed in the selector, where the next one with its number could not come in."""
    launcher, listener, said = ArrivingSlots(), Listener(), list[str]()
    with selectors.DefaultSelector() as selector:
        pool = pool_of(selector, tmp_path, launcher, listener, log_to(said.append))
        outcome = WorkFinished(1, 0.1, ok=True, result=b"{}")
        for number in (1, 2):
            slot = ended_slot(tmp_path, outcome)
            launcher.came.append(slot)
            pool.reap()
            wait_until(lambda: not slot.channel.send(outcome) or listener.died == number, "it seems to be there")  # noqa: B023
            wait_until(lambda: pool.reap() or listener.died == number, "it was not buried")  # noqa: B023
            assert listener.said == [outcome] * number
            assert not selector.get_map()
    assert not [line for line in said if "failed" in line], said


def test_a_server_that_refuses_to_fork_makes_no_worker_ready_however_quick_it_becomes_a_slot(tmp_path: Path) -> None:
    """The supervisor looks whether slots are broken after it has heard them: one that was ready by then kept the worker alive, without slots."""
    launcher, listener = ArrivingSlots(), Listener()
    with selectors.DefaultSelector() as selector:
        pool = pool_of(selector, tmp_path, launcher, listener, log_to(lambda line: None))
        launcher.refusal = "it started a thread"
        launcher.came.append(ended_slot(tmp_path, SlotReady([])))
        wait_until(lambda: pool.reap() or listener.died == 1, "it was not buried")  # and heard before
        assert pool.broken is not None
        assert not pool.ever_ready
