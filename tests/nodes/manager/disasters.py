"""Twelve disasters, played on real managers with the memory engine and a manual clock. What a worker says of its attempt is as real workers say it:
`tests/process/slots/test_faults.py` and `tests/browser/test_disasters.py` make real processes say it.

A story takes the id of its job, so that all of them can be told in one datacenter, and looked at side by side.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from tests.nodes.manager.harness import GatedManagers, ask, tell

from tenure.backoff import Retry
from tenure.control.messages.jobs import Done, Submit
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.jobs.catalogue import offer_digest
from tenure.jobs.mailbox_names import work_mailbox
from tenure.jobs.messages import JobGlobalCancel
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import WorkflowState
from tenure.nodes.manager.manager import Manager
from tenure.served_workflow import ServedWorkflow
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.log_lines import log_key

LANES = ("default.p0",)
SERVED = (ServedWorkflow(name="encode", version="1"),)
REPORT_S = 5.0
BEATS = json.dumps([[0.0, 1], [20.0, 140], [40.0, 281], [60.0, 412]])


class Stage(GatedManagers):
    """A datacenter whose workers report by themselves, each for as long as it is `alive`."""

    manager_now: Manager

    def __init__(self) -> None:
        super().__init__()
        self.work = self.engine.mailbox(work_mailbox("default", 0, "encode", ""), WorkItem, WorkResult)
        self.alive: dict[str, dict[str, AttemptReport]] = {}
        """Maps each worker that is there to what it runs."""

    async def raise_curtain(self) -> None:
        self.manager_now = await self.led("m-1")
        self.alive = {"worker-3": {}, "worker-5": {}, "worker-8": {}}
        self.tasks["reports"] = asyncio.create_task(self._report())
        await self.passes(REPORT_S + 1)

    async def _report(self) -> None:
        while True:
            for worker in list(self.alive):
                await self.report(worker)
            await self.clock.async_sleep(REPORT_S)

    async def report(self, worker: str, **more: Any) -> None:
        running = tuple(self.alive.get(worker, {}).values())
        free = 2 - len(running)
        offer = {"serves": offer_digest(LANES, SERVED), "workflows": SERVED}
        given = {"slots": 2, "free": free, "lanes": LANES, **offer, **more}
        await ask(self.manager_now, WorkerReport(worker=worker, attempts=running, **given))

    async def submit(self, job_id: str, **options: Any) -> None:
        arguments = {"path": "a.mov", "quality": options.pop("quality", 7)}
        version = options.pop("version", "")
        spec = WorkflowSpec(name="encode", arguments=arguments, retry=Retry(max_attempts=1), version=version)
        given = JobSubmission(job_id=job_id, workflows=(spec,), **options)
        if given.gate_addr:
            await tell(self.manager_now, given)
            return
        done = await ask(self.manager_now, Submit(submission=given))
        assert isinstance(done, Done), done

    async def begin(self, job_id: str, worker: str = "worker-3", *, lease_s: float = 900.0, **options: Any) -> Any:
        """Submits a job, and has a worker start it. Returns the claimed message."""
        await self.submit(job_id, **options)
        return await self.take(job_id, worker, lease_s=lease_s)

    async def take(self, job_id: str, worker: str, *, lease_s: float = 900.0, delivery: int = 1) -> Any:
        found: list[Any] = []
        await self.until(lambda: found.extend(self.work.receive(1, lease_s)) or found)
        self.alive[worker][job_id] = AttemptReport(
            job_id=job_id,
            workflow="encode",
            attempt=1,
            delivery=delivery,
            steps=1,
            stall_s=30.0,
            quiet_s=30.0,
            lease_s=lease_s,
        )
        await self.report(worker)
        workflow = self.manager_now.ledger.book.job(job_id).workflows["encode"]
        await self.until(lambda: workflow.state is WorkflowState.RUNNING and workflow.worker == worker)
        return found[0]

    async def advances(self, job_id: str, worker: str, steps: int, fraction: float) -> None:
        was = self.alive[worker][job_id]
        self.alive[worker][job_id] = msgspec.structs.replace(was, steps=steps, fraction=fraction)
        await self.report(worker)

    async def settle(self, job_id: str, message: Any, worker: str = "worker-3", **outcome: Any) -> None:
        """Settles an attempt as its worker does, and waits until the job has ended by it."""
        self.alive[worker].pop(job_id)
        item = message.body
        names = {"job_id": job_id, "workflow_id": item.workflow_id, "workflow": item.workflow, "attempt": item.attempt}
        message.settle(WorkResult(**names, fence=message.fence, worker=worker, **outcome))
        book = self.manager_now.ledger.book
        await self.until(lambda: book.job(job_id).state.terminal)

    async def die(
        self, job_id: str, cause: Cause, reason: str, log: tuple[str, ...] = (), *, late_s: float = 0.0, **evidence: str
    ) -> None:
        """An attempt of worker-3 that ended after a minute without a result. `late_s` later its worker can say so."""
        message = await self.begin(job_id)
        for step, steps in ((20, 140), (20, 281), (20, 412)):
            await self.passes(step)
            await self.advances(job_id, "worker-3", steps, steps / 1_000)
        failure = WorkFailure(cause=cause, reason=reason, evidence={"beats": BEATS, "silent_s": "0.2", **evidence})
        key = log_key(job_id, "encode", 1)
        self.engine.store("evidence").put(key, msgspec.json.encode(failure))
        at = self.clock.wall()
        lines = [{"at": at - 2 * (len(log) - number), "level": "info", "text": text} for number, text in enumerate(log)]
        self.engine.store("logs").put(key, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        await self.passes(late_s)
        await self.settle(job_id, message, failure=failure, beats=412, seconds=60.0)


async def stall_in_c(stage: Stage, job_id: str) -> None:
    stack = (
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/usr/lib/python3/dist-packages/zlib_wrap.py", line 88 in compress\n'
        '  File "/srv/media/encode.py", line 41 in encode\n'
        "  (11 frames of Tenure are not shown)"
    )
    await stage.die(
        job_id,
        Cause.STALL,
        "no beat for 30.1 s, allowed are 30 s (its last note: frame 412); its slot was killed",
        stacks=stack,
        place="/srv/media/encode.py:41, in encode",
        note="frame 412",
        silent_s="30.1",
        beats=json.dumps([[0.0, 1], [15.0, 205], [30.0, 412], [60.0, 412]]),
    )


async def out_of_memory(stage: Stage, job_id: str) -> None:
    await stage.die(
        job_id,
        Cause.MEMORY,
        "killed by the kernel for memory (peak 512 MB)",
        ("frame 411: 480 MB", "frame 412: 505 MB"),
        peak_memory="512 MB",
        signal="SIGKILL",
        cgroup_oom_kills="3 before, 4 now",
    )


async def segfault(stage: Stage, job_id: str) -> None:
    stack = (
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/srv/media/codec.py", line 12 in decode\n'
        '  File "/srv/media/encode.py", line 38 in encode\n'
        "  (11 frames of Tenure are not shown)"
    )
    await stage.die(
        job_id,
        Cause.KILLED,
        "the slot process died of SIGSEGV",
        stacks=stack,
        place="/srv/media/codec.py:12, in decode",
        signal="SIGSEGV",
        peak_memory="88 MB",
    )


async def evicted_worker(stage: Stage, job_id: str) -> None:
    stage.alive["worker-4"] = {}
    await stage.begin(job_id, "worker-4")
    await stage.passes(20)
    del stage.alive["worker-4"]  # not a word any more
    book = stage.manager_now.ledger.book
    await stage.until(lambda: book.job(job_id).state.terminal)


async def lost_lease_of_a_stopped_machine(stage: Stage, job_id: str) -> None:
    stage.alive["worker-6"] = {}
    await stage.begin(job_id, "worker-6", lease_s=20.0)
    await stage.advances(job_id, "worker-6", 140, 0.3)
    del stage.alive["worker-6"]  # its machine is stopped: no beat, no extension
    await stage.passes(20)
    await stage.take(job_id, "worker-5", delivery=2)


async def poison_argument(stage: Stage, job_id: str) -> None:
    message = await stage.begin(job_id, quality="high")
    failure = WorkFailure(cause=Cause.BAD_ARGUMENTS, reason="encode(): quality: expected `int`, got `str`")
    stage.engine.store("evidence").put(log_key(job_id, "encode", 1), msgspec.json.encode(failure))
    await stage.settle(job_id, message, failure=failure)


async def engine_full(stage: Stage, job_id: str) -> None:
    await stage.die(
        job_id,
        Cause.UNSETTLED,
        "its outcome could not be handed over: it ended 300 s ago, and nothing was written; its slot was killed",
        late_s=300.0,
        last_trouble="cannot settle encode yet: the engine is full: disk full (/var/lib/tenure.db)",
    )


async def deadline_missed_by_three_seconds(stage: Stage, job_id: str) -> None:
    await stage.begin(job_id, timeout_seconds=300.0)
    for step in range(1, 6):
        await stage.passes(59)
        await stage.advances(job_id, "worker-3", step * 60, step * 0.198)
    book = stage.manager_now.ledger.book
    await stage.until(lambda: book.job(job_id).state.terminal)
    stage.alive["worker-3"].clear()


async def cancelled_by_a_gate(stage: Stage, job_id: str) -> None:
    gates = {"gate_addr": ("g-1", 8480), "gate_epoch": 1, "target_datacenters": ("a", "b"), "timeout_seconds": 600.0}
    await stage.begin(job_id, **gates)
    await stage.passes(40)
    told = JobGlobalCancel(job_id=job_id, reason="wrong customer", cancelled_at=stage.clock.wall(), gate_epoch=1)
    await tell(stage.manager_now, words=(told,))
    stage.alive["worker-3"].clear()


async def dead_provider(stage: Stage, job_id: str) -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/srv/agents/review.py", line 27, in review\n'
        "    plan = llm.complete(prompt)\n"
        "tenure.errors.work.ProviderUnavailableError: the provider is out of reach: connection refused\n"
        "(9 frames of Tenure are not shown)\n"
    )
    await stage.die(
        job_id,
        Cause.EXCEPTION,
        "ProviderUnavailableError: the provider is out of reach: connection refused",
        ("the provider does not answer, attempt 5 of 5",),
        traceback=trace,
        place="/srv/agents/review.py:27, in review",
    )


async def leader_change_in_the_middle(stage: Stage, job_id: str) -> None:
    message = await stage.begin(job_id)
    await stage.passes(20)
    await stage.advances(job_id, "worker-3", 140, 0.3)
    await stage.kill("m-1")
    stage.manager_now = await stage.led("m-2")
    await stage.passes(20)
    await stage.settle(job_id, message, result=msgspec.Raw(b"1"))


async def unknown_version(stage: Stage, job_id: str) -> None:
    later = (ServedWorkflow(name="encode", version="2"),)
    await stage.report("worker-9", serves=offer_digest(LANES, later), workflows=later)
    await stage.report("worker-9", leaving=True)  # a version that nobody ever served is refused at the door
    await stage.submit(job_id, version="2")
    await stage.passes(15)


Story = Callable[[Stage, str], Awaitable[None]]
DISASTERS: dict[str, tuple[Story, str, str]] = {
    "stall-in-c": (stall_in_c, "Tenure killed it", "ctx.silence"),
    "out-of-memory": (out_of_memory, "The kernel killed it for memory", "more memory"),
    "segfault": (segfault, "Native code crashed its process", "extension"),
    "evicted-worker": (evicted_worker, "Its worker was evicted", "tenure nodes"),
    "poison-argument": (poison_argument, "Its arguments do not fit", "Submit it with others"),
    "engine-full": (engine_full, "could not be handed over", "tenure doctor"),
    "deadline-missed": (deadline_missed_by_three_seconds, "Its deadline passed", "more time"),
    "cancelled-by-a-gate": (cancelled_by_a_gate, "A cancel at the gate ended it", "tenure retry"),
    "dead-provider": (dead_provider, "The provider of the model failed it", "the provider's status"),
    "leader-change": (leader_change_in_the_middle, "m-2 took over the lead while it ran", "tenure result"),
    "lost-lease": (lost_lease_of_a_stopped_machine, "worker-6 lost the lease", "tenure watch"),
    "unknown-version": (unknown_version, "waits for", "tenure worker"),
}
"""Maps each disaster to its story, words of the answer to "who ended it", and words of the next step. The order is the one in which one datacenter can have them all."""
