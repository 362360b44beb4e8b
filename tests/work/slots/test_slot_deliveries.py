from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest

from tenure.backoff import Retry
from tenure.beat.board import BeatBoard, BoardIdentity
from tenure.beat.record import Occupant, Phase
from tenure.clock import ManualClock
from tenure.engines import Engine
from tenure.logs import log_to
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.slots import slot_deliveries
from tenure.work.slots.claim_page import ClaimPage, NamedClaim
from tenure.work.slots.processes import read_stat
from tenure.work.slots.slot_deliveries import LOCK_S, DeadWorkerCleanup

MINE, OTHER = "memory://mine", "memory://other"
LEASE_S = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    with Engine.open("memory://", clock=clock) as engine:
        yield engine


def clear(folder: Path, engine: Engine, engine_name: str, said: Callable[[str], None] = lambda _: None) -> int:
    return DeadWorkerCleanup(
        folder, engine, engine_name, clock=engine.clock, random=Random(1), log=log_to(said)
    ).clear()


def clear_in_vain(folder: Path, engine: Engine, clock: ManualClock) -> None:
    """A cleanup that meets a lock which stays taken: it gives up soon."""
    with ThreadPoolExecutor(1) as pool:
        cleared = pool.submit(clear, folder, engine, MINE)
        try:
            clock.until_waiting(1, real_seconds=60)
        finally:
            clock.advance(LOCK_S)
        assert cleared.result(60) == 0


def dead_board(
    folder: Path,
    engine: Engine,
    engine_name: str,
    *,
    phase: Phase = Phase.RUNNING,
    managed: bool = False,
    max_attempts: int = 3,
) -> Path:
    """The board of a worker that is gone, and that held one delivery of this engine."""
    queue = engine.mailbox("work", WorkItem, WorkResult)
    queue.send(WorkItem(workflow="add"), reply_to="replies")
    [message] = queue.receive(1, LEASE_S)
    identity = BoardIdentity(
        incarnation=f"dead-{engine_name[9:]}",
        pid=2**22 + 1,
        pid_started=1,
        boot_id=engine.clock.boot_id(),
        engine=engine_name,
        worker="w-1",
    )
    made = BeatBoard.create(folder, 1, identity)
    occupant = Occupant(
        ticket=message.ticket,
        job="j",
        workflow="add",
        workflow_id="add",
        attempt=1,
        queue="work",
        stall_s=60,
        managed=managed,
        retry=Retry(max_attempts=max_attempts),
    )
    made.records[0].occupy(phase, occupant, engine.clock.monotonic())
    kept = made.path.read_bytes()
    made.close()  # which removes it: a dead worker does not get that far
    made.path.write_bytes(kept)
    return made.path


def test_work_that_ran_is_settled_at_once_as_failed_with_its_worker(
    tmp_path: Path, engine: Engine, clock: ManualClock
) -> None:
    path = dead_board(tmp_path, engine, MINE)
    said: list[str] = []
    assert clear(tmp_path, engine, MINE, said.append) == 1
    assert "1 deliveries settled" in said[-1]
    assert not path.exists()
    work = engine.mailbox("work")
    assert work.depth().delayed == 1  # it is tried again after its backoff
    clock.advance(5)
    [again] = work.receive(1, 10)
    assert again.attempt == 2
    kept = engine.store("evidence").get("j/add/1")
    assert kept is not None
    failure = msgspec.json.decode(kept, type=WorkFailure)
    assert (failure.cause, failure.reason) == (Cause.WORKER_DIED, "its worker died while it ran")
    assert failure.evidence["phase"] == "running"


