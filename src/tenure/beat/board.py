"""The beat board: a page of shared memory with one record for each attempt that may run.

A slot process writes its records and the supervisor reads them, without a lock. So a beat costs about as much as a method call,
and the supervisor sees a slot that hangs inside C code with the interpreter's lock held.

Each record has a hot part of eight-byte words (last beat, count, progress, state, silence, cancel, lease), each written by one
side only with one aligned store, so that a word is never torn, and a cold part (who runs, under which receipt) that is guarded
by a sequence number, a length and a checksum: a reader detects a write in progress, and one that a kill cut short.

The board decides nothing. It does not know engines, leases or policies.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import tempfile
import zlib
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from tenure.backoff import Retry
from tenure.beat.own_files import open_own_file, own_folder
from tenure.engines.contracts import Ticket
from tenure.errors import BoardError, ForeignFileError

MAGIC = b"TNRBOARD"
VERSION = 1
RECORD_BYTES = 8_192
_HEADER = struct.Struct("<8sIIQQ")  # magic, version, records, supervisor's pid, length of the identity that follows
_COLD = struct.Struct("<QII")  # sequence (odd while a write is in progress), length, checksum
_HOT_WORDS = 16
_COLD_OFFSET = _HOT_WORDS * 8
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
COLD_BYTES = RECORD_BYTES - _COLD_OFFSET - _COLD.size

# Words of the hot part. The slot writes the first group, the supervisor the second.
_BEAT, _COUNT, _PROGRESS, _STATE, _SILENT_UNTIL, _PID, _ACTIVE, _SERIAL = range(8)
_CANCEL, _LEASES = 8, 10  # two lease words: an attempt uses the one of its serial's parity
_COMPLETED, _FAILED, _EARLIER = (
    12,
    13,
    14,
)  # counts over all attempts of this record; the process that ended an attempt writes them


class Phase(IntEnum):
    """The phase of the attempt in a record."""

    EMPTY = 0
    CLAIMED = 1  # a receipt is held, the work has not started
    RUNNING = 2
    SETTLING = 3  # the work ended; its outcome is being written


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
    retry: Retry = Retry(max_attempts=1)
    """The workflow's policy, by which the supervisor settles for a dead slot: it imports no workflow. While only claimed: one attempt."""
    workflow_id: str = ""
    managed: bool = False
    """A leader decides on retries: failures are settled as replies."""


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


class Totals(NamedTuple):
    """The counts of completed and failed attempts, and of all steps that they took."""

    completed: int
    failed: int
    steps: int


