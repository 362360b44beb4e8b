"""Slots beside what they are made of: a beat beside `Heartbeat.beat`, a worker beside a plain loop on the same engine."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from bench.harness import Report, rate
from tenure.beat.board import BeatBoard
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.record import Occupant, Phase
from tenure.clock import SystemClock
from tenure.engines import Engine, InMemoryMailbox, MemoryEngine, Outgoing
from tenure.logs import NodeLog
from tenure.work.attempt_handle import AttemptHandle
from tenure.work.context import Context
from tenure.work.delivery import EngineDelivery, WorkItem, WorkResult
from tenure.work.settler import Settler

BEATS = 200_000
JOBS = 1_500
APP = Path(__file__).parent / "slot_app.py"


def run(report: Report) -> None:
    beats(report)
    with tempfile.TemporaryDirectory() as folder:
        throughput(report, Path(folder))
        hang(report, Path(folder))


def slot_context() -> Context:
    """Returns the context of work that runs in a slot: its beats go to a board in shared memory."""
    clock = SystemClock()
    mailbox: InMemoryMailbox[WorkItem, WorkResult] = InMemoryMailbox(body=WorkItem, clock=clock)
    mailbox.send(WorkItem(workflow="w"))
    [message] = mailbox.receive(1, 3_600)
    board = BeatBoard.private(1)
    occupant = Occupant(ticket=message.ticket, job="j", workflow="w", attempt=1, queue="q", stall_s=60)
    board.records[0].occupy(Phase.RUNNING, occupant, clock.monotonic())
    delivery: Any = EngineDelivery(
        message, "q", Settler(MemoryEngine(), clock=clock, random=Random(), log=NodeLog("worker")), clock
    )
    return Context(AttemptHandle(board.records[0], delivery, occupant, clock))


def beats(report: Report) -> None:
    context, heartbeat = slot_context(), Heartbeat()

    def in_slot() -> float:
        beat = context.beat
        return 1e9 / rate(lambda: [beat() for _ in range(BEATS)], count=BEATS)

    def in_process() -> float:
        beat = heartbeat.beat
        return 1e9 / rate(lambda: [beat() for _ in range(BEATS)], count=BEATS)

    def cpu_ns() -> float:
        beat, begun = context.beat, time.thread_time()
        for _ in range(BEATS):
            beat()
        return (time.thread_time() - begun) / BEATS * 1e9

    report.wall(
        "ctx.beat() in a slot", min(in_slot() for _ in range(7)), min(cpu_ns() for _ in range(7)), "ns", most=250
    )
    report.compare(
        "ctx.beat() in a slot", in_slot, in_process, beside="Heartbeat.beat()", unit="ns", at_most=2.0, rounds=7
    )


def throughput(report: Report, folder: Path) -> None:
    """One slot against one loop that claims and settles the same work, both on SQLite as it comes (synchronous=full)."""
    number = 0

    def fill() -> str:
        nonlocal number
        number += 1
        url = f"sqlite:///{folder}/{number}.db"
        with Engine.open(url) as engine:
            queue = engine.mailbox("work", WorkItem, WorkResult)
            for _ in range(JOBS // 500):
                queue.send_many([Outgoing(WorkItem(workflow="noop"), reply_to="answers") for _ in range(500)])
        return url

    def plain() -> float:
        with Engine.open(fill()) as engine:
            queue = engine.mailbox("work", WorkItem, WorkResult)
            result = WorkResult(job_id="", workflow_id="", workflow="noop", attempt=1, fence=(0, 1), worker="w")

            def drain() -> None:
                while messages := queue.receive(1, 60):
                    messages[0].settle(result)

            return rate(drain, count=JOBS)

    def slot() -> float:
        url = fill()
        with Engine.open(url) as engine, worker(url, folder) as process:
            answers = engine.mailbox("answers", WorkResult)
            counted_from, begun = 0, 0.0
            while True:
                done = answers.approximate_count()
                if done and not begun:
                    # The start of the processes is not what is measured.
                    counted_from, begun = done, time.perf_counter()
                if done >= JOBS:
                    speed = (done - counted_from) / (time.perf_counter() - begun)
                    break
                time.sleep(0.005)
            process.terminate()
            process.wait(30)
            return speed

    report.compare("no-op workflows in one slot", slot, plain, beside="a plain loop, SQLite", at_least=0.6, rounds=5)
    idle(report, folder)


def idle(report: Report, folder: Path) -> None:
    """What a worker costs that has nothing to do."""
    url = f"sqlite:///{folder}/idle.db"
    Engine.open(url).close()
    with worker(url, folder, slots=4) as process:
        time.sleep(4)  # started and settled
        pids = [process.pid, *children(process.pid)]
        before = sum(map(cpu_seconds, pids))
        time.sleep(10)
        used = sum(map(cpu_seconds, pids)) - before
        memory = [resident_mb(pid) for pid in pids[1:]]
        process.terminate()
        process.wait(30)
    report.value("memory of an idle slot (PSS)", sum(memory) / len(memory), "MB")
    report.value("idle CPU of a worker with 4 slots and a spare", 10 * used, "% of a core")


def hang(report: Report, folder: Path) -> None:
    """A hang inside C: stall 0.6 s and grace 0.3 s, half a second to kill it, half a second until it is claimed again."""
    url = f"sqlite:///{folder}/hang.db"
    times = []
    with Engine.open(url) as engine, worker(url, folder, "--grace", "0.3", slots=2) as process:
        queue, answers = engine.mailbox("work", WorkItem, WorkResult), engine.mailbox("answers", WorkResult)

        def done(name: str) -> float:
            begun = time.perf_counter()
            queue.send(WorkItem(workflow=name), reply_to="answers")
            [message] = answers.receive(1, 60, 60)
            message.acknowledge()
            return time.perf_counter() - begun

        done("noop")  # the slots are warm
        for _ in range(5):
            times.append(done("hang_once"))
        process.terminate()
        process.wait(30)
    report.value(
        "work that hung, killed and done again (stall 0.6, grace 0.3)", statistics.median(times), "s", most=2.0
    )


def worker(url: str, folder: Path, *options: str, slots: int = 1) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tenure", "worker", str(APP), "--engine", url, "--slots", str(slots), *options]
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