def test_a_cleanup_for_another_engine_does_not_keep_the_successor_of_a_dead_worker_from_its_work(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_board(tmp_path, engine, MINE)
    found: list[int] = []

    def scan_slowly(incarnation: str) -> int:
        """Its own successor starts while the other worker still walks over all processes of the machine."""
        monkeypatch.undo()
        found.append(clear(tmp_path, engine, MINE))
        return 0

    monkeypatch.setattr(slot_deliveries, "kill_strays", scan_slowly)
    assert clear(tmp_path, engine, OTHER) == 0
    assert found == [1]


def test_a_board_that_another_cleanup_looks_at_in_this_moment_is_waited_for(
    tmp_path: Path, engine: Engine, clock: ManualClock
) -> None:
    looked_at = BeatBoard.open(dead_board(tmp_path, engine, MINE))
    assert looked_at.lock()
    with ThreadPoolExecutor(1) as pool:
        cleared = pool.submit(clear, tmp_path, engine, MINE)
        try:
            clock.until_waiting(1, real_seconds=60)
        finally:
            looked_at.close()
            clock.advance(LOCK_S)
        assert cleared.result(60) == 1


def test_work_whose_last_attempt_ended_with_its_worker_is_a_dead_letter(tmp_path: Path, engine: Engine) -> None:
    dead_board(tmp_path, engine, MINE, max_attempts=1)
    assert clear(tmp_path, engine, MINE) == 1
    [dead] = engine.mailbox("work").dead_letters.list()
    assert "worker_died: its worker died while it ran" in dead.reason


def test_of_managed_work_the_leader_hears_that_its_worker_died(tmp_path: Path, engine: Engine) -> None:
    dead_board(tmp_path, engine, MINE, managed=True)
    assert clear(tmp_path, engine, MINE) == 1
    [reply] = engine.mailbox("replies", WorkResult).receive(1, 10)
    assert reply.body.failure is not None
    assert (reply.body.failure.cause, reply.body.worker, reply.body.job_id) == (Cause.WORKER_DIED, "w-1", "j")


def test_work_that_was_claimed_and_not_started_goes_back_uncounted(tmp_path: Path, engine: Engine) -> None:
    dead_board(tmp_path, engine, MINE, phase=Phase.CLAIMED)
    assert clear(tmp_path, engine, MINE) == 1
    [again] = engine.mailbox("work").receive(1, 10)
    assert again.attempt == 1


def test_the_log_of_work_that_died_with_its_worker_is_kept(tmp_path: Path, engine: Engine) -> None:
    dead_board(tmp_path, engine, MINE)
    folder = tmp_path / "dead-mine"
    folder.mkdir(mode=0o700)
    (folder / "attempt-0-1.log").write_bytes(b'{"text": "so far"}\n')
    assert clear(tmp_path, engine, MINE) == 1
    assert engine.store("logs").get("j/add/1") == b'{"text": "so far"}\n'
    assert not folder.exists()


@pytest.mark.parametrize(("started", "attempt"), [(False, 1), (True, 2)])
def test_what_a_dead_worker_had_claimed_and_not_settled_is_back_at_once_and_counts_only_if_it_had_started(
    tmp_path: Path, engine: Engine, started: bool, attempt: int
) -> None:
    dead_board(tmp_path, engine, MINE)
    queue = engine.mailbox("work", WorkItem, WorkResult)
    queue.send(WorkItem(workflow="add"))
    [message] = queue.receive(1, LEASE_S, provisional=True)
    page = ClaimPage.create(tmp_path, "dead-mine", 4)
    entry = page.name(1, NamedClaim("work", "add", message.ticket))
    page.name(2, NamedClaim("work", "add", message.ticket))
    page.free(entry + 1)
    if started:
        page.start(entry, 1)
    kept = page.path.read_bytes()
    page.close()
    page.path.write_bytes(kept)
    page.path.chmod(0o600)
    said: list[str] = []
    assert clear(tmp_path, engine, MINE, said.append) == 1
    assert "2 deliveries settled" in said[-1]
    [again] = queue.receive(1, 10)
    assert (again.id, again.attempt) == (message.id, attempt)
    assert not list(tmp_path.glob("claims-*"))


def test_a_worker_of_another_pid_namespace_lives_while_it_holds_its_board(
    tmp_path: Path, engine: Engine, clock: ManualClock
) -> None:
    """Its pid is nobody here. Its lock says that it lives, and the end of its process frees the lock."""
    identity = BoardIdentity(
        incarnation="far", pid=2**22 + 1, pid_started=1, boot_id=engine.clock.boot_id(), engine=MINE
    )
    board = BeatBoard.create(tmp_path, 1, identity)
    clear_in_vain(tmp_path, engine, clock)
    kept = board.path.read_bytes()
    board.close()
    board.path.write_bytes(kept)
    assert clear(tmp_path, engine, MINE) == 1


def test_a_board_without_a_lock_is_judged_by_its_pid(tmp_path: Path, engine: Engine) -> None:
    """A release that knew no lock may still run on this machine."""
    own = read_stat(os.getpid())
    assert own is not None
    path = dead_board(tmp_path, engine, MINE)
    earlier = BoardIdentity(
        incarnation="dead-mine", pid=own.pid, pid_started=own.started, boot_id=engine.clock.boot_id(), engine=MINE
    )
    name = msgspec.msgpack.encode(earlier)
    data = bytearray(path.read_bytes())
    data[24:32] = len(name).to_bytes(8, "little")
    data[32 : 32 + len(name)] = name
    path.write_bytes(data)
    assert clear(tmp_path, engine, MINE) == 0
    assert path.exists()


def test_one_of_two_cleanups_clears_up_after_a_dead_worker(tmp_path: Path, engine: Engine, clock: ManualClock) -> None:
    path = dead_board(tmp_path, engine, MINE)
    first = BeatBoard.open(path)
    assert first.lock()
    clear_in_vain(tmp_path, engine, clock)
    first.close()
    assert clear(tmp_path, engine, MINE) == 1


def test_folders_without_a_board_are_removed_and_others_are_not(tmp_path: Path, engine: Engine) -> None:
    forsaken, owned, foreign = tmp_path / ("ab" * 16), tmp_path / ("cd" * 16), tmp_path / "something-else"
    for folder in (forsaken, owned, foreign):
        folder.mkdir(mode=0o700)
        (folder / "attempt-0-1.log").write_text("a line")
    identity = BoardIdentity(incarnation=owned.name, pid=1, pid_started=1, boot_id="", engine=MINE)
    board = BeatBoard.create(tmp_path, 1, identity)
    clear(tmp_path, engine, MINE)
    assert [folder.exists() for folder in (forsaken, owned, foreign)] == [False, True, True]
    board.close()


def _link(path: Path) -> None:
    target = path.with_name("target")
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_link, "symbolic link"),
        (lambda path: path.chmod(0o666), "others may write"),
        (lambda path: os.chown(path, 12_345, -1), "belongs to user 12345"),
        (lambda path: (path.unlink(), os.mkfifo(path, 0o600)), "not a regular file"),
    ],
    ids=["symlink", "mode", "owner", "pipe"],
)
def test_a_board_that_somebody_else_may_have_put_there_is_left_alone_and_told(
    tmp_path: Path, engine: Engine, change: Callable[[Path], object], why: str
) -> None:
    if os.getuid() != 0 and why.startswith("belongs"):
        pytest.skip("only root can give a file away")
    path = dead_board(tmp_path, engine, MINE)
    change(path)
    said: list[str] = []
    assert clear(tmp_path, engine, MINE, said.append) == 0
    assert why in said[0]
    assert os.path.lexists(path)
    assert engine.mailbox("work").depth().leased == 1


