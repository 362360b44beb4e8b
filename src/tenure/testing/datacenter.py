"""A whole datacenter in a test: real manager, real worker shell, real attempts, on the memory engine and a manual clock.

    def test_a_hang_is_retried(tenure_dc):
        job = tenure_dc.submit(review, pr=1)
        tenure_dc.advance(minutes=15)
        assert job.attempts == 2 and "stall" in job.why()

Nothing waits: hours pass in milliseconds, and time stands still between two calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from tenure.attempt_data import Signal
from tenure.bound_checks import check
from tenure.client.client import Client
from tenure.clock import ManualClock
from tenure.codec import Codec
from tenure.control.messages.jobs import AskWhy, Cancel, Done, GetJob, JobView, Submit, WhyReply
from tenure.control.messages.operations import decode_reply
from tenure.control.messages.wire import Problem, Reply, Request
from tenure.control.problems import problem
from tenure.engines.aio import calls_for
from tenure.engines.memory import MemoryEngine
from tenure.errors import NodeRefusedError, NodeUnavailableError, OutOfBoundsError, SimulationDeadlockError
from tenure.jobs.mailbox_names import mailbox_name
from tenure.jobs.model import JobSubmission
from tenure.logs import log_to
from tenure.nodes.manager.manager import Manager
from tenure.nodes.process import Environment
from tenure.nodes.worker.courier import child_view
from tenure.nodes.worker.inline_slots import InlineSlots
from tenure.nodes.worker.worker import ManagedWorker, ReportSettings
from tenure.randomness import Random, seeded_ids
from tenure.testing.virtual import VirtualLoop, WatchedThreads
from tenure.work.job_submission import ChildView, Target, submit_span, traced
from tenure.work.registry import Registry, Workflow
from tenure.work.slots.settings import SlotSettings

ReplyT = TypeVar("ReplyT", bound=Reply)

ADDRESS = "127.0.0.1:1"
ASK_S = 600.0
"""The most virtual time that one question may take, beyond what it asks to wait."""


class TestDatacenter(Client):
    """A `Client` with its datacenter inside. Workflows are registered when they are submitted, or with `serve`."""

    __test__ = False  # pytest: a class of the kit, not a test

    def __init__(
        self,
        workflows: Iterable[Workflow[..., Any]] = (),
        *,
        clock: ManualClock | None = None,
        slots: int = 4,
        seed: int = 0,
        hung_after_s: float = 1.0,
        codec: Codec | None = None,
        **slot_settings: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        super().__init__(
            [ADDRESS], clock=self.clock, random=Random(seed), ids=seeded_ids(Random(f"{seed}/ids")), codec=codec
        )
        self.engine = MemoryEngine(self.clock, ids=seeded_ids(Random(f"{seed}/engine")))
        self.registry = Registry(workflows, codec)
        self.said: list[str] = []
        """The lines that manager and worker wrote to their logs."""
        self._seed, self._starts = seed, 0
        self._loop = VirtualLoop(self.clock, WatchedThreads(self.clock, hung_after_s))
        self._settings = SlotSettings(
            **{"queue": mailbox_name("default", 0), "slots": slots, "tick_s": 2.0, "wait_s": 60.0, **slot_settings}
        )
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._slots: InlineSlots | None = None
        self._start_manager()
        self._start_worker()
        while not self.manager.leads:
            self.advance(seconds=0.1)

    # Time

    @property
    def now(self) -> float:
        """Seconds since this datacenter's clock began."""
        return self.clock.monotonic()

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass; whatever is due happens on the way, in its order."""
        self._loop.pass_time(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)
        self._require_life()

    # Work

    def serve(self, *workflows: Workflow[..., Any]) -> None:
        """Let the worker know functions that are only submitted by name, or by other workflows."""
        for one in workflows:
            self._add(one)

    def deploy(self, *workflows: Workflow[..., Any]) -> None:
        """Let the worker serve these and nothing else, as after a deploy. Work that runs now goes on in its code."""
        self.registry.clear()
        self.serve(*workflows)

    def _add(self, workflow: Workflow[..., Any]) -> None:
        known = any((one.name, one.version) == (workflow.name, workflow.version) for one in self.registry)
        self.registry.add(workflow)  # it raises for another function of that name
        if not known and self._slots is not None:  # else it registers everything when it starts
            self._slots._bell()  # the node then reports, and so registers, what was added

    def _submission(self, workflow: Target, arguments: Any, given: Any) -> Any:
        if isinstance(workflow, Workflow):
            self._add(workflow)
            given = {"park": True, **given}  # the worker registers it with its next report
        return super()._submission(workflow, arguments, given)

    async def answer(self, sender: str, request: Request) -> Reply:
        """Asks the manager behind the same door as a client: a port checks a request when it decodes it, and here nothing is decoded."""
        try:
            check(request)
        except OutOfBoundsError as error:
            return problem(error)
        return await self.manager.answer(sender, request)

    def ask(self, request: Request, wait_s: float = 0.0) -> Reply:
        search = self._directory.search(request, wait_s)

        async def answered() -> Reply:
            heard: Reply | None = None
            while True:
                try:
                    step = search.send(heard)
                except StopIteration as end:
                    reply: Reply = end.value
                    return reply
                heard = None
                if hasattr(step, "address"):
                    # As it would travel: what a test sees is what a client sees.
                    heard = decode_reply(msgspec.json.encode(await self.answer("test", request)))
                else:
                    await self.clock.async_sleep(step.seconds)

        try:
            reply = self._loop.finish(self._loop.create_task(answered()), ASK_S + wait_s)
        except SimulationDeadlockError as error:
            raise NodeUnavailableError(f"the manager did not answer {request!r}: {error}") from error
        finally:
            self._loop.pass_time(0)  # whatever follows at once has happened when we return
        self._require_life()
        found: Reply = reply
        return found

    # Faults

    def crash_worker(self) -> None:
        """Kills the worker, without a word: what it ran goes on elsewhere once its leases ran out. Another takes its place."""
        if self._slots is not None:
            self._slots.crash()
        self._end("worker")
        self._start_worker()

    def crash_manager(self) -> None:
        """Kills the leader: another manager reads the journal and takes over when the term is over."""
        self._end("manager")
        self._start_manager()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Inside the block neither manager nor worker runs, so weeks pass in a moment; what came due meanwhile happens after it."""
        for name in ("worker", "manager"):
            self._end(name, self._settings.grace_s + 1.0)
        yield
        self._start_manager()
        self._start_worker()
        while not self.manager.leads:
            self.advance(seconds=0.1)

    def close(self) -> None:
        for name in ("worker", "manager"):
            self._end(name, self._settings.grace_s + 1.0)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.pass_time(0)
        self._loop.close()
        self.engine.close()

    # Its parts

    def _environment(self, kind: str) -> tuple[str, Environment]:
        """Returns the name and the environment of the next node."""
        self._starts += 1
        name = f"{kind}-{self._starts}"
        random, ids = Random(f"{self._seed}/{name}"), seeded_ids(Random(f"{self._seed}/{name}/ids"))
        log = log_to(lambda text: self.said.append(f"{self.now:.1f} {name}: {text}"), kind, name)
        return name, Environment(self.engine, calls_for(self.engine), self.clock, random, ids, log)

    def _start_manager(self) -> None:
        async def run(name: str, environment: Environment) -> None:
            self.manager = Manager(name, ADDRESS, environment)
            await self.manager.run()

        self._tasks["manager"] = self._loop.create_task(run(*self._environment("manager")))
        self._loop.pass_time(0)

    def _start_worker(self) -> None:
        async def run(name: str, environment: Environment) -> None:
            slots = self._slots = InlineSlots(
                environment,
                self.registry,
                self._settings,
                worker=name,
                start_thread=self._loop.threads.start,
                courier=lambda: LoopCourier(self),
            )
            node = ManagedWorker(name, slots, environment, DirectCaller(self), ReportSettings(every_s=5.0, gap_s=0.01))
            await asyncio.gather(node.run(), slots.run())

        self._tasks["worker"] = self._loop.create_task(run(*self._environment("worker")))

    def _end(self, name: str, within_s: float = 0.0) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        self._loop.pass_time(within_s)

    def _require_life(self) -> None:
        """Raises the error that a node died of, so that no test waits for that node."""
        for task in self._tasks.values():
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error


