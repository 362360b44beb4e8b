"""The supervisor: claims work for its slots and settles their outcomes, extends the leases of work that beats, and ends work that does not.

It runs no user code and imports none. It has the worker's one connection to the engine: `DeliveryDesk` hands work over and settles it. It looks
at the beat board ten times a second, and `AttemptSupervision` does what is to be done about each attempt. Whatever happens to a slot, its work is settled with the cause and the evidence. Whatever fails here while one slot or
one attempt is handled ends that one thing: only a drain, modules that cannot be served, and an engine that lost what it had acknowledged
end the supervisor.
"""

from __future__ import annotations

import selectors
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

from tenure.beat.board import BeatBoard, board_folder
from tenure.clock import Clock, SystemClock
from tenure.engines.contracts import Engine, Fence
from tenure.errors import EngineWentBackError
from tenure.logs import NodeLog
from tenure.randomness import IdSource, fresh_random, new_id
from tenure.served_workflow import ServedWorkflow
from tenure.work.delivery import CancelCode, WorkFailure
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.result_signatures import signer_for
from tenure.work.slots.call_inbox import CallInbox
from tenure.work.slots.claim_page import ClaimPage
from tenure.work.slots.claim_queue import MOST_AHEAD
from tenure.work.slots.frames import SlotBroken, SlotFrame
from tenure.work.slots.interpreters import BegunServer
from tenure.work.slots.look_times import LookTimes
from tenure.work.slots.processes import adopt_orphans, kill_strays
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.shared_board import SharedBoard
from tenure.work.slots.slot_deliveries import DeadWorkerCleanup
from tenure.work.slots.slot_launcher import SlotLauncher
from tenure.work.slots.slot_process import SlotProcess
from tenure.work.slots.supervisor_parts import (
    SharedCourier,
    SupervisorContext,
    SupervisorParts,
    make_launcher,
    make_parts,
    open_engine,
    own_identity,
)
from tenure.work.wait_brake import HeldWord

ENGINE_LOST = 1
"""`run` returns this when the engine lost what it had acknowledged."""
BROKEN = 2
"""`run` returns this when the modules cannot be served."""
NAP_S = 0.004
"""While every slot has work at hand, what they send is read this much later at most."""
COURIER_THREADS = 64
"""Calls to the managers that wait at once: a workflow that waits for a child job has one under way."""


