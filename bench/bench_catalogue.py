"""What workers that differ cost, on each engine: work of 1,000 names that nobody serves, and two modules on one queue (issue 17).

Both comparisons run in one datacenter with the same processes, in turn: without and with the parked work, equal and mixed. The times are
those of the jobs (from the first accepted to the last recorded), so that a client which waits for them is no part of it. What the leader's processor
spent is told beside them: it does not depend on who else uses the machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.bench_datacenter import Processes, cpu, until
from bench.harness import Report
from bench.machine import BUSY_CORES
from tenure.client.client import Client
from tenure.client.job_messages import batches
from tenure.control.messages.jobs import SubmitMany
from tenure.jobs import JobSubmission, WorkflowSpec
from tools.servers import CannotStart, Nats, Postgres, Valkey

HERE = Path(__file__).parent
UNKNOWN, GOOD, MIXED = 1_000, 100, 40
ONE_BY_ONE, AT_ONCE = "submitted one after the other", "in one request"
PARK_ROUNDS, MIX_ROUNDS = 4, {ONE_BY_ONE: 11, AT_ONCE: 41}
SETTLED_CPU = 0.1
"""A leader that used less than this part of a core for half a second has done what it was given before."""


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        on_engine(report, "SQLite", f"sqlite:///{folder}/t.db")
    for name, make in (("PostgreSQL", Postgres), ("Valkey", lambda: Valkey({"appendonly": "yes"})), ("NATS", Nats)):
        server = make()
        try:
            server.start()
        except CannotStart as reason:
            report.note(f"{name}: NOT MEASURED: {reason}")
            continue
        try:
            on_engine(report, name, server.url)
        finally:
            server.stop()


def on_engine(report: Report, name: str, url: str) -> None:
    with two_modules(url) as site:
        site.mixed_modules(report, name)
        site.parked_names(report, name)


class Cost(NamedTuple):
    seconds: float
    """From the first job accepted to the last recorded."""
    leader_s: float
    """Of the leader's processor."""


class Arm(dict[str, list[Cost]]):
    """What was measured, by how the jobs were submitted."""

    def of(self, how: str) -> list[Cost]:
        return self.setdefault(how, [])


