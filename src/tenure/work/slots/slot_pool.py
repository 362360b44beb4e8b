"""The slot processes of one supervisor: one for each seat, and one spare that has imported everything already.

A seat is a number from 0. It decides which records of the board its slot writes, so a successor takes over the seat of a dead slot.
"""

from __future__ import annotations

import os
import selectors
import signal
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol

from tenure import machine
from tenure.backoff import delay_after
from tenure.clock import Clock
from tenure.logs import NodeLog
from tenure.served_workflow import ServedWorkflow
from tenure.work.delivery import WorkFailure
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.slots.frames import SlotBroken, SlotFrame, SlotReady, SlotTrouble, StartSlot
from tenure.work.slots.interpreters import MARK
from tenure.work.slots.processes import (
    cgroup_oom_kills,
    describe_exit,
    last_dump,
    read_stat,
    send,
)
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.slot_launcher import SlotLauncher
from tenure.work.slots.slot_process import Ended, SlotProcess, SlotState
from tenure.work.stack_text import stack_evidence

QUICK_DEATH_S = 5.0
"""A slot that dies sooner than this after its start keeps dying: its successor waits."""
MAX_BACKOFF_S = 30.0
CANNOT_SPAWN_S = 5.0
BURY_S = 30.0
"""`end` waits this long for killed processes. One that waits inside the kernel for ever is left to init."""
SAID_CHARS = 8_000
"""A longer complaint of a slot is cut to this in the log."""


class SlotListener(Protocol):
    """Defines the calls of a pool to its supervisor."""

    def slot_ready(self) -> None:
        """A slot has imported its modules; `serves` has their workflows."""

    def slot_seated(self, slot: SlotProcess) -> None:
        """A slot has got a seat, and may get work."""

    def slot_said(self, slot: SlotProcess, frames: list[SlotFrame]) -> None: ...

    def slot_died(self, slot: SlotProcess, failure: WorkFailure) -> None: ...


