"""A datacenter that completes jobs for hours of a manual clock, as fast as the machine can: the process that `bench_day` measures.

    python -m bench.simulated_day URL HOURS JOBS_AN_HOUR

The manager is the product's own: leader, ledger, pages, archive, retention, remembered ids, on SQLite in a file, with the engine's calls in threads. One worker
is a script: it registers, reports, claims through a consumer as workers do, and settles at once. The clock goes on by as much as the jobs of one step
stand for, and only when they are recorded and nothing is left to archive. So the machine's speed changes no figure but the times on the wall.

It prints a line of JSON for each hour, and one with all calls of the engine at the end.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from tenure.bound_checks import check
from tenure.clock import ManualClock, SystemClock
from tenure.control.messages.jobs import ManySubmitted, SubmitMany
from tenure.control.messages.queues import ChangeQueue
from tenure.control.messages.wire import Problem
from tenure.control.messages.workers import WorkerDirective, WorkerReport
from tenure.engines import Engine
from tenure.engines.aio import Calls, calling, polled
from tenure.engines.contracts import Exchanged, Settlement
from tenure.jobs import JobSettings
from tenure.jobs.budget import keep_finished
from tenure.jobs.catalogue import offer_digest
from tenure.jobs.mailbox_names import mailbox_name, work_mailbox
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.logs import log_to
from tenure.nodes.full_collections import collect_new_objects_only
from tenure.nodes.manager.ledger import JOURNAL
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.process import Environment
from tenure.nodes.term_leader import TEND_AT_LEAST_S
from tenure.randomness import Random, seeded_ids
from tenure.served_workflow import ServedWorkflow
from tenure.work.delivery import WorkItem, WorkResult

HOUR_S = 3_600.0
BATCH = 400
"""The jobs of one submission, and of one step of the clock."""
PROBES = 11
"""The batches at the end of each hour that are measured while nothing is archived."""
KEYED = 4
"""Every so many-th job has an idempotency key."""
LONG, SHORT = "default", "short"
"""Two queues that get half of the jobs each, with and without keys. The records of the first are kept for the usual time, those of the second are removed during the day."""
SHORT_KEPT_HOURS = 6
AHEAD_S = 2 * HOUR_S
"""The day ends so far in the machine's future. Processes that are started on the file afterwards go on from the latest time in it: no time is missing."""
FUNCTION, VERSION, WORKER = "encode", "1", "w-1"
LANES = tuple(mailbox_name(queue, 0) for queue in (LONG, SHORT))
SERVED = (ServedWorkflow(name=FUNCTION, version=VERSION),)
RESULT = msgspec.Raw(b'{"frames":1800,"path":"s3://bucket/out.mp4"}')
TERM_S, MOST_S = 10.0, 2.0
"""The term of the leader, and the most by which the clock goes on at once: a third of a term passes between two renewals."""
TURNS = 5
NUDGED_AFTER_S = 0.5
"""Where nothing happens for so long by the machine's clock, something waits for the manual one: it goes on by a quarter of a second."""


class Plan(NamedTuple):
    """A day: how long its hours are, what they bring, and the settings of its manager."""

    hours: int
    an_hour: int
    hour_s: float = HOUR_S
    jobs: JobSettings | None = None


def job_id(hour: int, number: int) -> str:
    return f"{hour:02}-{number:06}"


def key_of(hour: int, number: int) -> str:
    return f"order-{hour:02}-{number:06}"


def submission(hour: int, number: int) -> JobSubmission:
    arguments = {"path": f"s3://bucket/{hour}/{number}.mov", "quality": 7}
    return JobSubmission(
        job_id=job_id(hour, number),
        workflows=(WorkflowSpec(name=FUNCTION, arguments=arguments),),
        idempotency_key="" if number % KEYED else key_of(hour, number),
        queue=SHORT if number // KEYED % 2 else LONG,
        labels={"tenant": f"t{number % 5}"},
    )


class Counted:
    """Calls of an engine, with the number of each."""

    def __init__(self, inner: Calls) -> None:
        self._inner = inner
        self.counts: Counter[str] = Counter()
        self.under_way = 0
        """The calls that are made now, but for long polls."""

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        owner = getattr(function, "__self__", None)
        self.counts[f"{type(owner).__name__}.{function.__name__}" if owner else repr(function)] += 1
        if polled(function) is not None:
            return await self._inner.run(function, *args, **options)
        self.under_way += 1
        try:
            return await self._inner.run(function, *args, **options)
        finally:
            self.under_way -= 1


