from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tenure.beat.board import BeatBoard, BoardIdentity
from tenure.beat.record import Occupant, Phase
from tenure.cli import top
from tenure.clock import SystemClock
from tenure.engines.contracts import Ticket
from tenure.work.slots.processes import read_stat


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BeatBoard]:
    """A board of a worker that lives: this process."""
    import os

    own = read_stat(os.getpid())
    assert own is not None
    monkeypatch.setattr(top, "board_folder", lambda: tmp_path)
    board = BeatBoard.create(
        tmp_path, 2, BoardIdentity(incarnation="w-1", pid=os.getpid(), pid_started=own.started, boot_id="b")
    )
    clock = SystemClock()
    ticket = Ticket(id="m", receipt_handle="r", delivery_count=1, enqueued_at=1, lease_until=clock.boottime() + 50)
    occupant = Occupant(ticket=ticket, job="j-1", workflow="encode", attempt=2, queue="q", stall_s=30, note="frame 7")
    board.records[0].occupy(Phase.RUNNING, occupant, clock.monotonic())
    board.records[0].set_progress(0.5)
    yield board
    board.close()


def test_running_work_is_told_as_json(board: BeatBoard) -> None:
    [row] = json.loads(CliRunner().invoke(top.top, ["--json"]).output)
    assert (row["workflow"], row["job"], row["attempt"], row["progress"]) == ("encode", "j-1", 2, 0.5)
    assert 40 < row["lease_left_s"] <= 50
    assert 20 < row["stall_left_s"] <= 30
    assert row["deadline_left_s"] is None


@pytest.mark.parametrize("width", [60, 100, 160])
def test_the_numbers_are_whole_in_every_width(board: BeatBoard, width: int) -> None:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(top.table_of(list(top.rows(SystemClock())), width))
    text = console.export_text()
    console.file.close()
    assert "1 running" in text
    for word in ("encode", "j-1", "lease", "stall", "proof", "progress"):
        assert word in text
    assert ("frame 7" in text) is (width >= 90)


def test_a_worker_that_died_shows_nothing(board: BeatBoard, tmp_path: Path) -> None:
    dead = BeatBoard.create(tmp_path, 1, BoardIdentity(incarnation="w-0", pid=1, pid_started=999_999_999, boot_id="b"))
    dead.records[0].occupy(Phase.RUNNING, board.records[0].read().occupant, 1.0)  # type: ignore[arg-type]
    kept = dead.path.read_bytes()
    dead.close()  # frees the lock, as its death does, and removes the file, as its death does not
    dead.path.write_bytes(kept)
    assert len(list(top.rows(SystemClock()))) == 1
    dead.close()
