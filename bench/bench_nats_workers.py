"""NATS: what one job costs with 64 slots on 8 workers, beside 8 slots on one worker, and what an idle worker uses.

All of it is CPU time of our processes (managers, supervisors and slots), so a busy machine changes it little. Every process that has an engine folds every command, and a worker has one
engine (decision 0292), so the cost of a job grows with the workers and not with their slots.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from bench.bench_datacenter import APP, Processes, cpu, until
from bench.harness import Report
from tenure.client.client import Client
from tenure.errors import TenureError
from tools.servers import CannotStart, Nats

WORKERS = int(os.environ.get("TENURE_BENCH_WORKERS", "8"))
SLOTS = 8
JOBS = int(os.environ.get("TENURE_BENCH_JOBS", "4000"))
"""CPU time is counted in hundredths of a second for each process: of 600 jobs, which take 0.3 s in all, the ratio was off by a tenth."""
IDLE_S = 20.0


def run(report: Report) -> None:
    try:
        one, _ = measured(1)
        many, idle = measured(WORKERS)
    except CannotStart as reason:
        report.note(f"NOT MEASURED: {reason}")
        return
    report.value(f"CPU for each job, one worker with {SLOTS} slots", one, "ms CPU")
    report.value(f"CPU for each job, {WORKERS} workers with {SLOTS} slots each", many, "ms CPU")
    report.value(f"the cost of a job with {WORKERS} workers beside one", many / one, "x", most=1.5)
    report.value(f"an idle worker of {WORKERS}, share of a core", 100 * idle, "%", most=0.2)


def measured(workers: int) -> tuple[float, float]:
    """Returns the milliseconds of CPU of a job, and the share of a core that an idle worker uses."""
    with Nats() as server, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        dc = Processes(Path(folder), server.url, stack)
        dc.manager("m-1")
        until(lambda: bool(dc.leader()), lambda: "nobody leads")
        names = [f"w-{number}" for number in range(workers)]
        for name in names:
            dc.start(
                name, "worker", str(APP), "--managed", "--slots", str(SLOTS), "--slot-start", "auto", "--name", name
            )
        client = dc.client()
        until(lambda: serving(client) == workers, lambda: "not all workers registered")
        drain(client, "warm", 4 * workers * SLOTS)
        quiet(dc)
        before = whole(dc, ("m-1", *names))
        drain(client, "job", JOBS)
        cost = 1e3 * (whole(dc, ("m-1", *names)) - before) / JOBS
        quiet(dc)
        begun, spent = time.monotonic(), whole(dc, names)
        time.sleep(IDLE_S)
        return cost, (whole(dc, names) - spent) / (time.monotonic() - begun) / workers


def serving(client: Client) -> int:
    try:
        return len(client.nodes().workers)
    except TenureError:
        return 0


def drain(client: Client, name: str, jobs: int) -> None:
    handles = client.submit_many("nothing", [{} for _ in range(jobs)], labels={"run": name})
    for handle in handles:
        handle.wait(600)


def quiet(dc: Processes) -> None:
    """Returns when the processes have done what follows the last job."""
    for _ in range(60):
        before = whole(dc, dc.all)
        time.sleep(1.0)
        if whole(dc, dc.all) - before < 0.1:
            return


def whole(dc: Processes, names: object) -> float:
    """Returns the CPU seconds of these processes and of all below them."""
    trees = [psutil.Process(dc.all[name].pid) for name in names]  # type: ignore[attr-defined]
    return sum(cpu(one) for tree in trees for one in (tree, *tree.children(recursive=True)))


if __name__ == "__main__":
    run(Report(suite="nats_workers"))
