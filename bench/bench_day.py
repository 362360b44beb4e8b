"""A datacenter on SQLite that completes 200,000 jobs an hour for a day of a manual clock: memory, cost of a job, files; then takeover, cold start, old keys.

`simulated_day` has the datacenter: the product's manager, in a process of its own. Its clock goes on when the jobs of a step are recorded, so a day takes as
long as its 4,800,000 jobs cost. After it, managers are started on the same file as users start them, by the machine's clock. There are 2 hours
with 20,000 jobs each unless TENURE_BENCH_HOURS and TENURE_BENCH_JOBS set other numbers, 24 and 200000 for the whole day; TENURE_BENCH_FOLDER names a
folder for its file, which stays (some gigabytes). The figures are written into docs/performance.md.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import psutil

from bench.bench_datacenter import cpu, until
from bench.bench_million import other, reading, rss, settled
from bench.bench_state import LargeProcesses
from bench.harness import Line, Report
from bench.machine import load
from bench.performance_page import table, write_section
from bench.simulated_day import KEYED, LONG, SHORT, SHORT_KEPT_HOURS, job_id, submission
from tenure.client.client import Client
from tenure.errors import UnknownJobError
from tenure.jobs.decisions import Outcome

HOURS = int(os.environ.get("TENURE_BENCH_HOURS", "2"))
JOBS = int(os.environ.get("TENURE_BENCH_JOBS", "20000"))
FOLDER = os.environ.get("TENURE_BENCH_FOLDER", "")
MOST_MIB = 400.0
ASKED = 40
"""The jobs of the first hour that are submitted again."""
AFTER = 98
"""The hour of jobs that are submitted after the day."""
Hour = dict[str, Any]


class DayProcesses(LargeProcesses):
    """Managers as users start them, with nothing set but the port."""

    term_s = 10.0

    def manager(self, name: str) -> None:
        log = self.start(name, "manager", "--name", name, "--port", "0")
        until(lambda: "listens on" in log.read_text(), log.read_text, within_s=600)
        found = re.search(r"listens on (\S+)", log.read_text())
        assert found is not None
        self.addresses[name] = found[1]


def run(report: Report) -> None:
    with ExitStack() as stack:
        folder = FOLDER or stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-day-"))
        url = f"sqlite:///{folder}/day.db?synchronous=normal"
        hours = passed(url, Path(folder))
        figures(report, hours)
        dc = DayProcesses(Path(folder), url, stack)
        client = cold_start(report, dc)
        reading(report, "after the day", dc, client)
        known_keys(report, client)
        takeover(report, dc)
    write_section("day", section(report.lines, hours))


def passed(url: str, folder: Path) -> list[Hour]:
    """Lets the day pass in a process of its own, unless it has passed in this folder before. Returns the figures of its hours."""
    told = folder / "hours.jsonl"
    if not told.exists():
        command = [sys.executable, "-m", "bench.simulated_day", url, str(HOURS), str(JOBS)]
        with told.open("wb") as output:
            subprocess.run(command, stdout=output, check=True)
    print(told.read_text(), flush=True)
    found = [msgspec.json.decode(line) for line in told.read_bytes().splitlines()]
    return [one for one in found if "hour" in one]


def figures(report: Report, hours: list[Hour]) -> None:
    first, last, steady = hours[0], hours[-1], steady_of(hours)
    report.value(
        "memory of the leader, the most of any hour", max(one["rss_mib"] for one in hours), "MiB", most=MOST_MIB
    )
    grown = last["rss_mib"] / steady["rss_mib"]
    report.value(f"memory after the last hour, beside hour {steady['hour'] + 1}", grown, "x", most=1.1)
    grown = last["objects"] / steady["objects"]
    report.value(f"objects of Python after the last hour, beside hour {steady['hour'] + 1}", grown, "x", most=1.1)
    grown = last["pages"] / steady["pages"]
    report.value(
        f"pages of the state in the store after the last hour, beside hour {steady['hour'] + 1}", grown, "x", most=1.1
    )
    kept = first["submit_us"] / last["submit_us"]
    report.value("CPU of a submission until it is answered, hour 1", first["submit_us"], "us CPU")
    report.value("the same, the last hour", last["submit_us"], "us CPU")
    report.value("submissions for each second of that CPU, the last hour beside the first", kept, "x", least=0.8)
    slower = last["driver_us"] / first["driver_us"]
    report.value(
        "the script's own calls took in the last hour, beside the first: so much slower was the machine", slower, "x"
    )
    report.value("submissions, the last hour beside the first, without that", kept * slower, "x", least=0.8)
    kept = first["ended_us"] / last["ended_us"]
    report.value("CPU of the leader for a job until it is recorded, hour 1", first["ended_us"], "us CPU")
    report.value("the same, the last hour", last["ended_us"], "us CPU")
    report.value("jobs for each second of that CPU, the last hour beside the first", kept, "x", least=0.8)
    report.value(
        "jobs, the last hour beside the first, without what the machine was slower", kept * slower, "x", least=0.8
    )
    kept = steady["leader_us"] / last["leader_us"]
    report.value("CPU of the leader for a job and an archived one, the last hour", last["leader_us"], "us CPU")
    report.value(f"both for each second of CPU, the last hour beside hour {steady['hour'] + 1}", kept, "x", least=0.8)
    report.value("calls of the engine for each job, the last hour", last["calls_a_job"], "")
    report.value("elections during the day, but the first", last["epoch"] - 1, "", most=0)
    report.value("the engine's files after the day", last["file_mib"], "MiB")


def steady_of(hours: list[Hour]) -> Hour:
    """Returns the first hour that has everything which a day brings: ids that the book has forgotten, and records that are removed. Else the middle."""
    found = [one for one in hours if one["hour"] > SHORT_KEPT_HOURS + 1 and one["forgotten"] > one["jobs"]]
    return found[0] if found else hours[len(hours) // 2]


def cold_start(report: Report, dc: DayProcesses) -> Client:
    begun = time.monotonic()
    dc.manager("m-1")
    until(lambda: dc.leader() == "m-1", lambda: "nobody leads", within_s=600)
    report.value("cold start until it leads", time.monotonic() - begun, "s", most=10.0)
    report.value("CPU of that", cpu(psutil.Process(dc.all["m-1"].pid)), "s CPU", most=10.0)
    client = dc.client()
    client.submit_job(submission(AFTER, 0))
    report.value("cold start until a submission is accepted", time.monotonic() - begun, "s", most=10.0)
    settled(dc, "m-1")
    report.value("memory after a cold start", rss(dc, "m-1"), "MiB", most=MOST_MIB)
    return client


def known_keys(report: Report, client: Client) -> None:
    """Submits jobs of the first hour again: under another id with the key, and under the id without it."""
    numbers = [KEYED * (one * JOBS // KEYED // ASKED // 2 * 2 + one % 2) for one in range(ASKED)]
    begun, found = time.monotonic(), 0
    for number in numbers:
        done = client.submit_job(msgspec.structs.replace(submission(0, number), job_id=f"again-{number}"))
        found += (done.job_id, done.outcome) == (job_id(0, number), Outcome.ALREADY)
    report.value("keys of the first hour that give the first job", 100 * found / ASKED, "%", least=100.0)
    report.value("such a submission", 1e3 * (time.monotonic() - begun) / ASKED, "ms")
    mine = [number + 1 for number in numbers if submission(0, number + 1).queue == LONG]
    known = sum(client.submit_job(submission(0, number)).outcome is Outcome.ALREADY for number in mine)
    report.value(
        "ids of the first hour that give the first job, where records are kept",
        100 * known / len(mine),
        "%",
        least=100.0,
    )
    if HOURS > SHORT_KEPT_HOURS + 2:
        gone = [number for number in numbers if submission(0, number).queue == SHORT]
        report.value(
            "records of the first hour that are past their time and still there",
            100 * sum(readable(client, one) for one in gone) / len(gone),
            "%",
            most=0.0,
        )


def readable(client: Client, number: int) -> bool:
    try:
        client.job(job_id(0, number))
    except UnknownJobError:
        return False
    return True


def takeover(report: Report, dc: DayProcesses) -> None:
    dc.manager("m-2")
    settled(dc, "m-2")
    client, leader = dc.client(), dc.leader()
    dc.all[leader].kill()
    begun = time.monotonic()
    client.submit_job(submission(AFTER, 1))
    took = time.monotonic() - begun
    report.value("leader killed, next accepted submission", took / dc.term_s, "terms", most=2.0)
    settled(dc, other(leader))
    report.value("memory of the new leader", rss(dc, other(leader)), "MiB", most=MOST_MIB)


COLUMNS = {
    "hour": "{hour}", "CPU of the leader, all of a job, us": "{leader_us:.0f}", "CPU of a submission, us": "{submit_us:.0f}", "CPU until it is recorded, us": "{ended_us:.0f}", "calls of the engine a job": "{calls_a_job:.2f}",
    "memory, MiB": "{rss_mib:.0f}", "objects": "{objects:,}", "jobs in memory": "{known:,}", "ids in memory": "{remembered:,}", "forgotten before their time": "{forgotten:,}",
    "pages of the state": "{pages:,}", "files, MiB": "{file_mib:,.0f}", "took, s": "{wall_s:.0f}",
}  # fmt: skip


def section(lines: list[Line], hours: list[Hour]) -> str:
    cores, day = os.cpu_count() or 1, time.strftime("%Y-%m-%d")
    rows = [
        "| " + " | ".join(one.format(**{**hour, "hour": hour["hour"] + 1}) for one in COLUMNS.values()) + " |"
        for hour in hours
    ]
    return "\n".join(
        [
            f"## A simulated day of {JOBS:,} completed jobs an hour on SQLite",
            "",
            f"`TENURE_BENCH_HOURS={HOURS} TENURE_BENCH_JOBS={JOBS} make bench ONLY=day` wrote this on {day}: {platform.machine()}, {cores} cores, Python "
            f"{platform.python_version()}; {load()} at its end. The manager and a scripted worker are one process under a manual clock, on a file with "
            "`synchronous=normal`; its memory is that of both, and the CPU of the leader is that of the process without what the script's own calls took. The "
            "clock waits for the jobs, so a busy machine makes the hours take longer and changes nothing else. Cold start, lists, keys and takeover "
            "are those of managers that were then started on the same file.",
            "",
            table(lines),
            "",
            "| " + " | ".join(COLUMNS) + " |",
            "|--:" * len(COLUMNS) + "|",
            *rows,
        ]
    )


if __name__ == "__main__":
    run(Report(suite="day"))
