"""Supervises the attempts of all slots: reads each record of the board, asks its `AttemptWatch` what to do, and does it.

Calls to the engine go through a few threads, so that a slow engine delays no decision. Whatever fails while one attempt is looked at,
extended, killed or settled concerns that attempt alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

import msgspec

from tenure.beat.attempt_history import BeatHistory
from tenure.beat.board import BeatBoard
from tenure.beat.lease import ExtensionOutcome
from tenure.beat.metrics import LeaseMetrics
from tenure.beat.record import BeatReading, BeatRecord, Occupant, Phase
from tenure.clock import Clock
from tenure.errors import BoardError
from tenure.health.least_loss import MarkWatch
from tenure.logs import NodeLog
from tenure.work.attempt_failures import CAUSES
from tenure.work.attempt_steps import Steps, hand_over_steps
from tenure.work.attempt_watch import Act, AttemptWatch, WatchVerdict
from tenure.work.delivery import CancelCode, WorkFailure
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.log_lines import LogPublisher
from tenure.work.slots.frames import CancelAttempt
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.slot_deliveries import HeldDelivery, SlotDeliveries
from tenure.work.slots.slot_process import SlotProcess
from tenure.work.wait_brake import WaitBrake
from tenure.work.watched_attempt import WatchedAttempt

_logger = logging.getLogger(__name__)

LINE_LOST_S = 2.0
"""A slot that dies closes its channel a moment before it can be reaped. One that lives on without it closed its own descriptors."""
LINE_LOST = "its outcome could not be handed over: its slot lost the line to its supervisor, as when a workflow closes all file descriptors"
COUNTERS_S = 1.0
"""The counters of leases are loaded so long after the start, or before the first lease is extended."""
_ASKS_FOR_STACKS = (CancelCode.STALL, CancelCode.UNSETTLED)


class SupervisedAttempt(WatchedAttempt):
    """An attempt in a slot process, with the evidence that is collected before its slot is killed."""

    def __init__(self, record: BeatRecord, watch: AttemptWatch, serial: int) -> None:
        super().__init__(record, watch, serial)
        self.facts: dict[str, str] | None = None
        """Evidence that was collected before the kill; the process cannot give any after it. None until it was asked to end."""
        self.dump_offset = 0
        """The size of the slot's stack dump before it was asked for another one."""


