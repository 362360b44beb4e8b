"""The watchdog's SIGKILL in real processes: hung Python, hung C that holds the interpreter lock, hung evidence."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
from tests.patience import PATIENCE_S
from tests.process.stillness import Stillness

PREAMBLE = """
import ctypes, logging, os, sys, threading, time
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.watchdog import Watchdog
from tenure.engines.contracts import Engine
from tenure.work import FunctionLoop, LoopGroup

def run(work, threshold=0.5):
    engine = Engine.open("memory://")
    engine.mailbox("reviews").send(1)
    loop = FunctionLoop(engine.mailbox("reviews"), work)
    LoopGroup([loop], watchdog_threshold=threshold, watchdog_interval=0.1, wait_time_seconds=0.1, visibility_timeout=9).run()
"""


def python(script: str, *, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    code = PREAMBLE + textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout)


def test_a_hung_worker_is_killed_and_its_stack_its_name_and_its_note_are_told() -> None:
    ended = python(
        """
        def stuck_in_here(message, heartbeat):
            heartbeat.beat(note="page 3")
            time.sleep(60)

        run(stuck_in_here, threshold=8)  # on a busy machine it takes seconds until the work says anything
        """
    )
    assert ended.returncode == -signal.SIGKILL
    assert re.search(r"reviews stalled: no beat for \d", ended.stderr)
    assert "it last said 'page 3'" in ended.stderr
    assert "in stuck_in_here" in ended.stderr
    assert "The process is ended with SIGKILL" in ended.stderr


@pytest.mark.slow
def test_work_that_beats_is_left_alone() -> None:
    with Stillness() as machine:
        ended = python(
            """
            def busy(message, heartbeat):
                for _ in range(40):
                    time.sleep(0.1)
                    heartbeat.beat()
                os._exit(7)

            run(busy, threshold=2)
            """
        )
    assert ended.returncode == 7 or machine.excuses(1.0), ended.stderr


def test_native_code_that_holds_the_interpreter_lock_is_ended_too() -> None:
    """Not even the watchdog's thread runs then: faulthandler's timer, which needs no lock, ends the process."""
    ended = python(
        """
        def hold_the_lock(message, heartbeat):
            ctypes.PyDLL(None).sleep(60)

        run(hold_the_lock, threshold=3)  # on a busy machine the timer ended it before the work began
        """
    )
    assert ended.returncode == 1
    assert "Timeout (" in ended.stderr
    assert "in hold_the_lock" in ended.stderr


def test_the_first_process_of_a_container_is_ended_although_the_kernel_protects_it_from_its_own_sigkill() -> None:
    as_first = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*as_first, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us make a process namespace (unshare)")
    code = PREAMBLE + "assert os.getpid() == 1\nrun(lambda message, heartbeat: time.sleep(60))\n"
    ended = subprocess.run([*as_first, sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert ended.returncode == 128 + signal.SIGKILL
    assert "reviews stalled" in ended.stderr


@pytest.mark.slow
def test_evidence_that_cannot_be_written_does_not_save_a_stuck_process() -> None:
    """Standard error is a full pipe that nobody reads, and the stuck thread holds the log handler's lock."""
    code = PREAMBLE + textwrap.dedent(
        """
        logging.basicConfig()
        def stuck(message, heartbeat):
            logging.root.handlers[0].acquire()
            os.set_blocking(2, False)
            try:
                while True:
                    os.write(2, b"x" * 65536)
            except BlockingIOError:
                os.set_blocking(2, True)
            time.sleep(60)

        run(stuck)
        """
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        assert process.wait(timeout=180) == -signal.SIGKILL
