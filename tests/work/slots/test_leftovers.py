from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.beat.board import BeatBoard, Identity, Occupant, Phase
from tenure.clock import ManualClock
from tenure.engines import Engine
from tenure.work.envelope import WorkItem, WorkResult
from tenure.work.slots.leftovers import clear_leftovers

MINE, OTHER = "memory://mine", "memory://other"
LEASE_S = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    with Engine.open("memory://", clock=clock) as engine:
        yield engine


def dead_board(folder: Path, engine: Engine, engine_name: str, *, phase: Phase = Phase.RUNNING) -> Path:
    """The board of a worker that is gone, and that held one delivery of this engine."""
    queue = engine.mailbox("work", WorkItem, WorkResult)
    queue.send(WorkItem(workflow="add"))
    [message] = queue.receive(1, LEASE_S)
    identity = Identity(
        incarnation=f"dead-{engine_name[9:]}",
        pid=2**22 + 1,
        pid_started=1,
        boot_id=engine.clock.boot_id(),
        engine=engine_name,
    )
    made = BeatBoard.create(folder, 1, identity)
    occupant = Occupant(ticket=message.ticket, job="j", workflow="add", attempt=1, queue="work", stall_s=60)
    made.records[0].occupy(phase, occupant, engine.clock.monotonic())
    kept = made.path.read_bytes()
    made.close()  # which removes it: a dead worker does not get that far
    made.path.write_bytes(kept)
    return made.path


def test_work_of_our_own_engine_is_returned_at_once(tmp_path: Path, engine: Engine, clock: ManualClock) -> None:
    path = dead_board(tmp_path, engine, MINE)
    said: list[str] = []
    assert clear_leftovers(tmp_path, engine, MINE, clock, said.append) == 1
    assert "1 deliveries returned" in said[0]
    assert not path.exists()
    assert engine.mailbox("work").depth().ready == 1


def test_a_board_that_names_work_of_another_engine_is_left_for_a_worker_that_can_return_it(
    tmp_path: Path, engine: Engine, clock: ManualClock
) -> None:
    path = dead_board(tmp_path, engine, OTHER)
    said: list[str] = []
    assert clear_leftovers(tmp_path, engine, MINE, clock, said.append) == 0
    assert path.exists()
    assert clear_leftovers(tmp_path, engine, OTHER, clock, said.append) == 1
    assert engine.mailbox("work").depth().ready == 1


def test_a_board_of_another_engine_goes_when_its_leases_are_over(
    tmp_path: Path, engine: Engine, clock: ManualClock
) -> None:
    path = dead_board(tmp_path, engine, OTHER)
    clock.advance(LEASE_S + 1)
    assert clear_leftovers(tmp_path, engine, MINE, clock, lambda _: None) == 1
    assert not path.exists()


def test_a_board_that_is_being_made_is_not_taken_for_a_broken_one(
    tmp_path: Path, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, during = Path.rename, []

    def clear_first(path: Path, target: Path) -> Path:
        during.append(clear_leftovers(tmp_path, engine, MINE, clock, lambda _: None))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", clear_first)
    identity = Identity(incarnation="new", pid=2**22 + 1, pid_started=1, boot_id=clock.boot_id(), engine=MINE)
    board = BeatBoard.create(tmp_path, 1, identity)
    assert during == [0]
    assert board.path.exists()
    board.close()