class AttemptSupervision:
    """Call it from the supervisor's thread only. Engine calls run in `engine_threads`; `later` brings their answers back to that thread."""

    def __init__(
        self,
        settings: SlotSettings,
        board: BeatBoard,
        slots: Callable[[], Sequence[SlotProcess]],
        deliveries: SlotDeliveries,
        logs: LogPublisher,
        engine_threads: Executor,
        later: Callable[[Callable[[], None]], None],
        *,
        clock: Clock,
        log: NodeLog,
        errors: IsolatedErrors,
    ) -> None:
        self._settings, self._board, self._slots, self._deliveries = settings, board, slots, deliveries
        self._logs, self._engine_threads, self._later = logs, engine_threads, later
        self._clock, self._log, self._errors = clock, log, errors
        # Loading the counters takes 0.05 s, which no look shall wait for, nor the first job: a thread that imports holds the interpreter.
        self._counters_at = clock.monotonic() + min(COUNTERS_S, settings.extend_every_s / 2)
        self._watched: dict[int, SupervisedAttempt] = {}
        self._seen: dict[int, tuple[int, bool]] = {}
        self._unreadable: dict[int, float] = {}
        self._dropping = False
        self.brake = WaitBrake()
        self._marks: MarkWatch[int] = MarkWatch()

    @property
    def records(self) -> list[int]:
        """Returns the indexes of the records that hold an attempt."""
        return list(self._watched)

    def leaving(self, now: float, until: float) -> list[int]:
        """Returns the records of the attempts that leave now, of all that have to by `until`, so that the least work is lost."""
        return self._marks.leaving(self._watched, now, until)

    def look(self) -> bool:
        """Looks at every record once. Returns True when an attempt began or ended since the last look."""
        monotonic, boottime = self._clock.monotonic(), self._clock.boottime()
        self._board.tick(monotonic)
        if monotonic >= self._counters_at:
            self._counters_at = math.inf
            self._submit("loading the counters", self._load_counters)
        seen: dict[int, tuple[int, bool]] = {}
        for slot in self._slots():
            with self._errors.isolate(f"looking after slot {slot.pid}"):
                self._look_after(slot, monotonic)
            for index in slot.records:
                with self._errors.isolate(f"looking at the attempt in record {index}"):
                    reading = self._read(slot, index, monotonic)
                    seen[index] = reading.serial, reading.phase is Phase.RUNNING
                    self._look_at(slot, index, reading, monotonic, boottime)
        changed, self._seen = seen != self._seen, seen
        return changed

    def _read(self, slot: SlotProcess, index: int, monotonic: float) -> BeatReading:
        """Reads a record. A slot whose record stays damaged for the grace cannot be watched, so it is killed."""
        try:
            reading = self._board.records[index].read()
        except BoardError as error:
            since = self._unreadable.setdefault(index, monotonic)
            if monotonic - since >= self._settings.grace_s:
                self._end_unwatchable(slot, index, f"its outcome could not be handed over: {error.fact}")
            raise
        self._unreadable.pop(index, None)
        return reading

    def _end_unwatchable(self, slot: SlotProcess, index: int, reason: str) -> None:
        watched = self._watched.get(index)
        if watched is None and (occupant := self._board.records[index].read_occupant()) is not None:
            # The slot damaged it before our first look. If that attempt had ended already, the engine refuses its receipt, so this is safe.
            watched = self._watched[index] = self._watch(index, occupant, serial=0)
        if watched is not None and watched.watch.code is CancelCode.NONE:
            watched.watch.cancel(CancelCode.UNSETTLED, reason, self._clock.monotonic())
        if not slot.killed_by_us:
            self._log.warning(f"killing slot {slot.pid}: {reason}")
            slot.kill()

    def _look_after(self, slot: SlotProcess, monotonic: float) -> None:
        slot.channel.flush()
        if slot.channel.open or slot.killed_by_us:
            return
        if slot.line_lost_at is None:
            slot.line_lost_at = monotonic
        if monotonic - slot.line_lost_at < LINE_LOST_S:
            return
        held = [index for index in slot.records if index in self._watched]
        for index in held:
            self.cancel(index, CancelCode.UNSETTLED, LINE_LOST)
        if not held:
            slot.kill()

    def _look_at(self, slot: SlotProcess, index: int, reading: BeatReading, monotonic: float, boottime: float) -> None:
        watched = self._follow(index, reading)
        self._logs.look(index, reading)
        if watched is None:
            return
        self.brake.look(watched, reading, monotonic)
        self._marks.look(index, reading.saved, monotonic)
        verdict = watched.watch.step(reading, monotonic, boottime)
        watched.record.set_longest_gap(watched.watch.gaps.longest_s, watched.serial)
        if verdict.act is not Act.NOTHING:
            self._act(slot, index, watched, reading, verdict)

    def _follow(self, index: int, reading: BeatReading) -> SupervisedAttempt | None:
        """Returns the notes on the attempt that is in this record now. Another serial means another attempt."""
        if reading.phase is Phase.EMPTY:
            self._watched.pop(index, None)
            return None
        occupant, watched = reading.occupant, self._watched.get(index)
        if occupant is None:
            # The slot was writing the cold part at this moment: the next look reads it.
            return watched if watched is not None and watched.serial == reading.serial else None
        if watched is None or watched.serial != reading.serial:
            watched = self._watched[index] = self._watch(index, occupant, reading.serial)
            self._marks.forget(index)  # another attempt
        watched.watch.occupant = occupant
        return watched

    def _watch(self, index: int, occupant: Occupant, serial: int) -> SupervisedAttempt:
        return SupervisedAttempt.of(self._board.records[index], occupant, serial, self._settings)

    def _act(
        self, slot: SlotProcess, index: int, watched: SupervisedAttempt, reading: BeatReading, verdict: WatchVerdict
    ) -> None:
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

    def _request_cancel(
        self, slot: SlotProcess, index: int, watched: SupervisedAttempt, code: CancelCode, reason: str
    ) -> None:
        if watched.facts is not None:
            return
        watched.facts, watched.dump_offset = {}, 0
        watched.judge(code, reason, self._clock, self._log)
        if code in _ASKS_FOR_STACKS:  # before it is asked to end: the stacks shall show where it hangs
            watched.facts, watched.dump_offset = slot.ask_for_stacks()
        watched.ask_to_end(code)
        slot.channel.send(CancelAttempt(index))

    def _kill(self, slot: SlotProcess, watched: SupervisedAttempt, reason: str) -> None:
        if slot.killed_by_us:
            return
        try:
            if not watched.facts:
                watched.facts = slot.read_stacks(watched.dump_offset)
        finally:
            self._log.warning(f"killing slot {slot.pid}, which runs {watched.watch.occupant.workflow}: {reason}")
            slot.kill()

    def _blocking(self, slot: SlotProcess, index: int) -> int | None:
        """Returns the record of another attempt of this slot whose coroutine runs right now and so blocks the event loop."""
        if self._board.records[index].read().active:
            return None
        for other in slot.records:
            if other != index and other in self._watched and self._board.records[other].read().active:
                return other
        return None

    def cancel(self, index: int, code: CancelCode, reason: str, *, serial: int | None = None) -> None:
        """Asks the attempt in a record to end. With `serial` it asks that attempt only: another may have taken the record since."""
        watched = self._watched.get(index)
        if watched is None or serial not in (None, watched.serial):
            # It began since the last look. Without this, a cancel that comes in its first tick would be lost.
            watched = self._follow(index, self._board.records[index].read())
        slot = next((slot for slot in self._slots() if index in slot.records), None)
        if watched is None or slot is None or serial not in (None, watched.serial):
            return
        if watched.watch.code is CancelCode.NONE:
            self._request_cancel(slot, index, watched, code, reason)

    def end_stuck(self, seats: set[int]) -> None:
        """Kills the slots of these seats that hold an item past its lease and run nothing: nobody watches them otherwise."""
        for slot in self._slots():
            if slot.seat in seats and not slot.killed_by_us and not any(i in self._watched for i in slot.records):
                self._log.warning(f"killing slot {slot.pid}: it did not start what it was given")
                slot.kill()

    def kill_now(self) -> None:
        """Ends the grace of every attempt that was asked to end."""
        now = self._clock.monotonic()
        for watched in self._watched.values():
            watched.watch.kill_at = min(watched.watch.kill_at, now)

    # Leases.

    def _extend(self, index: int, watched: SupervisedAttempt, reading: BeatReading) -> None:
        """Extends the lease of one attempt in another thread, with at most one call in flight."""
        if not watched.extending:
            hand_over_steps(self._extending(index, watched, reading), self._engine_threads.submit, self._later)

    def _extending(self, index: int, watched: SupervisedAttempt, reading: BeatReading) -> Steps[None]:
        lease_s = self._settings.lease_s
        call = partial(self._deliveries.extend, watched.watch.occupant, lease_s)
        extension = yield from watched.extend(call, reading, lease_s, self._clock, self._log)
        if extension is ExtensionOutcome.EXPIRED:
            now = self._board.records[index].read()
            if now.phase is not Phase.RUNNING or now.serial != watched.serial:
                return  # it has ended, and was settled meanwhile
            if self._watched.get(index) is watched:
                self.cancel(index, CancelCode.LEASE_LOST, watched.lost_because, serial=now.serial)
        note_renewal(watched.watch.occupant, extension, lease_s)

    # The dead.

    def drop_all(self) -> None:
        """Settles nothing from now on: the engine does not know the deliveries any more, or gave them to others."""
        self._dropping = True

    def settle_dead(self, slot: SlotProcess, exit_failure: WorkFailure) -> set[str]:
        """Settles what a dead slot held: fails the attempts at fault, and gives the others back uncounted. Returns their receipts."""
        settled: set[str] = set()
        if self._dropping:
            return settled
        readings = {index: self._last_reading(index) for index in slot.records}
        blamed = self._blamed(slot, readings)
        for index, reading in readings.items():
            with self._errors.isolate(f"settling what record {index} held"):
                held = self._settle_one(slot, index, reading, exit_failure if index in blamed else None)
                if held is not None:
                    settled.add(held.occupant.ticket.receipt_handle)
        return settled

    def _last_reading(self, index: int) -> BeatReading | None:
        """Returns the last reading of a record; None when its slot damaged it."""
        try:
            return self._board.records[index].read()
        except BoardError:
            return None

    def _blamed(self, slot: SlotProcess, readings: dict[int, BeatReading | None]) -> set[int]:
        judged = (CancelCode.NONE, CancelCode.DRAIN)
        blamed = {i for i in readings if i in self._watched and self._watched[i].watch.code not in judged}
        if blamed or slot.killed_by_us:
            return blamed
        occupied = {
            i: reading for i, reading in readings.items() if reading is None or reading.phase is not Phase.EMPTY
        }
        return {i for i, reading in occupied.items() if reading is not None and reading.active} or set(occupied)

    def _settle_one(
        self, slot: SlotProcess, index: int, reading: BeatReading | None, exit_failure: WorkFailure | None
    ) -> HeldDelivery | None:
        """Settles what one record held. `exit_failure` is None for an attempt that is not to blame."""
        watched, record = self._watched.pop(index, None), self._board.records[index]
        self._unreadable.pop(index, None)
        held = self._held(index, reading, watched)
        if exit_failure is not None and (reading is None or reading.phase is not Phase.EMPTY):
            record.count_end(ok=False)
        record.clear()
        if held is None:
            return None
        if held.phase is Phase.CLAIMED or exit_failure is None:
            self._submit(f"giving {held.occupant.workflow} back", lambda: self._deliveries.give_back(held))
        else:
            failure, measured = failure_of(watched, exit_failure, slot.last_trouble), held
            if reading is not None:
                # Who died before the first look has no points, but what it wrote last is in its record.
                history = watched.watch.history if watched is not None else BeatHistory()
                failure = failure.after_beats(history, held.occupant, reading, self._clock)
            if watched is not None and reading is not None:
                measured = held.after_silence(record, reading, self._clock)
            measured = self._deliveries.with_claim(measured)  # now: the desk forgets the claim before the call is made
            self._submit(f"settling {held.occupant.workflow}", lambda: self._deliveries.fail(measured, failure))
        return held

    def _held(self, index: int, reading: BeatReading | None, watched: SupervisedAttempt | None) -> HeldDelivery | None:
        record = self._board.records[index]
        if reading is not None:
            same = watched is not None and watched.serial == reading.serial
            return HeldDelivery.of(record, reading, watched.watch.occupant if watched is not None and same else None)
        if watched is None:
            return None
        return HeldDelivery(index, watched.serial, watched.watch.occupant, 0, Phase.RUNNING, watched.watch.lease_until)

    def _load_counters(self) -> None:
        LeaseMetrics("").prepare()

    def _submit(self, what: str, call: Callable[[], None]) -> None:
        def guarded() -> None:
            with self._errors.isolate(what):
                call()

        self._engine_threads.submit(guarded)


