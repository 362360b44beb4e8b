"""What the number of known jobs costs the book of a leader: CPU for each job from 1,000 to 100,000, its exponent, memory, and lists with filters.

The book takes, dispatches and packs jobs as a leader's does, without an engine: `state` measures managers on SQLite. TENURE_BENCH_JOBS sets another
number of jobs, 1,000,000 for one. The figures are written into docs/performance.md.
"""

from __future__ import annotations

import math
import os
import platform
import time
from typing import Any

import psutil

from bench.harness import Report
from bench.machine import load
from bench.performance_page import write_section
from tenure.control.messages.jobs import ListJobs
from tenure.jobs import JobBook, JobSettings, JobSubmission, decide
from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.model import WorkflowSpec
from tenure.jobs.settings import MAX_PAGED_BUDGET
from tenure.jobs.states import JobState
from tenure.jobs.submission import SubmitJob
from tenure.nodes.job_listing import manager_list

JOBS = int(os.environ.get("TENURE_BENCH_JOBS", "100000"))
STEPS = tuple(10**power for power in range(3, 8) if 10**power <= JOBS)
"""The numbers of jobs up to which the cost of one is taken."""
LISTS: dict[str, dict[str, Any]] = {
    "the newest 50": {},
    "50 that wait": {"state": JobState.PENDING},
    "those that run (none)": {"state": JobState.RUNNING},
    "50 of one queue": {"queue": "q1"},
    "50 with one of five labels": {"label": "tenant=t3"},
    "50 by a prefix of their ids": {"name": "job-00000"},
    "one argument (a look at some thousand jobs, and the place to go on)": {"arg": "path=nobody"},
}


def run(report: Report) -> None:
    process = psutil.Process()
    book, before = JobBook(JobSettings(state_budget=MAX_PAGED_BUDGET)), process.memory_info().rss
    at, lines = 0.0, list[str]()
    for command in (TakeLead(epoch=1, leader="m@x"), RaiseFormat()):
        fold(book, command, at)
    costs: list[tuple[int, float]] = []
    begun, since = time.process_time(), 0
    for number in range(JOBS):
        at += 0.001
        add(book, number, at)
        if number + 1 in STEPS:
            spent = time.process_time() - begun
            costs.append((number + 1, 1e6 * spent / (number + 1 - since)))
            begun, since = time.process_time(), number + 1
    for (jobs, cost), earlier in zip(costs, (0, *STEPS), strict=False):
        lines.append(told(report, f"CPU for each job, from {earlier:,} to {jobs:,} queued", cost, "us"))
    (first_jobs, first), (last_jobs, last) = costs[0], costs[-1]
    exponent = math.log(last / first) / math.log(last_jobs / first_jobs)
    lines.append(told(report, f"exponent of the growth of that cost up to {JOBS:,} jobs", exponent, "", most=0.1))
    kib = (process.memory_info().rss - before) / JOBS / 1_024
    lines.append(told(report, f"memory for each of {JOBS:,} jobs", kib, "KiB", most=0.4))
    for name, asked in LISTS.items():
        cost = min(listed(book, at, asked) for _ in range(3))
        lines.append(told(report, f"list of {JOBS:,} jobs: {name}", 1e3 * cost, "ms CPU", most=200.0))
    write_section("scale", section(lines))


def fold(book: JobBook, command: Command, at: float) -> None:
    for event in decide(book, command, at).events:
        book.apply(event)


def add(book: JobBook, number: int, at: float) -> None:
    job_id = f"job-{number:08}"
    specs = (WorkflowSpec(name="nothing", arguments={"path": f"s3://bucket/{number}.mov", "quality": 7}),)
    labels, queue = {"tenant": f"t{number % 5}"}, f"q{number // 5_000 % 3}"
    submission = JobSubmission(job_id=job_id, workflows=specs, labels=labels, queue=queue, park=True)
    fold(book, SubmitJob(by="bench", submission=submission), at)
    fold(book, RecordDispatched(job_id=job_id, workflow="nothing", attempt=1), at)
    book.position += 1
    book.jobs.pack_if_crowded()


def listed(book: JobBook, at: float, asked: dict[str, Any]) -> float:
    begun = time.process_time()
    manager_list(book, at, ListJobs(limit=50, **asked))
    return time.process_time() - begun


def told(report: Report, name: str, value: float, unit: str, *, most: float | None = None) -> str:
    report.value(name, value, unit, most=most)
    bar = "" if most is None else f"at most {most:g}, {'met' if value <= most else '**missed**'}"
    return f"| {name} | {value:,.3g} {unit} | {bar} |"


def section(lines: list[str]) -> str:
    cores, day = os.cpu_count() or 1, time.strftime("%Y-%m-%d")
    return "\n".join(
        [
            f"## What {JOBS:,} known jobs cost",
            "",
            f"`make bench ONLY=scale` wrote this on {day}: {platform.machine()}, {cores} cores, Python {platform.python_version()}; {load()} at its end. It is the book of a leader "
            "by itself, in CPU time; engines and processes are measured by `make bench ONLY=state`.",
            "",
            "| what | figure | bar |",
            "|---|--:|---|",
            *lines,
        ]
    )


if __name__ == "__main__":
    run(Report(suite="scale"))
