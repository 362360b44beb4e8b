"""What a long job is promised, on the code that was measured: one start under a short lease, a killed worker, a hang, and short jobs behind one that hangs.

A manager and workers in processes of their own, as users start them, with a lease of 5 s. Speed that cost one of these would be worth nothing, so they are
part of the same run as the figures of `product`.
"""

from __future__ import annotations

import os
import platform
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.behaviours_app import STALL_S
from bench.bench_datacenter import Processes, until
from bench.harness import Line, Report
from bench.machine import load
from bench.performance_page import table, write_section
from tenure.client.client import Client
from tenure.errors import JobFailed
from tools.servers import CannotStart, Valkey

APP = Path(__file__).parent / "behaviours_app.py"
LEASE_S = 5.0
GRACE_S = 0.5
HEALTHY_S = 20.0
SHORT_JOBS = 1_000
DRAINED_S = 20.0
"""Far more than 1,000 no-ops take, and far less than the hour for which the job before them hangs."""


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="tenure-behaviours-") as folder:
        on_engine(report, "sqlite", f"sqlite:///{folder}/t.db")
    server = Valkey()
    try:
        server.start()
    except CannotStart as reason:
        report.note(f"redis: NOT MEASURED: {reason}")
    else:
        try:
            on_engine(report, "redis", server.url)
        finally:
            server.stop()
    write_section("behaviours", section([line for line in report.lines if line.suite == report.suite]))


def section(lines: list[Line]) -> str:
    return "\n".join(
        [
            "## What a long job is promised",
            "",
            f"`make bench ONLY=behaviours` wrote this on {time.strftime('%Y-%m-%d')}: {platform.machine()}, {os.cpu_count() or 1} cores, Python "
            f"{platform.python_version()}; {load()} at its end. A manager and workers of one slot, in processes of their own, with a lease of {LEASE_S:.0f} s. "
            "`make bench` without a name plays it beside the figures above.",
            "",
            table(lines),
        ]
    )


class Told:
    """The lines that workflows wrote into one file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name

    def lines(self) -> list[tuple[str, int, float]]:
        """Returns what happened, in which process, and when."""
        text = self.path.read_text() if self.path.exists() else ""
        return [(what, int(process), float(at)) for what, process, at in map(str.split, text.splitlines())]

    def wait(self, count: int, within_s: float = 60.0) -> tuple[str, int, float]:
        """Waits for so many lines, and returns the last of them."""
        until(lambda: len(self.lines()) >= count, lambda: f"{self.path.name}: {self.lines()}", within_s=within_s)
        return self.lines()[count - 1]


def on_engine(report: Report, engine: str, url: str) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        dc = Processes(Path(folder), url, stack)
        dc.manager("m-1")
        until(lambda: bool(dc.leader()), lambda: "nobody leads")
        client = dc.client()
        for name in ("w-1", "w-2", "w-3"):
            worker(dc, name, slots=1)
        healthy_and_killed(report, engine, dc, client, Path(folder))
        hang(report, engine, client, Path(folder))
        behind_a_hang(report, engine, dc, client, Path(folder))


def worker(dc: Processes, name: str, *, slots: int) -> None:
    options = ("--managed", "--slots", str(slots), "--lease", str(LEASE_S), "--grace", str(GRACE_S))
    dc.start(name, "worker", str(APP), "--name", name, *options)


def healthy_and_killed(report: Report, engine: str, dc: Processes, client: Client, folder: Path) -> None:
    """Plays both at once: one worker has the healthy job, another one has the job that loses its worker, and the third is idle. No worker starts
    meanwhile: it would find the board of the dead one, and need not wait for its lease."""
    healthy, killed = Told(folder, "healthy"), Told(folder, "killed")
    job = client.submit("healthy", {"path": str(healthy.path), "seconds": HEALTHY_S})
    healthy.wait(1)
    victim = client.submit("healthy", {"path": str(killed.path), "seconds": 1.5 * LEASE_S})
    killed.wait(1)
    time.sleep(1.0)  # its lease was renewed meanwhile
    (runs_on,) = (one.worker for one in client.job(victim.id).workflows)
    dc.all[runs_on].send_signal(signal.SIGKILL)
    at = time.monotonic()
    again = killed.wait(2)[2]
    report.value(
        f"{engine}: a worker is killed, its job starts elsewhere: leases later", (again - at) / LEASE_S, "", most=1.2
    )
    job.wait(timeout=60)
    victim.wait(timeout=60)
    starts = len(healthy.lines())
    report.value(f"{engine}: a healthy job of {HEALTHY_S:.0f} s, lease {LEASE_S:.0f} s: starts", starts, "", most=1)


def hang(report: Report, engine: str, client: Client, folder: Path) -> None:
    told = Told(folder, "hangs")
    job = client.submit("hangs", {"path": str(told.path)})
    try:
        job.wait(timeout=60)
    except JobFailed:
        took = time.monotonic() - told.wait(1)[2] - GRACE_S
        report.value(f"{engine}: a hang, told beyond the stall threshold and its grace", took - STALL_S, "s", most=1.0)
    else:
        report.fail(f"{engine}: the job that hangs was not ended")


def behind_a_hang(report: Report, engine: str, dc: Processes, client: Client, folder: Path) -> None:
    """Short jobs before the one that hangs make the supervisor claim many at a time; those that it has claimed behind it must not wait for it."""
    told, silent = Told(folder, "short"), Told(folder, "silent")
    inputs = [{"path": str(told.path)}] * (SHORT_JOBS // 2)
    client.submit_many("short", inputs)
    client.submit("silent", {"path": str(silent.path)}, job_id="silent")
    client.submit_many("short", inputs)
    begun = silent.wait(1)[2]
    last = told.wait(SHORT_JOBS, within_s=120.0)[2]
    report.value(
        f"{engine}: {SHORT_JOBS:,} short jobs around one that hangs: the last ends after",
        last - begun,
        "s",
        most=DRAINED_S,
    )
    starts = len(silent.lines())
    report.value(f"{engine}: the one that hangs within its threshold: starts", starts, "", most=1)
    client.cancel("silent", "the benchmark is over")
