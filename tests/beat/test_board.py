from __future__ import annotations

import mmap
import os
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.beat.board import BeatBoard, BoardIdentity, board_folder
from tenure.beat.record import COLD_OFFSET, RECORD_BYTES, Occupant, Phase
from tenure.engines.contracts import Ticket
from tenure.errors import BoardError

TICKET = Ticket(id="m-1", receipt_handle="r-1", delivery_count=1, enqueued_at=1.0, lease_until=500.0)


def occupant(**changes: object) -> Occupant:
    fields = {"ticket": TICKET, "job": "j", "workflow": "w", "attempt": 1, "queue": "q", "stall_s": 60.0, **changes}
    return Occupant(**fields)  # type: ignore[arg-type]


def identity(name: str = "inc-1") -> BoardIdentity:
    return BoardIdentity(incarnation=name, pid=os.getpid(), pid_started=1, boot_id="b", engine="sqlite:///x")


def test_what_a_slot_writes_the_supervisor_reads(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 3, identity())
    other = BeatBoard.open(board.path)
    record = other.records[1]
    record.occupy(Phase.RUNNING, occupant(), now=10.0)
    floats, ints = record.beat_ports()
    floats[0], ints[1] = 12.5, 7
    record.set_progress(0.25)
    reading = board.records[1].read()
    assert (reading.phase, reading.beat_at, reading.steps, reading.progress) == (Phase.RUNNING, 12.5, 7, 0.25)
    assert reading.occupant == occupant()
    assert reading.pid == os.getpid()
    assert board.records[0].read().phase is Phase.EMPTY
    board.records[1].request_cancel(2, reading.serial)
    assert record.cancel_requested == 2
    assert record.lease_until == 500.0
    other.close()
    board.close()
    assert not board.path.exists()


def test_a_new_occupant_finds_no_trace_of_the_last_one(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    record = board.records[0]
    record.occupy(Phase.RUNNING, occupant(), now=1.0)
    record.set_silence(99.0)
    record.set_active(True)
    record.request_cancel(4, record.serial)
    record.occupy(Phase.CLAIMED, occupant(workflow="next"), now=2.0)
    reading = record.read()
    assert (reading.steps, reading.silent_until, reading.active, record.cancel_requested) == (0, 0.0, False, 0)
    assert reading.occupant is not None
    assert reading.occupant.workflow == "next"
    board.close()


def test_what_the_supervisor_writes_for_an_attempt_that_ended_does_not_touch_the_next_one(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    record = board.records[0]
    record.occupy(Phase.RUNNING, occupant(), now=1.0)
    old = record.read().serial
    record.occupy(Phase.RUNNING, occupant(), now=2.0)
    record.request_cancel(4, old)
    record.set_lease_until(9_999.0, old)
    assert record.cancel_requested == 0
    assert record.lease_until == 500.0
    record.request_cancel(4, record.serial)
    record.set_lease_until(600.0, record.serial)
    assert record.cancel_requested == 4
    assert record.lease_until == 600.0
    board.close()


def bytes_of(board: BeatBoard) -> memoryview:
    """Returns the bytes of the board's first record, as another process has them in its memory."""
    with board.path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0))[mmap.PAGESIZE : mmap.PAGESIZE + RECORD_BYTES]


