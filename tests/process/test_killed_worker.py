"""A worker process on SQLite: while it beats nobody else gets its message; after `kill -9`, somebody does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.process.stillness import Stillness

from tenure.engines.contracts import Engine, Mailbox

WORKER = """
import os, sys, time
from tenure.engines.contracts import Engine
from tenure.work import FunctionLoop

def work(message, heartbeat):
    print(message.delivery_count, flush=True)
    while not os.path.exists(message.body):
        time.sleep(0.05)
        heartbeat.beat()

with Engine.open(sys.argv[1]) as engine:
    loop = FunctionLoop(engine.mailbox("work"), work)
    loop.run(max_iterations=1, visibility_timeout=float(sys.argv[2]), wait_time_seconds=60)
"""
LEASE_S = 2.0


def start(url: str, lease_s: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, url, str(lease_s)], stdout=subprocess.PIPE, text=True)


def until_taken_away(mailbox: Mailbox[Any, Any], seconds: float) -> bool:
    """Whether somebody else gets the message within that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if mailbox.receive(1, 1):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
def test_a_killed_workers_message_is_redelivered_when_its_lease_is_over_and_finished(tmp_path: Path) -> None:
    url, told = f"sqlite:///{tmp_path}/work.db", tmp_path / "told"
    with Engine.open(url) as engine:
        mailbox = engine.mailbox("work")
        mailbox.send(str(told))
        with start(url, LEASE_S) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "1\n"
            first.send_signal(signal.SIGKILL)
        told.touch()
        with start(url, 60) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "2\n"
            assert second.wait(180) == 0
        assert mailbox.approximate_count() == 0


@pytest.mark.slow
def test_beats_carry_a_message_over_many_leases(tmp_path: Path) -> None:
    url, told = f"sqlite:///{tmp_path}/work.db", tmp_path / "told"
    with Engine.open(url) as engine, Stillness() as machine:
        mailbox = engine.mailbox("work")
        mailbox.send(str(told))
        with start(url, LEASE_S) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "1\n"
            taken_away = until_taken_away(mailbox, 2.5 * LEASE_S)
            told.touch()
            assert worker.wait(180) == 0
    assert not taken_away or machine.excuses(LEASE_S / 4)
