"""A datacenter on the memory engine and a manual clock, and the gates that it reports to, which say what a test tells them to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.nodes.manager.harness import Office, ask, submission

from tenure.control.messages.gates import DatacenterSaid, DatacenterWord, GateHeard, GateWord, TellDatacenter, TellGate
from tenure.control.messages.wire import Reply, Request
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.errors import NodeUnavailableError
from tenure.jobs.messages import JobLeaderTransfer, JobProgressReport, JobReportAck, JobTimeoutReport
from tenure.jobs.model import JobSubmission
from tenure.nodes.manager.leader import JobLeadership
from tenure.nodes.manager.manager import Manager


class Gates:
    """An `AsyncCaller` at whose other end gates take what they are told."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.heard: list[tuple[float, str, DatacenterWord]] = []
        """When, at which address, what."""
        self.batches: list[int] = []
        self.asked: list[tuple[float, str]] = []
        """Also of those that are away."""
        self.away: set[str] = set()
        self.hung: set[str] = set()
        self.epoch = 1
        self.acknowledges = True

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        assert isinstance(request, TellGate)
        self.asked.append((self._now(), address))
        if address in self.hung:
            await asyncio.Event().wait()
        if address in self.away:
            raise NodeUnavailableError(f"{address} did not answer")
        self.batches.append(len(request.words))
        self.heard += [(self._now(), address, word) for word in request.words]
        return GateHeard(acks=tuple(self._ack(word) for word in request.words if self.acknowledges))

    def _ack(self, word: DatacenterWord) -> JobReportAck:
        status = word.status if isinstance(word, JobProgressReport) else "running"
        return JobReportAck(
            job_id=word.job_id,
            datacenter=word.datacenter,
            status=status,
            fence_token=word.fence_token,
            gate_epoch=self.epoch,
        )

    def said(self, kind: type[Any], job_id: str = "j-1") -> list[Any]:
        """The words of one kind about a job, in order."""
        return [word for _, _, word in self.heard if isinstance(word, kind) and word.job_id == job_id]

    def times(self, job_id: str = "j-1", kind: type[Any] = JobProgressReport) -> list[float]:
        """When they were heard."""
        return [at for at, _, word in self.heard if isinstance(word, kind) and word.job_id == job_id]


class Branch(Office):
    """Managers that gates submit to."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = Gates(self.clock.monotonic)

    def open(self, name: str, *, setup: dict[str, Any] | None = None, **settings: Any) -> tuple[Manager, JobLeadership]:
        manager = self.made(name, gates=self.gates, setup={"datacenter": "a", **(setup or {})}, **settings)
        self.start(name, manager)
        return manager, manager.leadership

    async def led(self, name: str = "m-1", **settings: Any) -> Manager:
        manager, _ = self.open(name, **settings)
        await self.until(lambda: manager.leads)
        return manager

    async def passes(self, seconds: float, step: float = 0.25) -> None:
        """Time, in steps that everybody keeps up with."""
        for _ in range(round(seconds / step)):
            await self.rest()
            self.clock.advance(step)
        await self.rest()

    def works(self, manager: Manager, job_id: str = "j-1", *, advances: bool = True) -> None:
        """A worker runs the job and says so every five seconds, for as long as the test lasts."""
        self.tasks[f"worker of {job_id}"] = asyncio.create_task(self._work(manager, job_id, advances))

    async def _work(self, manager: Manager, job_id: str, advances: bool) -> None:
        steps, silent_s = 1, 0.0
        while True:
            one = AttemptReport(
                job_id=job_id, workflow="encode", attempt=1, delivery=1, steps=steps, silent_s=silent_s, stall_s=600.0
            )
            await ask(manager, WorkerReport(worker="w-1", attempts=(one,)))
            await self.clock.async_sleep(5.0)
            steps, silent_s = (steps + 1, 0.0) if advances else (steps, silent_s + 5.0)

    async def rest(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)


def run(story: Callable[[Branch], Any]) -> None:
    async def main() -> None:
        branch = Branch()
        try:
            await story(branch)
        finally:
            await branch.end()

    asyncio.run(main())


def from_gate(job_id: str = "j-1", *, gates: tuple[str, ...] = ("g-1", "g-2"), **options: Any) -> JobSubmission:
    """As a gate submits it: with where its managers report."""
    first, *others = ((gate, 8480) for gate in gates)
    given = {"gate_epoch": 1, "target_datacenters": ("a", "b"), "timeout_seconds": 600.0, **options}
    return submission(job_id, gate_addr=first, gate_addrs=tuple(others), **given)


async def tell(
    manager: Manager, *submissions: JobSubmission, words: tuple[GateWord, ...] = (), datacenter: str = "a"
) -> Any:
    """What the manager answers a gate."""
    return await ask(manager, TellDatacenter(datacenter=datacenter, submissions=submissions, words=words))


__all__ = [
    "Branch",
    "DatacenterSaid",
    "Gates",
    "JobLeaderTransfer",
    "JobProgressReport",
    "JobTimeoutReport",
    "ask",
    "from_gate",
    "run",
    "tell",
]
