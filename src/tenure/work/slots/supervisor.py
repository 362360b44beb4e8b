"""The supervisor: extends the leases of work that beats, and ends work that does not.

It runs no user code and imports none. It looks at the beat board a few times a second, and `AttemptSupervision` does what is to be done
about each attempt. Whatever happens to a slot, its work is settled with the cause and the evidence. Whatever fails here while one slot or
one attempt is handled ends that one thing: only a drain, and modules that cannot be served, end the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from random import Random

from tenure.beat.board import BeatBoard, BeatReading, BoardIdentity, Totals, board_folder
from tenure.clock import Clock, SystemClock
from tenure.engines.contracts import Engine
from tenure.errors import BoardError
from tenure.ids import IdSource, new_id
from tenure.randomness import fresh_random
from tenure.work.attempt_logs import FileLines, LogPublisher
from tenure.work.delivery import CancelCode
from tenure.work.slots.attempt_supervision import AttemptSupervision
from tenure.work.slots.control_channel import SlotBroken
from tenure.work.slots.isolated_errors import IsolatedErrors
from tenure.work.slots.processes import adopt_orphans, kill_strays, read_stat
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.slot_deliveries import DeadWorkerCleanup, SlotDeliveries
from tenure.work.slots.slot_pool import SlotPool

BROKEN = 2
"""`run` returns this when the modules cannot be served."""


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
        say: Callable[[str], None] = print,
        folder: Path | None = None,
        worker: str = "",
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings or SlotSettings()
        self._modules, self._engine_url, self._say = modules, engine_url, say
        self._clock, self._random = clock or SystemClock(), random or fresh_random()
        self.incarnation = ids()
        self.worker = worker or self.incarnation
        """The worker's name. It may stay the same over several starts; the incarnation does not."""
        self._on_change = on_change
        """Called from `run`'s thread when an attempt began or ended."""
        self._errors = IsolatedErrors(say)
        self._board: BeatBoard | None = None
        self._board_lock = threading.Lock()
        self._slot_pool: SlotPool | None = None
        self._steps = 0
        self._handover = ""
        records = self.settings.slots * self.settings.concurrency
        self._folder = folder or board_folder(needs=(records + 2) * 8_192)
        self._private = self._folder / self.incarnation
        """The folder of this start: logs of running attempts and stack dumps."""
        self._engine_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="tenure-engine")
        self._attempts: AttemptSupervision | None = None
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._draining = self._stopping = False
        self._drain_deadline = float("inf")
        self.ready = threading.Event()
        """Set once every seat has a slot that serves."""

    # These methods may be called from any thread; drain, stop and hand_over also from signal handlers.

    def drain(self) -> None:
        """Claim nothing more, finish or hand over what runs, then return from `run`. A second call hands over now."""
        self._stopping = self._draining
        self._draining = True
        self._wake_up()

    def stop(self) -> None:
        """Hands everything over now."""
        self._draining = self._stopping = True
        self._wake_up()

    def hand_over(self, reason: str) -> None:
        """Claim nothing more, ask what runs to stop, kill it after its grace, then return from `run`."""
        self._handover, self._draining = reason, True
        self._wake_up()

    def admit(self, most: int | None, peers: int = 0) -> None:
        """Lets `most` slots take new work from now on, None all of them. `peers` counts the other workers that could do it."""
        self._later(lambda: self._admit(most, peers))

    def _admit(self, most: int | None, peers: int) -> None:
        busy = {index // self.settings.concurrency for index in self._running_attempts().records}
        self._running_slot_pool().admit(most, busy, peers)

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, reason: str = "cancelled by request"
    ) -> bool:
        """Asks the attempts of one job, or of one of its workflows, to end. Returns True when one runs here."""
        found = [
            (index, reading.serial)
            for index, reading in self.readings()
            if (occupant := reading.occupant) is not None
            and occupant.job == job
            and workflow_id in ("", occupant.workflow_id)
            and attempt in (0, occupant.attempt)
        ]
        for index, serial in found:
            self._later(self._canceller(index, serial, reason))
        return bool(found)

    def _canceller(self, index: int, serial: int, reason: str) -> Callable[[], None]:
        return lambda: self._running_attempts().cancel(index, CancelCode.CANCEL, reason, serial=serial)

    def readings(self) -> list[tuple[int, BeatReading]]:
        """Returns a reading of every record that is not damaged; an empty list before `run` and after it."""
        with self._board_lock:
            found = []
            for record in self._board.records if self._board else ():
                with contextlib.suppress(BoardError):
                    found.append((record.index, record.read()))
            return found

    @property
    def mishaps(self) -> int:
        """Counts the errors of Tenure itself that ended one thing here. Its name is the metric's, `tenure_worker_mishaps`."""
        return self._errors.count

    def lease_of(self, index: int, serial: int) -> float:
        """Returns the boot time at which the lease of an attempt is lost; 0 before `run` and after it."""
        with self._board_lock:
            return self._board.records[index].lease_of(serial) if self._board else 0.0

    def totals(self) -> Totals:
        """Returns the totals of all attempts since this supervisor started."""
        with self._board_lock:
            found = [record.totals() for record in self._board.records] if self._board else []
        # A slot moves a record's steps from one word to another as the next attempt begins. A read in between would show fewer.
        self._steps = max(self._steps, sum(one.steps for one in found))
        return Totals(sum(one.completed for one in found), sum(one.failed for one in found), self._steps)

    @property
    def accepting(self) -> bool:
        """Returns True once every seat has had a slot, unless a drain began or the modules cannot be served."""
        return self.ready.is_set() and not self._draining and self.broken is None

    @property
    def broken(self) -> SlotBroken | None:
        """Returns the reason why the slots cannot serve, or None."""
        return self._slot_pool.broken if self._slot_pool else None

    # The life of a supervisor.

    def run(self) -> int:
        """Serves until a drain. Returns 0 after a drain, 2 when the modules could not be served at all."""
        engine_name = self._engine_url.split("?", 1)[0].rpartition("@")[2]
        adopt_orphans()
        with Engine.open(self._engine_url, clock=self._clock) as engine, selectors.DefaultSelector() as selector:
            with self._errors.isolate("clearing up after dead workers"):
                DeadWorkerCleanup(
                    self._folder, engine, engine_name, clock=self._clock, random=self._random, say=self._say
                ).clear()
            self._open_board(engine_name)
            self._attempts = attempts = self._make_attempts(engine)
            self._slot_pool = slot_pool = self._make_slot_pool(selector, attempts)
            try:
                return self._loop(selector, slot_pool, attempts)
            finally:
                self._end(slot_pool)

    def _make_attempts(self, engine: Engine) -> AttemptSupervision:
        lines = FileLines(self._private)
        deliveries = SlotDeliveries(engine, self.worker, lines, clock=self._clock, random=self._random, say=self._say)
        return AttemptSupervision(
            self.settings,
            self._open(),
            lambda: self._running_slot_pool().slots,
            deliveries,
            LogPublisher(engine.store("logs"), lines, self._clock, self._engine_threads.submit),
            self._engine_threads,
            self._later,
            clock=self._clock,
            say=self._say,
            errors=self._errors,
        )

    def _make_slot_pool(self, selector: selectors.BaseSelector, attempts: AttemptSupervision) -> SlotPool:
        return SlotPool(
            self.settings,
            selector,
            engine_url=self._engine_url,
            modules=self._modules,
            board=self._open().path,
            folder=self._private,
            incarnation=self.incarnation,
            worker=self.worker,
            clock=self._clock,
            say=self._say,
            on_death=attempts.settle_dead,
            errors=self._errors,
        )

    def _end(self, slot_pool: SlotPool) -> None:
        slot_pool.end()
        self._engine_threads.shutdown(wait=True)
        kill_strays(self.incarnation)
        with self._board_lock:
            self._open().close()
            self._board = None
        shutil.rmtree(self._private, ignore_errors=True)
        self._wake_in.close()
        self._wake_out.close()

    def _open_board(self, engine_name: str) -> None:
        own = read_stat(os.getpid())
        identity = BoardIdentity(
            incarnation=self.incarnation,
            pid=os.getpid(),
            pid_started=own.started if own else 0,
            boot_id=self._clock.boot_id(),
            engine=engine_name,
            worker=self.worker,
        )
        self._board = BeatBoard.create(self._folder, self.settings.slots * self.settings.concurrency, identity)
        self._private.mkdir(mode=0o700)

    def _open(self) -> BeatBoard:
        assert self._board is not None, "it is open while it runs"
        return self._board

    def _running_slot_pool(self) -> SlotPool:
        assert self._slot_pool is not None, "it is there while it runs"
        return self._slot_pool

    def _running_attempts(self) -> AttemptSupervision:
        assert self._attempts is not None, "they are there while it runs"
        return self._attempts

    def _loop(self, selector: selectors.BaseSelector, slot_pool: SlotPool, attempts: AttemptSupervision) -> int:
        selector.register(self._wake_out, selectors.EVENT_READ, None)
        while True:
            with self._errors.isolate("starting slots"):
                slot_pool.keep()
            self._hear(selector, slot_pool)
            while not self._done.empty():
                with self._errors.isolate("what was to be done next"):
                    self._done.get()()
            slot_pool.reap()
            with self._errors.isolate("looking at the attempts"):
                changed = attempts.look()
                if slot_pool.serving == self.settings.slots and not self.ready.is_set():
                    self.ready.set()
                    changed = True
                if changed:
                    self._on_change()
            if slot_pool.broken is not None and not slot_pool.ever_ready:
                return BROKEN
            with self._errors.isolate("draining"):
                if self._draining and self._drained(slot_pool, attempts):
                    return 0

    def _hear(self, selector: selectors.BaseSelector, slot_pool: SlotPool) -> None:
        """Waits for a tick, or until a slot sends a line or another thread calls `_wake_up`."""
        for key, _ in selector.select(self.settings.tick_s):
            if key.data is None:
                self._wake_out.recv(4_096)
            else:
                with self._errors.isolate(f"hearing slot {key.data.pid}"):
                    slot_pool.hear(key.data)

    # Draining.

    def _drained(self, slot_pool: SlotPool, attempts: AttemptSupervision) -> bool:
        now = self._clock.monotonic()
        if not slot_pool.draining:
            self._drain_deadline = now + self.settings.drain_timeout_s
            slot_pool.drain()
        if self._stopping or self._handover or self.settings.drain == "handover" or now >= self._drain_deadline:
            for index in attempts.records:
                with self._errors.isolate(f"handing over the attempt in record {index}"):
                    attempts.cancel(index, CancelCode.DRAIN, self._handover or "the worker is shutting down")
        if self._stopping:
            attempts.kill_now()
        return not slot_pool.slots

    def _later(self, call: Callable[[], None]) -> None:
        self._done.put(call)
        self._wake_up()

    def _wake_up(self) -> None:
        try:
            self._wake_in.send(b"x", socket.MSG_DONTWAIT)
        except OSError:
            return  # the buffer is full: it is awake already
