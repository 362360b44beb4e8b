"""`kill -9` of a worker process on SQLite: its message comes back when its lease runs out, and not before."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenure.engines.contracts import Engine

WORKER = """
import sys, time
from tenure.engines.contracts import Engine
from tenure.work import FunctionLoop

def work(message, heartbeat):
    print(message.delivery_count, flush=True)
    for step in range(int(message.body)):
        time.sleep(0.05)
        heartbeat.beat(note=f"step {step}")

with Engine.open(sys.argv[1]) as engine:
    FunctionLoop(engine.mailbox("work"), work).run(max_iterations=1, visibility_timeout=3.0, wait_time_seconds=10)
"""


def start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_killed_workers_message_is_redelivered_within_its_lease_and_finished(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with Engine.open(url) as engine:
        mailbox = engine.mailbox("work")
        mailbox.send(100)  # five seconds of work and more on a lease of three: beats carry it
        with start(url) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "1\n"
            time.sleep(3.5)  # beyond the first lease
            assert mailbox.receive() == []
            first.send_signal(signal.SIGKILL)
            killed = time.monotonic()
        with start(url) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "2\n"
            assert time.monotonic() - killed < 3.0 + 5.0  # the lease, and what a busy machine adds
            assert second.wait(20) == 0
        assert mailbox.approximate_count() == 0
