"""`tenure dev --datacenters 3`: a gate before three datacenters, beside an editor; one command, and nothing left when it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.patience import wait_until

from tenure.client.client import Client
from tenure.jobs import JobState

APP = """
from tenure import workflow

@workflow(stall=60)
def greet(ctx, name: str) -> str:
    ctx.beat()
    return "hello " + name
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def dev(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tenure", "dev", "app.py", "--datacenters", "3", "--port", "0", "--slots", "1"]
    path = os.pathsep.join(path for path in sys.path if path)
    with (folder / "dev.log").open("wb") as log:
        dev = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
        )
    try:
        yield dev
    finally:
        if dev.poll() is None:
            dev.kill()
            dev.wait()


@pytest.mark.slow
def test_three_datacenters_serve_reload_and_end_with_one_command(folder: Path, dev: subprocess.Popen[bytes]) -> None:
    def said() -> str:
        return (folder / "dev.log").read_text()

    def until(true: Callable[[], object]) -> None:
        wait_until(lambda: true() or dev.poll() is not None, said)
        assert dev.poll() is None, said()

    until(lambda: "tenure top" in said())
    address = re.search(r"ready at (\S+);", said())
    assert address is not None
    assert "tenure run greet name=... --datacenter dc-1 --datacenter dc-2 --datacenter dc-3" in said()
    everywhere = ("dc-1", "dc-2", "dc-3")
    with Client([address[1]], patience_s=180) as client:
        job = client.submit("greet", {"name": "world"}, target_datacenters=everywhere)
        assert set(job.wait(timeout=180).values()) == {"hello world"}
        assert {place.name: place.state for place in client.job(job.id).datacenters} == dict.fromkeys(
            everywhere, JobState.COMPLETED
        )
        (folder / "app.py").write_text(APP.replace("hello", "good morning"))
        until(lambda: "the new code serves" in said())
        again = client.submit("greet", {"name": "world"}, target_datacenters=everywhere)
        assert set(again.wait(timeout=180).values()) == {"good morning world"}

    # What happened is told under the name of where it happened, and routine is not.
    def told(place: str, *words: str) -> bool:
        """Returns True when a line of this place has these words. A job's end is told a moment after its client hears of it."""
        lines = (re.sub(r"^\S+\s+", "", line) for line in said().splitlines())
        return any(line.startswith(f"{place} ") and all(word in line for word in words) for line in lines)

    for name in everywhere:
        until(lambda name=name: told(name, job.id, "completed"))
    until(lambda: told("gate", "the job has ended everywhere: completed"))
    assert "audit" not in said()

    below = psutil.Process(dev.pid).children(recursive=True)
    assert len(below) >= 3 * 2 + 1  # a manager and a worker each, and the gate
    dev.send_signal(signal.SIGINT)
    assert dev.wait(180) == 0
    _, alive = psutil.wait_procs(below, timeout=180)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
    assert "Traceback" not in said()
