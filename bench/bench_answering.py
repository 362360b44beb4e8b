"""How soon a datacenter of real processes on SQLite answers what it is told: a leader that is to stop, a cancel."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.patience import wait_until
from tests.process.datacenter.conftest import TERM_S, Datacenter

from bench.harness import Report

ROUNDS = 3


def run(report: Report) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # for the processes that we start
    measured = [one_round() for _ in range(ROUNDS)]
    resigned, cancelled = (statistics.median(times) for times in zip(*measured, strict=True))
    report.value("leader resigned: the next one leads after", resigned, "s", most=TERM_S)
    report.value("a cancel stops running work after", cancelled, "s", most=1.0)
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "examples.demo"], check=True, capture_output=True)
    report.value("python -m examples.demo", time.monotonic() - begun, "s", most=60)


def one_round() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        datacenter = Datacenter(Path(folder))
        try:
            return measure(datacenter, Path(folder) / "log")
        finally:
            datacenter.close()


def measure(datacenter: Datacenter, log: Path) -> tuple[float, float]:
    datacenter.manager("m-1")
    first = datacenter.until_led()
    second = datacenter.manager("m-2")
    datacenter.worker("--slots", "2")
    client = datacenter.client
    client.submit("beat_for", {"seconds": 600, "log": str(log)}, job_id="long")
    wait_until(log.exists, why=datacenter.said)
    begun = time.monotonic()
    client.cancel("long", "enough")
    wait_until(lambda: "stopped 1" in log.read_text(), why=datacenter.said)
    cancelled = time.monotonic() - begun

    datacenter.managers[first].signal(signal.SIGTERM)
    datacenter.managers[first].process.wait(60)
    begun = time.monotonic()
    wait_until(lambda: "leads with" in second.said(), why=datacenter.said)
    return time.monotonic() - begun, cancelled
