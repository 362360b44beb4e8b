from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.work.envelope import Cause
from tenure.work.slots import evidence


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
