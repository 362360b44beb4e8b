"""A datacenter with a million queued jobs on each engine: the leader's memory, submissions at the end beside the start, lists, a killed leader, a cold start.

Two managers and a worker with one slot, in processes of their own, as users start them. The slot is busy for an hour, so every job is accepted, dispatched
and waits in the engine. There are 200,000 unless TENURE_BENCH_JOBS sets another number, 1000000 for one, and TENURE_BENCH_ENGINES names the engines (`sqlite,postgres,redis,nats`). What must not grow is
counted in CPU time of the leader, which a busy machine does not change much; times on the wall are told with it. The figures of each engine are written into
docs/performance.md.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.bench_datacenter import APP, cpu, until
from bench.bench_state import LargeProcesses
from bench.harness import Line, Report
from bench.machine import load
from bench.performance_page import NAMES, table, write_section
from tenure.client.client import Client
from tenure.errors import TenureError
from tenure.jobs.states import JobState
from tools.servers import CannotStart, Nats, Postgres, Valkey

JOBS = int(os.environ.get("TENURE_BENCH_JOBS", "200000"))
ENGINES = os.environ.get("TENURE_BENCH_ENGINES", "sqlite,postgres,redis,nats").split(",")
SERVERS = {"postgres": Postgres, "redis": Valkey, "nats": Nats}
BATCH = 500
STRETCHES = 20
"""The parts of the filling. The second, in which packing has begun, is compared with the last."""
MOST_MIB = 400.0
LISTS = {"the newest 50": {}, "50 that wait": {"state": JobState.PENDING}, "50 with a label": {"label": "tenant=t3"}}
ROUNDS = 5


class UsualTerms(LargeProcesses):
    """Managers with the term that they have by default. A busy machine keeps a process from its core for longer than the 2 s of other benchmarks."""

    term_s = 10.0


class Stretch(NamedTuple):
    """One part of the filling."""

    jobs: int
    rate: float
    """Accepted jobs for each second on the wall."""
    cpu_us: float
    """CPU of the leader for each of them."""
    rss_mib: float


def run(report: Report) -> None:
    for name in ENGINES:
        first = len(report.lines)
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-million-"))
                url = stack.enter_context(served(name, folder))
                on_engine(report, f"{name}, {JOBS:,} jobs", UsualTerms(Path(folder), url, stack))
            write_section(f"million-{name}", section(name, report.lines[first:]))
        except CannotStart as reason:
            report.note(f"{name}: NOT MEASURED: {reason}")


def section(name: str, lines: list[Line]) -> str:
    cores, day = os.cpu_count() or 1, time.strftime("%Y-%m-%d")
    return "\n".join(
        [
            f"## A datacenter with {JOBS:,} queued jobs on {NAMES[name]}",
            "",
            f"`TENURE_BENCH_ENGINES={name} TENURE_BENCH_JOBS={JOBS} make bench ONLY=million` wrote this on {day}: {platform.machine()}, {cores} cores, Python "
            f"{platform.python_version()}; {load()} at its end. Two managers and a busy worker, in processes of their own.",
            "",
            table(lines),
        ]
    )


@contextmanager
def served(name: str, folder: str) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{folder}/t.db"
        return
    with SERVERS[name]() as server:
        yield server.url


def on_engine(report: Report, name: str, dc: LargeProcesses) -> None:
    dc.manager("m-1")
    until(lambda: bool(dc.leader()), lambda: "nobody leads")
    dc.manager("m-2")
    dc.start("w", "worker", str(APP), "--managed", "--slots", "1")
    client = dc.client()
    until(lambda: served_by_now(client), lambda: "the worker does not register")
    stretches = fill(report, name, dc, client)
    begun, end = stretches[1], stretches[-1]
    report.value(f"{name}: CPU of the leader for each submission, at the start", begun.cpu_us, "us")
    report.value(f"{name}: the same at the end", end.cpu_us, "us")
    report.value(
        f"{name}: submissions for each second of that CPU, end beside start", begun.cpu_us / end.cpu_us, "x", least=0.8
    )
    report.value(f"{name}: submissions on the wall, end beside start", end.rate / begun.rate, "x")
    settled(dc, dc.leader())
    report.value(f"{name}: memory of the leader", rss(dc, dc.leader()), "MiB", most=MOST_MIB)
    report.value(f"{name}: elections while it filled, but the first", client.leader().epoch - 1, "", most=0)
    reading(report, name, dc, client)
    takeover(report, name, dc, client)
    cold_start(report, name, dc)


def served_by_now(client: Client) -> bool:
    with suppress(TenureError):
        client.workflow("occupied")
        return True
    return False


def fill(report: Report, name: str, dc: LargeProcesses, client: Client) -> list[Stretch]:
    """Returns what each part of the filling cost."""
    leader, found = dc.leader(), list[Stretch]()
    process = psutil.Process(dc.all[leader].pid)
    for part in range(STRETCHES):
        begun, spent, first = time.monotonic(), cpu(process), part * JOBS // STRETCHES
        last = (part + 1) * JOBS // STRETCHES
        for start in range(first, last, BATCH):
            inputs = [
                {"path": f"s3://bucket/{number}.mov", "quality": 7} for number in range(start, min(start + BATCH, last))
            ]
            client.submit_many("occupied", inputs, labels={"tenant": f"t{start // BATCH % 5}"})
        rate = (last - first) / (time.monotonic() - begun)
        until(lambda: dispatched(client), lambda: "the leader does not dispatch", within_s=1_200)
        count = last - first
        found.append(Stretch(last, rate, 1e6 * (cpu(process) - spent) / count, rss(dc, leader)))
        print(f"  {name}: {found[-1]}, standby {rss(dc, other(leader)):.0f} MiB", flush=True)
    return found


def dispatched(client: Client) -> bool:
    """Returns True when no accepted job waits for the leader any more: then the CPU of a stretch is that of its jobs."""
    attempts = client.overview().attempts
    return not attempts["resting"] + attempts["held"]


def other(name: str) -> str:
    return "m-2" if name == "m-1" else "m-1"


def rss(dc: LargeProcesses, name: str) -> float:
    return float(psutil.Process(dc.all[name].pid).memory_info().rss / 2**20)


def settled(dc: LargeProcesses, name: str) -> None:
    """Returns when the manager has dispatched and saved what there was: it uses little CPU then."""
    process = psutil.Process(dc.all[name].pid)
    for _ in range(300):
        before = cpu(process)
        time.sleep(2.0)
        if cpu(process) - before < 0.1:
            return


def reading(report: Report, name: str, dc: LargeProcesses, client: Client) -> None:
    asked: dict[str, Callable[[], object]] = {
        f"ps, {what}": lambda filters=filters: client.jobs(limit=50, **filters) for what, filters in LISTS.items()
    }
    asked["the overview of the page"] = client.overview
    process = psutil.Process(dc.all[dc.leader()].pid)
    for what, ask in asked.items():
        taken, spent = list[float](), cpu(process)
        for _ in range(ROUNDS):
            begun = time.monotonic()
            ask()
            taken.append(1e3 * (time.monotonic() - begun))
        used = 1e3 * (cpu(process) - spent) / ROUNDS
        report.value(f"{name}: {what}, CPU of the leader", used, "ms CPU", most=200.0)
        report.value(f"{name}: {what}, median", sorted(taken)[ROUNDS // 2], "ms", most=200.0)


def takeover(report: Report, name: str, dc: LargeProcesses, client: Client) -> None:
    leader = dc.leader()
    settled(dc, other(leader))
    dc.all[leader].kill()
    begun = time.monotonic()
    client.submit("occupied", path="after", quality=1, job_id="after-the-leader")
    took = time.monotonic() - begun
    report.value(f"{name}: leader killed, next accepted submission", took / dc.term_s, "terms", most=2.0)
    settled(dc, other(leader))
    report.value(f"{name}: memory of the new leader", rss(dc, other(leader)), "MiB", most=MOST_MIB)


def cold_start(report: Report, name: str, dc: LargeProcesses) -> None:
    for name_of, process in dc.all.items():
        if name_of != "w":  # nothing else serves the jobs: without it they would be taken back from the engine
            process.kill()
            process.wait()
    dc.addresses.clear()
    time.sleep(dc.term_s)  # the term of the dead leader ends
    begun = time.monotonic()
    dc.manager("m-3")
    until(lambda: dc.leader() == "m-3", lambda: "nobody leads", within_s=600)
    report.value(f"{name}: cold start until it leads", time.monotonic() - begun, "s", most=10.0)
    report.value(f"{name}: CPU of that", cpu(psutil.Process(dc.all["m-3"].pid)), "s CPU", most=10.0)
    client = dc.client()
    client.submit("occupied", path="cold", quality=1, job_id="after-the-start")
    report.value(f"{name}: cold start until a submission is accepted", time.monotonic() - begun, "s", most=10.0)
    settled(dc, "m-3")
    report.value(f"{name}: memory after a cold start", rss(dc, "m-3"), "MiB", most=MOST_MIB)


if __name__ == "__main__":
    run(Report(suite="million"))