def test_a_write_that_was_cut_short_is_seen_and_the_next_one_heals_it(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    record = board.records[0]
    record.occupy(Phase.RUNNING, occupant(), now=1.0)
    shared = bytes_of(board)
    sequence = struct.unpack_from("<Q", shared, COLD_OFFSET)[0]
    struct.pack_into("<Q", shared, COLD_OFFSET, sequence + 1)  # killed between the two stores
    assert record.read().occupant is None
    record.describe(occupant(note="healed"))
    found = record.read().occupant
    assert found is not None
    assert found.note == "healed"
    board.close()


def test_damaged_bytes_are_not_taken_for_an_occupant(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    record = board.records[0]
    record.occupy(Phase.RUNNING, occupant(), now=1.0)
    bytes_of(board)[COLD_OFFSET + 20] ^= 0xFF
    assert record.read().occupant is None
    board.close()


def test_a_reader_never_sees_a_mixture_while_another_process_writes(tmp_path: Path) -> None:
    """The writer alternates between two occupants that differ in every field; a torn read would mix them."""
    board = BeatBoard.create(tmp_path, 1, identity())
    code = (
        "import sys; from pathlib import Path; from tenure.beat.board import *; from tenure.beat.record import *; from tenure.engines.contracts import Ticket\n"
        "board = BeatBoard.open(Path(sys.argv[1])); record = board.records[0]\n"
        "make = lambda c, n: Occupant(ticket=Ticket(id=c*n, receipt_handle=c*n, delivery_count=n, enqueued_at=n, lease_until=n),"
        " job=c*n, workflow=c*n, attempt=n, queue=c*n, stall_s=n, note=c*n)\n"
        "two = make('a', 40), make('b', 90)\n"
        "record.occupy(Phase.RUNNING, two[0], 1.0); print('on', flush=True)\n"
        "i = 0\n"
        "while True: record.describe(two[i & 1]); i += 1\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(board.path)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        seen = set()
        for _ in range(20_000):
            found = board.records[0].read().occupant
            if found is not None:
                letter = found.job[0]
                length = 40 if letter == "a" else 90
                assert {found.job, found.workflow, found.note, found.queue, found.ticket.id} == {letter * length}
                assert found.attempt == found.stall_s == length
                seen.add(letter)
        assert seen == {"a", "b"}
    finally:
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
        board.close()


def test_a_receipt_too_large_for_the_board_is_an_error_and_a_long_note_is_not(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    board.records[0].occupy(Phase.RUNNING, occupant(note="n" * 9_000, job="j" * 300), now=1.0)
    found = board.records[0].read().occupant
    assert found is not None
    # Names are whole: whoever settles for a dead slot answers under them.
    assert (found.note, found.job) == ("", "j" * 300)
    with pytest.raises(BoardError, match="do not fit on the beat board"):
        board.records[0].describe(occupant(workflow="w" * 9_000))
    board.close()


@pytest.mark.parametrize("content", [b"", b"short", b"\0" * mmap.PAGESIZE, b"TNRBOARD" + b"\xff" * mmap.PAGESIZE])
def test_a_file_that_is_no_board_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "board-x"
    path.write_bytes(content)
    with pytest.raises(BoardError):
        BeatBoard.open(path)


def test_a_full_shared_memory_is_an_error_when_the_board_is_made_and_leaves_no_file(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from tenure.beat.board import *; from tenure.beat.record import *\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: BeatBoard.create(Path(sys.argv[1]), 4, BoardIdentity(incarnation='i', pid=1, pid_started=1, boot_id='b'))\n"
        "except OSError as error: print('refused', error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("refused")
    assert list(tmp_path.iterdir()) == []


def test_without_shared_memory_the_board_falls_back_to_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert board_folder(Path("/nonexistent")).parent == tmp_path
    assert board_folder(tmp_path / "small", needs=1).parent == tmp_path
    with pytest.raises(BoardError, match="TMPDIR"):
        board_folder(Path("/nonexistent"), needs=1 << 62)


def test_a_record_with_a_phase_that_does_not_exist_is_damaged(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    board.records[0].occupy(Phase.RUNNING, occupant(), now=1.0)
    struct.pack_into("<q", bytes_of(board), 3 * 8, 77)
    with pytest.raises(BoardError, match="no phase 77"):
        board.records[0].read()
    board.close()


def _as_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_as_link, "it is a symbolic link"),
        (lambda folder: folder.chmod(0o777), "others may write to it"),
        (lambda folder: os.chown(folder, 12_345, -1), "it belongs to user 12345"),
        (lambda folder: (folder.rmdir(), folder.write_text("")), "it is not a folder"),
    ],
    ids=["symlink", "mode", "owner", "file"],
)
def test_a_folder_that_somebody_else_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], why: str
) -> None:
    if os.getuid() != 0 and "belongs" in why:
        pytest.skip("only root can give a folder away")
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    shared.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    change(board_folder(shared))
    with pytest.raises(BoardError, match=why):
        board_folder(shared)
    temporary.mkdir()
    assert board_folder(shared).parent == temporary


def test_a_folder_of_ours_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / f"tenure-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    assert stat.S_IMODE(board_folder(tmp_path).stat().st_mode) == 0o700


def test_a_board_is_found_only_under_its_own_name(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    other = board.path.with_name("board-other")
    other.write_bytes(board.path.read_bytes())
    with pytest.raises(BoardError, match="says that it is the board of"):
        BeatBoard.open(other)
    board.close()


def test_beats_of_many_threads_only_ever_move_a_record_forward() -> None:
    board = BeatBoard.private(1)
    record = board.records[0]
    record.occupy(Phase.RUNNING, occupant(), now=0.0)
    floats, ints = record.beat_ports()

    def beat() -> None:
        for i in range(5_000):
            floats[0] = float(i)
            ints[1] = i

    threads = [threading.Thread(target=beat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert record.read().steps == 4_999
    board.close()


def test_a_record_counts_all_its_attempts_and_their_steps_over_the_deaths_of_its_slots(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    for steps, ok in ((3, True), (5, False), (2, True)):
        slot = BeatBoard.open(board.path)  # a new slot process each time
        record = slot.records[0]
        record.occupy(Phase.RUNNING, occupant(), now=1.0)
        _, ints = record.beat_ports()
        ints[1] = steps
        record.count_end(ok=ok)
        record.clear()
        del ints
        slot.close()
    assert board.records[0].totals() == (2, 1, 10)
    board.close()


def test_slots_see_when_their_supervisor_last_looked(tmp_path: Path) -> None:
    board = BeatBoard.create(tmp_path, 1, identity())
    slot = BeatBoard.open(board.path)
    assert slot.ticked_at == 0.0
    board.tick(123.5)
    assert slot.ticked_at == 123.5
    slot.close()
    board.close()