class Site:
    """Two managers, and two workers that serve different things."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._client = processes.client()
        self._leader = psutil.Process(processes.all[processes.leader()].pid)
        self._made = 0

    @property
    def client(self) -> Client:
        return self._client

    def mixed_modules(self, report: Report, name: str) -> None:
        equal, mixed = ["equal"] * MIXED, ["left", "right"] * (MIXED // 2)
        for how, timed in ((ONE_BY_ONE, self._one_by_one), (AT_ONCE, self._at_once)):
            found: dict[str, list[float]] = {"equal": [], "mixed": []}
            for number in range(MIX_ROUNDS[how]):
                each = [("equal", equal), ("mixed", mixed)]
                for kind, names in each if number % 2 else reversed(each):  # none is always the one that comes first
                    found[kind].append(timed(names).seconds)
            title = f"{name}: {MIXED} no-ops on two workers with different modules, {how}"
            beside = "the same number that both serve"
            unfair = noise(report) if how == AT_ONCE else ""
            report.beside(title, found["mixed"], found["equal"], beside=beside, unit="s", at_most=1.2, unfair=unfair)

    def parked_names(self, report: Report, name: str) -> None:
        """Measures with and without the names, each time when the leader has done with what came before.

        Right behind a thousand names, good jobs also wait for the standby that follows them and for the saving of the state: as behind a thousand
        jobs of any kind. That is told beside it, without a bar.
        """
        good, without, behind, right_behind = ["left", "right"] * (GOOD // 2), Arm(), Arm(), list[float]()
        for number in range(PARK_ROUNDS):
            alone_first = number % 2 == 0  # none is always the one that comes later, with more jobs behind it
            if alone_first:
                self._measure(good, without)
            self._park(number)
            right_behind.append(self._one_by_one(good).seconds)
            self._measure(good, behind)
            assert self._client.queues().queues[0].parked == UNKNOWN
            self._client.cancel_all("measured", label=f"round={number}")
            if not alone_first:
                self._measure(good, without)
        title, beside = f"{name}: {GOOD} good jobs behind {UNKNOWN} parked names", "without them"
        for how in (ONE_BY_ONE, AT_ONCE):
            ours, theirs = behind.of(how), without.of(how)
            times = [one.seconds for one in ours], [one.seconds for one in theirs]
            report.beside(f"{title}, {how}", *times, beside=beside, unit="s", at_most=1.1, unfair=noise(report))
            spent = [sum(one.leader_s for one in ours)], [sum(one.leader_s for one in theirs)]
            report.beside(f"{title}, {how}, the leader's processor", *spent, beside=beside, unit="s", at_most=1.1)
        first = [one.seconds for one in without.of(ONE_BY_ONE)]
        report.beside(f"{title}, {ONE_BY_ONE}, right after them", right_behind, first, beside=beside, unit="s")

    def _measure(self, names: list[str], arm: Arm) -> None:
        self._settle()
        arm.of(ONE_BY_ONE).extend(self._one_by_one(names) for _ in range(4))
        arm.of(AT_ONCE).extend(self._at_once(names) for _ in range(12))

    def _at_once(self, names: list[str]) -> Cost:
        """All in one request."""
        return self._timed(lambda: self._submit([self._job(WorkflowSpec(name=name)) for name in names]))

    def _one_by_one(self, names: list[str]) -> Cost:
        """As a program does that submits what it comes across."""
        return self._timed(lambda: [self._client.submit(name).id for name in names])

    def _timed(self, submit: Callable[[], list[str]]) -> Cost:
        before = cpu(self._leader)
        views = [self._client.wait(job_id, 120) for job_id in submit()]
        spent = cpu(self._leader) - before
        assert all(view.state.value == "completed" for view in views)
        return Cost(max(view.ended_at for view in views) - min(view.submitted_at for view in views), spent)

    def _park(self, number: int) -> None:
        """Each has a name of its own: that is more work for a catalogue than one name a thousand times."""
        labels = {"round": str(number)}
        specs = [WorkflowSpec(name=f"unknown-{number}-{one}") for one in range(UNKNOWN)]
        self._submit([self._job(spec, labels=labels, queue="default", park=True) for spec in specs])

    def _submit(self, submissions: list[JobSubmission]) -> list[str]:
        for part in batches(submissions):
            self._client.ask(SubmitMany(submissions=part))
        return [one.job_id for one in submissions]

    def _job(self, spec: WorkflowSpec, **options: Any) -> JobSubmission:
        self._made += 1
        return JobSubmission(job_id=f"job-{self._made}", workflows=(spec,), **options)

    def _settle(self) -> None:
        """Waits until the leader has done with what came before: the ends of the cancelled work, and saving its state."""
        while True:
            before = cpu(self._leader)
            time.sleep(0.5)
            if cpu(self._leader) - before < 0.5 * SETTLED_CPU:
                return


@contextmanager
def two_modules(url: str) -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        processes = Processes(Path(folder), url, stack)
        for name in ("m-1", "m-2"):
            processes.manager(name)
        for name in ("left", "right"):
            module = HERE / f"catalogue_{name}.py"
            processes.start(name, "worker", str(module), "--managed", "--slots", "2", "--name", name)
        until(lambda: bool(processes.leader()), lambda: "nobody leads")
        site = Site(processes)
        for name in ("left", "right"):
            until(served(site.client, name), lambda: "the workers did not register")
        for name in ("left", "right", "equal") * 8:  # warm: every slot has run something
            site.client.wait(site.client.submit(name).id, 60)
        yield site


def noise(report: Report) -> str:
    """Returns why a ratio of times that are shorter than a turn of the scheduler says nothing; empty on a calm machine."""
    used = report.others.cores()
    return f"it takes moments, and others used {used:.1f} cores" if used > BUSY_CORES else ""


def served(client: Client, name: str) -> Callable[[], bool]:
    return lambda: any(one.workers for one in client.catalogue(name).workflows)