class SlotPool:
    """Starts slots, gives them seats, reads their frames and reaps them. It knows nothing of work: it passes on what concerns it."""

    def __init__(
        self,
        settings: SlotSettings,
        selector: selectors.BaseSelector,
        *,
        modules: list[str],
        board: Path,
        claims: Path,
        folder: Path,
        incarnation: str,
        worker: str,
        launcher: SlotLauncher,
        clock: Clock,
        log: NodeLog,
        listener: SlotListener,
        errors: IsolatedErrors,
    ) -> None:
        self._settings, self._selector, self._clock, self._log = settings, selector, clock, log
        self._launcher, self._listener, self._errors = launcher, listener, errors
        self._start = StartSlot(
            modules=modules,
            board=str(board),
            claims=str(claims),
            incarnation=incarnation,
            folder=str(folder),
            supervisor=os.getpid(),
            settings=asdict(replace(settings, token="", courier="", result_keys=None)),
            worker=worker,
        )
        self._mark = f"{MARK}={incarnation}".encode()
        self.slots: list[SlotProcess] = []
        self.draining = False
        self.broken: SlotBroken | None = None
        self.ever_ready = False
        self.serves: tuple[ServedWorkflow, ...] | None = None
        """The workflows that the slots serve; None until one of them has imported the modules."""
        self._spawn_after, self._quick_deaths = 0.0, 0
        self._oom = cgroup_oom_kills()
        self._sessions: set[int] = set()
        self._to_bury: set[int] = set()

    @property
    def serving(self) -> int:
        return sum(slot.state is SlotState.SERVING for slot in self.slots)

    def keep(self) -> None:
        """Starts the slots that are missing, unless they keep dying."""
        now = self._clock.monotonic()
        if self.draining or now < self._spawn_after:
            return
        try:
            while len(self.slots) + self._launcher.asked < self._settings.slots + 1:
                asked = self._launcher.launch(self._start)
                self._welcome()
                if not asked:
                    break
        except OSError:
            # No process, memory or descriptor is to be had: not ten times a second.
            self._spawn_after = now + CANNOT_SPAWN_S
            raise

    def _welcome(self) -> None:
        """Takes the slots that were started since the last call."""
        for slot in self._launcher.arrived():
            self.slots.append(slot)
            self._sessions.add(slot.pid)  # each slot leads a session of its own
            self._selector.register(slot.channel.socket, selectors.EVENT_READ, slot)
            if self.draining:
                slot.kill()
        if self._launcher.failure:
            self._spawn_after = self._clock.monotonic() + CANNOT_SPAWN_S
            self._log.warning(f"no slot could be forked: {self._launcher.failure}")
            self._launcher.failure = ""
        if self._launcher.refusal and self.broken is None:
            self.broken = SlotBroken(f"slots cannot be forked: {self._launcher.refusal}", "")
            self._log.error(self.broken.reason)
        if self._launcher.dead:
            self._sessions |= self._launcher.dead  # of what they were about to fork
            self._to_bury |= self._launcher.dead
            self._launcher.dead = set()
            self._end_orphans()

    def hear(self, slot: SlotProcess | SlotLauncher, *, last: bool = False) -> None:
        """Reads what a slot sent; `last`: all of it, because the slot is dead. A process that it forked may keep the channel open."""
        if isinstance(slot, SlotLauncher):
            self._welcome()
            return
        frames = slot.channel.read(to_the_end=last)
        if last or not slot.channel.open:
            # Before anything else: a closed socket that stays registered would wake us for ever.
            with suppress(KeyError):  # it was heard to its end before
                self._selector.unregister(slot.channel.socket)
        work = [frame for frame in frames if not self._heard(slot, frame)]
        if work:
            self._listener.slot_said(slot, work)

    def _heard(self, slot: SlotProcess, frame: SlotFrame) -> bool:
        """Returns False for a frame that concerns work."""
        if isinstance(frame, SlotReady) and self._launcher.refusal and not self.ever_ready:
            pass  # the server that refused became this slot, and the supervisor ends, however quick it was
        elif isinstance(frame, SlotReady):
            slot.state, self.ever_ready, self.broken = SlotState.SPARE, True, None
            self.serves = tuple(frame.workflows)
            self._listener.slot_ready()
            self._assign()
        elif isinstance(frame, SlotBroken):
            self.broken = frame
            self._log.error(f"a slot cannot serve: {frame.reason}\n{frame.trace}")
        elif isinstance(frame, SlotTrouble):
            slot.last_trouble = frame.text[:SAID_CHARS]
            self._log.warning(f"slot {slot.pid}: {slot.last_trouble}")
        else:
            return False
        return True

    def _assign(self) -> None:
        """Gives each seat without a slot a spare one."""
        taken = {slot.seat for slot in self.slots}
        spares = [slot for slot in self.slots if slot.state is SlotState.SPARE]
        width = self._settings.concurrency
        for seat in range(self._settings.slots):
            if seat not in taken and spares and not self.draining:
                spare = spares.pop()
                spare.go(seat, list(range(seat * width, (seat + 1) * width)))
                self._listener.slot_seated(spare)

    @property
    def is_whole(self) -> bool:
        """Returns True while every seat has a slot, a spare one is ready, and nothing is left to send, to start or to bury."""
        spares = sum(slot.state is SlotState.SPARE for slot in self.slots)
        whole = self.serving == self._settings.slots and spares == 1 and len(self.slots) == self._settings.slots + 1
        return whole and not (self._to_bury or self._launcher.asked or any(slot.channel.unsent for slot in self.slots))

    @property
    def lost_line(self) -> bool:
        """Returns True when a slot's channel is closed: it has died, or is about to."""
        return any(not slot.channel.open for slot in self.slots)

    def reap(self) -> None:
        with self._errors.isolate("looking after the fork server"):
            self._welcome()
        for slot in list(self.slots):
            with self._errors.isolate(f"burying slot {slot.pid}"):
                ended = slot.reap()
                if ended is not None:
                    self._bury_slot(slot, ended)
        with self._errors.isolate("burying what slots left"):
            self._bury()

    def _bury_slot(self, slot: SlotProcess, ended: Ended) -> None:
        self.slots.remove(slot)
        with self._errors.isolate(f"hearing the last words of slot {slot.pid}"):
            # Its outcomes among them. A channel that was seen closed by sending may have some, too, and its socket is registered.
            self.hear(slot, last=True)
        cause, reason, evidence = describe_exit(ended.status, oom_before=self._oom, peak=ended.peak_memory)
        if os.WIFSIGNALED(ended.status) and not slot.killed_by_us:
            evidence |= stack_evidence(last_dump(slot.dump_path))  # what the fault handler wrote as it died
        failure = WorkFailure(cause=cause, reason=reason, evidence=evidence)
        self._oom = cgroup_oom_kills()
        if not self.draining and not slot.killed_by_us:
            self._log.warning(f"slot {slot.pid} ended: {failure.reason}")
            self._back_off(slot, ended)
        self._listener.slot_died(slot, failure)
        slot.close()
        self._to_bury |= slot.below
        self._end_orphans()
        self._assign()

    def _back_off(self, slot: SlotProcess, ended: Ended) -> None:
        """Delays the next start when slots end themselves soon after theirs, a little longer each time.

        A slot that was killed, or that worked for a while, predicts nothing about its successor: it resets the count.
        """
        now = self._clock.monotonic()
        if slot.state is not SlotState.STARTING and (
            os.WIFSIGNALED(ended.status) or now - slot.started > QUICK_DEATH_S
        ):
            self._quick_deaths = 0
            return
        self._quick_deaths += 1
        if self._quick_deaths > 1:
            pause = delay_after(self._quick_deaths, first_s=0.5, most_s=MAX_BACKOFF_S)
            self._spawn_after = now + pause
            self._log.warning(f"slots keep dying: the next one starts in {pause:g} s")

    def _end_orphans(self) -> None:
        """Kills and reaps the processes that a dead slot left. As subreaper, this process has become their parent.

        It leaves other children alone: they may belong to the program that the supervisor is part of.
        """
        children = machine.here.own_children()
        self._welcome()  # after the look: a slot that has become our child was told of before
        known = {slot.pid for slot in self.slots} | {self._launcher.pid}
        for child in children:
            stat = read_stat(child)
            if child in known or stat is None:
                continue
            if stat.state != "Z" and self._is_ours(child):
                send(child, signal.SIGKILL)
                self._to_bury.add(child)
            elif stat.session in self._sessions:
                self._to_bury.add(child)

    def _bury(self) -> None:
        for pid in list(self._to_bury):
            try:
                buried = os.waitpid(pid, os.WNOHANG)[0] == pid
            except ChildProcessError:
                buried = not machine.here.exists(pid)  # its own parent may reap it, or it is not yet our child
            if buried:
                self._to_bury.discard(pid)

    def _is_ours(self, pid: int) -> bool:
        return self._mark in machine.here.environment_of(pid)

    def drain(self) -> None:
        """Tells all slots to start nothing more, and starts no others. Slots that are still starting are killed: nobody needs them."""
        self.draining = True
        self._log.info("draining: nothing more is claimed")
        self._launcher.end()
        self._welcome()
        for slot in self.slots:
            if slot.state is SlotState.STARTING:
                slot.kill()
            else:
                slot.drain()

    def end(self) -> None:
        """Kills and reaps the slots that are left."""
        self.draining = True
        self._launcher.end()
        self._welcome()
        for slot in self.slots:
            slot.kill()
        deadline = self._clock.monotonic() + BURY_S
        while (self.slots or self._to_bury) and self._clock.monotonic() < deadline:
            self.reap()
            self._clock.sleep(0.005)
