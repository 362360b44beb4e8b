"""The supervisor: extends the leases of work that beats, and ends work that does not.

It runs no user code and imports none. It looks at the beat board a few times a second, asks `AttemptWatch` what to do about each
attempt, and does it; calls to the engine go through a few threads, so that a slow engine delays no decision. Whatever happens to
a slot, its work is settled with the cause and the evidence.
"""

from __future__ import annotations

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

from tenure.beat.board import BeatBoard, Identity, Phase, Reading, Totals, board_folder
from tenure.clock import Clock, SystemClock
from tenure.engines.contracts import Engine
from tenure.errors import ReceiptHandleExpiredError, TenureError
from tenure.ids import IdSource, new_id
from tenure.randomness import fresh_random
from tenure.work.envelope import WorkFailure
from tenure.work.seat import CancelCode
from tenure.work.slots.aftermath import Aftermath, Held
from tenure.work.slots.control import Broken, Cancel
from tenure.work.slots.crew import Crew
from tenure.work.slots.leftovers import clear_leftovers
from tenure.work.slots.processes import adopt_orphans, kill_strays, read_stat
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.showing_logs import LogShow
from tenure.work.slots.slot_process import SlotProcess
from tenure.work.slots.watch import Act, AttemptWatch, Verdict
from tenure.work.slots.watched import Watched, failure_of