class ScriptedWorker:
    """Claims work and settles it, by a consumer. `cpu_s` is the CPU that its calls took."""

    def __init__(self, engine: Engine) -> None:
        self._consumer = engine.consumer(WorkItem, WorkResult)
        own = [work_mailbox(queue, 0, FUNCTION, version) for queue in (LONG, SHORT) for version in ("", VERSION)]
        self._consumer.cover([[*LANES, *own]])
        self.cpu_s, self.settled, self._reports = 0.0, 0, 0

    def report(self) -> WorkerReport:
        self._reports += 1
        return WorkerReport(
            worker=WORKER,
            incarnation=f"{WORKER}-1",
            slots=2 * BATCH,
            free=2 * BATCH,
            lanes=LANES,
            completed=self.settled,
            steps=self.settled,
            number=self._reports,
            serves=offer_digest(LANES, SERVED),
            workflows=SERVED,
        )

    async def work(self, count: int) -> None:
        """Claims and settles so many."""
        done: list[Settlement[WorkItem, WorkResult]] = []
        while count or done:
            settled, done = done, await asyncio.to_thread(self._exchange, done, min(BATCH, count))
            self.settled += len(settled)
            count -= len(done)
            if not done and not settled:
                await asyncio.sleep(0.001)  # its messages are not sent yet

    def _exchange(
        self, done: Sequence[Settlement[WorkItem, WorkResult]], most: int
    ) -> list[Settlement[WorkItem, WorkResult]]:
        begun = time.thread_time()
        found: Exchanged[WorkItem, WorkResult] = self._consumer.exchange(done, max_messages=most, visibility_timeout=60)
        if found.lost or found.refused:
            raise RuntimeError(f"{len(found.lost)} settlements were lost, and {len(found.refused)} refused")
        made = [Settlement(one, _result(one)) for one in found.messages]
        self.cpu_s += time.thread_time() - begun
        return made


def _result(message: Any) -> WorkResult:
    item: WorkItem = message.body
    return WorkResult(
        job_id=item.job_id,
        workflow_id=item.workflow_id,
        workflow=item.workflow,
        attempt=item.attempt,
        fence=message.fence,
        worker=WORKER,
        result=RESULT,
        beats=3,
        seconds=0.2,
        mark=0,
    )


