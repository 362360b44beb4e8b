"""Work that harms its slot, its worker or its machine: it ends, it is counted, its cause is told, and honest work goes on beside it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.process.slots.conftest import Desk, is_running
from tests.process.stillness import Stillness

from tenure.beat.board import board_folder
from tenure.engines import Engine
from tenure.logs import log_to
from tenure.work.attempt_watch import AttemptWatch
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.supervisor import Supervisor

POISON = (str(Path(__file__).parent / "poison_app.py"),)
QUICK = ("--slots", "1", "--grace", "0.3", "--lease", "60", "--stall", "30")


def test_work_that_kills_its_whole_worker_each_time_it_starts_is_a_dead_letter_after_its_attempts(
    desk: Desk, tmp_path: Path
) -> None:
    """Each worker is on another machine: it finds no board of the dead one, and only the engine counts."""
    log = tmp_path / "starts"
    desk.send("kill_the_worker", log=str(log))
    for _ in range(8):
        worker = desk.start("--slots", "1", "--lease", "2", "--grace", "0.3", modules=POISON)
        process = worker.process
        wait_until(lambda p=process: p.poll() is not None or desk.replies.depth().ready == 1, worker.said)
        if process.poll() is None:
            break
        # A worker of another test clears it up after its lease.
        (board_folder() / f"board-{worker.incarnation()}").unlink(missing_ok=True)
    assert "worker_died: its worker died 3 times while it ran" in desk.failure().reason
    assert 3 <= log.read_text().count("start") <= 4  # max_attempts is 3
    assert desk.work.dead_letters.count() == 1
    store = desk.engine.store("evidence")
    [kept] = [store.get(key) for key in store.list() if key.startswith("kill_the_worker/")]
    assert msgspec.json.decode(kept or b"", type=WorkFailure).evidence["attempts allowed"] == "3"


def test_a_lease_as_short_as_the_grace_is_held_until_the_verdict_on_a_hang_is_recorded(
    desk: Desk, tmp_path: Path
) -> None:
    log = tmp_path / "starts"
    with Stillness() as machine:
        desk.start("--slots", "1", "--lease", "2", "--grace", "2", modules=POISON)
        desk.send("hang", log=str(log))
        assert "stall: no beat for" in desk.failure().reason
    # max_attempts is 2: one start for each. Where nobody ran for as long as half of the lease, it was lost, rightly.
    assert log.read_text().split("\n")[:-1] == ["start 1", "start 2"] or machine.excuses(1.0)


def test_a_workflow_that_closes_its_descriptors_ends_and_the_cause_is_told(desk: Desk) -> None:
    worker = desk.start(*QUICK, modules=POISON)
    desk.send("close_descriptors", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert failure.cause is Cause.UNSETTLED
    assert "its outcome could not be handed over" in failure.reason
    desk.send("add", one=1)
    assert desk.answer().ok
    assert worker.process.poll() is None


def test_an_outcome_that_is_not_written_within_its_bound_ends_the_slot_with_its_stacks_as_evidence(desk: Desk) -> None:
    desk.start(*QUICK, "--settle", "1", modules=POISON)
    desk.send("hang_the_settler", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert failure.cause is Cause.UNSETTLED
    assert "it ended 1 s ago, and nothing was written" in failure.reason
    assert "poison_app.py" in failure.evidence["stacks"]  # where it hangs
    assert "frames of Tenure are not shown" in failure.evidence["stacks"]
    desk.send("add", one=1)
    assert desk.answer().ok


def test_the_processes_of_a_completed_attempt_end_with_it_and_those_of_the_slots_libraries_do_not(
    desk: Desk, tmp_path: Path
) -> None:
    log, daemons = tmp_path / "pids", tmp_path / "daemons"
    desk.start(*QUICK, modules=POISON, TENURE_TEST_DAEMON=str(daemons))
    desk.send("leave_children", log=str(log))
    slot = desk.answer().value
    pids = [int(pid) for pid in log.read_text().split()]
    assert len(pids) == 20
    assert not [pid for pid in pids if is_running(pid)]  # they were gone before the outcome was told
    desk.send("whoami")
    assert desk.answer().value == slot
    assert any(is_running(int(pid)) for pid in daemons.read_text().split())


def test_a_fork_that_comes_back_from_its_workflow_neither_answers_nor_claims(desk: Desk) -> None:
    desk.start(*QUICK, modules=POISON)
    desk.send("fork_and_return")
    assert desk.answer().value == "parent"
    desk.send("whoami")
    assert desk.answer().ok
    assert desk.replies.depth().ready == 0


def test_names_that_do_not_fit_on_the_board_fail_alone_and_honest_work_is_done(desk: Desk) -> None:
    worker = desk.start(*QUICK, modules=POISON)
    for n in range(31):
        desk.send("w" * 9_000, job=f"poison-{n}", managed=n % 2 == 0)
        if n % 5 == 0:
            desk.send("add", one=n, job=f"honest-{n}")
    answers, dead = [], 0
    for _ in range(38):
        [reply] = desk.replies.receive(1, 60, PATIENCE_S)
        reply.acknowledge()
        if reply.failure is None:
            answers.append(reply.body)
        else:
            assert "do not fit on the beat board" in reply.failure.reason
            dead += 1
    assert dead == 15
    assert {one.job_id for one in answers if one.ok} == {f"honest-{n}" for n in range(0, 31, 5)}
    refused = [one.failure for one in answers if one.failure is not None]
    assert {failure.cause for failure in refused} == {Cause.BAD_MESSAGE}
    assert len(refused) == 16
    assert "ended:" not in worker.said()  # no slot did


def test_an_exit_inside_an_event_loop_ends_its_own_attempt_and_not_its_neighbours(desk: Desk, tmp_path: Path) -> None:
    told = tmp_path / "told"
    worker = desk.start("--slots", "1", "--concurrency", "4", "--grace", "0.3", modules=POISON)
    desk.send("stay", told=str(told))
    desk.send("exit_in_the_loop", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert (failure.cause, failure.reason) == (Cause.EXITED, "the workflow called sys.exit(7)")
    told.touch()
    answer = desk.answer()
    assert (answer.value, answer.attempt) == ("stayed", 1)
    assert "ended:" not in worker.said()


def test_nonsense_on_the_channel_ends_nobody(desk: Desk) -> None:
    worker = desk.start(*QUICK, modules=POISON)
    desk.send("write_to_the_line")
    assert desk.answer().value == "written"
    wait_until(lambda: "are no frame" in worker.said(), worker.said)
    desk.send("add", one=1)
    assert desk.answer().ok
    assert worker.process.poll() is None


def test_a_slot_that_damages_its_record_is_ended_and_its_work_settled(desk: Desk) -> None:
    desk.start(*QUICK, modules=POISON)
    desk.send("damage_the_board", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert failure.cause is Cause.UNSETTLED
    assert "there is no phase 77" in failure.reason
    desk.send("add", one=1)
    assert desk.answer().ok


def test_whatever_a_workflow_raises_is_handed_over(desk: Desk) -> None:
    worker = desk.start(*QUICK, modules=POISON)
    said = {
        "mute": "Mute, which cannot be written as text",
        "surrogate": "ValueError: half a ? character",
        "long": "(2,000,012 characters)",
        "base": "GeneratorExit: not even an Exception",
    }
    for how in said:
        desk.send("raise_badly", job=how, how=how, managed=True)
    for answer in [desk.answer() for _ in said]:
        assert answer.failure is not None
        assert answer.failure.cause is Cause.EXCEPTION
        assert said[answer.job_id] in answer.failure.reason
    assert "ended:" not in worker.said()


def test_an_error_of_the_supervisor_on_one_attempt_is_counted_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = AttemptWatch.step

    def fail_on_one(watch: AttemptWatch, *args: object) -> object:
        if watch.occupant.job == "struck":
            raise ArithmeticError("injected")
        return step(watch, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(AttemptWatch, "step", fail_on_one)
    url, said = f"sqlite:///{tmp_path}/t.db", list[str]()
    settings = SlotSettings(queue="work", slots=2, grace_s=0.3, lease_s=2, claim_s=1)
    supervisor = Supervisor(list(POISON), url, settings, log=log_to(said.append))
    running = threading.Thread(target=supervisor.run)
    running.start()
    with Engine.open(url) as engine:
        work, replies = engine.mailbox("work", WorkItem, WorkResult), engine.mailbox("replies", WorkResult)
        told = tmp_path / "told"
        work.send(WorkItem(workflow="stay", args={"told": str(told)}, job_id="struck"), reply_to="replies")
        wait_until(lambda: supervisor.mishaps > 3, lambda: "\n".join(said))
        work.send(WorkItem(workflow="add", args={"one": 1}, job_id="honest"), reply_to="replies")
        [reply] = replies.receive(1, 60, PATIENCE_S)
        assert (reply.body.job_id, reply.body.ok) == ("honest", True)
        assert running.is_alive()
        assert sum("ArithmeticError" in line for line in said) < supervisor.mishaps  # it is not said each time
        told.touch()
    supervisor.stop()
    running.join(PATIENCE_S)
    assert not running.is_alive()


def test_an_attempt_without_children_pays_next_to_nothing_for_the_end_of_its_tree() -> None:
    from tenure.clock import SystemClock
    from tenure.work.slots.processes import StartedProcesses, has_children

    if has_children():
        pytest.skip("this test process has children of its own")
    processes = StartedProcesses(SystemClock(), grace_s=1.0)
    best = float("inf")
    for _ in range(50):
        begun = time.perf_counter()
        for _ in range(100):
            processes.begin(0)
            processes.end(0)
        best = min(best, (time.perf_counter() - begun) / 100)
    # One look at all processes costs milliseconds. How little it costs without one, `bench_slots` measures.
    assert best < 500e-6, f"{best * 1e6:.1f} us"
