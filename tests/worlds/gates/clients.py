"""Who asks: bursts of submissions, cancels soon and late, and, when all is over, what every node says of every job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeVar

from tenure.backoff import Retry
from tenure.control.async_caller import Route
from tenure.control.messages.jobs import Cancel, Done, JobList, ListJobs, ManySubmitted, Submit, SubmitMany
from tenure.control.messages.wire import Reply, Request
from tenure.errors import NodeUnavailableError
from tenure.jobs.decisions import Outcome
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import LEAST_GRACE_S
from tenure.randomness import Random
from tenure.sim.world import Host
from tests.worlds.gates.cast import Plan
from tests.worlds.gates.hands import End
from tests.worlds.planes import SimCaller

ANSWER_S = 2.0
IMPATIENCE_S = (0.001, 0.03)
"""How long somebody waits who gives up while the answer is being written down, and asks again."""
LARGEST_BURST = 40
CANCELLED_SHARE = 0.12
LISTED = 1_000
TIMEOUTS_S = (2.0, 3.0, 4.5)
"""Few, so that the deadlines of a burst come in bursts too."""
EARNING = 5
"""Every so many-th job can earn time past its deadline. The others end to the moment, also where no datacenter can be heard."""
PATIENT_SHARE, PATIENCE_S = 0.004, 15.0
"""Jobs that hang and have time: the gates see that they are stuck everywhere before anybody's time is over."""

ReplyT = TypeVar("ReplyT", bound=Reply)


class Onlooker(Protocol):
    """Who is told what clients were told, and may object."""

    def accepted(self, submission: JobSubmission) -> None: ...

    def cancelled(self, job_id: str) -> None: ...

    def objects(self, why: str) -> None: ...


def bursts(random: Random, jobs: int) -> list[int]:
    """So many jobs, in groups of one to `LARGEST_BURST`."""
    sizes: list[int] = []
    while jobs:
        sizes.append(min(jobs, random.choice([1, 10, 20, LARGEST_BURST, LARGEST_BURST])))
        jobs -= sizes[-1]
    return sizes


class Client:
    """Asks any gate, and another when that one does not answer; everything may be asked again."""

    def __init__(self, host: Host, plan: Plan, onlooker: Onlooker, *, impatient_share: float = 0.0) -> None:
        """`impatient_share`: of its requests, those that it hangs up on in the middle."""
        self._host, self._plan, self._onlooker, self._random = host, plan, onlooker, host.random
        self._impatient_share = impatient_share
        self._caller = SimCaller(host)

    async def ask_for(self, jobs: int, until_s: float) -> None:
        """All jobs are accepted, and what was to be cancelled is cancelled."""
        number, groups = 0, []
        for size in bursts(self._random, jobs):
            groups.append([f"j{number + offset}" for offset in range(size)])
            number += size
        await asyncio.gather(*(self._burst(group, until_s) for group in groups))

    async def _burst(self, job_ids: Sequence[str], until_s: float) -> None:
        random = self._random
        await asyncio.sleep(random.uniform(0.1, until_s))
        # The gate's own choice needs datacenters that it has heard of; the others wait for those that they name.
        chosen = random.random() < 0.15
        jobs = [submission(random, self._plan, job_id, chosen=chosen) for job_id in job_ids]
        doomed = [job.job_id for job in jobs if random.random() < CANCELLED_SHARE]
        cancels = [self.cancel(doomed[:1], random.uniform(0.0, 0.05), jobs)] if random.random() < 0.2 else []
        submits = self.submit_all(jobs) if random.random() < 0.8 else self._submit_each(jobs[:4], jobs[4:])
        await asyncio.gather(submits, *cancels)
        half = len(doomed) // 2
        await asyncio.gather(
            self.cancel(doomed[:half], random.uniform(0.0, 1.0)), self.cancel(doomed[half:], random.uniform(0.0, 5.0))
        )

    async def submit_all(self, jobs: Sequence[JobSubmission]) -> None:
        if not jobs:
            return
        reply = await self._until_answered(SubmitMany(submissions=tuple(jobs)), ManySubmitted)
        for job, said in zip(jobs, reply.jobs, strict=True):
            if said.outcome not in (Outcome.ACCEPTED, Outcome.ALREADY):
                self._onlooker.objects(f"{job.job_id} was {said.outcome}: {said.reason}")
            self._onlooker.accepted(job)

    async def _submit_each(self, single: Sequence[JobSubmission], rest: Sequence[JobSubmission]) -> None:
        await asyncio.gather(*map(self.submit_one, single), self.submit_all(rest))

    async def submit_one(self, job: JobSubmission) -> None:
        await self._until_answered(Submit(submission=job), Done)
        self._onlooker.accepted(job)

    async def cancel(self, job_ids: Sequence[str], after_s: float, before: Sequence[JobSubmission] = ()) -> None:
        """`before`: it may overtake the submission of these jobs, and stands all the same."""
        if not job_ids:
            return
        await asyncio.sleep(after_s)
        for job_id in job_ids:
            await self._until_answered(Cancel(job_id=job_id, reason="enough", by="client"), Done)
            self._onlooker.cancelled(job_id)

    async def _until_answered(self, request: Request, wanted: type[ReplyT]) -> ReplyT:
        route = Route(self._caller, self._plan.gates)
        while True:
            route.preferred = self._random.choice(self._plan.gates)
            try:
                reply = await route.ask(request, self._patience())
            except NodeUnavailableError:
                await asyncio.sleep(0.2 + 0.5 * self._random.random())
                continue
            if isinstance(reply, wanted):
                return reply
            self._onlooker.objects(f"a gate answered {type(request).__name__} with {reply}")

    def _patience(self) -> float:
        hurried = bool(self._impatient_share) and self._random.random() < self._impatient_share
        return self._random.uniform(*IMPATIENCE_S) if hurried else ANSWER_S

    async def listed(self, address: str) -> JobList | None:
        """What one node says of all jobs that it knows; None where it does not answer."""
        try:
            reply = await self._caller.ask(address, ListJobs(limit=LISTED), ANSWER_S)
        except NodeUnavailableError:
            return None
        return reply if isinstance(reply, JobList) else None


def submission(random: Random, plan: Plan, job_id: str, *, chosen: bool) -> JobSubmission:
    """In one datacenter, in some, in all; ends well, fails, hangs, or takes longer than it may."""
    names = list(plan.managers)
    count = random.choice([1, 1, 1, 1, 2, 2, 3, len(names)])
    targets = () if chosen else tuple(sorted(random.sample(names, count)))
    ends = random.choice([End.WELL] * 6 + [End.FAIL, End.HANG])
    steps = random.choice([1, 1, 1, 2, 2, 3, 12])
    timeout_s, stuck_share = random.choice(TIMEOUTS_S), random.choice([0.5, 0.9])
    if random.random() < PATIENT_SHARE:
        timeout_s, stuck_share, ends = PATIENCE_S, 0.95, End.HANG
    spec = WorkflowSpec(
        name="w",
        arguments={"steps": steps, "ends": ends.value},
        retry=Retry(max_attempts=2, delay=0.2, max_delay=1.0, jitter=0.0),
    )
    return JobSubmission(
        job_id=job_id,
        workflows=(spec,),
        timeout_seconds=timeout_s,
        stuck_threshold=timeout_s * stuck_share,
        target_datacenters=targets,
        datacenters=1,
        grace=LEAST_GRACE_S if int(job_id[1:]) % EARNING == 0 else 0.0,
    )