BROKEN = 2
"""What `run` returns when the modules cannot be served."""


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
        """Its name, which may outlive this start."""
        self._on_change = on_change
        """Called from `run`'s thread when an attempt began or ended."""
        self._seen: dict[int, tuple[int, bool]] = {}
        self._board: BeatBoard | None = None
        self._board_lock = threading.Lock()
        self._crew: Crew | None = None
        self._steps = 0
        self._handover = ""
        records = self.settings.slots * self.settings.concurrency
        self._folder = folder or board_folder(needs=(records + 2) * 8_192)
        self._watched: dict[int, Watched] = {}
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._draining = self._stopping = False
        self._drain_deadline = float("inf")
        self.ready = threading.Event()
        """Set once every seat has a slot that serves."""

    # What others may call, from any thread and from signal handlers.

    def drain(self) -> None:
        """Claim nothing more, finish or hand over what runs, then return from `run`. A second call hands over now."""
        self._stopping = self._draining
        self._draining = True
        self._wake_up()

    def stop(self) -> None:
        """Hand everything over now."""
        self._draining = self._stopping = True
        self._wake_up()

    def hand_over(self, reason: str) -> None:
        """Claim nothing more, ask what runs to stop, kill it after its grace, then return from `run`."""
        self._handover, self._draining = reason, True
        self._wake_up()

    def admit(self, most: int | None, peers: int = 0) -> None:
        """How many slots may take new work from now on, None for all; and how many other workers could do it."""
        self._later(lambda: self._admit(most, peers))

    def _admit(self, most: int | None, peers: int) -> None:
        busy = {index // self.settings.concurrency for index in self._watched}
        self._running_crew().admit(most, busy, peers)

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, reason: str = "cancelled by request"
    ) -> bool:
        """Ask the attempts of one job, or of one of its workflows, to end; True when one runs here."""
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
        def cancel() -> None:
            watched = self._watched.get(index)
            if watched is not None and watched.serial == serial:  # another attempt may have taken the record since
                self._cancel(index, CancelCode.CANCEL, reason)

        return cancel

    def readings(self) -> list[tuple[int, Reading]]:
        """What every record shows now; nothing before `run` and after it."""
        with self._board_lock:
            return [(record.index, record.read()) for record in self._board.records] if self._board else []

    def lease_of(self, index: int, serial: int) -> float:
        """Boot time at which the lease of an attempt is lost; 0 where nothing is known of it."""
        with self._board_lock:
            return self._board.records[index].lease_of(serial) if self._board else 0.0

    def totals(self) -> Totals:
        """Of all attempts of this start."""
        with self._board_lock:
            found = [record.totals() for record in self._board.records] if self._board else []
        # A record's steps are moved from one word to another as the next attempt begins: never show the moment in between.
        self._steps = max(self._steps, sum(one.steps for one in found))
        return Totals(sum(one.completed for one in found), sum(one.failed for one in found), self._steps)

    @property
    def accepting(self) -> bool:
        """Whether it can serve at all."""
        return self.ready.is_set() and not self._draining and self.broken is None

    @property
    def broken(self) -> Broken | None:
        """What keeps the slots from serving, if anything does."""
        return self._crew.broken if self._crew else None

    # The life of a supervisor.

    def run(self) -> int:
        """0 after a drain, 2 when the modules could not be served at all."""
        engine_name = self._engine_url.split("?", 1)[0].rpartition("@")[2]
        adopt_orphans()
        with Engine.open(self._engine_url, clock=self._clock) as engine, selectors.DefaultSelector() as selector:
            clear_leftovers(self._folder, engine, engine_name, self._clock, self._say)
            self._open_board(engine_name)
            self._evidence = engine.store("evidence")
            self._aftermath = Aftermath(
                engine, self.worker, self._private, clock=self._clock, random=self._random, say=self._say
            )
            self._crew = crew = Crew(
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
                on_death=self._settle_dead,
            )
            self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="tenure-engine")
            self._logs = LogShow(engine.store("logs"), self._private, self._clock, self._pool.submit)
            try:
                return self._loop(selector)
            finally:
                crew.end()
                self._pool.shutdown(wait=True)
                kill_strays(self.incarnation)
                with self._board_lock:
                    self._open().close()
                    self._board = None
                shutil.rmtree(self._private, ignore_errors=True)
                self._wake_in.close()
                self._wake_out.close()

    def _open_board(self, engine_name: str) -> None:
        own = read_stat(os.getpid())
        identity = Identity(
            incarnation=self.incarnation,
            pid=os.getpid(),
            pid_started=own.started if own else 0,
            boot_id=self._clock.boot_id(),
            engine=engine_name,
        )
        self._board = BeatBoard.create(self._folder, self.settings.slots * self.settings.concurrency, identity)
        self._private = self._folder / self.incarnation
        self._private.mkdir(mode=0o700)

    def _open(self) -> BeatBoard:
        assert self._board is not None, "it is open while it runs"
        return self._board

    def _running_crew(self) -> Crew:
        assert self._crew is not None, "it is there while it runs"
        return self._crew

    def _loop(self, selector: selectors.BaseSelector) -> int:
        selector.register(self._wake_out, selectors.EVENT_READ, None)
        crew = self._running_crew()
        while True:
            crew.keep()
            for key, _ in selector.select(self.settings.tick_s):
                if key.data is None:
                    self._wake_out.recv(4_096)
                else:
                    crew.hear(key.data)
            while not self._done.empty():
                self._done.get()()
            crew.reap()
            self._look()
            if crew.serving == self.settings.slots and not self.ready.is_set():
                self.ready.set()
                self._on_change()
            if crew.broken is not None and not crew.ever_ready:
                return BROKEN
            if self._draining and self._drained():
                return 0

    # Attempts.

    def _look(self) -> None:
        monotonic, boottime = self._clock.monotonic(), self._clock.boottime()
        self._open().tick(monotonic)
        records, seen = self._open().records, dict[int, tuple[int, bool]]()
        for slot in self._running_crew().slots:
            for index in slot.records:
                reading = records[index].read()
                seen[index] = reading.serial, reading.phase is Phase.RUNNING
                watched = self._follow(index, reading)
                self._logs.look(index, reading)
                if watched is not None:
                    verdict = watched.watch.step(reading, monotonic, boottime)
                    if verdict.act is not Act.NOTHING:
                        self._act(slot, index, watched, reading, verdict)
        if seen != self._seen:
            self._seen = seen
            self._on_change()

    def _follow(self, index: int, reading: Reading) -> Watched | None:
        """The watch of what is in this record now; another serial is another attempt."""
        if reading.phase is Phase.EMPTY:
            self._watched.pop(index, None)
            return None
        occupant, watched = reading.occupant, self._watched.get(index)
        if occupant is None:
            # The cold part was being written at this moment: the next look sees it.
            return watched if watched is not None and watched.serial == reading.serial else None
        if watched is None or watched.serial != reading.serial:
            watch = AttemptWatch(
                occupant, self.settings.extend_every_s, self.settings.grace_s, lease_until=occupant.ticket.lease_until
            )
            watched = self._watched[index] = Watched(watch, reading.serial)
        watched.watch.occupant = occupant
        return watched

    def _act(self, slot: SlotProcess, index: int, watched: Watched, reading: Reading, verdict: Verdict) -> None:
        if verdict.act is Act.EXTEND:
            self._extend(index, watched, reading)
        elif verdict.act is Act.KILL:
            self._kill(slot, watched, verdict.reason)
        elif verdict.code is CancelCode.STALL and (culprit := self._blocking(slot, index)) is not None:
            # The event loop is blocked by another attempt of this slot: that one is at fault.
            watched.watch.forgive()
            reason = f"it blocks the event loop of its slot: {verdict.reason}"
            self._request_cancel(slot, culprit, self._watched[culprit], verdict.code, reason)
        else:
            self._request_cancel(slot, index, watched, verdict.code, verdict.reason)

    def _request_cancel(self, slot: SlotProcess, index: int, watched: Watched, code: CancelCode, reason: str) -> None:
        watch = watched.watch
        if watched.facts is not None:
            return
        watched.facts, watched.dump_offset = {}, 0
        if watch.code is CancelCode.NONE:
            watch.cancel(code, reason, self._clock.monotonic())
        self._say(f"{watch.occupant.workflow} ({watch.occupant.job}), attempt {watch.occupant.attempt}: {watch.reason}")
        if code is CancelCode.STALL:
            watched.facts, watched.dump_offset = slot.ask_for_stacks()
        self._open().records[index].request_cancel(code, watched.serial)
        slot.channel.send(Cancel(index))

    def _kill(self, slot: SlotProcess, watched: Watched, reason: str) -> None:
        if slot.killed_by_us:
            return
        if not watched.facts:
            watched.facts = slot.read_stacks(watched.dump_offset)
        self._say(f"killing slot {slot.pid}, which runs {watched.watch.occupant.workflow}: {reason}")
        slot.kill()

    def _blocking(self, slot: SlotProcess, index: int) -> int | None:
        """Another attempt of the same slot whose coroutine is running right now, and therefore never yields."""
        if self._open().records[index].read().active:
            return None
        for other in slot.records:
            if other != index and other in self._watched and self._open().records[other].read().active:
                return other
        return None

    def _cancel(self, index: int, code: CancelCode, reason: str) -> None:
        watched = self._watched.get(index)
        slot = next((slot for slot in self._running_crew().slots if index in slot.records), None)
        if watched is not None and slot is not None and watched.watch.code is CancelCode.NONE:
            self._request_cancel(slot, index, watched, code, reason)

    def _extend(self, index: int, watched: Watched, reading: Reading) -> None:
        """One call in flight for each attempt, in another thread."""
        if watched.extending:
            return
        watched.extending = True
        watched.watch.extending(reading, self._clock.monotonic())
        occupant = watched.watch.occupant

        def call() -> None:
            answer: Callable[[], None]
            try:
                until = self._aftermath.extend(occupant, self.settings.lease_s)
                answer = lambda: self._extended(index, watched, until)  # noqa: E731
            except ReceiptHandleExpiredError as error:
                reason = str(error)
                answer = lambda: self._lost(index, watched, reason)  # noqa: E731
            except TenureError as error:
                text = f"cannot extend the lease of {occupant.workflow} yet: {error}"
                answer = lambda: self._not_extended(watched, text)  # noqa: E731
            self._later(answer)

        self._pool.submit(call)

    def _extended(self, index: int, watched: Watched, until: float) -> None:
        watched.extending = False
        watched.watch.extended(until)
        # The answer may come after the work ended: the serial keeps it from whoever took the record since.
        self._open().records[index].set_lease_until(watched.watch.lease_until, watched.serial)

    def _lost(self, index: int, watched: Watched, reason: str) -> None:
        watched.extending = False
        reading = self._open().records[index].read()
        if reading.serial == watched.serial and reading.phase is Phase.RUNNING and self._watched.get(index) is watched:
            self._cancel(index, CancelCode.LEASE_LOST, reason)

    def _not_extended(self, watched: Watched, text: str) -> None:
        watched.extending = False
        self._say(text)
        watched.watch.extension_failed(self._clock.monotonic(), retry_in_s=min(1.0, self.settings.lease_s / 20))

    def _settle_dead(self, slot: SlotProcess, exit_failure: WorkFailure) -> None:
        """Settle what a dead slot held: the attempts at fault with their failure, the others uncounted."""
        readings = {index: self._open().records[index].read() for index in slot.records}
        blamed = {
            i
            for i in readings
            if i in self._watched and self._watched[i].watch.code not in (CancelCode.NONE, CancelCode.DRAIN)
        }
        if not blamed and not slot.killed_by_us:
            occupied = {i for i, reading in readings.items() if reading.phase is not Phase.EMPTY}
            blamed = {i for i in occupied if readings[i].active} or occupied
        for index, reading in readings.items():
            watched = self._watched.pop(index, None)
            held = Held.of(index, reading)
            if reading.phase is not Phase.EMPTY and index in blamed:
                self._open().records[index].count_end(ok=False)
            self._open().records[index].clear()
            if held is None:
                continue
            if reading.phase is Phase.CLAIMED or index not in blamed:
                self._pool.submit(self._aftermath.give_back, held)
            else:
                self._pool.submit(self._aftermath.fail, held, failure_of(watched, exit_failure))

    # Draining.

    def _drained(self) -> bool:
        now = self._clock.monotonic()
        crew = self._running_crew()
        if not crew.draining:
            self._drain_deadline = now + self.settings.drain_timeout_s
            crew.drain()
        if self._stopping or self._handover or self.settings.drain == "handover" or now >= self._drain_deadline:
            for index in list(self._watched):
                self._cancel(index, CancelCode.DRAIN, self._handover or "the worker is shutting down")
        if self._stopping:
            for watched in self._watched.values():
                watched.watch.kill_at = min(watched.watch.kill_at, now)
        return not crew.slots

    def _later(self, call: Callable[[], None]) -> None:
        self._done.put(call)
        self._wake_up()

    def _wake_up(self) -> None:
        try:
            self._wake_in.send(b"x", socket.MSG_DONTWAIT)
        except OSError:
            return  # the buffer is full: it is awake already
