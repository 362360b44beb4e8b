"""Signals to a real process that runs a LoopGroup."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.patience import PATIENCE_S

PREAMBLE = """
import sys, threading, time
from tenure.engines.contracts import Engine
from tenure.work import FunctionLoop, LoopGroup

engine = Engine.open("memory://")

def say(word):
    print(word, flush=True)

def group_of(work, **settings):
    mailbox = engine.mailbox("work")
    return LoopGroup([FunctionLoop(mailbox, work)], **settings)
"""


@contextmanager
def python(script: str) -> Iterator[subprocess.Popen[str]]:
    code = PREAMBLE + textwrap.dedent(script)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def hears(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_group_at_once_and_in_order(number: signal.Signals) -> None:
    with python(
        """
        group = group_of(lambda message, heartbeat: None, health_port=0, health_host="127.0.0.1", wait_time_seconds=300, visibility_timeout=1800)
        def wait_until_ready():
            while not group.readiness().ready:
                time.sleep(0.01)
            say("ready")
        threading.Thread(target=wait_until_ready).start()
        group.run()
        say("ended")
        """
    ) as process:
        hears(process, "ready")
        begun = time.monotonic()
        process.send_signal(number)
        hears(process, "ended")
        assert process.wait(PATIENCE_S) == 0
        assert time.monotonic() - begun < 250  # its long poll is 300 s


def test_a_signal_lets_the_work_in_hand_finish() -> None:
    with python(
        """
        stopping = threading.Event()
        def work(message, heartbeat):
            say("begun")
            stopping.wait(180)
            say("finished")
        engine.mailbox("work").send(1)
        engine.mailbox("work").send(2)
        group = group_of(work)
        group.add_shutdown_callback(stopping.set)
        group.run()
        say(f"left {engine.mailbox('work').depth().ready}")
        """
    ) as process:
        hears(process, "begun")
        process.send_signal(signal.SIGTERM)
        hears(process, "finished")
        hears(process, "left 1")
        assert process.wait(180) == 0


def test_a_second_signal_abandons_what_is_still_at_work() -> None:
    with python(
        """
        def work(message, heartbeat):
            say("begun")
            time.sleep(60)
        engine.mailbox("work").send(1)
        group = group_of(work)
        group.add_shutdown_callback(lambda: say("stopping"))
        group.run()
        say(f"abandoned {group.abandoned}")
        """
    ) as process:
        hears(process, "begun")
        process.send_signal(signal.SIGTERM)
        hears(process, "stopping")
        process.send_signal(signal.SIGTERM)
        hears(process, "abandoned ('work',)")
        assert process.wait(180) == 0


def test_signals_are_handled_as_before_once_the_group_has_ended() -> None:
    with python(
        """
        import signal
        # What was before differs: a shell starts background jobs with SIGINT ignored.
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        group = group_of(lambda message, heartbeat: None)
        group.shutdown()
        group.run()
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
        say("restored")
        """
    ) as process:
        hears(process, "restored")


def test_a_loop_that_dies_ends_the_process_with_an_error() -> None:
    with python(
        """
        def work(message, heartbeat):
            raise SystemExit("work wants out")
        engine.mailbox("work").send(1)
        group_of(work).run()
        """
    ) as process:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 1
        assert "LoopDiedError: loop 'work' died: SystemExit: work wants out" in errors
