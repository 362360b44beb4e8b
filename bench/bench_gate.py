"""What a gate costs: jobs through it against straight to a manager, reports that it holds, and each job that it tracks.

The first is of real processes on SQLite over HTTP. The others are of one gate in this process, on SQLite where it writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from bench.harness import Report
from tenure.clock import SystemClock
from tenure.control.async_caller import HttpCaller
from tenure.control.messages.gates import MOST_REPORTS, GateHeard, TellGate
from tenure.control.messages.jobs import Done, JobList, ListJobs, Submit
from tenure.engines import Engine
from tenure.engines.aio import ThreadCalls, calls_for
from tenure.jobs import JobSubmission, WorkflowSpec
from tenure.jobs.gate_jobs import GateSubmit, GateTakeLead
from tenure.jobs.gate_outbox import GateOutbox
from tenure.jobs.gate_reports import HearProgress
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.messages import JobProgressReport
from tenure.jobs.settings import GateSettings
from tenure.jobs.topics import decide_gate
from tenure.nodes.gate.gate import Gate, GateSetup
from tenure.nodes.process import Environment
from tenure.randomness import new_id
from tenure.timers import Timers

JOBS, IN_FLIGHT, ROUNDS = 400, 32, 5
TRACKED, DATACENTERS = 100_000, 50


def run(report: Report) -> None:
    through_a_gate(report)
    asyncio.run(reports_held(report))
    tracked(report)


# Jobs through a gate


class Node:
    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as output:
            command = [sys.executable, "-m", "tenure", *arguments, "--name", name, "--port", "0"]
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        self.address = self._said(r"listens on (\S+)")
        self._said("(leads) with")

    def _said(self, pattern: str) -> str:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if found := re.search(pattern, self.log.read_text()):
                return found[1]
            time.sleep(0.05)
        raise RuntimeError(f"{pattern} was not said: {self.log.read_text()}")


@contextlib.contextmanager
def nodes() -> Iterator[tuple[Node, Node]]:
    """A manager, and a gate before it."""
    started: list[Node] = []
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as name:
        folder = Path(name)
        try:
            started.append(Node(folder, "m", "manager", "--engine", f"sqlite:///{folder}/a.db", "--datacenter", "a"))
            known = f"a={started[0].address}"
            started.append(Node(folder, "g", "gate", "--engine", f"sqlite:///{folder}/g.db", "--datacenter", known))
            yield started[0], started[1]
        finally:
            for node in started:
                node.process.terminate()
                node.process.wait()


def through_a_gate(report: Report) -> None:
    with nodes() as (manager, gate):
        numbers = iter(range(1_000_000))

        def submit(address: str, targets: tuple[str, ...]) -> float:
            prefix = f"{next(numbers)}-{len(targets)}"
            begun = time.monotonic()
            asyncio.run(submitted(address, prefix, targets))
            return JOBS / (time.monotonic() - begun)

        submit(manager.address, ())
        submit(gate.address, ("a",))
        report.compare(
            "jobs accepted through a gate",
            lambda: submit(gate.address, ("a",)),
            lambda: submit(manager.address, ()),
            beside="straight to a manager",
            at_least=0.3,
            rounds=ROUNDS,
        )
        begun, expected = time.monotonic(), (2 * (ROUNDS + 1)) * JOBS
        while asyncio.run(known(manager.address)) < expected:
            time.sleep(0.01)
        report.value("after the last was accepted, all have arrived", time.monotonic() - begun, "s", most=30)


async def submitted(address: str, prefix: str, targets: tuple[str, ...]) -> None:
    with contextlib.closing(HttpCaller()) as caller:
        waiting = iter(range(JOBS))

        async def some() -> None:
            for number in waiting:
                reply = await caller.ask(address, Submit(submission=submission(f"{prefix}-{number}", targets)), 30)
                assert isinstance(reply, Done), reply

        await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))


async def known(address: str) -> int:
    with contextlib.closing(HttpCaller()) as caller:
        reply = await caller.ask(address, ListJobs(limit=1), 30)
        assert isinstance(reply, JobList), reply
        return reply.known


def submission(job_id: str, targets: tuple[str, ...]) -> JobSubmission:
    spec = WorkflowSpec(name="encode", arguments={"path": "/media/a.mov", "quality": 7})
    return JobSubmission(job_id=job_id, workflows=(spec,), target_datacenters=targets)


# Reports


def progress(job_id: str, datacenter: str) -> JobProgressReport:
    return JobProgressReport(
        job_id=job_id,
        datacenter=datacenter,
        manager_id="m-1",
        manager_host="10.0.0.1",
        manager_port=8470,
        workflows_total=1,
        workflows_completed=0,
        workflows_failed=0,
        has_recent_progress=True,
        timestamp=0.0,
        fence_token=1,
        workflows_running=1,
        elapsed_seconds=10.0,
        gate_epoch=1,
        timeout_seconds=3_600.0,
        target_datacenters=(datacenter,),
    )


class Nobody:
    """A network in which nobody answers: reports are given to the gate by hand."""

    async def ask(self, address: str, request: Any, timeout: float) -> Any:
        await asyncio.sleep(3_600)


async def reports_held(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        engine = Engine.open(f"sqlite:///{folder}/g.db")
        calls = calls_for(engine)
        environment = Environment(engine, calls, SystemClock(), Random(1), new_id)
        gate = Gate("g", "127.0.0.1:8480", environment, GateSetup({"a": ["127.0.0.1:1"]}), Nobody())
        running = asyncio.create_task(gate.run())
        for _ in range(6_000):
            if gate.leads:
                break
            await asyncio.sleep(0.01)
        jobs = [f"job-{number}" for number in range(MOST_REPORTS * 10)]
        await asyncio.gather(*(gate.answer("", Submit(submission=submission(job_id, ("a",)))) for job_id in jobs))
        batches = [
            TellGate(
                datacenter="a",
                manager="m",
                words=tuple(progress(job_id, "a") for job_id in jobs[at : at + MOST_REPORTS]),
            )
            for at in range(0, len(jobs), MOST_REPORTS)
        ]
        for batch in batches:  # the first word of each is journaled
            assert isinstance(await gate.answer("", batch), GateHeard)
        rates = []
        for _ in range(5):
            begun = time.perf_counter()
            for batch in batches:
                reply = await gate.answer("", batch)
                assert isinstance(reply, GateHeard)
                assert len(reply.acks) == MOST_REPORTS
            rates.append(len(jobs) / (time.perf_counter() - begun))
        report.value("progress reports that one gate holds", sorted(rates)[2], "per second", least=5_000)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert isinstance(calls, ThreadCalls)
        await calls.close()


# Tracking


def tracked(report: Report) -> None:
    tracker = GateJobTracker(GateSettings())
    tracker.apply_all(decide_gate(tracker, GateTakeLead(epoch=1, gate="g"), 0.0).events)
    places = [f"dc-{number}" for number in range(DATACENTERS)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(TRACKED):
        targets = (places[number % DATACENTERS], places[(number * 7 + 1) % DATACENTERS])
        one = submission(f"job-{number}", targets if targets[0] != targets[1] else targets[:1])
        one = JobSubmission(
            job_id=one.job_id, workflows=one.workflows, target_datacenters=one.target_datacenters, gate_addr=("g", 1)
        )
        command = GateSubmit(submission=one, target_datacenters=one.target_datacenters)
        tracker.apply_all(decide_gate(tracker, command, 0.0).events)
        for place in one.target_datacenters:
            said = HearProgress(report=progress(one.job_id, place))
            tracker.apply_all(decide_gate(tracker, said, 1.0).events)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    report.value(
        f"memory of a tracked job, {TRACKED:,} in {DATACENTERS} datacenters", held / TRACKED, "bytes", most=20_000
    )

    begun = time.perf_counter()
    heard = 0
    for number in range(0, TRACKED, 5):
        job_id = f"job-{number}"
        for place in tracker.jobs[job_id].target_datacenters:
            decision = decide_gate(tracker, HearProgress(report=progress(job_id, place)), 11.0)
            tracker.heard_progress(job_id, place, 11.0)
            heard += decision.ack is not None
    each = (time.perf_counter() - begun) / heard
    report.value("a report on one of them, decided", each * 1e6, "µs", most=500)

    timers: Timers[str] = Timers()
    resends = GateOutbox(tracker.settings)
    begun = time.perf_counter()
    for job_id in tracker.jobs:
        timers.set(job_id, tracker.next_due(job_id))
        resends.refresh(tracker, job_id, 2.0)
    report.value("a new leader takes all of them over", time.perf_counter() - begun, "s", most=30)
    begun = time.perf_counter()
    assert not timers.pop_due(100.0)
    report.value("a look at the clock while none is due", (time.perf_counter() - begun) * 1e6, "µs", most=1_000)
