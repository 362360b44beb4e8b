"""Managers that lead in turn, workers that play scripted workflows, clients that submit, retry and cancel.

The managers are the real ones (`nodes.candidacy` over `nodes.leader` over `jobs`). The observer folds the journal himself, entry by entry, and
checks what was promised: no job is lost, none ends twice, none runs past its deadline by more than a stated bound, a cancelled one is not
completed afterwards, and no two workers hold one piece of work at one time.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec

from tenure.engines.contracts import Mailbox
from tenure.errors import DeposedError, EngineError, ReceiptHandleExpiredError, TenureError
from tenure.jobs import CancelJob, JobBook, JobSubmission, SubmitJob
from tenure.jobs.model import RetryPolicy, WorkflowSpec
from tenure.jobs.states import JobState
from tenure.nodes.candidacy import JOURNAL, Candidacy
from tenure.sim.faults import FaultKind, FaultProfile
from tenure.sim.node import Host
from tenure.sim.scenario import Scenario
from tenure.sim.world import World
from tenure.work.envelope import Cause, WorkFailure, WorkItem, WorkResult

MANAGERS = ("m1", "m2")
WORKERS = ("w1", "w2")
CLIENTS = ("x", "y")
TTL_S = 2.0
TIMEOUT_S = 14.0
LEASE_S = 2.0
LATE_S = 12.0
"""How long after its deadline a job may end at the latest: two terms, a drained mailbox, and the longest fault."""


class Datacenter(Scenario):
    """Forty seconds, of which the last eighteen are quiet: then everything that was accepted has ended."""

    duration_s = 40.0
    faults = FaultProfile(
        kinds=(
            *(FaultKind.CRASH, FaultKind.REBOOT, FaultKind.STALL, FaultKind.SUSPEND, FaultKind.SKEW, FaultKind.DRIFT),
            *(FaultKind.PARTITION, FaultKind.SPLIT, FaultKind.ONE_WAY, FaultKind.DELAY, FaultKind.BREAK),
            *(FaultKind.ENGINE_OUTAGE, FaultKind.ENGINE_REFUSES, FaultKind.ENGINE_FORGETS),
            *(FaultKind.ENGINE_LATE, FaultKind.ENGINE_SLOW),
        ),
        most=6,
        until_s=14.0,
        duration_s=(0.3, 6.0),
    )
    submit_until_s: ClassVar[float] = 16.0
    candidacy: ClassVar[type[Candidacy]] = Candidacy

    def __init__(self) -> None:
        self.accepted: dict[str, float] = {}
        """Jobs that a client was told are accepted, and when."""
        self.cancelled: set[str] = set()
        self.book = JobBook()
        self._seq = 0
        self._ended: dict[str, JobState] = {}
        self._holding: dict[str, tuple[str, float]] = {}

    def setup(self, world: World) -> None:
        self._world = world
        self._journal = world.backend.engine.journal(JOURNAL)
        for name in MANAGERS:
            world.node(name, self._manage).start()
        for name in WORKERS:
            world.node(name, self._work).start()
        for name in CLIENTS:
            world.node(name, self._ask).start()

    # Managers

    async def _manage(self, host: Host) -> None:
        node = self.candidacy(
            host.name,
            host.engine,
            host.calls,
            clock=host.clock,
            random=host.random,
            ids=host.ids,
            ttl_s=TTL_S,
            say=host.record,
        )

        async def serve(sender: str, message: Any) -> Any:
            verb, body = message
            command: SubmitJob | CancelJob
            if verb == "submit":
                command = SubmitJob(by=sender, submission=msgspec.json.decode(body, type=JobSubmission))
            else:
                command = CancelJob(by=sender, job_id=body)
            try:
                return (await node.submit(command)).outcome.value
            except DeposedError:
                return "not leading"

        host.transport.serve(serve)
        await node.run()

    # Workers

    async def _work(self, host: Host) -> None:
        mailbox: Mailbox[WorkItem, WorkResult] = host.engine.mailbox("default.p0", WorkItem, WorkResult)
        while True:
            try:
                for message in await host.calls.run(mailbox.receive, 1, LEASE_S, 2.0):
                    await self._play(host, message)
            except EngineError:
                await asyncio.sleep(0.2)

    async def _play(self, host: Host, message: Any) -> None:
        """A workflow by its script: so many steps of work, each kept alive by an extension, then a result, a failure or a hang."""
        item: WorkItem = message.body
        steps, ends = item.args["steps"], item.args["ends"]
        failure = None
        try:
            for _ in range(steps):
                self._hold(host, message)
                await asyncio.sleep(0.4)
                await host.calls.run(message.extend_visibility, LEASE_S)
            if ends == "hang" and item.attempt == 1:
                return  # no beat, no settlement: the lease runs out, and another delivery comes
            if ends == "fail" and item.attempt == 1:
                failure = WorkFailure(cause=Cause.EXCEPTION, reason="scripted")
            result = WorkResult(
                job_id=item.job_id,
                workflow_id=item.workflow_id,
                workflow=item.workflow,
                attempt=item.attempt,
                fence=message.fence,
                worker=host.id,
                failure=failure,
            )
            await host.calls.run(message.settle, result)
        except (ReceiptHandleExpiredError, EngineError):
            host.record(f"{item.job_id} attempt {item.attempt} was lost")
        except TenureError as error:
            host.record(f"{item.job_id}: {error}")

    def _hold(self, host: Host, message: Any) -> None:
        """While a worker may trust its lease by its own clock, nobody else does."""
        if host.clock.boottime() >= message.lease_until:
            return
        now = self._world.now
        left = message.lease_until - host.clock.boottime()
        holder, until = self._holding.get(message.id, ("", 0.0))
        # A drifting clock may count a little long: the engine gives no such promise, the margin of the holder does.
        self.require(
            holder in ("", host.id) or now >= until - 0.1 * LEASE_S,
            f"{message.body.job_id} is held by {holder} until {until:.3f} and by {host.id} at {now:.3f}",
        )
        self._holding[message.id] = (host.id, now + left)

    # Clients

    async def _ask(self, host: Host) -> None:
        number, order = 0, list(MANAGERS)
        while self._world.now < self.submit_until_s:
            number += 1
            job_id = f"{host.id}-{number}"
            script = {"steps": host.random.randint(1, 4), "ends": host.random.choice(["well", "well", "fail", "hang"])}
            spec = WorkflowSpec(
                name="w", arguments=script, retry=RetryPolicy(max_attempts=3, delay=0.2, max_delay=1.0, jitter=0.0)
            )
            submission = JobSubmission(
                job_id=job_id, workflows=(spec,), timeout_seconds=TIMEOUT_S, stuck_threshold=TIMEOUT_S - 1.0
            )
            await self._until_done(host, order, ("submit", msgspec.json.encode(submission)))
            self.accepted.setdefault(job_id, self._world.now)
            if host.random.random() < 0.2:
                await self._until_done(host, order, ("cancel", job_id))
                self.cancelled.add(job_id)
            await asyncio.sleep(host.random.uniform(0.5, 2.0))
        await asyncio.Event().wait()

    async def _until_done(self, host: Host, order: list[str], message: Any) -> None:
        while True:
            try:
                reply = await host.transport.request(order[0], message, timeout=1.0)
            except (TimeoutError, ConnectionError):
                reply = "no answer"
            if reply in ("accepted", "already"):
                return
            order.append(order.pop(0))
            await asyncio.sleep(0.1 + 0.2 * host.random.random())

    # What must hold

    def check(self, world: World) -> None:
        if self._journal.head().seq == self._seq:
            return
        for entry in self._journal.read(self._seq):
            self.require(entry.seq == self._seq + 1, f"entry {entry.seq} follows {self._seq}")
            self._seq = entry.seq
            self.book.replay(entry.events)
        for job_id, info in self.book.jobs.items():
            if not info.state.terminal:
                continue
            before = self._ended.setdefault(job_id, info.state)
            self.require(before is info.state, f"{job_id} ended as {before} and then as {info.state}")

    def finish(self, world: World) -> None:
        for job_id, at in self.accepted.items():
            info = self.book.jobs.get(job_id)
            self.require(info is not None, f"{job_id} was accepted at {at:.3f} and is not known")
            assert info is not None
            late = world.now - at > TIMEOUT_S + LATE_S
            self.require(
                info.state.terminal or not late, f"{job_id}, accepted at {at:.3f}, is {info.state} after its time"
            )
            if job_id in self.cancelled:
                self.require(info.state.terminal, f"{job_id} was cancelled and is {info.state}")