class Supervisor:
    """Create it, then call `run()` in the thread that shall own the slots: they die with that thread."""

    def __init__(
        self,
        modules: list[str],
        engine_url: str,
        settings: SlotSettings | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        ids: IdSource = new_id,
        log: NodeLog | None = None,
        folder: Path | None = None,
        worker: str = "",
        on_change: Callable[[], None] = lambda: None,
        begun: BegunServer | None = None,
    ) -> None:
        """`begun`: a fork server that was started for this supervisor before."""
        self.settings = settings or SlotSettings()
        self._modules, self._engine_url, self._ids = modules, engine_url, ids
        self._clock, self._random = clock or SystemClock(), random or fresh_random()
        self.incarnation, self._begun = begun.incarnation if begun is not None else ids(), begun
        self.worker = worker or self.incarnation
        """The worker's name. It may stay the same over several starts; the incarnation does not."""
        self._log = log or NodeLog("worker", self.worker)
        self._signer = signer_for(self.settings.result_keys, self.worker)
        self._on_change = on_change  # called from `run`'s thread when an attempt began or ended
        self.on_turn: Callable[[], None] = lambda: None  # called from there at each turn of its loop
        self._errors = IsolatedErrors(self._log)
        self.board = SharedBoard()
        self._parts: SupervisorParts | None = None
        self._open_seats: frozenset[int] | None = None  # those that may get new work; None for all
        self._handover, self._engine_lost = "", ""  # the last: the words of an engine that lost work
        records = self.settings.slots * self.settings.concurrency
        self._folder = folder or board_folder(needs=(records + 2) * 8_192)
        self._private = self._folder / self.incarnation  # of this start: logs of running attempts and stack dumps
        self._engine_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="tenure-engine")
        self._courier_threads = ThreadPoolExecutor(max_workers=COURIER_THREADS, thread_name_prefix="tenure-courier")
        self._inbox, self._looks = CallInbox(self._errors), LookTimes(self.settings.tick_s)
        self._draining, self._stopping, self._drain_deadline = False, False, float("inf")
        self.ready = threading.Event()
        """Set once every seat has a slot that serves."""

    # These methods may be called from any thread; drain, stop and hand_over also from signal handlers.

    def drain(self) -> None:
        """Claim nothing more, finish or hand over what runs, then return from `run`. A second call hands over now."""
        self._stopping, self._draining = self._draining, True
        self._inbox.ring()

    def stop(self) -> None:
        """Hands everything over now."""
        self._draining = self._stopping = True
        self._inbox.ring()

    def hand_over(self, reason: str) -> None:
        """Claim nothing more, ask what runs to stop, kill it after its grace, then return from `run`."""
        self._handover, self._draining = reason, True
        self._inbox.ring()

    def engine_lost(self, error: EngineWentBackError) -> None:
        """The engine lost what it had acknowledged: kill what runs, settle nothing of it, and return from `run` (decision 0295)."""
        self._engine_lost = self._engine_lost or str(error)
        self._inbox.ring()

    def admit(self, most: int | None, peers: int = 0) -> None:
        """Lets `most` slots take new work from now on, None all of them. `peers` counts the other workers that could do it."""
        self._inbox.put(lambda: self._admit(most, peers))

    def hold(self, holds: Sequence[HeldWord]) -> None:
        """Sets everything that is down: clocks of attempts that wait for it stand still, and only some of them may try."""
        self._inbox.put(lambda: self._running().attempts.brake.tell(holds))

    def _admit(self, most: int | None, peers: int) -> None:
        busy = {index // self.settings.concurrency for index in self._running().attempts.records}
        free_first = sorted(range(self.settings.slots), key=lambda seat: (seat in busy, seat))
        self._open_seats = None if most is None else frozenset(free_first[:most])
        self._running().desk.admit(self._is_open, peers)

    def _is_open(self, seat: int) -> bool:
        return self._open_seats is None or seat in self._open_seats

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, fence: Fence | None = None, reason: str = ""
    ) -> bool:
        """Asks the attempts of one job, or of one of its workflows, to end, and starts none that was claimed. Returns True when there is one."""
        reason = reason or "cancelled by request"
        found = [
            (index, reading.serial)
            for index, reading in self.board.readings()
            if reading.occupant is not None and reading.occupant.is_of(job, workflow_id, attempt, fence)
        ]
        for index, serial in found:
            self._inbox.put(self._canceller(index, serial, reason))
        parts = self._parts if self.board.is_open else None
        return (parts is not None and parts.desk.cancel(job, workflow_id, attempt, fence, reason)) or bool(found)

    def _canceller(self, index: int, serial: int, reason: str) -> Callable[[], None]:
        return lambda: self._running().attempts.cancel(index, CancelCode.CANCEL, reason, serial=serial)

    @property
    def mishaps(self) -> int:
        """Counts the errors of Tenure itself that ended one thing here. Its name is the metric's, `tenure_worker_mishaps`."""
        return self._errors.count

    @property
    def accepting(self) -> bool:
        """Returns True once every seat has had a slot, unless a drain began or the modules cannot be served."""
        return self.ready.is_set() and not self._draining and self.broken is None

    @property
    def broken(self) -> SlotBroken | None:
        """Returns the reason why the slots cannot serve, or None."""
        return self._parts.pool.broken if self._parts else None

    @property
    def serves(self) -> tuple[ServedWorkflow, ...] | None:
        """Returns the workflows that the slots serve; None until one of them has imported the modules."""
        return self._parts.pool.serves if self._parts else None

    # The life of a supervisor.

    def run(self) -> int:
        """Serves until a drain. Returns 0 after a drain, `BROKEN` when the modules could not be served at all, or `ENGINE_LOST`."""
        adopt_orphans()
        with selectors.DefaultSelector() as selector:
            launcher = make_launcher(
                self.settings,
                self._modules,
                self.incarnation,
                selector,
                self._clock,
                self._log,
                self._begun,
            )
            try:
                with self._errors.isolate("starting the fork server"):
                    launcher.warm_up()  # it imports the modules while the engine is opened
                opened = open_engine(
                    self.settings, self._engine_url, self._clock, self._random, self._log, lambda: self._draining
                )
                return self._serve(opened, selector, launcher) if opened is not None else 0
            finally:
                launcher.end()
                launcher.bury()

    def _serve(self, opened: Engine, selector: selectors.BaseSelector, launcher: SlotLauncher) -> int:
        engine_name = self._engine_url.split("?", 1)[0].rpartition("@")[2]
        with opened as engine:
            with self._errors.isolate("clearing up after dead workers"):
                DeadWorkerCleanup(
                    self._folder, engine, engine_name, clock=self._clock, random=self._random, log=self._log
                ).clear(self._signer)
            page = self._open_board(engine_name)
            self._parts = self._make_parts(engine, page, selector, launcher)
            try:
                return self._loop(selector, self._parts)
            finally:
                self._end(self._parts)

    def _make_parts(
        self, engine: Engine, page: ClaimPage, selector: selectors.BaseSelector, launcher: SlotLauncher
    ) -> SupervisorParts:
        context = SupervisorContext(
            settings=self.settings,
            modules=self._modules,
            incarnation=self.incarnation,
            worker=self.worker,
            board=self.board.open,
            page=page,
            folder=self._private,
            clock=self._clock,
            random=self._random,
            ids=self._ids,
            log=self._log,
            errors=self._errors,
            launcher=launcher,
            engine_threads=self._engine_threads,
            courier_threads=self._courier_threads,
            courier=SharedCourier(self.settings, self._engine_url).get,
            later=self._inbox.put,
            on_handed_over=self._work_handed_over,
            on_engine_lost=self.engine_lost,
        )
        return make_parts(context, engine, selector, self)

    def _end(self, parts: SupervisorParts) -> None:
        parts.pool.end()
        parts.desk.close(self.settings.settle_within_s)
        self._engine_threads.shutdown(wait=True)
        self._courier_threads.shutdown(wait=False, cancel_futures=True)
        kill_strays(self.incarnation)
        self.board.close()
        parts.page.close()
        shutil.rmtree(self._private, ignore_errors=True)
        self._inbox.close()

    # What the pool tells (`SlotListener`).

    def slot_ready(self) -> None:
        parts = self._running()
        parts.desk.serve([kind for one in parts.pool.serves or () for kind in one.does])

    def slot_seated(self, slot: SlotProcess) -> None:
        assert slot.seat is not None, "it was given one"
        self._running().desk.add_seat(
            slot.seat, self.settings.concurrency, slot.channel, is_open=self._is_open(slot.seat)
        )

    def slot_said(self, slot: SlotProcess, frames: list[SlotFrame]) -> None:
        seat = slot.seat if slot.seat is not None else -1
        self._running().desk.hear(seat, frames, f"what slot {slot.pid} said")

    def slot_died(self, slot: SlotProcess, failure: WorkFailure) -> None:
        parts = self._running()
        settled = parts.attempts.settle_dead(slot, failure)
        if slot.seat is not None:
            parts.desk.remove_seat(slot.seat, settled)

    def _open_board(self, engine_name: str) -> ClaimPage:
        records = self.settings.slots * self.settings.concurrency
        identity = own_identity(self.incarnation, self.worker, engine_name, self._clock)
        self.board.opened(BeatBoard.create(self._folder, records, identity))
        self._private.mkdir(mode=0o700)
        return ClaimPage.create(self._folder, self.incarnation, records + min(self.settings.slots, 16) * MOST_AHEAD)

    def _running(self) -> SupervisorParts:
        assert self._parts is not None, "they are there while it runs"
        return self._parts

    def _loop(self, selector: selectors.BaseSelector, parts: SupervisorParts) -> int:
        pool, looks = parts.pool, self._looks
        selector.register(self._inbox.bell, selectors.EVENT_READ, None)
        while True:
            self.on_turn()
            with self._errors.isolate("starting slots"):
                pool.keep()
            self._hear(selector, parts)
            self._inbox.make_calls()
            if not looks.wait_s(self._clock.monotonic()) or pool.lost_line or self._draining:
                self._look(parts)
                looks.looked(self._clock.monotonic(), partial(self._has_nothing_to_watch, parts))
            if lost := self._engine_lost:
                self._log.error(f"ALARM: this worker ends, and drops what it holds without settling it: {lost}")
                parts.attempts.drop_all()
                parts.desk.drop()
                return ENGINE_LOST
            if pool.broken is not None and not pool.ever_ready:
                return BROKEN
            with self._errors.isolate("draining"):
                if self._draining and self._drained(parts):
                    return 0

    def _look(self, parts: SupervisorParts) -> None:
        """Looks at slots and attempts. Under full load, too, this happens ten times a second."""
        parts.pool.reap()
        with self._errors.isolate("looking at the attempts"):
            changed = parts.attempts.look()
            if parts.pool.serving == self.settings.slots and not self.ready.is_set():
                self.ready.set()
                changed = True
            if changed:
                self._on_change()
        with self._errors.isolate("looking at what was claimed"):
            parts.attempts.end_stuck(parts.desk.look())

    def _has_nothing_to_watch(self, parts: SupervisorParts) -> bool:
        is_quiet = not parts.attempts.records and parts.desk.is_empty and parts.pool.is_whole
        return is_quiet and self.ready.is_set() and not self._draining

    def _work_handed_over(self) -> None:
        if self._looks.resting:
            self._inbox.ring()

    def _hear(self, selector: selectors.BaseSelector, parts: SupervisorParts) -> None:
        """Waits for the next look, or until a slot sends something or another thread rings."""
        if nap_s := min(NAP_S, parts.desk.nap_s):
            # Every slot has work at hand: to read what they send a little later, together, costs less.
            self._clock.sleep(nap_s)
        unsent = [slot for slot in parts.pool.slots if slot.channel.unsent]
        wait_s = NAP_S if unsent else self._looks.wait_s(self._clock.monotonic())
        heard = False
        for key, _ in selector.select(wait_s):
            self._looks.disturbed(self._clock.monotonic())
            if key.data is None:
                self._inbox.heard()
            else:
                heard = True
                with self._errors.isolate(f"hearing slot {key.data.pid}"):
                    parts.pool.hear(key.data)
        if heard:
            parts.desk.go_on()
        for slot in unsent:
            slot.channel.flush()

    # Draining.

    def _drained(self, parts: SupervisorParts) -> bool:
        now, attempts = self._clock.monotonic(), parts.attempts
        if not parts.pool.draining:
            self._drain_deadline = now + self.settings.leave_within_s
            parts.desk.drain()
            parts.pool.drain()
        leaving = attempts.leaving(now, self._drain_deadline) if self.settings.drain == "handover" else []
        for index in attempts.records if self._stopping or self._handover or now >= self._drain_deadline else leaving:
            with self._errors.isolate(f"handing over the attempt in record {index}"):
                attempts.cancel(index, CancelCode.DRAIN, self._handover or "the worker is shutting down")
        if self._stopping:
            attempts.kill_now()
        return not parts.pool.slots
