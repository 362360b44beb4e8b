"""The slot processes of one supervisor: as many as there are seats, and one spare that has everything imported."""

from __future__ import annotations

import os
import selectors
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tenure.clock import Clock
from tenure.work.envelope import WorkFailure
from tenure.work.slots.aftermath import cause_of_exit
from tenure.work.slots.control import Broken, Ready, Start, Trouble
from tenure.work.slots.evidence import cgroup_oom_kills, describe_exit
from tenure.work.slots.processes import MARK
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.slot_process import SlotProcess, SlotState, spawn_slot

QUICK_DEATH_S = 5.0
"""A slot that dies sooner than this after its start keeps dying: its successor waits."""
MAX_BACKOFF_S = 30.0


class Crew:
    """Starts, seats, hears and reaps slots. Knows nothing of attempts: `on_death` gets what the supervisor must settle."""

    def __init__(
        self,
        settings: SlotSettings,
        selector: selectors.BaseSelector,
        *,
        engine_url: str,
        modules: list[str],
        board: Path,
        folder: Path,
        incarnation: str,
        clock: Clock,
        say: Callable[[str], None],
        on_death: Callable[[SlotProcess, WorkFailure], None],
    ) -> None:
        self._settings, self._selector, self._clock, self._say, self._on_death = (
            settings,
            selector,
            clock,
            say,
            on_death,
        )
        self._start = Start(
            engine_url=engine_url,
            modules=modules,
            board=str(board),
            records=[],
            incarnation=incarnation,
            folder=str(folder),
            supervisor=os.getpid(),
            settings=asdict(settings),
        )
        self._mark = f"{MARK}={incarnation}".encode()
        self.slots: list[SlotProcess] = []
        self.draining = False
        self.broken: Broken | None = None
        self.ever_ready = False
        self._spawn_after, self._quick_deaths = 0.0, 0
        self._oom = cgroup_oom_kills()

    @property
    def serving(self) -> int:
        return sum(slot.state is SlotState.SERVING for slot in self.slots)

    def keep(self) -> None:
        """Start what is missing, unless slots keep dying."""
        now = self._clock.monotonic()
        if self.draining or now < self._spawn_after:
            return
        while len(self.slots) < self._settings.slots + 1:
            slot = spawn_slot(self._start, now)
            self.slots.append(slot)
            self._selector.register(slot.channel.socket, selectors.EVENT_READ, slot)

    def hear(self, slot: SlotProcess) -> None:
        for line in slot.channel.read():
            if isinstance(line, Ready):
                slot.state, self.ever_ready, self.broken = SlotState.SPARE, True, None
                self._assign()
            elif isinstance(line, Broken):
                self.broken = line
                self._say(f"a slot cannot serve: {line.reason}\n{line.trace}")
            elif isinstance(line, Trouble):
                self._say(f"slot {slot.pid}: {line.text}")
        if not slot.channel.open:
            self._selector.unregister(slot.channel.socket)

    def _assign(self) -> None:
        """Seats without a slot get a spare."""
        taken = {slot.seat for slot in self.slots}
        spares = [slot for slot in self.slots if slot.state is SlotState.SPARE]
        width = self._settings.concurrency
        for seat in range(self._settings.slots):
            if seat not in taken and spares and not self.draining:
                spares.pop().go(seat, list(range(seat * width, (seat + 1) * width)))

    def reap(self) -> None:
        for slot in list(self.slots):
            ended = slot.reap()
            if ended is None:
                if slot.state is SlotState.SERVING and self._clock.monotonic() - slot.started > QUICK_DEATH_S:
                    self._quick_deaths = 0
                continue
            self.slots.remove(slot)
            if slot.channel.open:
                self.hear(slot)  # its last words
            if slot.channel.open:
                self._selector.unregister(slot.channel.socket)
            failure = cause_of_exit(describe_exit(ended.status, oom_before=self._oom, peak=ended.peak_memory))
            self._oom = cgroup_oom_kills()
            if not self.draining and not slot.killed_by_us:
                self._say(f"slot {slot.pid} ended: {failure.reason}")
                self._back_off(slot)
            self._on_death(slot, failure)
            slot.close()
            self._kill_orphans()
            self._assign()

    def _back_off(self, slot: SlotProcess) -> None:
        now = self._clock.monotonic()
        if now - slot.started >= QUICK_DEATH_S:
            return
        self._quick_deaths += 1
        beyond = self._quick_deaths - self._settings.slots - 1
        if beyond > 0:
            pause = min(MAX_BACKOFF_S, 0.25 * 2.0 ** min(10, beyond))
            self._spawn_after = now + pause
            self._say(f"slots keep dying: the next one starts in {pause:g} s")

    def _kill_orphans(self) -> None:
        """What detached itself from a slot that died is our child now, and carries our mark."""
        known = {slot.pid for slot in self.slots}
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        for child in map(int, children.read_text().split()):
            if child not in known and self._is_ours(child):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    def _is_ours(self, pid: int) -> bool:
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def drain(self) -> None:
        """Claim nothing more, start nobody more. A slot that has not begun to serve is not needed."""
        self.draining = True
        for slot in self.slots:
            if slot.state is SlotState.STARTING:
                slot.kill()
            else:
                slot.drain()

    def end(self) -> None:
        """Kill and reap whoever is left."""
        self.draining = True
        for slot in self.slots:
            slot.kill()
        while self.slots:
            self.reap()
            self._clock.sleep(0.005)
