"""What the number of queued jobs costs: CPU for each submission from 1,000 to 100,000 jobs, with its exponent; saving, cold start, memory, takeover.

A manager in this process takes submissions on SQLite in batches, dispatches them and saves its state; nobody works. Then two managers in processes of
their own start on the same file, and the leader is killed. TENURE_BENCH_JOBS sets another number of jobs, 1,000,000 for one.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import psutil

from bench.bench_datacenter import TERM_S, Processes, until
from bench.harness import Report
from tenure.clock import SystemClock
from tenure.engines import Engine
from tenure.engines.aio import calling
from tenure.jobs import JobSettings
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import MAX_PAGED_BUDGET
from tenure.jobs.submission import SubmitJob
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.process import Environment
from tenure.randomness import seeded_ids

JOBS = int(os.environ.get("TENURE_BENCH_JOBS", "100000"))
BATCH = 200
STEPS = tuple(10**power for power in range(3, 8) if 10**power <= JOBS)
"""The numbers of jobs between which the cost of one is taken."""
SAVED_EVERY = 10
"""Entries between two savings, of up to 200 jobs each."""
BUDGET_MIB = MAX_PAGED_BUDGET // 1_048_576


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/t.db"
        costs = asyncio.run(fill(url))
        for (jobs, cost), before in zip(costs[1:], costs, strict=False):
            report.value(f"CPU for each job, from {before[0]:,} to {jobs:,} queued", cost, "us")
        first, last = costs[2 if len(costs) > 3 else 1], costs[-1]
        exponent = math.log(last[1] / first[1]) / math.log(last[0] / first[0])
        report.value(f"exponent of the growth of that cost up to {JOBS:,} jobs", exponent, "", most=0.1)
        asyncio.run(reading(report, url))
        takeover(report, url, Path(folder))


async def fill(url: str) -> list[tuple[int, float]]:
    """Returns (number of jobs, microseconds of CPU for each since the number before)."""
    async with managed(url) as manager:
        found: list[tuple[int, float]] = []
        begun, since = time.process_time(), 0
        for start in range(0, JOBS, BATCH):
            await submit(manager, start)
            done = start + BATCH
            if done in STEPS or (done == BATCH and not found):
                spent, begun = time.process_time() - begun, time.process_time()
                found.append((done, 1e6 * spent / (done - since)))
                since = done
        await until_so(lambda: dispatched(manager))
    return found


def dispatched(manager: Manager) -> bool:
    return not any(manager.ledger.book.ready.values()) and not manager.ledger.writing


async def until_so(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - it looks at a manager from outside
        await asyncio.sleep(0.05)


@asynccontextmanager
async def managed(url: str) -> AsyncIterator[Manager]:
    """Yields a manager of this process that leads."""
    engine, random = Engine.open(url), Random("bench")
    async with calling(engine) as calls:
        environment = Environment(engine, calls, SystemClock(), random, seeded_ids(random))
        jobs = JobSettings(state_budget=MAX_PAGED_BUDGET)
        manager = Manager(
            "m", "m:1", environment, ManagerSetup(jobs=jobs, snapshot_every=SAVED_EVERY, raise_format=None)
        )
        life = asyncio.create_task(manager.run())
        await until_so(lambda: manager.leads)
        yield manager
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def submit(manager: Manager, start: int) -> None:
    specs = (WorkflowSpec(name="nothing", arguments={"path": "s3://bucket/a/b/c.mov", "quality": 7}),)
    commands = [
        SubmitJob(by="bench", submission=JobSubmission(job_id=f"job-{number:08}", workflows=specs))
        for number in range(start, start + BATCH)
    ]
    for outcome in await manager.leadership.commit_all(commands):
        if isinstance(outcome, Exception):
            raise outcome


async def reading(report: Report, url: str) -> None:
    """Compares what a takeover reads now with what it read before: nothing, and everything. Measures a saving, too."""
    async with managed(url) as manager:
        ledger = manager.ledger
        begun = time.perf_counter()
        await ledger.load()
        cold = time.perf_counter() - begun
        begun = time.perf_counter()
        await ledger.catch_up()
        warm = time.perf_counter() - begun
        report.value(f"{JOBS:,} jobs: read anew, as every takeover did", cold, "s")
        report.value(f"{JOBS:,} jobs: what a warm standby reads at a takeover", warm, "s")
        for start in range(JOBS, JOBS + BATCH * SAVED_EVERY, BATCH):
            await submit(manager, start)
        await until_so(lambda: dispatched(manager))
        await submit(manager, JOBS + BATCH * SAVED_EVERY)
        begun = time.perf_counter()
        cut = ledger.rules.cut(ledger.book, ledger.seq, ledger.epoch)
        report.value(f"{JOBS:,} jobs: a saving after {BATCH} more", 1e3 * (time.perf_counter() - begun), "ms")
        written = len(cut.snapshot) + sum(map(len, cut.blobs.values()))
        report.value(
            "bytes that it writes, of those of the whole state", written / ledger.book.size.total, "x", most=0.2
        )


def takeover(report: Report, url: str, folder: Path) -> None:
    with ExitStack() as stack:
        dc = LargeProcesses(folder, url, stack)
        begun = time.monotonic()
        for name in ("m-1", "m-2"):
            dc.manager(name)
        until(lambda: bool(dc.leader()), lambda: "nobody leads")
        report.value(f"{JOBS:,} jobs: cold start until one leads", time.monotonic() - begun, "s", most=10.0)
        client, leader = dc.client(), dc.leader()
        other = "m-2" if leader == "m-1" else "m-1"
        until(lambda: dc.known(other) >= JOBS, lambda: "the standby does not follow")
        memory = psutil.Process(dc.all[leader].pid).memory_info().rss
        report.value(f"{JOBS:,} jobs: memory of the leader", memory / 2**20, "MiB")
        begun = time.monotonic()
        client.jobs(limit=50)
        report.value(f"{JOBS:,} jobs: a page of the list", 1e3 * (time.monotonic() - begun), "ms", most=200.0)
        dc.all[leader].kill()
        begun = time.monotonic()
        client.submit("nothing", job_id="after-the-leader", park=True)
        took = (time.monotonic() - begun) / TERM_S
        report.value(f"{JOBS:,} jobs: leader killed, next accepted submission", took, "terms", most=2.0)


class LargeProcesses(Processes):
    """Managers with a budget for many jobs."""

    term_s = TERM_S

    def manager(self, name: str) -> None:
        budget = str(BUDGET_MIB)
        arguments = ("--name", name, "--port", "0", "--term", str(self.term_s), "--state-budget", budget)
        log = self.start(name, "manager", *arguments)
        until(lambda: "listens on" in log.read_text(), log.read_text)
        found = re.search(r"listens on (\S+)", log.read_text())
        assert found is not None
        self.addresses[name] = found[1]

    def known(self, name: str) -> int:
        script = "import sys; from tenure.client.client import Client; print(Client([sys.argv[1]]).jobs(limit=1).known)"
        command = [sys.executable, "-c", script, self.addresses[name]]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return int(answer.stdout or 0)


if __name__ == "__main__":
    run(Report(suite="state"))