class LoopCourier:
    """Sends the jobs that a workflow of the kit submits to the test's manager, and looks again as the clock moves."""

    poll_s = 0.0

    def __init__(self, datacenter: TestDatacenter) -> None:
        self._datacenter = datacenter

    def submit(self, submission: JobSubmission, workflow: Workflow[..., Any] | None) -> str:
        if workflow is not None:
            self._datacenter.registry.add(workflow)
            submission = msgspec.structs.replace(submission, park=True)
        with submit_span(submission) as span:
            return self._ask(Submit(submission=traced(submission, span.traceparent)), Done).job_id

    def look(self, job_id: str, wait_s: float) -> ChildView:
        return child_view(self._ask(GetJob(job_id=job_id), JobView))

    def cancel(self, job_id: str, reason: str) -> None:
        self._ask(Cancel(job_id=job_id, reason=reason), Done)

    def why(self, job_id: str) -> str:
        return self._ask(AskWhy(job_id=job_id), WhyReply).text

    def signals(self, job_id: str, after: int) -> Sequence[Signal]:
        return self._ask(GetJob(job_id=job_id, signals_after=after), JobView).signals

    def _ask(self, request: Request, wanted: type[ReplyT]) -> ReplyT:
        """Asks from a workflow's thread: the loop answers while that waits."""
        while True:
            answer = self._datacenter.answer("workflow", request)
            reply = asyncio.run_coroutine_threadsafe(answer, self._datacenter._loop).result()
            if isinstance(reply, wanted):
                return reply
            if not isinstance(reply, Problem) or not reply.retryable:
                fact = reply.fact if isinstance(reply, Problem) else type(reply).__name__
                raise NodeRefusedError("failed", fact)
            self._datacenter.clock.sleep(1.0)


class DirectCaller:
    """Asks the test's manager without a network."""

    def __init__(self, datacenter: TestDatacenter) -> None:
        self._datacenter = datacenter

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        return await self._datacenter.answer("worker", request)
