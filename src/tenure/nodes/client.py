"""A client of a datacenter: knows several managers, follows the leader, asks again until it has an answer.

Every request may be repeated, so a submission that was retried through a failover, or whose answer was lost, is one job.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from tenure.clock import Clock, SystemClock
from tenure.errors import ConfigurationError, JobNotEndedError, NodeRefusedError, NodeUnavailableError, UnknownJobError
from tenure.ids import IdSource, new_id
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import JobState
from tenure.nodes.calling import Caller, parse_address
from tenure.nodes.messages import (
    AskLeader,
    AskWhy,
    Cancel,
    Done,
    GetJob,
    JobList,
    JobView,
    LeaderView,
    ListJobs,
    Problem,
    ProblemKind,
    Redirect,
    Submit,
    WhyReply,
)
from tenure.nodes.wire import Reply, Request
from tenure.randomness import fresh_random

ANSWER_S = 5.0
"""How long one node may take for one answer, beyond what it was asked to wait."""
POLL_S = 10.0

ReplyT = TypeVar("ReplyT")


class Client:
    """Talks to the managers of one datacenter. Not for several threads at once."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        token: str = "",
        patience_s: float = 60.0,
        clock: Clock | None = None,
        random: Random | None = None,
        ids: IdSource = new_id,
    ) -> None:
        if not addresses:
            raise ConfigurationError("no manager is named", remedy="Give at least one address, as 127.0.0.1:8470")
        for address in addresses:
            parse_address(address)
        self._addresses, self._patience_s = list(addresses), patience_s
        self._clock, self._random, self._ids = clock or SystemClock(), random or fresh_random(), ids
        self._caller = Caller(token=token)
        self._preferred = self._addresses[0]

    # What can be asked

    def submit(
        self, workflow: str, arguments: dict[str, Any] | None = None, *, job_id: str = "", **options: Any
    ) -> str:
        """Submit a job of one workflow; its id. Give a `job_id` of your own, and the same call is the same job for ever."""
        spec = WorkflowSpec(name=workflow.replace("/", "_"), function=workflow, arguments=arguments or {})
        job_id = job_id or f"{spec.name}-{self._ids()[:16]}"
        return self.submit_job(JobSubmission(job_id=job_id, workflows=(spec,), **options)).job_id

    def submit_job(self, submission: JobSubmission) -> Done:
        """Once it returns, the job is durable. Retried with the same id until somebody says so."""
        return self._expect(Done, Submit(submission=submission))

    def cancel(self, job_id: str, reason: str = "", *, by: str = "") -> Done:
        return self._expect(Done, Cancel(job_id=job_id, reason=reason, by=by))

    def job(self, job_id: str, *, wait_s: float = 0.0) -> JobView:
        """How it stands; with `wait_s`, answered as soon as it has ended."""
        return self._expect(JobView, GetJob(job_id=job_id, wait_s=wait_s), wait_s)

    def jobs(self, *, state: JobState | None = None, limit: int = 100) -> JobList:
        return self._expect(JobList, ListJobs(state=state, limit=limit))

    def why(self, job_id: str) -> WhyReply:
        return self._expect(WhyReply, AskWhy(job_id=job_id))

    def leader(self) -> LeaderView:
        """Who leads, in the words of the first node that answers."""
        return self._expect(LeaderView, AskLeader())

    def wait(self, job_id: str, timeout: float | None = None) -> JobView:
        """The job once it has ended. Raises `JobNotEndedError`, which is a `TimeoutError`."""
        begun = self._clock.monotonic()
        while True:
            left = POLL_S if timeout is None else begun + timeout - self._clock.monotonic()
            view = self.job(job_id, wait_s=max(0.0, min(left, POLL_S)))
            if view.ended:
                return view
            if timeout is not None and self._clock.monotonic() - begun >= timeout:
                raise JobNotEndedError(job_id, view.state, timeout)

    # How it is asked

    def _expect(self, kind: type[ReplyT], request: Request, wait_s: float = 0.0) -> ReplyT:
        reply = self.ask(request, wait_s)
        if not isinstance(reply, kind):
            raise NodeRefusedError("failed", f"a node answered a {type(request).__name__} with {type(reply).__name__}")
        return reply

    def ask(self, request: Request, wait_s: float = 0.0) -> Reply:
        """Ask until somebody answers for good; at most for our patience."""
        until = self._clock.monotonic() + self._patience_s + wait_s
        said: dict[str, str] = {}
        pause = 0.05
        while True:
            asked: set[str] = set()
            targets = [self._preferred, *self._addresses]
            while targets:
                address = targets.pop(0)
                if address in asked:
                    continue
                asked.add(address)
                reply = self._ask_one(address, request, wait_s, said)
                if isinstance(reply, Redirect):
                    targets.insert(0, reply.address)
                elif reply is not None:
                    self._preferred = address
                    return reply
                elif address == self._preferred:
                    # One that hangs costs its whole time: the next round begins with another.
                    self._preferred = self._random.choice(self._addresses)
            if self._clock.monotonic() >= until:
                words = "; ".join(f"{address}: {text}" for address, text in said.items())
                raise NodeUnavailableError(f"no manager answered within {self._patience_s:g} s ({words})")
            self._clock.sleep(self._random.uniform(pause / 2, pause))
            pause = min(1.0, pause * 2)

    def _ask_one(self, address: str, request: Request, wait_s: float, said: dict[str, str]) -> Reply | None:
        """None where another node, or another moment, may have an answer."""
        try:
            reply = self._caller.ask(address, request, ANSWER_S + wait_s)
        except NodeUnavailableError as error:
            said[address] = error.fact
            return None
        if isinstance(reply, Redirect):
            said[address] = f"says that {reply.address} leads"
        if not isinstance(reply, Problem):
            return reply
        if reply.retryable:
            said[address] = reply.fact
            return None
        if reply.kind is ProblemKind.UNKNOWN and isinstance(request, (GetJob, AskWhy)):
            raise UnknownJobError(request.job_id)
        raise NodeRefusedError(reply.kind, reply.fact, remedy=reply.remedy)

    def close(self) -> None:
        self._caller.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