class BeatRecord:
    """One attempt's place on the board, mapped in this process."""

    __slots__ = ("_bytes", "_floats", "_ints", "_offset", "index", "serial")

    def __init__(self, page: mmap.mmap, index: int, offset: int) -> None:
        self.index, self._offset = index, offset
        whole = memoryview(page)[offset : offset + RECORD_BYTES]
        self._bytes = whole
        hot = whole[: _HOT_WORDS * 8]
        self._floats = hot.cast("d")
        self._ints = hot.cast("q")
        self.serial = 0

    # The slot's side.

    def beat_ports(self) -> tuple[memoryview[float], memoryview[int]]:
        """The two views that a context writes directly, in this order: float word 0 is the time, int word 1 the count.

        The count comes last, so that a new count never shows with an old time; direct, to save a call in the hottest path.
        """
        return self._floats, self._ints

    def set_progress(self, progress: float) -> None:
        self._floats[_PROGRESS] = progress

    def set_silence(self, until: float) -> None:
        """Sets the monotonic time until which no beat is expected; 0 ends the silence."""
        self._floats[_SILENT_UNTIL] = until

    def occupy(self, phase: Phase, occupant: Occupant, now: float) -> None:
        """Takes the record for one attempt. The phase is written last: a reader that sees it finds a whole cold part."""
        self._ints[_STATE] = Phase.EMPTY
        steps, self._ints[_COUNT] = self._ints[_COUNT], 0
        self._ints[_EARLIER] += steps
        self._floats[_BEAT] = now
        self._floats[_PROGRESS] = 0.0
        self._floats[_SILENT_UNTIL] = 0.0
        self._ints[_ACTIVE] = 0
        # The supervisor may still write a cancel or a lease for the last attempt. It names that attempt's serial, so this one ignores it.
        self.serial = self._ints[_SERIAL] + 1
        self._floats[_LEASES + (self.serial & 1)] = occupant.ticket.lease_until
        self._ints[_SERIAL] = self.serial
        self._ints[_PID] = os.getpid()
        self.describe(occupant)
        self._ints[_STATE] = phase

    def describe(self, occupant: Occupant) -> None:
        """Writes the cold part: odd sequence, data, even sequence."""
        data = msgspec.msgpack.encode(occupant)
        if len(data) > COLD_BYTES:
            data = msgspec.msgpack.encode(msgspec.structs.replace(occupant, note=""))
        if len(data) > COLD_BYTES:
            # Names are not cut: the supervisor settles for a dead slot under them.
            sizes = f"workflow {len(occupant.workflow):,}, job {len(occupant.job):,}, queue {len(occupant.queue):,}"
            raise BoardError(
                f"the names of this work do not fit on the beat board: {len(data):,} bytes of {COLD_BYTES:,} ({sizes} characters)",
                remedy="Use shorter names",
            )
        start = _COLD_OFFSET
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
    def lease_until(self) -> float:
        """Returns the boot time at which the lease is lost, as the supervisor last extended it."""
        return self._floats[_LEASES + (self.serial & 1)]

    # The supervisor's side.

    def request_cancel(self, code: int, serial: int) -> None:
        """Asks the attempt with that serial to end. One word holds both, so an attempt that took the record since ignores it."""
        self._ints[_CANCEL] = serial << 8 | code

    def set_lease_until(self, boottime: float, serial: int) -> None:
        """Writes the lease of the attempt with that serial."""
        # The next attempt may take the record between the check and the store. It uses the other lease word, so the store misses it.
        if self._ints[_SERIAL] == serial:
            self._floats[_LEASES + (serial & 1)] = boottime

    def totals(self) -> Totals:
        """Returns the totals of all attempts that this record has had."""
        return Totals(self._ints[_COMPLETED], self._ints[_FAILED], self._ints[_EARLIER] + self._ints[_COUNT])

    def lease_of(self, serial: int) -> float:
        """Returns the boot time at which the lease of the attempt with that serial is lost."""
        return self._floats[_LEASES + (serial & 1)]

    def read(self) -> BeatReading:
        serial = self._ints[_SERIAL]
        phase = self._read_phase()
        occupant = self._read_occupant() if phase is not Phase.EMPTY else None
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
        )

    def read_occupant(self) -> Occupant | None:
        """Returns the cold part alone, for a record whose phase is damaged. It may describe an attempt that has ended."""
        return self._read_occupant()

    def _read_phase(self) -> Phase:
        try:
            return Phase(self._ints[_STATE])
        except ValueError as error:
            raise BoardError(f"record {self.index} is damaged: there is no phase {self._ints[_STATE]}") from error

    def _read_occupant(self) -> Occupant | None:
        for _ in range(3):
            before, length, checksum = _COLD.unpack_from(self._bytes, _COLD_OFFSET)
            if before & 1 or length > COLD_BYTES:
                continue
            body = _COLD_OFFSET + _COLD.size
            data = bytes(self._bytes[body : body + length])
            if _COLD.unpack_from(self._bytes, _COLD_OFFSET)[0] != before or zlib.crc32(data) != checksum:
                continue
            try:
                return msgspec.msgpack.decode(data, type=Occupant)
            except msgspec.DecodeError:
                continue
        return None

    def release_views(self) -> None:
        for view in (self._floats, self._ints, self._bytes):
            view.release()


class BoardIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a board. A later supervisor reads it to find out whether the owner is dead."""

    incarnation: str
    pid: int
    pid_started: int  # clock ticks after boot, from /proc: a pid alone is reused
    boot_id: str
    engine: str = ""  # URL without secrets
    worker: str = ""  # its name, which may outlive this start


class BeatBoard:
    """The whole page. The supervisor creates it, slots open it by path."""

    def __init__(self, path: Path, page: mmap.mmap, records: int, identity: BoardIdentity, *, owner: bool) -> None:
        self.path, self.identity, self._page, self._owner = path, identity, page, owner
        self.records = [BeatRecord(page, i, mmap.PAGESIZE + i * RECORD_BYTES) for i in range(records)]
        # The last word of the first page, behind the identity.
        self._tick = memoryview(page)[mmap.PAGESIZE - 8 : mmap.PAGESIZE].cast("d")

    @classmethod
    def create(cls, folder: Path, records: int, identity: BoardIdentity) -> BeatBoard:
        """Makes a board in `folder`, which is in shared memory where there is any (see `board_folder`)."""
        # The file has another name until its header is whole. Otherwise a cleanup at this moment would remove it as a broken board.
        path, unfinished = folder / f"board-{identity.incarnation}", folder / f"new-{identity.incarnation}"
        size = mmap.PAGESIZE + records * RECORD_BYTES
        name = msgspec.msgpack.encode(identity)
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Reserve the room now: a full /dev/shm must be an error here, not a SIGBUS at some later beat.
            os.posix_fallocate(descriptor, 0, size)
            page = mmap.mmap(descriptor, size)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        _HEADER.pack_into(page, 0, MAGIC, VERSION, records, identity.pid, len(name))
        page[_HEADER.size : _HEADER.size + len(name)] = name
        unfinished.rename(path)
        return cls(path, page, records, identity, owner=True)

    @classmethod
    def private(cls, records: int) -> BeatBoard:
        """Makes a board that only this process sees, for attempts in threads and for tests."""
        page = mmap.mmap(-1, mmap.PAGESIZE + records * RECORD_BYTES)
        identity = BoardIdentity(incarnation="private", pid=os.getpid(), pid_started=0, boot_id="")
        return cls(Path("private"), page, records, identity, owner=False)

    @classmethod
    def open(cls, path: Path) -> BeatBoard:
        """Opens a board of this user. Raises `ForeignFileError` for another user's file, `BoardError` for a file that is no board."""
        try:
            descriptor = open_own_file(path, os.O_RDWR)
            try:
                page = mmap.mmap(descriptor, 0)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise BoardError(f"cannot open the beat board {path}: {error}") from error
        if len(page) < mmap.PAGESIZE:
            page.close()
            raise BoardError(f"{path} is too short to be a beat board")
        magic, version, records, _, length = _HEADER.unpack_from(page, 0)
        expected = mmap.PAGESIZE + records * RECORD_BYTES
        if magic != MAGIC or version != VERSION or len(page) != expected or length > mmap.PAGESIZE - 8 - _HEADER.size:
            page.close()
            raise BoardError(f"{path} is not a beat board of version {VERSION}")
        try:
            identity = msgspec.msgpack.decode(page[_HEADER.size : _HEADER.size + length], type=BoardIdentity)
        except msgspec.DecodeError as error:
            page.close()
            raise BoardError(f"{path} does not say whose board it is: {error}") from error
        # The name leads to files and processes: it must be the one that the file was found under, and a plain word.
        if path.name != f"board-{identity.incarnation}" or not _PLAIN.fullmatch(identity.incarnation):
            page.close()
            raise BoardError(f"{path} says that it is the board of {identity.incarnation[:200]!r}")
        return cls(path, page, records, identity, owner=False)

    def tick(self, now: float) -> None:
        """Records that the supervisor looked at its slots at this monotonic time."""
        self._tick[0] = now

    @property
    def ticked_at(self) -> float:
        """Returns the time of the last look. A supervisor that is stopped extends no lease, so its slots should claim nothing."""
        return self._tick[0]

    def close(self) -> None:
        """Unmaps the board; the owner also removes the file."""
        for record in self.records:
            record.release_views()
        self.records = []
        self._tick.release()
        self._page.close()
        if self._owner:
            self.path.unlink(missing_ok=True)


def board_folder(preferred: Path = Path("/dev/shm"), *, needs: int = 1 << 20) -> Path:  # noqa: S108
    """Returns the folder for boards: shared memory, or a temporary folder where that is missing, read-only or too small."""
    name = f"tenure-{os.getuid()}"
    why = ""
    for base in (preferred, Path(tempfile.gettempdir())):
        try:
            folder = own_folder(base / name)
            room = os.statvfs(folder)
        except ForeignFileError as error:
            why += f"; {error.fact}"
            continue
        except OSError:
            continue
        if room.f_bavail * room.f_frsize > needs and os.access(folder, os.W_OK):
            return folder
    raise BoardError(
        f"no place for the beat board: neither /dev/shm nor the temporary folder can be written{why}",
        remedy="Set TMPDIR to a folder that this user can write",
    )
