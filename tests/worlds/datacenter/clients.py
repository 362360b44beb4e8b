"""Clients of a simulated datacenter: submit, submit again, cancel, ask; by the rules of the real client, over several addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from tenure.backoff import Retry
from tenure.control.caller import Ask, Directory
from tenure.control.messages.jobs import AskWhy, Cancel, Done, GetJob, JobView, Submit
from tenure.control.messages.wire import Reply, Request
from tenure.errors import NodeUnavailableError, UnknownJobError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import OnFailure
from tenure.randomness import Random
from tenure.sim.world import Host
from tests.worlds.datacenter.plays import Play
from tests.worlds.datacenter.times import TIMEOUT_S
from tests.worlds.planes import SimCaller

RETRY = Retry(max_attempts=3, delay=0.2, max_delay=1.0, jitter=0.0)
WELL = (Play.ADVANCE, Play.ADVANCE, Play.ADVANCE, Play.LONG, Play.SLOW, Play.SILENCE)
BADLY = tuple(play for play in Play if play not in (*WELL, Play.HELPED, Play.REPEAT))
"""The two that are left out last longer than a run; `tests/process/slots/test_attempt_stories.py` plays them."""


class Audience(Protocol):
    """Who is told what clients were told, and may object."""

    def accepted(self, job_id: str, done: Done) -> None:
        """A submission was answered."""

    def cancelled(self, job_id: str) -> None:
        """A cancel was answered."""

    def shown(self, view: JobView) -> None:
        """A job was shown."""

    def denied(self, job_id: str) -> None:
        """A node said that there is no such job."""


class ScriptedClient:
    """Submits until a moment, one job after the other, and retries each for as long as it takes."""

    def __init__(self, host: Host, addresses: Sequence[str], audience: Audience) -> None:
        self._host, self._random, self._audience = host, host.random, audience
        self._caller = SimCaller(host)
        options: Any = {"patience_s": 300.0, "random": host.random, "monotonic": host.clock.monotonic}
        self._directory = Directory(addresses, **options)
        self._readers = Directory(addresses[::-1], **options)
        """Reads begin elsewhere, so that standbys are asked too."""
        self._number = 0

    async def submit_one(self) -> None:
        """Submit a job that has all the time in the world, and nothing more."""
        self._number += 1
        spec = WorkflowSpec(name="a", function="scripted", arguments={"plays": [Play.ADVANCE]})
        job_id = f"{self._host.id}-{self._number}"
        submit = Submit(submission=JobSubmission(job_id=job_id, workflows=(spec,)))
        self._audience.accepted(job_id, await self._done(submit))

    def _next(self) -> Submit:
        self._number += 1
        return Submit(submission=submission(f"{self._host.id}-{self._number}", self._random))

    async def one_job(self) -> None:
        """Submit a job and do with it what clients do."""
        chance, submit = self._random.random, self._next()
        job_id = submit.submission.job_id
        if chance() < 0.05:
            await self._cancel(job_id)  # a cancel that overtakes its submission
        self._audience.accepted(job_id, await self._done(submit))
        if chance() < 0.15:
            await self._nap(0.5)
            self._audience.accepted(job_id, await self._done(submit))
        if chance() < 0.15:
            await self._nap(1.5)
            await self._cancel(job_id)
        if chance() < 0.3:
            await self._nap(1.0)
            await self._look(job_id)

    async def ask(self, request: Request) -> Reply:
        """Asks whoever leads, for as long as it takes."""
        return await self._ask(request, self._directory)

    async def _done(self, request: Request) -> Done:
        reply = await self._ask(request, self._directory)
        assert isinstance(reply, Done), f"{request} was answered with {reply}"
        return reply

    async def _cancel(self, job_id: str) -> None:
        await self._done(Cancel(job_id=job_id, reason="scripted", by=self._host.id))
        self._audience.cancelled(job_id)

    async def _look(self, job_id: str) -> None:
        try:
            if self._random.random() < 0.3:
                await self._ask(AskWhy(job_id=job_id), self._readers)
                return
            wait_s = 2.0 * self._random.random()
            reply = await self._ask(GetJob(job_id=job_id, wait_s=wait_s), self._readers, wait_s)
        except UnknownJobError:
            self._audience.denied(job_id)
            return
        if isinstance(reply, JobView):
            self._audience.shown(reply)

    async def _nap(self, most: float) -> None:
        await asyncio.sleep(most * self._random.random())

    async def _ask(self, request: Request, directory: Directory, wait_s: float = 0.0) -> Reply:
        """Drive the search that the real clients drive."""
        search = directory.search(request, wait_s)
        answer: Reply | NodeUnavailableError | None = None
        while True:
            try:
                step = search.send(answer)
            except StopIteration as found:
                reply: Reply = found.value
                return reply
            if isinstance(step, Ask):
                try:
                    answer = await self._caller.ask(step.address, request, step.timeout)
                except NodeUnavailableError as error:
                    answer = error
            else:
                await asyncio.sleep(step.seconds)
                answer = None


def submission(job_id: str, random: Random) -> JobSubmission:
    """A job of one to three workflows, most of which go well in the end."""
    shape = random.choice(["one", "one", "one", "pair", "chain"])
    names = ("a",) if shape == "one" else ("a", "b")
    specs = tuple(
        WorkflowSpec(
            name=name,
            function="scripted",
            arguments=script(random),
            after=("a",) if shape == "chain" and name == "b" else (),
            on_failure=random.choice([OnFailure.FAIL, OnFailure.CONTINUE]),
            retry=RETRY,
        )
        for name in names
    )
    timeout = random.choice([0.4 * TIMEOUT_S, TIMEOUT_S, TIMEOUT_S, 1.5 * TIMEOUT_S])
    return JobSubmission(
        job_id=job_id,
        workflows=specs,
        timeout_seconds=timeout,
        stuck_threshold=0.6 * timeout,
        idempotency_key=f"key/{job_id}",
        delay=random.choice([0.0, 0.0, 0.0, 0.5]),
        grace=0.0,
    )


def script(random: Random) -> dict[str, object]:
    """What each attempt does: well at once, or badly once or twice before."""
    plays = [random.choice(BADLY) for _ in range(random.choice([0, 0, 0, 1, 1, 2, 3]))] + [random.choice(WELL)]
    found: dict[str, object] = {"plays": [play.value for play in plays], "steps": random.randint(1, 4)}
    if random.random() < 0.3:
        found["stall"] = 10.0  # longer than the lease: the lease is what a hang loses first
    if random.random() < 0.5:
        found["cooperates"] = True
    return found
