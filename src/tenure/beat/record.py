"""One record of the beat board: an attempt's place in shared memory.

A slot process writes its records and the supervisor reads them, without a lock. So a beat costs about as much as a method call,
and the supervisor sees a slot that hangs inside C code with the interpreter's lock held.

Each record has a hot part of eight-byte words (last beat, count, progress, state, silence, cancel, lease), each written by one
side only with one aligned store, so that a word is never torn, and a cold part (who runs, under which receipt) that is guarded
by a sequence number, a length and a checksum: a reader detects a write in progress, and one that a kill cut short.

A record decides nothing. It does not know engines, leases or policies.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from tenure.backoff import Retry
from tenure.beat.proof import NoveltyMark
from tenure.engines.contracts import Fence, Ticket
from tenure.errors import BoardError

RECORD_BYTES = 8_192
_COLD = struct.Struct("<QII")  # sequence (odd while a write is in progress), length, checksum
_HOT_WORDS = 16
COLD_OFFSET = _HOT_WORDS * 8
_TAIL_BYTES = 64
_REASON_BYTES = 512
_REASON_OFFSET = RECORD_BYTES - _TAIL_BYTES - _REASON_BYTES
COLD_BYTES = _REASON_OFFSET - COLD_OFFSET - _COLD.size

# Words of the hot part. The slot writes the first group, the supervisor the second.
_BEAT, _COUNT, _PROGRESS, _STATE, _SILENT_UNTIL, _PID, _ACTIVE, _SERIAL = range(8)
_CANCEL, _LEASES = 8, 10  # two lease words: an attempt uses the one of its serial's parity
_COMPLETED, _FAILED, _EARLIER = 12, 13, 14  # counts over all attempts; the process that ended an attempt writes them
_GAPS = (9, 15)  # the supervisor's: the longest silence of an attempt, by its serial's parity. 0 in earlier releases

# Words at the end of a record, which the slot writes. They are there, and not in the hot part, because boards of releases that do not know
# them must still be read: a worker clears up after a dead one of the release before.
_MARK, _OTHERS, _ITEMS, _TOTAL, _POLLING_UNTIL, _SAVED, _FAILURES = range(7)
_BRAKE = 7  # the supervisor's: serial << 2 | Brake
_NOTHING_SHOWN = memoryview(bytes(8 * (_FAILURES + 1))).cast("q")
_encode = msgspec.msgpack.Encoder().encode


class Phase(IntEnum):
    """The phase of the attempt in a record."""

    EMPTY = 0
    CLAIMED = 1  # a receipt is held, the work has not started
    RUNNING = 2
    SETTLING = 3  # the work ended; its outcome is being written


class Brake(IntEnum):
    """The word of the supervisor to an attempt that waits for something."""

    NONE = 0
    LET_GO = 1  # what it waits for is down, and it may try
    HELD = 2  # it is down, and others try first


class Occupant(msgspec.Struct, frozen=True, kw_only=True):
    """The cold part of a record: the attempt that runs in it."""

    ticket: Ticket
    job: str
    workflow: str
    attempt: int
    queue: str
    stall_s: float
    started_at: float = 0.0  # boot time; 0 while only claimed
    deadline: float | None = None  # boot time at which this attempt must end
    note: str = ""
    exposed: str = ""  # the values that it shows, as JSON
    retry: Retry = Retry(max_attempts=1)
    """The workflow's policy, by which the supervisor settles for a dead slot: it imports no workflow. While only claimed: one attempt."""
    workflow_id: str = ""
    stuck_s: float | None = None
    """The seconds that it may beat without anything new; None: derived from the stall threshold."""
    proof: str = ""
    """The proof that it has to bring, where its author fixed one (`beat.proof.Proof`)."""
    managed: bool = False
    """A leader decides on retries: failures are settled as replies."""
    waits_on: str = ""
    """The name of what it waits for now, where it said so."""
    version: str = ""
    """The version of its workflow that runs."""
    learned: bool = False
    """True when `stall_s` is a learned threshold, and not the set one."""

    def is_of(self, job: str, workflow_id: str = "", attempt: int = 0, fence: Fence | None = None) -> bool:
        """Returns True for an attempt of this job and, where they are given, of this workflow, number and delivery."""
        named = self.job == job and workflow_id in ("", self.workflow_id) and attempt in (0, self.attempt)
        return named and fence in (None, self.ticket.fence)


