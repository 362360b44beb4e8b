"""What a durable step costs the workflow that takes it, beside a step of DBOS and beside a plain checkpoint, on SQLite and on PostgreSQL (issue 22).

Ours run in a slot of a managed worker, and each step goes through the supervisor. DBOS runs its workflow in one process with the database. Both are as
people get them, on the same disk and the same server, in turn. The time is taken inside the workflow: how it was submitted is no part of it.
The figures are written into docs/performance.md.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.bench_datacenter import Processes, until
from bench.harness import Report
from bench.machine import load
from bench.peers.environments import CannotInstall, python_of
from bench.performance_page import table, write_section
from tenure.client.client import Client
from tools.servers import CannotStart, Postgres

HERE = Path(__file__).parent
COUNT, ROUNDS = 300, 5


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        on_database(report, "SQLite", f"sqlite:///{folder}/t.db", f"sqlite:///{folder}/dbos.sqlite")
    server = Postgres()
    try:
        server.start()
    except CannotStart as reason:
        report.note(f"PostgreSQL: NOT MEASURED: {reason}")
        return
    try:
        theirs = server.url_of(server.new_database()).replace("postgresql:", "postgresql+psycopg:")
        on_database(report, "PostgreSQL", server.url, theirs)
    finally:
        server.stop()
    write_section("steps", section(report))


def on_database(report: Report, name: str, url: str, address: str) -> None:
    try:
        python = python_of("dbos")
    except CannotInstall as reason:
        report.note(f"{name}: DBOS was NOT MEASURED: {reason}")
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        processes = Processes(Path(folder), url, stack)
        processes.manager("m-1")
        processes.start("w-1", "worker", str(HERE / "steps_app.py"), "--managed", "--slots", "1")
        until(lambda: bool(processes.leader()), lambda: "nobody leads")
        client = processes.client()
        until(lambda: any(one.workers for one in client.catalogue("steps").workflows), lambda: "nobody serves")
        found: dict[str, list[float]] = {"steps": [], "checkpoints": [], "dbos": []}
        for number in range(ROUNDS + 1):  # the first round warms up
            measured = {
                "dbos": dbos_step(python, address),
                **{one: timed(client, one) for one in ("steps", "checkpoints")},
            }
            for one, seconds in measured.items() if number else ():
                found[one].append(seconds * 1_000)
    report.beside(f"{name}: a step", found["steps"], found["dbos"], beside="a step of DBOS", unit="ms", at_most=1.0)
    report.beside(f"{name}: a step", found["steps"], found["checkpoints"], beside="a plain checkpoint", unit="ms")


def section(report: Report) -> str:
    cores, day = os.cpu_count() or 1, time.strftime("%Y-%m-%d")
    return "\n".join(
        [
            "## What a durable step costs",
            "",
            f"`make bench ONLY=steps` wrote this on {day}: {platform.machine()}, {cores} cores, Python {platform.python_version()}; {load()} at its end. Each figure is the median "
            f"of {ROUNDS} rounds of {COUNT} steps, the three in turn, and the time is taken inside the workflow.",
            "",
            table([line for line in report.lines if line.suite == report.suite]),
        ]
    )


def timed(client: Client, workflow: str) -> float:
    return float(client.submit(workflow, count=COUNT).wait(300))


def dbos_step(python: Path, address: str) -> float:
    command = [str(python), str(HERE / "peers" / "dbos_steps.py"), address, str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return float(done.stdout.splitlines()[-1])