class Day:
    """One manager that leads, its worker, and their clock."""

    def __init__(self, plan: Plan, manager: Manager, engine: Engine, clock: ManualClock, calls: Counted) -> None:
        self.plan, self.manager, self.clock, self.calls = plan, manager, clock, calls
        self._worker, self._pages = ScriptedWorker(engine), engine.store(f"{JOURNAL}.pages")
        self._path = engine.url.removeprefix("sqlite:///").partition("?")[0]
        self._process, self.nudges = psutil.Process(), 0
        self.driver_s = 0.0
        """CPU of making submissions."""
        self.submit_s = 0.0
        """CPU of this process while submissions were answered."""

    def quiet(self, slack_s: float = TEND_AT_LEAST_S + MOST_S) -> bool:
        """True when all jobs are recorded, and none was to be archived longer ago: by default, than a leader rests between two looks."""
        book = self.manager.ledger.book
        if len(book.jobs) > len(book.ended) or self.manager.ledger.writing or self.calls.under_way:
            return False
        oldest = book.jobs.look(next(iter(book.ended), ""))
        return oldest is None or oldest.ended_at > self.manager.now() - keep_finished(book) - slack_s

    async def until(self, true: Callable[[], object]) -> None:
        begun, seq = time.monotonic(), self.manager.ledger.seq
        while not true():
            await asyncio.sleep(0.001)
            if self.manager.ledger.seq != seq:
                begun, seq = time.monotonic(), self.manager.ledger.seq
            elif time.monotonic() - begun > NUDGED_AFTER_S:
                self.nudges, begun = self.nudges + 1, time.monotonic()
                self.clock.advance(0.25)

    async def begin(self) -> None:
        await self.until(lambda: self.manager.leads)
        kept = SHORT_KEPT_HOURS * self.plan.hour_s
        for request in (ChangeQueue(queue=SHORT, keep_archive=kept), self._worker.report()):
            reply = await self.manager.answer("bench", request)
            if isinstance(reply, Problem):
                raise TypeError(f"{request} was refused: {reply}")

    async def hour(self, hour: int) -> dict[str, Any]:
        """Lets one hour pass. Returns its figures."""
        jobs, before = self.plan.an_hour, self._spent()
        probed = min(PROBES * BATCH, jobs // 10)
        rest = jobs - probed
        for start in range(0, rest, BATCH):
            count = min(BATCH, rest - start)
            await self._step(hour, start, count)
            await self.pass_time(self.plan.hour_s * count / rest)
        begun = self._spent()
        for start in range(
            rest, jobs, BATCH
        ):  # no time passes, so nothing more is to be archived after the first of them
            await self._step(hour, start, min(BATCH, jobs - start))
            if start == rest:
                await self.until(lambda: self.quiet(0.0))
                self.submit_s, begun, probed = 0.0, self._spent(), probed - BATCH
        spent = self._spent()
        found = self._figures(hour, jobs, {name: spent[name] - before[name] for name in spent})
        ended_us = 1e6 * (spent["leader"] - begun["leader"]) / max(1, probed)
        return {**found, "submit_us": 1e6 * self.submit_s / max(1, probed), "ended_us": ended_us}

    async def _step(self, hour: int, start: int, count: int) -> None:
        begun = time.thread_time()
        request = SubmitMany(submissions=tuple(submission(hour, start + one) for one in range(count)))
        self.driver_s += time.thread_time() - begun
        begun = time.process_time()
        check(request)  # as the port does when it decodes a request
        reply = await self.manager.answer("bench", request)
        self.submit_s += time.process_time() - begun
        if not isinstance(reply, ManySubmitted) or any(one.outcome != "accepted" for one in reply.jobs):
            raise RuntimeError(f"it was not accepted: {str(reply)[:2_000]}")
        await self._worker.work(count)
        await self.until(self.quiet)

    async def pass_time(self, seconds: float) -> None:
        """Lets time pass, and the worker report. Returns when the manager has done what was due."""
        while seconds > 0:
            some = min(seconds, MOST_S)
            self.clock.advance(some)
            seconds -= some
            for _ in range(TURNS):  # those whom the clock has woken begin what they do now
                await asyncio.sleep(0)
            await self.until(lambda: not self.calls.under_way)
            reply = await self.manager.answer("bench", self._worker.report())
            if not isinstance(reply, WorkerDirective):
                raise TypeError(f"the report was refused: {reply}")
        await self.until(self.quiet)

    def _spent(self) -> dict[str, float]:
        driver = self.driver_s + self._worker.cpu_s
        return {
            "leader": time.process_time() - driver,
            "driver": driver,
            "wall": time.monotonic(),
            "calls": self.calls.counts.total(),
        }

    def _figures(self, hour: int, jobs: int, spent: dict[str, float]) -> dict[str, Any]:
        book = self.manager.ledger.book
        files = [Path(f"{self._path}{end}") for end in ("", "-wal")]
        return {
            "hour": hour,
            "jobs": jobs,
            "leader_us": 1e6 * spent["leader"] / jobs,
            "driver_us": 1e6 * spent["driver"] / jobs,
            "wall_s": spent["wall"],
            "calls_a_job": spent["calls"] / jobs,
            "rss_mib": self._process.memory_info().rss / 2**20,
            "objects": len(gc.get_objects()),
            "threads": threading.active_count(),
            "known": len(book.jobs),
            "remembered": len(book.state.archive),
            "keys": len(book.keys),
            "forgotten": book.state.forgotten_early,
            "state_mib": book.size.total / 2**20,
            "file_mib": sum(one.stat().st_size for one in files if one.exists()) / 2**20,
            "pages": self._stored_pages(),
            "epoch": self.manager.epoch,
            "nudges": self.nudges,
        }

    def _stored_pages(self) -> int:
        """Returns the number of pages of the state that are in the store, also of those that no snapshot names any more."""
        count, after = 0, None
        while found := self._pages.list(after=after):
            count, after = count + len(found), found[-1]
        return count


@asynccontextmanager
async def simulated(url: str, plan: Plan) -> AsyncIterator[Day]:
    """Yields a day that has not begun to pass: a manager that leads, and its worker."""
    clock = ManualClock(wall=SystemClock().wall() - plan.hours * plan.hour_s + AHEAD_S)
    engine, random = Engine.open(url, clock=clock), Random("day")
    async with calling(engine) as calls:
        counted = Counted(calls)
        environment = Environment(engine, counted, clock, random, seeded_ids(random), log_to(_say))
        setup = ManagerSetup(term_s=TERM_S, jobs=plan.jobs, raise_format=None, engine_submissions=True)
        manager = Manager("m-0", "127.0.0.1:1", environment, setup)
        life = asyncio.create_task(manager.run())
        try:
            day = Day(plan, manager, engine, clock, counted)
            await day.begin()
            yield day
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)


async def run(url: str, plan: Plan) -> None:
    async with simulated(url, plan) as day:
        for hour in range(plan.hours):
            _tell(await day.hour(hour))
        _tell({"calls": dict(day.calls.counts)})


def _tell(found: dict[str, Any]) -> None:
    print(msgspec.json.encode(found).decode(), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    collect_new_objects_only()  # as `tenure manager` does
    asyncio.run(run(sys.argv[1], Plan(int(sys.argv[2]), int(sys.argv[3]))))