class BeatReading(NamedTuple):
    """One look at a record."""

    phase: Phase
    beat_at: float
    steps: int
    progress: float
    silent_until: float
    pid: int
    active: bool
    serial: int
    """Names the attempt in this record: a later one has a higher serial."""
    occupant: Occupant | None
    """None when the record is empty, or the cold part was being written at that moment."""
    mark: int = 0
    """`NoveltyMark.word`: another value is something new."""
    others: int = 0
    """Beats of threads that are not the attempt's own."""
    items: int = 0
    total: int = 0
    polling_until: float = 0.0
    """Monotonic time until which it polls, as it declared."""
    saved: int = 0
    """Names the checkpoint that is saved; another value is new saved work. 0: none, or a board of an earlier release."""
    failures: int = 0
    """Calls in a row that failed, of those that it named."""
    brake: Brake = Brake.NONE


class Totals(NamedTuple):
    """The counts of completed and failed attempts, and of all steps that they took."""

    completed: int
    failed: int
    steps: int


class BeatRecord:
    """One attempt's place on the board, mapped in this process."""

    __slots__ = ("_bytes", "_floats", "_ints", "_offset", "_tail", "_tail_floats", "index", "serial")

    def __init__(self, page: mmap.mmap, index: int, offset: int) -> None:
        self.index, self._offset = index, offset
        whole = memoryview(page)[offset : offset + RECORD_BYTES]
        self._bytes = whole
        hot = whole[: _HOT_WORDS * 8]
        self._floats = hot.cast("d")
        self._ints = hot.cast("q")
        tail = whole[RECORD_BYTES - _TAIL_BYTES :]
        self._tail, self._tail_floats = tail.cast("q"), tail.cast("d")
        self.serial = 0

    # The slot's side.

    def beat_ports(self) -> tuple[memoryview[float], memoryview[int]]:
        """Returns the two views that a context writes directly, in this order: float word 0 is the time, int word 1 the count.

        The count comes last, so that a new count never shows with an old time; direct, to save a call in the hottest path.
        """
        return self._floats, self._ints

    def set_progress(self, progress: float) -> None:
        self._floats[_PROGRESS] = progress

    def set_silence(self, until: float) -> None:
        """Sets the monotonic time until which no beat is expected; 0 ends the silence."""
        self._floats[_SILENT_UNTIL] = until

    def set_mark(self, word: int) -> None:
        """Shows that something is new, or that nothing more has to follow."""
        self._tail[_MARK] = word

    def set_saved(self, mark: int) -> None:
        """Names the checkpoint that is saved."""
        self._tail[_SAVED] = mark

    def set_items(self, completed: int, total: int) -> None:
        self._tail[_ITEMS], self._tail[_TOTAL] = completed, total

    def item_port(self, mark: NoveltyMark, total: int, beat: Callable[[], None]) -> Callable[[int], None]:
        """Returns a function that shows one more item as done, and beats. It writes directly, to save calls in loops over many items.

        Each item is news. `total` is 0 where nobody knows it.
        """
        tail, floats, known = self._tail, self._floats, total > 0
        tail[_TOTAL] = total

        def done(number: int) -> None:
            mark.count = count = mark.count + 1
            mark.bound = more = not known or number < total
            tail[_MARK] = count << 1 | more
            tail[_ITEMS] = number
            if known:
                floats[_PROGRESS] = number / total if more else 1.0
            beat()

        return done

    def set_polling(self, until: float) -> None:
        """Sets the monotonic time until which it polls and has nothing new to show; 0 ends that."""
        self._tail_floats[_POLLING_UNTIL] = until

    def count_other(self) -> None:
        """Counts a beat of a thread that is not the attempt's own. It is evidence, and no proof."""
        self._tail[_OTHERS] += 1

    def call_failed(self, failed: bool) -> None:
        """Counts a call that failed, of those that the work named; one that came through sets the count back."""
        self._tail[_FAILURES] = self._tail[_FAILURES] + 1 if failed else 0

    def touch(self, now: float) -> None:
        """Starts the stall clock anew without a step, as the end of a declared silence does."""
        self._floats[_BEAT] = now

    @property
    def steps(self) -> int:
        return self._ints[_COUNT]

    @property
    def silent_until(self) -> float:
        return self._floats[_SILENT_UNTIL]

    def occupy(self, phase: Phase, occupant: Occupant, now: float) -> None:
        """Takes the record for one attempt. The phase is written last: a reader that sees it finds a whole cold part."""
        self._ints[_STATE] = Phase.EMPTY
        steps, self._ints[_COUNT] = self._ints[_COUNT], 0
        self._ints[_EARLIER] += steps
        self._floats[_BEAT] = now
        self._floats[_PROGRESS] = 0.0
        self._floats[_SILENT_UNTIL] = 0.0
        self._ints[_ACTIVE] = 0
        self._tail[_MARK : _FAILURES + 1] = _NOTHING_SHOWN
        # The supervisor may still write a cancel or a lease for the last attempt. It names that attempt's serial, so this one ignores it.
        self.serial = self._ints[_SERIAL] + 1
        self._floats[_LEASES + (self.serial & 1)] = occupant.ticket.lease_until
        self._floats[_GAPS[self.serial & 1]] = 0.0
        self._ints[_SERIAL] = self.serial
        self._ints[_PID] = os.getpid()
        self.describe(occupant)
        self._ints[_STATE] = phase

    def describe(self, occupant: Occupant) -> None:
        """Writes the cold part: odd sequence, data, even sequence."""
        data = _encode(occupant)
        if len(data) > COLD_BYTES:
            data = _encode(msgspec.structs.replace(occupant, note="", exposed=""))
        if len(data) > COLD_BYTES:
            # Names are not cut: the supervisor settles for a dead slot under them.
            sizes = f"workflow {len(occupant.workflow):,}, job {len(occupant.job):,}, queue {len(occupant.queue):,}"
            raise BoardError(
                f"the names of this work do not fit on the beat board: {len(data):,} bytes of {COLD_BYTES:,} ({sizes} characters)",
                remedy="Use shorter names",
            )
        start = COLD_OFFSET
        sequence = _COLD.unpack_from(self._bytes, start)[0]
        sequence += sequence & 1  # a write that was cut short left it odd
        struct.pack_into("<Q", self._bytes, start, sequence + 1)
        body = start + _COLD.size
        self._bytes[body : body + len(data)] = data
        struct.pack_into("<II", self._bytes, start + 8, len(data), zlib.crc32(data))
        struct.pack_into("<Q", self._bytes, start, sequence + 2)

    def set_active(self, active: bool) -> None:
        """Marks that the event loop runs this attempt's coroutine right now, or no longer does."""
        self._ints[_ACTIVE] = active

    def set_phase(self, phase: Phase) -> None:
        self._ints[_STATE] = phase

    def clear(self) -> None:
        self._ints[_STATE] = Phase.EMPTY

    def count_end(self, *, ok: bool) -> None:
        """Counts an attempt of this record that ended with a result, or without one."""
        self._ints[_COMPLETED if ok else _FAILED] += 1

    @property
    def cancel_requested(self) -> int:
        """Returns the `CancelCode` that the supervisor wrote for this attempt, 0 for none."""
        word = self._ints[_CANCEL]
        return word & 0xFF if word >> 8 == self.serial else 0

    @property
    def cancel_reason(self) -> str:
        """Returns the supervisor's sentence for `cancel_requested`."""
        length = min(int.from_bytes(self._bytes[_REASON_OFFSET : _REASON_OFFSET + 2], "little"), _REASON_BYTES - 2)
        return bytes(self._bytes[_REASON_OFFSET + 2 : _REASON_OFFSET + 2 + length]).decode(errors="replace")

    @property
    def brake(self) -> Brake:
        return self.brake_of(self.serial)

    @property
    def lease_until(self) -> float:
        """Returns the boot time at which the lease is lost, as the supervisor last extended it."""
        return self._floats[_LEASES + (self.serial & 1)]

    # The supervisor's side.

    def set_longest_gap(self, seconds: float, serial: int) -> None:
        """Writes the longest silence of the attempt with that serial."""
        if self._ints[_SERIAL] == serial:  # the next attempt uses the other word, as with leases
            self._floats[_GAPS[serial & 1]] = seconds

    def request_cancel(self, code: int, serial: int, reason: str = "") -> None:
        """Asks the attempt with that serial to end. One word holds both, so an attempt that took the record since ignores it.

        The reason is written first: an attempt that sees the word finds the sentence.
        """
        text = reason.encode()[: _REASON_BYTES - 2]
        self._bytes[_REASON_OFFSET : _REASON_OFFSET + 2 + len(text)] = len(text).to_bytes(2, "little") + text
        self._ints[_CANCEL] = serial << 8 | code

    def set_brake(self, brake: Brake, serial: int) -> None:
        """Tells the attempt with that serial whether it may try what it waits for."""
        self._tail[_BRAKE] = serial << 2 | brake

    def brake_of(self, serial: int) -> Brake:
        word = self._tail[_BRAKE]
        return Brake(word & 3) if word >> 2 == serial and word & 3 < 3 else Brake.NONE

    def set_lease_until(self, boottime: float, serial: int) -> None:
        """Writes the lease of the attempt with that serial."""
        # The next attempt may take the record between the check and the store. It uses the other lease word, so the store misses it.
        if self._ints[_SERIAL] == serial:
            self._floats[_LEASES + (serial & 1)] = boottime

    def gap_of(self, serial: int) -> float:
        """Returns the longest silence of the attempt with that serial, as the supervisor last saw it."""
        return self._floats[_GAPS[serial & 1]]

    def totals(self) -> Totals:
        """Returns the totals of all attempts that this record has had."""
        return Totals(self._ints[_COMPLETED], self._ints[_FAILED], self._ints[_EARLIER] + self._ints[_COUNT])

    def lease_of(self, serial: int) -> float:
        """Returns the boot time at which the lease of the attempt with that serial is lost."""
        return self._floats[_LEASES + (serial & 1)]

    def read(self, *, cold: bool = True) -> BeatReading:
        """Returns what the record shows. Without `cold` it leaves out the occupant, which its own slot knows."""
        serial = self._ints[_SERIAL]
        phase = self._read_phase()
        occupant = self.read_occupant() if cold and phase is not Phase.EMPTY else None
        count = self._ints[_COUNT]  # before the time: an old count with a new time is harmless, the reverse is not
        return BeatReading(
            phase,
            self._floats[_BEAT],
            count,
            self._floats[_PROGRESS],
            self._floats[_SILENT_UNTIL],
            self._ints[_PID],
            bool(self._ints[_ACTIVE]),
            serial,
            occupant,
            self._tail[_MARK],
            self._tail[_OTHERS],
            self._tail[_ITEMS],
            self._tail[_TOTAL],
            self._tail_floats[_POLLING_UNTIL],
            self._tail[_SAVED],
            self._tail[_FAILURES],
            self.brake_of(serial),
        )

    def _read_phase(self) -> Phase:
        try:
            return Phase(self._ints[_STATE])
        except ValueError as error:
            raise BoardError(f"record {self.index} is damaged: there is no phase {self._ints[_STATE]}") from error

    def read_occupant(self) -> Occupant | None:
        """Returns the cold part alone, also of a record whose phase is damaged. It may describe an attempt that has ended."""
        for _ in range(3):
            before, length, checksum = _COLD.unpack_from(self._bytes, COLD_OFFSET)
            if before & 1 or length > COLD_BYTES:
                continue
            body = COLD_OFFSET + _COLD.size
            data = bytes(self._bytes[body : body + length])
            if _COLD.unpack_from(self._bytes, COLD_OFFSET)[0] != before or zlib.crc32(data) != checksum:
                continue
            try:
                return msgspec.msgpack.decode(data, type=Occupant)
            except msgspec.DecodeError:
                continue
        return None

    def release_views(self) -> None:
        for view in (self._floats, self._ints, self._tail, self._tail_floats, self._bytes):
            view.release()
