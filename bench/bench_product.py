"""What users run, `tenure worker` and a datacenter, beside the peers at their fast settings; writes docs/performance.md.

Everybody is on the same private servers in the same run, in turn; see `peers/README.md` for how each is measured and set up. A ratio is that of the
medians. `python -m bench product` alone writes the page; with TENURE_PRODUCT=redis (a list of brokers) it measures these, and writes nothing.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.bench_peers import Entry, Places, peer, server_of
from bench.harness import Report
from bench.peers.contest import Contender
from bench.peers.counted import measures_of, ran_s
from bench.peers.table import Table
from bench.performance_page import write_page
from bench.product_code import in_process
from tools.servers import CannotStart

ROUNDS = 3
IDLE_S = 10.0
SETTLED_S = 6.0
"""Seconds after which a worker that has nothing to do has finished starting, its spare slot included."""
ALONE = 20
"""Jobs that run one after the other while what each costs the server is counted."""
OURS = {
    "redis": {
        "worker-1": 12_000, "worker-2": 20_000, "worker-4": 20_000, "async": 12_000, "compute-1": 1_500, "compute-2": 2_500,
    },
    "sqlite": {"worker-1": 12_000, "worker-2": 20_000},
    "postgres": {"worker-1": 8_000, "worker-2": 12_000},
    "nats": {"worker-1": 4_000, "worker-2": 6_000, "compute-1": 1_500, "compute-2": 2_500},
}  # fmt: skip
"""Jobs of a drain: as many as take a good second."""
PEERS = {
    "redis": [
        Entry("dramatiq", "dramatiq", "peer_dramatiq", jobs=6_000),
        Entry("huey", "huey", "peer_huey", "redis", jobs=4_000),
        Entry("taskiq", "taskiq", "peer_taskiq", jobs=4_000),
    ],
    "sqlite": [Entry("huey", "huey", "peer_huey", "sqlite", jobs=4_000)],
    "postgres": [
        Entry("dbos", "dbos", "peer_dbos", "postgres", jobs=1_000),
        Entry("saq", "saq", "peer_saq", "postgres", jobs=1_500),
        Entry("procrastinate", "procrastinate", "peer_procrastinate", jobs=1_500),
    ],
    "nats": [Entry("nats-py, fetch(1)", "nats", "peer_nats", "one", jobs=6_000)],
}
DRAIN_BARS = {
    ("redis", "dramatiq", "worker-1"): 1.5, ("redis", "huey", "worker-1"): 1.5, ("redis", "taskiq", "async"): 1.0, ("sqlite", "huey", "worker-1"): 1.2,
    ("postgres", "dbos", "worker-1"): 3.0, ("postgres", "saq", "worker-1"): 3.0, ("postgres", "procrastinate", "worker-1"): 3.0,
    ("nats", "nats-py, fetch(1)", "worker-1"): 0.5,
}  # fmt: skip
TWO_SLOTS = {"redis": 1.7, "nats": 1.6}
"""How many times as fast as one slot two have to be: with no-ops, where the supervisor and the server take as much as the slots, and with jobs that
compute for a millisecond, where the slots are nearly all of it."""


@dataclass
class Field:
    """All who are measured on one broker."""

    broker: str
    ours: dict[str, Contender]
    peers: list[Contender]
    idle: dict[str, float] = field(default_factory=dict)
    """Per cent of a core that the worker used while it had nothing to do."""
    pss_mb: dict[str, float] = field(default_factory=dict)


def run(report: Report) -> None:
    asked = os.environ.get("TENURE_PRODUCT", "")
    brokers = asked.split(",") if asked else list(OURS)
    table = Table()
    in_process(report)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-product-", dir="/tmp")))
        for broker in brokers:
            try:
                places = Places(stack.enter_context(server_of(broker)), folder)
            except CannotStart as why:
                report.note(f"{broker}: NOT MEASURED: {why}")
                continue
            contest = enter(report, table, stack, broker, places, folder)
            try:
                drains(report, contest)
                waiting(report, contest)
            finally:
                for one in (*contest.ours.values(), *contest.peers):
                    one.close()
            datacenter(report, table, stack, broker, places, folder)
    if not asked:
        write_page(report)


def enter(
    report: Report, table: Table, stack: contextlib.ExitStack, broker: str, places: Places, folder: Path
) -> Field:
    ours = {config: mine(broker, places, folder, config, jobs) for config, jobs in OURS[broker].items()}
    peers = [one for entry in PEERS[broker] if (one := peer(report, table, stack, broker, entry, places, folder))]
    for one in list(peers):
        try:
            one.start()
        except Exception as why:  # a peer that cannot be started is named, and the others are measured
            report.note(f"{broker}: {one.name} was NOT MEASURED: {why}")
            peers.remove(one)
    for one in ours.values():
        one.start()
    return Field(broker, ours, peers)


def mine(broker: str, places: Places, folder: Path, config: str, jobs: int = 0) -> Contender:
    url = places.url() + (f"?namespace={config}" if broker == "nats" else "")
    place = folder / broker / f"product-{config}"
    return Contender(f"tenure, {config}", "peer_tenure_worker", Path(sys.executable), url, place, config, jobs)


def drains(report: Report, contest: Field) -> None:
    """Fills, starts one worker, counts: everybody in turn, so that a machine that slows down slows all of them."""
    for number in range(1, ROUNDS + 1):
        for one in (*contest.ours.values(), *list(contest.peers)):
            try:
                rate = one.drain()
            except Exception as why:
                report.note(f"{contest.broker}: {one.name} failed in round {number}: {why}")
                if one in contest.peers:
                    contest.peers.remove(one)
                continue
            finally:
                if number < ROUNDS:
                    one.rest()
            print(f"product    {contest.broker}, round {number}: {one.name}: {rate:,.0f} jobs per second", flush=True)
            if number == ROUNDS and not one.config.startswith("compute"):
                rested(contest, one)
            elif number == ROUNDS:
                one.rest()
    compare_drains(report, contest)


def rested(contest: Field, one: Contender) -> None:
    """Takes what the worker costs that has nothing left to do, and ends it."""
    time.sleep(SETTLED_S)
    tree = one.tree()
    before = cpu_of(one)
    time.sleep(IDLE_S)
    contest.idle[one.name] = 100 * (cpu_of(one) - before) / IDLE_S
    contest.pss_mb[one.name] = sum(process.memory_full_info().pss for process in tree) / 2**20
    one.rest()


def cpu_of(one: Contender) -> float:
    return sum(ran_s(process.pid) for process in one.tree())


def compare_drains(report: Report, contest: Field) -> None:
    broker, ours = contest.broker, contest.ours
    for other in contest.peers:
        config = "async" if other.name == "taskiq" else "worker-1"
        bar = DRAIN_BARS.get((broker, other.name, config))
        report.beside(f"{broker}: drain, {config}", ours[config].drains, other.drains, beside=other.name, at_least=bar)
    one, two = ours["worker-1"], ours["worker-2"]
    name = f"{broker}: drain, worker-2"
    report.beside(name, two.drains, one.drains, beside="worker-1", at_least=TWO_SLOTS.get(broker))
    if "compute-2" in ours:
        name, alone = f"{broker}: jobs that compute for 1 ms, worker-2", ours["compute-1"].drains
        report.beside(name, ours["compute-2"].drains, alone, beside="worker-1", at_least=TWO_SLOTS.get(broker))
    if "worker-4" in ours:
        report.beside(f"{broker}: drain, worker-4", ours["worker-4"].drains, one.drains, beside="worker-1")
    for other in contest.peers:
        if other.name == "huey":
            report.beside(
                f"{broker}: start to first job", one.starts, other.starts, beside="huey", unit="s", at_most=1.5
            )
    report.value(f"{broker}: idle CPU, worker of 1 slot", contest.idle[one.name], "% of a core", most=0.3)
    further = contest.pss_mb[two.name] - contest.pss_mb[one.name]
    report.value(f"{broker}: memory of a further slot (PSS)", further, "MB", most=10)
    report.value(f"{broker}: memory of a worker of 2 slots (PSS)", contest.pss_mb[two.name], "MB")
    for other in contest.peers:
        report.value(f"{broker}: memory of the worker of {other.name} (PSS)", contest.pss_mb[other.name], "MB")


def waiting(report: Report, contest: Field) -> None:
    """Single jobs for idle workers: ours and Huey's, in turn."""
    for other in contest.peers:
        if other.name == "huey":
            ours = contest.ours["worker-1"]
            for one in (ours, other):
                one.serve()
            time.sleep(2)
            taken = other.pick_up_beside(ours)
            name, bar = f"{contest.broker}: pick-up p50, worker-1", 1.0 if contest.broker == "redis" else None
            report.beside(name, taken.ours, taken.theirs, beside="huey", unit="ms", at_most=bar)
            for one in (ours, other):
                one.rest()