def test_a_board_that_names_another_folder_than_its_own_name_says_leads_nowhere(tmp_path: Path, engine: Engine) -> None:
    """Its name leads to a folder that is removed with everything in it."""
    precious = tmp_path / "precious"
    precious.mkdir()
    folder = tmp_path / "boards"
    folder.mkdir()
    path = dead_board(folder, engine, MINE)
    data = path.read_bytes().replace(b"dead-mine", b"../precio")
    for name in ("board-dead-mine", "board-.."):
        (folder / name).write_bytes(data)
    said: list[str] = []
    assert clear(folder, engine, MINE, said.append) == 0
    assert precious.exists()
    assert all("says that it is the board of" in line for line in said)


def test_a_link_in_place_of_a_dead_workers_folder_is_not_followed(tmp_path: Path, engine: Engine) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "attempt-0.log").write_text("not a log of ours")
    dead_board(tmp_path, engine, MINE)
    (tmp_path / "dead-mine").symlink_to(precious)
    said: list[str] = []
    assert clear(tmp_path, engine, MINE, said.append) == 1
    assert (precious / "attempt-0.log").exists()
    assert any("left alone" in line and "symbolic link" in line for line in said)
    assert engine.store("logs").get("j/add/1") is None


def test_a_board_that_names_work_of_another_engine_is_left_for_a_worker_that_can_return_it(
    tmp_path: Path, engine: Engine, clock: ManualClock
) -> None:
    path = dead_board(tmp_path, engine, OTHER)
    said: list[str] = []
    assert clear(tmp_path, engine, MINE, said.append) == 0
    assert path.exists()
    assert clear(tmp_path, engine, OTHER, said.append) == 1
    assert engine.mailbox("work").depth().leased == 0


def test_a_board_of_another_engine_goes_when_its_leases_are_over(
    tmp_path: Path, engine: Engine, clock: ManualClock
) -> None:
    path = dead_board(tmp_path, engine, OTHER)
    clock.advance(LEASE_S + 1)
    assert clear(tmp_path, engine, MINE) == 1
    assert not path.exists()


def test_a_board_that_is_being_made_is_not_taken_for_a_broken_one(
    tmp_path: Path, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, during = Path.rename, []

    def clear_first(path: Path, target: Path) -> Path:
        during.append(clear(tmp_path, engine, MINE))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", clear_first)
    identity = BoardIdentity(incarnation="new", pid=2**22 + 1, pid_started=1, boot_id=clock.boot_id(), engine=MINE)
    board = BeatBoard.create(tmp_path, 1, identity)
    assert during == [0]
    assert board.path.exists()
    board.close()
