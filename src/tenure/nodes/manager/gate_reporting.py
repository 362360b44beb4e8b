"""Decides when a leader reports its jobs to their gates: progress every 10 s, timeouts and ends at once, and a new leader first of all.

It is a leader's side of `GateCoordinatedTimeout`. The rules for timeouts are in `jobs`: a local timeout waits for the gate, falls back after
300 s, and a new leader reports it again. Each gate cluster has its own courier, so that a cluster that hangs holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from tenure.control.async_caller import AsyncCaller
from tenure.jobs import Decision
from tenure.jobs.deadlines import LeaderElected, LocalTimeoutReported
from tenure.jobs.endings import JobEnded
from tenure.jobs.messages import Identity
from tenure.jobs.model import JobInfo
from tenure.nodes.loop_keeper import FailedOn
from tenure.nodes.manager.gate_courier import Courier
from tenure.nodes.manager.leader import DatacenterLeader, LeaderPart

AT_ONCE = (LocalTimeoutReported, JobEnded)
"""The events that a gate must learn at once. The arrival of a job is none: the answer to its submission tells it."""


def gate_addresses(info: JobInfo) -> tuple[str, ...]:
    """Returns the addresses of a job's gates; empty for a job that no gate submitted."""
    submission = info.job.submission
    if submission.gate_addr is None:
        return ()
    return tuple(f"{host}:{port}" for host, port in (submission.gate_addr, *submission.gate_addrs))


def _owe(job_id: str, soon: bool, courier: Courier) -> None:
    courier.owe(job_id, soon=soon)


class GateReporting(LeaderPart):
    """Runs one courier for each gate cluster."""

    def __init__(self, leader: DatacenterLeader, caller: AsyncCaller, identity: Identity) -> None:
        self._leader, self._caller, self._identity = leader, caller, identity
        self._couriers: dict[tuple[str, ...], Courier] = {}
        self._tasks: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._failed: asyncio.Future[None] | None = None
        """Set while `run` runs. The exception that ends a courier fails it, and so ends `run`."""
        self._previous = ""
        """The name of the previous leader, once the history of some job told it."""

    async def run(self) -> None:
        self._failed = asyncio.get_running_loop().create_future()
        try:
            self._introduce()
            await self._failed
        finally:
            tasks, self._tasks, self._couriers, self._failed = list(self._tasks.values()), {}, {}, None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        """Makes the reports of these jobs due: at once after a timeout or an end, else within an interval."""
        soon = any(isinstance(event, AT_ONCE) for event in decision.events)
        for job_id in job_ids:
            info = self._leader.ledger.book.jobs.get(job_id)
            if info is not None and not (info.state.terminal and info.gate_acked):
                self._with_courier(info, partial(_owe, job_id, soon))

    def _introduce(self) -> None:
        """Tells every gate, before anything else, that this node leads now and where each job stands."""
        owed = [
            info for info in self._leader.ledger.book.jobs.values() if not (info.state.terminal and info.gate_acked)
        ]
        for info in owed:
            self._with_courier(info, partial(self._introduce_job, info))

    def _introduce_job(self, info: JobInfo, courier: Courier) -> None:
        # A takeover has one predecessor: the first history that names it is enough.
        self._previous = self._previous or self._before(info)
        courier.introduce(info.id, self._previous)

    def _before(self, info: JobInfo) -> str:
        """Returns the previous leader by the history of a job, for people; empty when the history does not name it."""
        for event in reversed(self._leader.ledger.book.history(info.id)):
            if isinstance(event, LeaderElected):
                return str(event.evidence.get("previous_leader", ""))
        return ""

    def _with_courier(self, info: JobInfo, tell: Callable[[Courier], None]) -> None:
        """Calls `tell` with the courier of one job's gates. An exception concerns the reports of this job, and no other."""
        try:
            courier = self._courier(info)
            if courier is not None:
                tell(courier)
        except Exception as error:
            self._leader.keeper.failures.note(FailedOn.GATE, info.id, "reporting it to its gate", error)

    def _courier(self, info: JobInfo) -> Courier | None:
        addresses = gate_addresses(info)
        if not addresses or self._failed is None:
            return None
        courier = self._couriers.get(addresses)
        if courier is None:
            courier = self._couriers[addresses] = Courier(addresses, self._caller, self._leader, self._identity)
            task = asyncio.create_task(self._leader.keeper.keep("gate reports", courier.run))
            task.add_done_callback(self._ended)
            self._tasks[addresses] = task
        return courier

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Ends `run` when a courier raised. A courier runs for the whole term and raises only when the leader is deposed."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