def note_renewal(occupant: Occupant, outcome: ExtensionOutcome, lease_s: float) -> None:
    """Counts and logs a renewal as document 003 has it for loops; the kind of work is the workflow."""
    LeaseMetrics(occupant.workflow).count(outcome)
    if outcome is ExtensionOutcome.GRANTED:
        _logger.debug("Extended visibility for message %s by %g seconds", occupant.ticket.id, lease_s)
    elif outcome is ExtensionOutcome.EXPIRED:
        _logger.warning("Lease extension failed for message %s: receipt handle expired", occupant.ticket.id)
    else:
        _logger.warning("Lease extension failed for message %s, and is tried again", occupant.ticket.id)


def failure_of(watched: SupervisedAttempt | None, exit_failure: WorkFailure, last_trouble: str = "") -> WorkFailure:
    """Returns the failure of an attempt whose slot died: our reason if we killed it, else the exit's. `last_trouble` is the slot's last complaint."""
    facts = (watched.facts if watched else None) or {}
    if watched is None or watched.watch.code is CancelCode.NONE:
        return msgspec.structs.replace(exit_failure, evidence={**exit_failure.evidence, **facts})
    reason = f"{watched.watch.reason}; its slot was killed"
    if watched.watch.code is CancelCode.UNSETTLED and last_trouble:
        facts = {**facts, "last_trouble": last_trouble}
    return WorkFailure(cause=CAUSES[watched.watch.code], reason=reason, evidence=facts)
