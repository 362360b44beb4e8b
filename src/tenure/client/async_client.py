"""A client of a datacenter: knows several managers, follows the leader, asks again until it has an answer.

    async with AsyncClient("127.0.0.1:8470,127.0.0.1:8471") as tenure:
        job = await tenure.submit(encode, path="a.mov", timeout=hours(6))
        print(await job.wait())

Every request may be repeated, so a submission that was retried through a failover, or whose answer was lost, is one job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from tenure.bound_checks import check
from tenure.client.async_job import AsyncJob, AsyncJobMap
from tenure.client.async_operator_calls import AsyncOperatorCalls
from tenure.client.async_submissions import AsyncSubmissions
from tenure.client.job_messages import (
    LONG_POLL_S,
    ResultDecoder,
    decoded,
    decoded_output,
    decoded_result,
    too_large_results,
    with_result,
)
from tenure.clock import Clock, SystemClock
from tenure.codec import Codec, about_signal, sealed_value
from tenure.control.async_caller import HttpCaller
from tenure.control.caller import Ask, Directory
from tenure.control.messages.events import EventPage, GetEvents
from tenure.control.messages.job_output import EvidenceView, GetEvidence, GetLogs, GetOutput, LogPage, OutputPage
from tenure.control.messages.jobs import (
    AskWhy,
    AwaitJobs,
    Cancel,
    Done,
    EndedJobs,
    GetJob,
    GetResult,
    JobList,
    JobView,
    ListJobs,
    MoveRunningJob,
    PauseRunningJob,
    ResultView,
    ResumePausedJob,
    RetimeRunningJob,
    RetryJob,
    SignalJob,
    Submit,
    WhyReply,
)
from tenure.control.messages.wire import AskLeader, LeaderView, Reply, Request, placed
from tenure.control.tls import ClientTls
from tenure.errors import JobNotEndedError, NodeRefusedError, NodeUnavailableError
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import JobState
from tenure.randomness import IdSource, fresh_random, new_id
from tenure.work.job_submission import Target, submit_span, traced, with_codec
from tenure.work.plain_arguments import plain_arguments

ReplyT = TypeVar("ReplyT")


class AsyncClient(AsyncSubmissions, AsyncOperatorCalls):
    # sync: """Talks to the managers of one datacenter, or to gates. Several threads may use one client."""
    """Talks to the managers of one datacenter, or to gates, from one event loop. Any number of tasks may ask at once."""  # async only

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
        codec: Codec | None = None,
    ) -> None:
        """`datacenter`: through gates, ask for what is in this one: its jobs, nodes, queues, schedules. A submission says itself where its job runs.
        `tls`: the authorities to trust and the certificate to show; without it, those that `TENURE_CA`, `TENURE_CERT` and `TENURE_KEY` name.
        `codec`: encodes arguments and payloads of signals and decodes results, so that nodes and engines cannot read them; the workers need the same one."""
        self._codec = codec
        self._clock, self._ids, self._datacenter = clock or SystemClock(), ids, datacenter
        self.addresses, self.patience_s = [addresses] if isinstance(addresses, str) else list(addresses), patience_s
        self._directory = Directory(
            addresses, patience_s=patience_s, random=random or fresh_random(), monotonic=self._clock.monotonic
        )
        self._caller = HttpCaller(token=token, tls=tls)

    # Running things

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
        """Runs a workflow over many inputs and returns the results in the order of the inputs.

        At most `in_flight` jobs are open at once. Failures are collected: `JobsFailed` at the end names each, or with
        `return_failures` they stand in the list in place of results. On a terminal one bar shows how far it is.
        """
        jobs = AsyncJobMap(self, workflow, inputs, options)
        return await jobs.run(in_flight=in_flight, progress=progress, return_failures=return_failures)

    async def submit_job(self, submission: JobSubmission) -> Done:
        """Submits a whole job: several workflows, `after` and all. Retried with the same id until a manager has it."""
        submission = with_codec(self._codec, submission)
        check(submission, field="submission")
        with submit_span(submission) as span:
            return await self._expect(Done, Submit(submission=traced(submission, span.traceparent)))

    # Asking about them

    def get(self, job_id: str, workflow: Target | None = None) -> AsyncJob[Any]:
        """Returns the handle of a job that another program submitted, or this one before."""
        return self._handle(job_id, workflow)

    async def cancel(self, job_id: str, reason: str = "", *, by: str = "") -> Done:
        return await self._expect(Done, Cancel(job_id=job_id, reason=reason, by=by))

    async def signal(self, job_id: str, name: str, payload: Any = None, *, id: str = "", by: str = "") -> Done:
        """Sends a signal to a job; a workflow of it gets it from `ctx.wait_event(name)`, also if it waits later. Give an `id` to send it once."""
        signal_id = id or self._ids()
        plain = plain_arguments(f"signal {name}", {"payload": payload})["payload"]
        sealed = sealed_value(self._codec, plain, about_signal(job_id, name, signal_id))
        request = SignalJob(job_id=job_id, name=name, signal_id=signal_id, payload=sealed, by=by)
        return await self._expect(Done, request)

    async def pause(self, job_id: str, reason: str, *, by: str = "") -> Done:
        """Pauses a job: nothing more of it starts, what runs ends with its checkpoint, and none of its clocks runs."""
        return await self._expect(Done, PauseRunningJob(job_id=job_id, reason=reason, by=by))

    async def resume(self, job_id: str, reason: str, *, by: str = "") -> Done:
        """Lets a paused job go on from its checkpoints."""
        return await self._expect(Done, ResumePausedJob(job_id=job_id, reason=reason, by=by))

    async def retime(self, job_id: str, timeout: float | None, reason: str, *, by: str = "") -> Done:
        """Gives a job that has not ended another deadline, counted from its start; None: no deadline."""
        request = RetimeRunningJob(job_id=job_id, timeout_seconds=timeout, reason=reason, by=by)
        return await self._expect(Done, request)

    async def extend(self, job_id: str, seconds: float, reason: str, *, by: str = "") -> Done:
        """Gives a job so many seconds more than it has."""
        return await self._expect(Done, RetimeRunningJob(job_id=job_id, add_s=seconds, reason=reason, by=by))

    async def move(self, job_id: str, reason: str, *, workflow: str = "", by: str = "") -> Done:
        """Has what runs of a job, or one workflow of it, end with its checkpoint and go on from there on another worker."""
        request = MoveRunningJob(job_id=job_id, workflow=workflow, reason=reason, by=by)
        return await self._expect(Done, request)

    async def job(self, job_id: str, *, wait_s: float = 0.0) -> JobView:
        """Returns how a job stands; with `wait_s`, as soon as it has ended, or after that time."""
        return await self._whole(await self._expect(JobView, GetJob(job_id=job_id, wait_s=wait_s), wait_s))

    async def ended(self, job_ids: Sequence[str], *, wait_s: float = 0.0) -> EndedJobs:
        """Returns those of these jobs that have ended, at most as many as one answer holds; with `wait_s`, as soon as there is one."""
        reply = await self._expect(EndedJobs, AwaitJobs(job_ids=tuple(job_ids), wait_s=wait_s), wait_s)
        return msgspec.structs.replace(reply, jobs=tuple([await self._whole(view) for view in reply.jobs]))

    async def _whole(self, view: JobView) -> JobView:
        """Returns the view with results that were too large for it, as the workflows returned them."""
        for one in too_large_results(view):
            whole = await self._expect(ResultView, GetResult(job_id=view.job_id, workflow=one.name))
            view = with_result(view, one.name, whole.result)
        return decoded(self._codec, view)

    async def jobs(self, *, state: JobState | None = None, limit: int = 100, **filters: Any) -> JobList:
        """Returns the newest jobs. Filters: queue, name, function, label, arg, since, until, after. `args=True` shows the arguments."""
        return await self._expect(JobList, ListJobs(state=state, limit=limit, **filters))

    async def retry(
        self, job_id: str, *, by: str = "", whole: bool = False, from_step: str = "", timeout: float | None = None
    ) -> str:
        """Runs an ended job once more, as a new job, and returns its id. A repeated call returns the same new job.

        It begins where the job broke: workflows that completed keep their results. `whole` runs all of them again; `from_step` begins again
        from a recorded step, and the steps before it keep their results (docs/waiting.md). `timeout` gives the new job another deadline.
        """
        request = RetryJob(job_id=job_id, by=by, whole=whole, from_step=from_step, timeout_seconds=timeout)
        return (await self._expect(Done, request)).job_id

    async def logs(self, job_id: str, *, workflow: str = "", attempt: int = 0, offset: int = 0) -> LogPage:
        """Returns a page of the lines that an attempt logged; the newest attempt by default."""
        return await self._expect(LogPage, GetLogs(job_id=job_id, workflow=workflow, attempt=attempt, offset=offset))

    async def output(
        self, job_id: str, after: int = 0, *, workflow: str = "", limit: int = 1_000, wait_s: float = 0.0
    ) -> OutputPage:
        """Returns the items that a workflow has emitted, from an offset on. `next` is the offset of the page that follows."""
        request = GetOutput(job_id=job_id, after=after, workflow=workflow, limit=limit, wait_s=wait_s)
        return decoded_output(self._codec, await self._expect(OutputPage, request, wait_s))

    async def result(self, job_id: str, *, workflow: str = "", wait_s: float = 0.0) -> ResultView:
        """Returns what one workflow returned, as plain JSON types, or that it is not ready. `get(job_id).wait()` decodes it and raises."""
        reply = await self._expect(ResultView, GetResult(job_id=job_id, workflow=workflow, wait_s=wait_s), wait_s)
        return decoded_result(self._codec, reply)

    async def evidence(self, job_id: str, *, workflow: str = "", attempt: int = 0) -> EvidenceView:
        """Returns what was found of an attempt that failed, was killed or died; the newest attempt by default."""
        return await self._expect(EvidenceView, GetEvidence(job_id=job_id, workflow=workflow, attempt=attempt))

    async def why(self, job_id: str) -> WhyReply:
        """Returns who ended the job or what it waits for, what was found of its failed attempts, and every decision; as data and as text."""
        return await self._expect(WhyReply, AskWhy(job_id=job_id))

    async def events(
        self,
        job_id: str = "",
        after: str | None = None,
        *,
        queue: str = "",
        wait_s: float = 0.0,
        progress: bool = False,
    ) -> EventPage:
        """Returns the decisions after a cursor ("0": all that is kept, None: from now on), of one job, one queue, or all.

        With `progress`, also how what runs stands now; such a page is held back for a second at most while something runs.
        """
        request = GetEvents(job_id=job_id, after=after, queue=queue, wait_s=wait_s, progress=progress)
        return await self._expect(EventPage, request, wait_s)

    async def leader(self) -> LeaderView:
        """Returns who leads, in the words of the first node that answers."""
        return await self._expect(LeaderView, AskLeader())

    async def wait(self, job_id: str, timeout: float | None = None) -> JobView:
        """Returns the job's view once it has ended. Raises `JobNotEndedError`, which is a `TimeoutError`."""
        begun = self._clock.monotonic()
        while True:
            left = LONG_POLL_S if timeout is None else begun + timeout - self._clock.monotonic()
            view = await self.job(job_id, wait_s=max(0.0, min(left, LONG_POLL_S)))
            if view.ended:
                return view
            if timeout is not None and self._clock.monotonic() - begun >= timeout:
                raise JobNotEndedError(job_id, view.state, timeout)

    # How it is asked

    def _handle(self, job_id: str, workflow: ResultDecoder | str | None) -> AsyncJob[Any]:
        return AsyncJob(self, job_id, workflow if isinstance(workflow, ResultDecoder) else None, self._clock)

    async def _expect(self, kind: type[ReplyT], request: Request, wait_s: float = 0.0) -> ReplyT:
        reply = await self.ask(request, wait_s)
        if not isinstance(reply, kind):
            raise NodeRefusedError("failed", f"a node answered a {type(request).__name__} with {type(reply).__name__}")
        return reply

    async def ask(self, request: Request, wait_s: float = 0.0) -> Reply:
        """Asks one node after the other until one answers for good; gives up after `patience_s`.

        Raises `OutOfBoundsError` before anybody is asked.
        """
        request = placed(request, self._datacenter)
        check(request)
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