def datacenter(
    report: Report, table: Table, stack: contextlib.ExitStack, broker: str, places: Places, folder: Path
) -> None:
    """A manager and a worker of two slots: `map`, single submissions, one job alone and what it costs the server."""
    ours = mine(broker, places, folder, "managed-2")
    celery = Entry("celery with results", "celery", "peer_celery")
    other = peer(report, table, stack, broker, celery, places, folder) if broker == "redis" else None
    try:
        ours.start()
        ours.serve()
        ours.results(10)  # the first ones open connections, and tell how long they take
        mapped = [ours.measure("map", 2_000) for _ in range(ROUNDS)]
        limits = {"least": 1_500.0} if broker != "nats" else {}
        report.value(f"{broker}: map", median(rate for rate, _ in mapped), "per second", **limits)
        report.value(
            f"{broker}: map, CPU of the manager for each job", median(cpu for _, cpu in mapped), "ms CPU", most=0.5
        )
        sent = median(ours.measure("submissions", 8, 150) for _ in range(ROUNDS))
        report.value(f"{broker}: single submissions of 8 threads", sent, "per second", least=2_000)
        alone(report, broker, ours)
        answered(report, broker, ours, other)
        before = ours.measure("manager_cpu")
        time.sleep(IDLE_S)
        idle = 100 * (ours.measure("manager_cpu") - before) / IDLE_S
        report.value(f"{broker}: idle CPU, manager", idle, "% of a core", most=0.3)
    finally:
        for one in filter(None, (ours, other)):
            one.close()


def alone(report: Report, broker: str, ours: Contender) -> None:
    """Counts what the server did for jobs that ran one after the other: durable steps do not depend on how busy the machine is."""
    for name, most, measure in measures_of(broker, ours.url, ours.processes()):
        found = measure(lambda: ours.results(ALONE)) / ALONE
        report.value(f"{broker}: one job alone, {name}", found, "each", most=most)


def answered(report: Report, broker: str, ours: Contender, other: Contender | None) -> None:
    mine = ours.results(100)
    name = f"{broker}: submit to result p50"
    if other is None:
        report.value(name, statistics.median(mine), "ms")
        return
    other.start()
    other.serve()
    other.results(10)
    mine, theirs = list[float](), list[float]()
    for _ in range(10):
        mine += ours.results(10)
        theirs += other.results(10)
    report.beside(name, mine, theirs, beside=other.name, unit="ms", at_most=1.0)


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))
