"""Processes that attempts leave behind, and the evidence on processes that hang or died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.work.delivery import Cause
from tenure.work.slots import processes as evidence

SCRIPT = """
import os, subprocess, sys, time
from tenure.clock import SystemClock
from tenure.work.slots.processes import adopt_orphans, read_stat
from tenure.work.slots.processes import StartedProcesses, own_children

def sleeper():
    return subprocess.Popen(["sleep", "60"], start_new_session=True).pid

def alive(pid):
    found = read_stat(pid)
    return found is not None and found.state not in "ZX"

adopt_orphans()
processes = StartedProcesses(SystemClock(), grace_s=0.5)
"""


def run(code: str) -> str:
    """In a process of its own: that one is a subreaper, and the tests are not."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + code], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    return done.stdout


def test_what_was_there_before_is_kept_and_what_an_attempt_started_is_not() -> None:
    said = run("""
daemon = sleeper()
processes.keep_present()
processes.begin(0)
child = sleeper()
print(processes.end(0), alive(daemon), alive(child))
os.kill(daemon, 9)
""")
    assert said == "1 True False\n"


def test_a_daemon_of_a_daemon_is_found_and_one_that_ignores_the_request_is_killed() -> None:
    said = run("""
processes.keep_present()
processes.begin(0)
subprocess.run(["sh", "-c", "trap '' TERM; setsid sh -c 'trap \\"\\" TERM; sleep 60; true' & sleep 0.2"])
found = [child.pid for child in own_children()]
print(len(found), processes.end(0) >= 1, [child.pid for child in own_children() if alive(child.pid)])
""")
    assert said == "1 True []\n"  # a grandchild may become ours, dead, only now: the next end buries it


def test_among_several_attempts_a_process_ends_when_every_attempt_that_may_have_started_it_has_ended() -> None:
    said = run("""
processes.keep_present()
processes.begin(0)
time.sleep(0.05)
early = sleeper()
time.sleep(0.05)
processes.begin(1)
time.sleep(0.05)
late = sleeper()
print(processes.end(0), alive(early), alive(late))
print(processes.end(1), alive(late))
""")
    assert said == "1 False True\n1 False\n"


def test_the_account_keeper_of_multiprocessing_is_kept() -> None:
    said = run("""
import warnings
warnings.simplefilter("error")
from multiprocessing import resource_tracker
processes.keep_present()
processes.begin(0)
resource_tracker.ensure_running()
child = sleeper()
tracker = resource_tracker._resource_tracker._pid
print(processes.end(0), alive(child), alive(tracker))
""")
    assert said == "1 False True\n"


def test_dead_children_that_nobody_waited_for_are_buried() -> None:
    said = run("""
processes.keep_present()
processes.begin(0)
pid = os.fork()
if pid == 0:
    _exit(0)
while read_stat(pid).state != "Z":
    time.sleep(0.001)
print(processes.end(0), own_children())
""")
    assert said == "0 []\n"


@pytest.mark.skipif(not Path(f"/proc/{os.getpid()}/stat").exists(), reason="needs /proc")
def test_a_kernel_without_lists_of_children_is_asked_for_all_processes() -> None:
    said = run("""
import pathlib
read = pathlib.Path.read_text
def without(path, *args, **options):
    if path.name == "children":
        raise FileNotFoundError(path)
    return read(path, *args, **options)
pathlib.Path.read_text = without
processes.keep_present()
processes.begin(0)
child = sleeper()
print(processes.end(0), alive(child))
""")
    assert said == "1 False\n"


def status_of(code: str) -> int:
    return os.waitpid(os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code]), 0)[1]


def test_an_exit_code_is_told() -> None:
    cause, reason, found = evidence.describe_exit(status_of("raise SystemExit(7)"), oom_before=None, peak="30 MB")
    assert (cause, found) == (Cause.EXITED, {"peak_memory": "30 MB", "exit_code": "7"})
    assert "exit code 7" in reason


def test_a_signal_is_named() -> None:
    status = status_of("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    cause, reason, found = evidence.describe_exit(status, oom_before=None, peak="")
    assert (cause, found["signal"]) == (Cause.KILLED, "SIGSEGV")
    assert "SIGSEGV" in reason


def test_a_kill_that_is_not_ours_says_so_with_the_peak_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "cgroup_oom_kills", lambda: 3)
    cause, reason, found = evidence.describe_exit(signal.SIGKILL, oom_before=3, peak="512 MB")
    assert cause is Cause.KILLED
    assert "SIGKILL, not ours" in reason
    assert "512 MB" in reason
    assert found["cgroup_oom_kills"] == "3 before, 3 now"


def test_a_kill_for_memory_is_told_by_the_counter_of_the_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "cgroup_oom_kills", lambda: 4)
    cause, reason, _ = evidence.describe_exit(signal.SIGKILL, oom_before=3, peak="512 MB")
    assert cause is Cause.MEMORY
    assert "for memory" in reason


def test_a_stopped_process_cannot_answer_and_proc_says_why() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert not evidence.cannot_answer(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert evidence.cannot_answer(process.pid)
        assert "stopped by a signal" in evidence.look_at_process(process.pid)["state"]
    finally:
        process.kill()
        process.wait()


def test_of_a_dump_only_what_was_written_since_is_read(tmp_path: Path) -> None:
    path = tmp_path / "stacks"
    path.write_text("old")
    offset = evidence.dump_size(path)
    path.write_text("old and new")
    assert evidence.read_dump(path, offset) == " and new"
    assert evidence.read_dump(tmp_path / "missing", 0) == ""
