"""The client for programs that have an event loop: the same questions, awaited.

async with AsyncClient("127.0.0.1:8470") as tenure:
    job = await tenure.submit(encode, path="a.mov")
    print(await job.wait())
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast, overload

from tenure import tracing
from tenure.clock import Clock, SystemClock
from tenure.errors import JobFailed, JobNotEndedError, JobsFailed, LimitError, NodeRefusedError, NodeUnavailableError
from tenure.ids import IdSource, new_id
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import JobState
from tenure.jobs.why import Link
from tenure.nodes.calling.awaiting import HttpCaller
from tenure.nodes.calling.failover import Ask, Directory
from tenure.nodes.calling.tls import ClientTls
from tenure.nodes.client.bars import Bar
from tenure.nodes.client.batches import accepted, batches
from tenure.nodes.client.handles import ENDED, LONG_POLL_S, LOOK_EVERY_S, attempts_of, link_of, result_of
from tenure.nodes.messages.client import (
    AskLeader,
    AskWhy,
    Cancel,
    Done,
    GetJob,
    JobList,
    JobView,
    LeaderView,
    ListJobs,
    Submit,
    WhyReply,
)
from tenure.nodes.messages.event import EventPage, GetEvents
from tenure.nodes.messages.job import GetLogs, LogLine, LogPage, ManySubmitted, RetryJob, SubmitMany
from tenure.nodes.messages.wire import Reply, Request, placed
from tenure.randomness import fresh_random
from tenure.work.registry import Workflow
from tenure.work.submitting import Target, name_of, split, spread, submission_for, submitting, traced

ReplyT = TypeVar("ReplyT")
R = TypeVar("R")


class AsyncClient:
    """Talks to the managers of one datacenter, or to gates, from one event loop. Any number of tasks may ask at once."""

    default_queue = "default"

    def __init__(
        self,
        addresses: Sequence[str] | str = "127.0.0.1:8470",
        *,
        token: str = "",
        datacenter: str = "",
        tls: ClientTls | None = None,
        patience_s: float = 60.0,
        clock: Clock | None = None,
        random: Random | None = None,
        ids: IdSource = new_id,
    ) -> None:
        """`datacenter`, `tls`: see `Client`."""
        self._clock, self._ids, self._datacenter = clock or SystemClock(), ids, datacenter
        self._directory = Directory(
            addresses, patience_s=patience_s, random=random or fresh_random(), monotonic=self._clock.monotonic
        )
        self._caller = HttpCaller(token=token, tls=tls)

    # Running things

    @overload
    async def submit(
        self,
        workflow: Workflow[..., Coroutine[Any, Any, R]],
        arguments: Mapping[str, Any] | None = None,
        /,
        **options_and_arguments: Any,
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: Workflow[..., R], arguments: Mapping[str, Any] | None = None, /, **options_and_arguments: Any
    ) -> AsyncJob[R]: ...

    @overload
    async def submit(
        self, workflow: str, arguments: Mapping[str, Any] | None = None, /, **options_and_arguments: Any
    ) -> AsyncJob[Any]: ...

    async def submit(
        self, workflow: Target, arguments: Mapping[str, Any] | None = None, /, **options_and_arguments: Any
    ) -> AsyncJob[Any]:
        """Have a workflow run once; see `Client.submit`. When this returns, the job is durable."""
        options, found = split(workflow, options_and_arguments, arguments)
        submission = submission_for(workflow, found, options, self._ids, self.default_queue)
        return self._handle((await self.submit_job(submission)).job_id, workflow)

    async def submit_many(self, workflow: Target, inputs: Iterable[Any], /, **options: Any) -> list[AsyncJob[Any]]:
        """One job for each input: a dictionary of arguments, or the value of the workflow's first."""
        made = []
        for arguments in spread(workflow, inputs):
            given, found = split(workflow, options, arguments)
            made.append(submission_for(workflow, found, given, self._ids, self.default_queue))
        jobs = []
        for part in batches(made):
            with tracing.span(f"submit {len(part)} jobs", {}, kind="PRODUCER") as span:
                carried = tuple(traced(one, span.traceparent) for one in part)
                jobs += accepted(await self._expect(ManySubmitted, SubmitMany(submissions=carried)))
        return [self._handle(job_id, workflow) for job_id in jobs]

    async def map(
        self,
        workflow: Target,
        inputs: Iterable[Any],
        /,
        *,
        in_flight: int = 100,
        progress: bool = True,
        return_failures: bool = False,
        **options: Any,
    ) -> list[Any]:
        """Run a workflow over many inputs; the results, in their order. See `Client.map`."""
        if in_flight < 1:
            raise LimitError("in_flight", in_flight, "1 or more")
        given = spread(workflow, inputs)
        room, results = asyncio.Semaphore(in_flight), [None] * len(given)
        failures: dict[int, JobFailed] = {}

        async def one(place: int, arguments: dict[str, Any], bar: Bar) -> None:
            async with room:
                job = await self.submit(workflow, arguments, **options)
                try:
                    results[place] = await job.wait()
                except JobFailed as error:
                    failures[place] = error
                except asyncio.CancelledError:
                    await job.cancel("the map that submitted it was interrupted")
                    raise
                done[0] += 1
                bar.move(done[0], f"{len(failures)} failed" if failures else "")

        done = [0]
        label = f"{name_of(workflow)}, {len(given)} jobs" if progress else ""
        with Bar(label, total=max(1, len(given))) as bar:
            async with asyncio.TaskGroup() as group:
                for place, arguments in enumerate(given):
                    group.create_task(one(place, arguments, bar))
        if failures and not return_failures:
            raise JobsFailed(dict(sorted(failures.items())), cast("list[object]", results))
        return [failures.get(place, result) for place, result in enumerate(results)]

    async def submit_job(self, submission: JobSubmission) -> Done:
        """Submit a whole job. Retried with the same id until somebody has it."""
        with tracing.span(*submitting(submission), kind="PRODUCER") as span:
            return await self._expect(Done, Submit(submission=traced(submission, span.traceparent)))

    # Asking about them

    def get(self, job_id: str, workflow: Target | None = None) -> AsyncJob[Any]:
        """The handle of a job that was submitted by somebody else, or before."""
        return self._handle(job_id, workflow)

    async def cancel(self, job_id: str, reason: str = "", *, by: str = "") -> Done:
        return await self._expect(Done, Cancel(job_id=job_id, reason=reason, by=by))

    async def job(self, job_id: str, *, wait_s: float = 0.0) -> JobView:
        """How it stands; with `wait_s`, answered as soon as it has ended."""
        return await self._expect(JobView, GetJob(job_id=job_id, wait_s=wait_s), wait_s)

    async def jobs(self, *, state: JobState | None = None, limit: int = 100, **filters: Any) -> JobList:
        """The newest jobs. Filters: queue, name, function, label, since, until, after."""
        return await self._expect(JobList, ListJobs(state=state, limit=limit, **filters))

    async def retry(self, job_id: str, *, by: str = "") -> str:
        """Run an ended job once more, as a new job; its id."""
        return (await self._expect(Done, RetryJob(job_id=job_id, by=by))).job_id

    async def logs(self, job_id: str, *, workflow: str = "", attempt: int = 0, offset: int = 0) -> LogPage:
        """What an attempt logged, page by page; the newest attempt by default."""
        return await self._expect(LogPage, GetLogs(job_id=job_id, workflow=workflow, attempt=attempt, offset=offset))

    async def why(self, job_id: str) -> WhyReply:
        return await self._expect(WhyReply, AskWhy(job_id=job_id))

    async def events(
        self, job_id: str = "", after: str | None = None, *, queue: str = "", wait_s: float = 0.0
    ) -> EventPage:
        """What was decided after a cursor; see `Client.events`."""
        return await self._expect(EventPage, GetEvents(job_id=job_id, after=after, queue=queue, wait_s=wait_s), wait_s)

    async def leader(self) -> LeaderView:
        """Who leads, in the words of the first node that answers."""
        return await self._expect(LeaderView, AskLeader())

    # How it is asked

    def _handle(self, job_id: str, workflow: Target | None) -> AsyncJob[Any]:
        return AsyncJob(self, job_id, workflow if isinstance(workflow, Workflow) else None, self._clock)

    async def _expect(self, kind: type[ReplyT], request: Request, wait_s: float = 0.0) -> ReplyT:
        reply = await self.ask(request, wait_s)
        if not isinstance(reply, kind):
            raise NodeRefusedError("failed", f"a node answered a {type(request).__name__} with {type(reply).__name__}")
        return reply

    async def ask(self, request: Request, wait_s: float = 0.0) -> Reply:
        """Ask until somebody answers for good; at most for our patience."""
        request = placed(request, self._datacenter)
        search = self._directory.search(request, wait_s)
        heard: Reply | NodeUnavailableError | None = None
        while True:
            try:
                step = search.send(heard)
            except StopIteration as end:
                reply: Reply = end.value
                return reply
            heard = None
            if isinstance(step, Ask):
                try:
                    heard = await self._caller.ask(step.address, request, step.timeout)
                except NodeUnavailableError as error:
                    heard = error
            else:
                await self._clock.async_sleep(step.seconds)

    def close(self) -> None:
        self._caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncJob(Generic[R]):
    """A submitted job, awaited. `R` is what its workflow returns."""

    def __init__(self, client: AsyncClient, job_id: str, workflow: Workflow[..., Any] | None, clock: Clock) -> None:
        self._client, self.id, self._workflow, self._clock = client, job_id, workflow, clock

    async def wait(self, timeout: float | None = None, *, progress: bool = False) -> R:
        """What the workflow returned, once it has; raises `JobFailed`, which says why, or `JobNotEndedError` after `timeout`."""
        begun = self._clock.monotonic()
        with Bar(self.id if progress else "") as bar:
            step = LOOK_EVERY_S if bar.shown else LONG_POLL_S
            while True:
                left = step if timeout is None else begun + timeout - self._clock.monotonic()
                view = await self._client.job(self.id, wait_s=max(0.0, min(left, step)))
                bar.show(view)
                if view.ended:
                    break
                if timeout is not None and self._clock.monotonic() - begun >= timeout:
                    raise JobNotEndedError(self.id, view.state, timeout)
        if view.state is not JobState.COMPLETED:
            raise JobFailed(self.id, view.state, view.reason, await self.why())
        return cast("R", result_of(view, self._workflow))

    async def result(self) -> R:
        """What it returned; raises `JobNotEndedError` at once while it runs."""
        return await self.wait(0.0)

    async def status(self) -> JobView:
        """How it stands now: state, progress, attempts, worker."""
        return await self._client.job(self.id)

    async def attempts(self) -> int:
        """How often its workflows were tried so far."""
        return attempts_of(await self.status())

    async def why(self) -> str:
        """The chain of decisions that brought it to where it is, as text."""
        return (await self._client.why(self.id)).text

    async def events(self) -> AsyncIterator[Link]:
        """Each decision about it, as it is made, from its submission to its end."""
        after, begun = "0", (await self.status()).submitted_at
        while True:
            page = await self._client.events(self.id, after, wait_s=LONG_POLL_S)
            if page.gap is not None:
                for told in (await self._client.why(self.id)).why.links:
                    yield told
                if (await self.status()).ended:
                    return
            for line in page.events:
                yield link_of(line, begun)
                if line.event["type"] in ENDED:
                    return
            after = page.cursor

    async def cancel(self, reason: str = "") -> None:
        """End it now. Queued work of it is never claimed, running work is stopped."""
        await self._client.cancel(self.id, reason)

    async def retry(self) -> AsyncJob[R]:
        """Run it once more, as a new job, after it has ended."""
        return cast("AsyncJob[R]", self._client.get(await self._client.retry(self.id), self._workflow))

    async def logs(self, *, follow: bool = False, attempt: int = 0, workflow: str = "") -> AsyncIterator[LogLine]:
        """What it logged in one attempt; see `Job.logs`."""
        offset = 0
        while True:
            page = await self._client.logs(self.id, workflow=workflow, attempt=attempt, offset=offset)
            for line in page.lines:
                yield line
            attempt, offset = page.attempt, page.next
            if (page.ended and not page.more) or not (follow or page.more):
                return
            if not page.more:
                await self._client.job(self.id, wait_s=LOOK_EVERY_S)

    def __repr__(self) -> str:
        return f"<AsyncJob {self.id}>"
