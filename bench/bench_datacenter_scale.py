"""What a worker costs its leader: CPU for each worker and second, and memory, with 10 to 2,000 workers that each report every second.

The leader is a real manager on the memory engine, in manual time. Requests and replies are decoded and encoded as on the wire; each worker
runs one attempt that advances. The cost must not grow with the number of workers.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from dataclasses import dataclass
from random import Random

import msgspec

from bench.harness import Report
from tenure.clock import ManualClock
from tenure.control.messages.jobs import Submit
from tenure.control.messages.operations import decode_reply, decode_request
from tenure.control.messages.workers import AttemptReport, WorkerDirective, WorkerReport
from tenure.engines import MemoryEngine
from tenure.engines.aio import calls_for
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.nodes.manager.manager import Manager
from tenure.nodes.process import Environment
from tenure.randomness import seeded_ids
from tenure.work.delivery import WorkItem, WorkResult

SIZES = (10, 100, 500, 2_000)
REPORTS = 4_000  # in each measurement, however many workers send them
LANE = "default.p0"
_encode = msgspec.json.Encoder().encode


@dataclass
class Cost:
    us: float
    """Microseconds of CPU for each worker and second."""
    kib: float
    """Memory for each worker, with the job that it runs."""


class Cell:
    """A leader, and the words of its workers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = MemoryEngine(clock=self.clock)
        ids = seeded_ids(Random("bench"))
        environment = Environment(self.engine, calls_for(self.engine), self.clock, Random("bench"), ids)
        self.manager = Manager("m", "m:1", environment)
        self.life = asyncio.create_task(self.manager.run())

    async def settle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    async def second(self, bodies: list[bytes]) -> None:
        """Every worker reports once, and whatever is due is done."""
        self.clock.advance(1.0)
        await self.settle()
        for body in bodies:
            reply = _encode(await self.manager.answer("w", decode_request("report", body)))
        assert isinstance(decode_reply(reply), WorkerDirective)

    async def employ(self, workers: int) -> list[AttemptReport]:
        """A job for each worker, claimed."""
        for number in range(workers):
            spec = WorkflowSpec(name="a")
            await self.manager.answer("c", Submit(submission=JobSubmission(job_id=f"j{number}", workflows=(spec,))))
        mailbox = self.engine.mailbox(LANE, WorkItem, WorkResult)
        found: list[AttemptReport] = []
        while len(found) < workers:
            await self.settle()
            found += [
                AttemptReport(job_id=message.body.job_id, workflow="a", attempt=1, delivery=1, steps=0, stall_s=300)
                for message in mailbox.receive(100, 3_000)
            ]
        return found


def words(attempts: list[AttemptReport], number: int) -> list[bytes]:
    """What the workers say, as it comes over the wire."""
    return [
        _encode(
            WorkerReport(
                worker=f"w{index}",
                incarnation=f"w{index}.1",
                attempts=(msgspec.structs.replace(attempt, steps=number),),
                slots=2,
                free=1,
                lanes=(LANE,),
                steps=number,
                number=number,
            )
        )
        for index, attempt in enumerate(attempts)
    ]


async def measure(workers: int) -> Cost:
    tracemalloc.start()
    cell = Cell()
    while not cell.manager.leads:
        await cell.settle()
        cell.clock.advance(0.1)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    attempts = await cell.employ(workers)
    for number in (1, 2):  # the starts are journaled, and the first verdicts
        await cell.second(words(attempts, number))
    gc.collect()
    kib = (tracemalloc.get_traced_memory()[0] - before) / workers / 1_024
    tracemalloc.stop()
    spent = 0.0
    seconds = max(3, REPORTS // workers)
    for number in range(3, 3 + seconds):
        bodies = words(attempts, number)
        begun = time.process_time()
        await cell.second(bodies)
        spent += time.process_time() - begun
    cell.life.cancel()
    await asyncio.gather(cell.life, return_exceptions=True)
    return Cost(1e6 * spent / seconds / workers, kib)


def run(report: Report) -> None:
    rounds = [[asyncio.run(measure(size)) for size in SIZES] for _ in range(3)]
    best = [min((costs[place] for costs in rounds), key=lambda cost: cost.us) for place in range(len(SIZES))]
    for size, cost in zip(SIZES, best, strict=True):
        report.value(f"leader's CPU for each worker and second, {size:,} workers", cost.us, "us")
    report.value("a leader of 2,000 busy workers, share of a core", best[-1].us * SIZES[-1] / 1e6, "", most=0.8)
    report.value("the same at 2,000 workers as at 100", best[-1].us / best[1].us, "x", most=1.5)
    report.value("memory for each of 2,000 workers and its job", best[-1].kib, "KiB", most=40)
    report.value("the same at 2,000 workers as at 100", best[-1].kib / best[1].kib, "x", most=1.3)


if __name__ == "__main__":
    run(Report(suite="scale"))
