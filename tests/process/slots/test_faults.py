"""Real processes and signals: whatever happens to a slot, only that slot is affected, and its work is settled with the cause."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.process.slots.conftest import Desk, is_running
from tests.process.stillness import Stillness

from tenure.work import mailbox_for
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.slots.claims import STRANGER_PATIENCE_S

# The lease plays no part here: it is longer than a machine stands still.
QUICK = ("--slots", "2", "--grace", "0.3", "--lease", "60", "--stall", "30")


def evidence(desk: Desk, key: str) -> WorkFailure:
    found = desk.engine.store("evidence").get(key)
    assert found is not None, desk.engine.store("evidence").list()
    return msgspec.json.decode(found, type=WorkFailure)


def test_workflows_sync_and_async_run_and_answer(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("add", one=2, two=3)
    desk.send("add_slowly", one=5)
    answers = {desk.answer().workflow: None for _ in range(2)}
    assert set(answers) == {"add", "add_slowly"}


@pytest.mark.parametrize("name", ["hold_the_gil", "stop_myself", "kill_myself", "exit_hard", "exit_softly"])
def test_an_attempt_that_dies_or_hangs_is_tried_again(desk: Desk, name: str) -> None:
    desk.start(*QUICK)
    desk.send(name)
    answer = desk.answer()
    assert answer.failure is None
    assert answer.attempt >= 2
    assert bytes(answer.result) == b'"second attempt"'


def test_a_hang_inside_c_leaves_the_stack_as_evidence(desk: Desk) -> None:
    desk.start(*QUICK, "--grace", "2")  # in which it has to write it
    desk.send("hold_the_gil")
    desk.answer()
    found = evidence(desk, "hold_the_gil//1")
    assert found.cause is Cause.STALL
    assert "no beat for" in found.reason
    assert "in hold_the_gil" in found.evidence["stacks"]


def test_of_a_stopped_process_the_evidence_says_that_no_stack_could_be_had(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("stop_myself")
    desk.answer()
    found = evidence(desk, "stop_myself//1")
    assert "stopped by a signal" in found.evidence["state"]
    assert "not to be had" in found.evidence["stack_of_python"]


def test_a_kill_that_is_not_ours_is_told_apart(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("kill_myself", managed=True)
    answer = desk.answer()
    assert answer.failure is not None
    assert answer.failure.cause is Cause.KILLED
    assert "SIGKILL, not ours" in answer.failure.reason
    assert "MB" in answer.failure.evidence["peak_memory"]


def test_a_crash_in_native_code_leaves_the_python_stack_and_the_line(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("crash_in_c", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert (failure.cause, failure.evidence["signal"]) == (Cause.KILLED, "SIGSEGV")
    assert failure.evidence["place"].endswith(", in crash_in_c")
    assert "in string_at" in failure.evidence["stacks"].split("\n\n")[0]
    assert "frames of Tenure are not shown" in failure.evidence["stacks"]
    # It died at once, before anybody looked at it; what it had written into its record is told.
    assert failure.evidence["note"] == "about to read address 0"
    assert failure.evidence["beats"].startswith("[[")


def test_an_exit_code_is_told(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("exit_hard", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert (failure.cause, failure.evidence["exit_code"]) == (Cause.EXITED, "17")


def test_a_memory_limit_ends_the_attempt_and_not_the_worker(desk: Desk) -> None:
    desk.start(*QUICK, "--memory-limit", "600")
    desk.send("eat_memory", managed=True)
    desk.send("add", one=1)
    answers = {answer.workflow: answer for answer in (desk.answer(), desk.answer())}
    failure = answers["eat_memory"].failure
    assert failure is not None
    assert "MemoryError" in failure.reason
    assert answers["add"].ok


def test_an_exception_is_a_failure_with_its_traceback(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("raises", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert (failure.cause, failure.reason) == (Cause.EXCEPTION, "ValueError: this workflow is wrong")
    assert "in raises" in failure.evidence["traceback"]


@pytest.mark.parametrize(
    ("workflow", "args", "said"),
    [
        ("nobody", {}, "no workflow 'nobody'"),
        ("add", {"one": "x"}, "Expected `int`"),
        ("add", {}, "missing required field `one`"),
    ],
)
def test_unknown_names_and_wrong_arguments_fail_that_work_and_never_the_worker(
    desk: Desk, workflow: str, args: dict[str, object], said: str
) -> None:
    worker = desk.start(*QUICK)
    desk.send(workflow, **args)
    failure = desk.failure()
    assert said in failure.reason
    desk.send("add", one=1)
    assert desk.answer().ok
    assert worker.process.poll() is None


def test_without_managers_nothing_waits_behind_names_that_the_worker_does_not_have(desk: Desk) -> None:
    """They waited 10 s for a worker that has them, and the whole queue with them."""
    for number in range(5):
        desk.send("nobody", job=f"typo-{number}")
    others = desk.engine.mailbox(mailbox_for("work", "nobody"), WorkItem, WorkResult)
    others.send(WorkItem(workflow="nobody"))
    desk.send("add", one=1)
    with Stillness() as machine:
        desk.start(*QUICK)
        [first] = desk.replies.receive(1, 60, PATIENCE_S)
    assert first.failure is None or machine.excuses(STRANGER_PATIENCE_S / 4)
    assert others.depth() == (1, 0, 0), "a worker claims only what it serves from mailboxes that name the workflow"


def test_a_hung_slot_is_killed_and_its_work_done_again_while_another_goes_on(desk: Desk, tmp_path: Path) -> None:
    """stall 0.6 + grace 0.3 and not earlier; how much later, `bench_slots` measures."""
    desk.start(*QUICK)
    log, told = tmp_path / "log", tmp_path / "told"
    desk.send("beat_until", told=str(told), log=str(log), job="bystander")
    wait_until(log.exists)
    begun = time.monotonic()
    desk.send("hold_the_gil")
    assert desk.answer().attempt >= 2
    assert time.monotonic() - begun >= 0.9
    told.touch()
    bystander = desk.answer()
    assert (bystander.job_id, bystander.attempt) == ("bystander", 1)
    assert log.read_text().count("start") == 1


def test_a_declared_silence_is_not_a_stall(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("declared_silence")
    answer = desk.answer()
    assert (answer.attempt, bytes(answer.result)) == (1, b'"not killed"')


def test_work_of_many_leases_is_delivered_once_while_it_beats(desk: Desk) -> None:
    lease_s = 2.5
    with Stillness() as machine:
        desk.start("--slots", "2", "--lease", str(lease_s), "--grace", "0.3")
        desk.send("beat_for", seconds=3 * lease_s)
        answer = desk.answer()
    assert answer.attempt == 1 or machine.excuses(lease_s / 2)


def test_an_attempt_past_its_timeout_ends(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("too_long", managed=True)
    failure = desk.answer().failure
    assert failure is not None
    assert failure.cause is Cause.TIMEOUT


def test_a_fork_of_a_workflow_does_not_outlive_its_worker(desk: Desk, tmp_path: Path) -> None:
    worker = desk.start(*QUICK)
    desk.send("fork_and_leave", log=str(tmp_path / "pids"))
    desk.answer()
    assert worker.end() == 0
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        wait_until(lambda p=pid: not is_running(p), "the fork still runs")


def test_a_grandchild_that_made_itself_a_daemon_is_killed_with_its_slot(desk: Desk, tmp_path: Path) -> None:
    desk.start(*QUICK)
    desk.send("daemon_grandchild", log=str(tmp_path / "pids"))
    assert desk.answer().attempt >= 2
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        wait_until(lambda p=pid: not is_running(p), "the daemon still runs")


def test_a_retry_goes_on_from_the_last_checkpoint(desk: Desk, tmp_path: Path) -> None:
    desk.start(*QUICK)
    log = tmp_path / "counted"
    desk.send("count_on", until=10, log=str(log))
    answer = desk.answer()
    assert answer.attempt == 2
    assert msgspec.json.decode(answer.result) == list(range(10))
    lines = log.read_text().split("\n")[:-1]
    assert lines == [f"1 {n}" for n in range(6)] + [f"2 {n}" for n in range(6, 10)]


def test_the_lines_of_a_workflow_are_kept_with_job_and_attempt(desk: Desk) -> None:
    desk.start(*QUICK)
    desk.send("with_log", job="j-7")
    desk.answer()
    found = desk.engine.store("logs").get("j-7/with_log/1")
    assert found is not None
    lines = [msgspec.json.decode(line) for line in found.splitlines()]
    assert [line["text"] for line in lines] == ["from the context: 1", "from a library"]
    assert {(line["job"], line["workflow"], line["attempt"]) for line in lines} == {("j-7", "with_log", 1)}


def test_a_module_that_cannot_be_imported_ends_the_worker_with_its_traceback(desk: Desk, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    worker = desk.start(*QUICK, modules=(str(broken),))
    assert worker.ended() == 2
    assert "No module named 'nothing_of_that_name'" in worker.said()


def test_slots_that_start_to_fail_later_back_off_and_recover(desk: Desk, tmp_path: Path) -> None:
    flag = tmp_path / "break"
    # Each slot imports the modules anew: forked ones have what was imported before the flag.
    worker = desk.start(*QUICK, "--slot-start", "spawn", TENURE_TEST_BREAK_IMPORT=str(flag))
    desk.send("add", one=1)
    desk.answer()
    flag.touch()
    for pid in worker.slots():
        with suppress(ProcessLookupError):  # one that was still starting met the flag, and has ended
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "slots keep dying" in worker.said(), worker.said)
    flag.unlink()
    desk.send("add", one=2)
    assert desk.answer().ok


def test_a_blocked_event_loop_names_its_culprit_and_the_others_are_not_counted(desk: Desk) -> None:
    desk.start("--slots", "1", "--concurrency", "4", "--grace", "0.3", "--lease", "60", "--stall", "30")
    for n in range(3):
        desk.send("add_slowly", one=n, seconds=2.5, job=f"other-{n}")
    desk.send("block_the_loop", job="culprit")
    answers = {answer.job_id: answer for answer in (desk.answer() for _ in range(4))}
    assert answers["culprit"].attempt >= 2
    assert all(answers[f"other-{n}"].attempt == 1 for n in range(3)), answers
    assert evidence(desk, "culprit//1").cause is Cause.STALL


def test_an_async_workflow_that_waits_for_ever_is_cancelled_as_a_task_before_anything_is_killed(
    desk: Desk, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    worker = desk.start("--slots", "1", "--concurrency", "4", "--grace", "20", "--lease", "60")
    desk.send("wait_for_ever", log=str(log))
    assert desk.answer().attempt >= 2
    assert log.read_text() == "cancelled in the task\n"
    assert "killing slot" not in worker.said()
