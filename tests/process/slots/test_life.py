"""Draining, dying and coming back: the life of a worker, with real signals."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.slots.conftest import Desk, marked_processes
from tests.process.stopping import stop_between_transactions
from tests.soak import sized

from tenure.beat.board import BeatBoard, board_folder

QUICK = ("--slots", "2", "--grace", "0.3", "--lease", "60", "--stall", "30")


def test_sigterm_lets_running_work_finish_and_claims_nothing_more(desk: Desk, tmp_path: Path) -> None:
    worker = desk.start(*QUICK)
    log, told = tmp_path / "log", tmp_path / "told"
    desk.send("beat_until", told=str(told), log=str(log))
    wait_until(log.exists, worker.said)
    worker.signal(signal.SIGTERM)
    # The other has nothing to finish.
    wait_until(lambda: "draining" in worker.said() and len(worker.slots()) == 1, worker.said)
    desk.send("add", one=1)
    told.touch()
    assert desk.answer().workflow == "beat_until"
    assert worker.ended() == 0
    assert desk.work.depth().ready == 1
    assert marked_processes(tmp_path) == []


def test_a_second_signal_hands_over_at_once_and_uncounted(desk: Desk, tmp_path: Path) -> None:
    first = desk.start(*QUICK)
    log, told = tmp_path / "log", tmp_path / "told"
    desk.send("beat_until", told=str(told), log=str(log))
    wait_until(log.exists, first.said)
    first.signal(signal.SIGTERM)
    wait_until(lambda: "draining" in first.said(), first.said)
    first.signal(signal.SIGTERM)
    assert first.ended() == 0
    told.touch()
    desk.start(*QUICK)
    assert desk.answer().attempt == 1
    assert log.read_text().count("start") == 2


def test_a_worker_that_hands_over_lets_another_go_on(desk: Desk, tmp_path: Path) -> None:
    first = desk.start(*QUICK, "--drain", "handover")
    log, told = tmp_path / "log", tmp_path / "told"
    desk.send("beat_until", told=str(told), log=str(log))
    wait_until(log.exists, first.said)
    first.signal(signal.SIGTERM)
    assert first.ended() == 0
    assert desk.work.depth().ready == 1
    told.touch()
    desk.start(*QUICK)
    assert desk.answer().attempt == 1


def test_with_time_to_hand_over_an_attempt_stops_when_it_has_just_saved(desk: Desk, tmp_path: Path) -> None:
    first = desk.start(*QUICK, "--drain", "handover", "--handover-within", "300")
    log, told = tmp_path / "log", tmp_path / "told"
    desk.send("save_when_told", told=str(told), log=str(log))
    wait_until(log.exists, first.said)
    first.signal(signal.SIGTERM)
    # The idle one has left, and this one waits for its mark.
    wait_until(lambda: "draining" in first.said() and len(first.slots()) == 1, first.said)
    assert desk.work.depth().leased == 1
    told.touch()
    assert first.ended() == 0
    desk.start(*QUICK)
    assert desk.answer().value == "saved"


def test_work_that_ignores_its_cancellation_is_killed_after_the_grace(desk: Desk, tmp_path: Path) -> None:
    worker, log = desk.start(*QUICK, "--drain", "handover"), tmp_path / "log"
    desk.send("ignore_cancel", log=str(log))
    wait_until(log.exists, worker.said)  # not its lease: work that has not begun is given back, and nobody is killed
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert "killing slot" in worker.said()


NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def no_pid_namespaces() -> bool:
    return shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False).returncode != 0


@pytest.mark.skipif(no_pid_namespaces(), reason="this machine gives us no PID namespaces")
def test_a_worker_in_another_pid_namespace_is_not_taken_for_dead(desk: Desk, tmp_path: Path) -> None:
    """As in two containers that share /dev/shm: the pid on the board means nothing to the other worker."""
    log, told = tmp_path / "log", tmp_path / "told"
    first = desk.start(*QUICK, below=NAMESPACE)
    desk.send("beat_until", told=str(told), log=str(log))
    wait_until(log.exists, first.said)
    second = desk.start(*QUICK)
    wait_until(lambda: bool(second.slots()), second.said)  # it has cleared up before it starts its slots
    assert (board_folder() / f"board-{first.incarnation()}").exists()
    # Another test of this machine may have killed a worker: what is left of that one is cleared up, rightly.
    assert f"cleared up after worker {first.incarnation()}" not in second.said()
    told.touch()
    assert desk.answer().attempt == 1
    assert log.read_text().count("start") == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_slots_do_not_outlive_a_supervisor_that_dies_and_a_stopped_one_loses_its_leases(
    desk: Desk, tmp_path: Path, number: signal.Signals
) -> None:
    worker = desk.start("--slots", "2", "--grace", "0.3", "--lease", "2")
    log, told = tmp_path / "log", tmp_path / "told"
    desk.send("beat_until", told=str(told), log=str(log))
    wait_until(lambda: desk.seen_running() == 1, worker.said)
    if number is signal.SIGSTOP:
        stop_between_transactions(worker.process, tmp_path / "t.db")
    else:
        worker.signal(number)
        wait_until(lambda: marked_processes(tmp_path) == [], "slots outlived their supervisor")
    desk.start(*QUICK)
    wait_until(lambda: log.read_text().count("start") > 1, desk.workers[-1].said)
    if number is signal.SIGSTOP:
        # The slot of the stopped supervisor notices by itself that its lease is over.
        wait_until(lambda: "stopped 1 " in log.read_text(), "work outlived its lease")
    told.touch()
    assert desk.answer().attempt >= 2
    if number is signal.SIGSTOP:
        assert desk.replies.receive(1, 60, 1) == []
        worker.process.kill()
        worker.process.wait()


def test_a_new_worker_clears_what_a_killed_one_left_and_settles_its_work_before_the_lease_ends(
    desk: Desk, tmp_path: Path
) -> None:
    long = ("--slots", "2", "--lease", "600")
    worker = desk.start(*long)
    log, told = tmp_path / "log", tmp_path / "told"
    desk.send("beat_until", told=str(told), log=str(log))
    wait_until(lambda: desk.seen_running() == 1, worker.said)
    worker.signal(signal.SIGKILL)
    worker.process.wait()
    told.touch()
    second = desk.start(*long)
    assert desk.answer().attempt == 2  # which is not waited for as long as the lease lasts
    wait_until(lambda: "1 deliveries settled" in second.said(), second.said)
    second.end()
    assert not [path for path in board_folder().glob("board-*") if str(tmp_path) in _engine_of(path)]


def _engine_of(path: Path) -> str:
    try:
        board = BeatBoard.open(path)
    except Exception:
        return ""
    name = board.identity.engine
    board.close()
    return name


def test_each_start_has_its_own_incarnation(desk: Desk) -> None:
    names = []
    for _ in range(2):
        worker = desk.start(*QUICK)
        desk.send("add", one=1)
        names.append(desk.answer().worker)
        worker.end()
    assert len(set(names)) == 2


@pytest.mark.slow
def test_thousands_of_workflows_under_random_kills_each_complete_and_never_overlap(desk: Desk, tmp_path: Path) -> None:
    """Kills slots at random for as long as there is work; the log of starts and ends shows who ran when."""
    count = sized("workflows in slots that are killed at random", short=2_000, long=20_000)
    log = tmp_path / "log"
    dice = random.Random(4)
    worker = desk.start("--slots", "2", "--lease", "30", "--grace", "0.3")
    from tenure.engines import Outgoing
    from tenure.work.delivery import WorkItem

    for start in range(0, count, 500):
        desk.work.send_many(
            [
                Outgoing(WorkItem(workflow="add", args={"one": n, "log": str(log)}, job_id=str(n)), reply_to="replies")
                for n in range(start, start + 500)
            ]
        )
    answered: set[str] = set()
    kills, next_kill, deadline = 0, 100, time.monotonic() + 500
    while len(answered) < count:
        assert time.monotonic() < deadline, f"{len(answered)} of {count}:\n{worker.said()[-3_000:]}"
        for message in desk.replies.receive(100, 60, 0.2):
            assert message.body is not None
            assert message.body.ok, message.body
            assert message.body.job_id not in answered, f"{message.body.job_id} ended twice"
            answered.add(message.body.job_id)
            message.acknowledge()
        # By the work that was done, not by the time: on a busy machine, slots would be killed before they do any.
        if len(answered) >= next_kill and (slots := worker.slots()):
            with suppress(ProcessLookupError):  # one that was told to end before has ended
                os.kill(dice.choice(slots), dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
                kills += 1
            next_kill = len(answered) + dice.randint(100, 300)
    assert kills >= 5
    spans: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    open_spans: dict[tuple[str, str], float] = {}
    for line in log.read_text().splitlines():
        word, n, _, pid, at = line.split()
        if word == "start":
            open_spans[n, pid] = float(at)
        else:
            spans[n].append((open_spans.pop((n, pid)), float(at), int(pid)))
    for n, found in spans.items():
        found.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(found)), (n, found)
    assert worker.end() == 0
    assert marked_processes(tmp_path) == []
    assert not [path for path in board_folder().glob("board-*") if str(tmp_path) in _engine_of(path)]
    assert not [path for path in board_folder().iterdir() if path.is_dir() and path.name == worker.incarnation()]
