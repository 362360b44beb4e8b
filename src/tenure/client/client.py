# Generated from async_client.py by tools/generate_sync.py: change that file, then run the tool.

"""A client of a datacenter: knows several managers, follows the leader, asks again until it has an answer.

    with Client("127.0.0.1:8470,127.0.0.1:8471") as tenure:
        job = tenure.submit(encode, path="a.mov", timeout=hours(6))
        print(job.wait())

Every request may be repeated, so a submission that was retried through a failover, or whose answer was lost, is one job.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from tenure import tracing
from tenure.bound_checks import check
from tenure.client.job import Job, JobMap
from tenure.client.job_messages import LONG_POLL_S, accepted, batches, decoded, decoded_result
from tenure.client.operator_calls import OperatorCalls
from tenure.clock import Clock, SystemClock
from tenure.codec import Codec
from tenure.control.caller import CallerPerThread
from tenure.control.failover import Ask, Directory
from tenure.control.messages.events import EventPage, GetEvents
from tenure.control.messages.jobs import (
    AskLeader,
    AskWhy,
    Cancel,
    Done,
    EvidenceView,
    GetEvidence,
    GetJob,
    GetLogs,
    GetResult,
    JobList,
    JobView,
    LeaderView,
    ListJobs,
    LogPage,
    ManySubmitted,
    ResultView,
    RetryJob,
    Submit,
    SubmitMany,
    WhyReply,
)
from tenure.control.messages.wire import Reply, Request, placed
from tenure.control.tls import ClientTls
from tenure.errors import JobNotEndedError, NodeRefusedError, NodeUnavailableError
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import JobState
from tenure.randomness import IdSource, fresh_random, new_id
from tenure.work.job_submission import Target, split, spread, submission_for, submit_span, traced, with_codec
from tenure.work.registry import Workflow

ReplyT = TypeVar("ReplyT")
R = TypeVar("R")


class Client(OperatorCalls):
    """Talks to the managers of one datacenter, or to gates. Several threads may use one client."""

    default_queue = ""
    """The queue of submissions that name none; empty leaves it to the function and its workers."""

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
        `codec`: encodes arguments and decodes results, so that nodes and engines cannot read them; the workers need the same one."""
        self._codec = codec
        self._clock, self._ids, self._datacenter = clock or SystemClock(), ids, datacenter
        self.addresses, self.patience_s = [addresses] if isinstance(addresses, str) else list(addresses), patience_s
        self._directory = Directory(
            addresses, patience_s=patience_s, random=random or fresh_random(), monotonic=self._clock.monotonic
        )
        self._caller = CallerPerThread(token=token, tls=tls)

    # Running things

    @overload
    def submit(
        self,
        workflow: Workflow[..., Coroutine[Any, Any, R]],
        arguments: Mapping[str, Any] | None = None,
        /,
        **options_and_arguments: Any,
    ) -> Job[R]: ...

    @overload
    def submit(
        self, workflow: Workflow[..., R], arguments: Mapping[str, Any] | None = None, /, **options_and_arguments: Any
    ) -> Job[R]: ...

    @overload
    def submit(
        self, workflow: str, arguments: Mapping[str, Any] | None = None, /, **options_and_arguments: Any
    ) -> Job[Any]: ...

    def submit(
        self, workflow: Target, arguments: Mapping[str, Any] | None = None, /, **options_and_arguments: Any
    ) -> Job[Any]:
        """Submits one run of a workflow. When this returns, the job is durable.

        Options: timeout, grace, queue, priority, delay, job_id, idempotency_key, labels, retry, max_attempts, stall, stuck, version, park, name,
        submitted_by; at a gate target_datacenters or datacenters. Every other name is an argument of the workflow; one that is called as an
        option is, goes into `arguments`.
        """
        submission = self._submission(workflow, arguments, options_and_arguments)
        return self._handle(self.submit_job(submission).job_id, workflow)

    def submit_many(self, workflow: Target, inputs: Iterable[Any], /, **options: Any) -> list[Job[Any]]:
        """Submits one job for each input: a dictionary of arguments, or the value of the workflow's first argument."""
        each = (self._submission(workflow, arguments, options) for arguments in spread(workflow, inputs))
        made = [with_codec(self._codec, one) for one in each]
        jobs = []
        for part in batches(made):
            with tracing.span(f"submit {len(part)} jobs", {}, kind="PRODUCER") as span:
                carried = tuple(traced(one, span.traceparent) for one in part)
                jobs += accepted(self._expect(ManySubmitted, SubmitMany(submissions=carried)))
        return [self._handle(job_id, workflow) for job_id in jobs]

    def map(
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
        jobs = JobMap(self, workflow, inputs, options)
        return jobs.run(in_flight=in_flight, progress=progress, return_failures=return_failures)

    def submit_job(self, submission: JobSubmission) -> Done:
        """Submits a whole job: several workflows, `after` and all. Retried with the same id until a manager has it."""
        submission = with_codec(self._codec, submission)
        check(submission, field="submission")
        with tracing.span(*submit_span(submission), kind="PRODUCER") as span:
            return self._expect(Done, Submit(submission=traced(submission, span.traceparent)))

    # Asking about them

    def get(self, job_id: str, workflow: Target | None = None) -> Job[Any]:
        """Returns the handle of a job that another program submitted, or this one before."""
        return self._handle(job_id, workflow)

    def cancel(self, job_id: str, reason: str = "", *, by: str = "") -> Done:
        return self._expect(Done, Cancel(job_id=job_id, reason=reason, by=by))

    def job(self, job_id: str, *, wait_s: float = 0.0) -> JobView:
        """Returns how a job stands; with `wait_s`, as soon as it has ended, or after that time."""
        view = self._expect(JobView, GetJob(job_id=job_id, wait_s=wait_s), wait_s)
        return decoded(self._codec, view)

    def jobs(self, *, state: JobState | None = None, limit: int = 100, **filters: Any) -> JobList:
        """Returns the newest jobs. Filters: queue, name, function, label, arg, since, until, after. `args=True` shows the arguments."""
        return self._expect(JobList, ListJobs(state=state, limit=limit, **filters))

    def retry(self, job_id: str, *, by: str = "") -> str:
        """Runs an ended job once more, as a new job, and returns its id. A repeated call returns the same new job."""
        return self._expect(Done, RetryJob(job_id=job_id, by=by)).job_id

    def logs(self, job_id: str, *, workflow: str = "", attempt: int = 0, offset: int = 0) -> LogPage:
        """Returns a page of the lines that an attempt logged; the newest attempt by default."""
        return self._expect(LogPage, GetLogs(job_id=job_id, workflow=workflow, attempt=attempt, offset=offset))

    def result(self, job_id: str, *, workflow: str = "", wait_s: float = 0.0) -> ResultView:
        """Returns what one workflow returned, as plain JSON types, or that it is not ready. `get(job_id).wait()` decodes it and raises."""
        reply = self._expect(ResultView, GetResult(job_id=job_id, workflow=workflow, wait_s=wait_s), wait_s)
        return decoded_result(self._codec, reply)

    def evidence(self, job_id: str, *, workflow: str = "", attempt: int = 0) -> EvidenceView:
        """Returns what was found of an attempt that failed, was killed or died; the newest attempt by default."""
        return self._expect(EvidenceView, GetEvidence(job_id=job_id, workflow=workflow, attempt=attempt))

    def why(self, job_id: str) -> WhyReply:
        """Returns who ended the job or what it waits for, what was found of its failed attempts, and every decision; as data and as text."""
        return self._expect(WhyReply, AskWhy(job_id=job_id))

    def events(
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
        return self._expect(EventPage, request, wait_s)

    def leader(self) -> LeaderView:
        """Returns who leads, in the words of the first node that answers."""
        return self._expect(LeaderView, AskLeader())

    def wait(self, job_id: str, timeout: float | None = None) -> JobView:
        """Returns the job's view once it has ended. Raises `JobNotEndedError`, which is a `TimeoutError`."""
        begun = self._clock.monotonic()
        while True:
            left = LONG_POLL_S if timeout is None else begun + timeout - self._clock.monotonic()
            view = self.job(job_id, wait_s=max(0.0, min(left, LONG_POLL_S)))
            if view.ended:
                return view
            if timeout is not None and self._clock.monotonic() - begun >= timeout:
                raise JobNotEndedError(job_id, view.state, timeout)

    # How it is asked

    def _submission(
        self, workflow: Target, arguments: Mapping[str, Any] | None, given: Mapping[str, Any]
    ) -> JobSubmission:
        options, found = split(workflow, given, arguments)
        return submission_for(workflow, found, options, self._ids, self.default_queue)

    def _handle(self, job_id: str, workflow: Target | None) -> Job[Any]:
        return Job(self, job_id, workflow if isinstance(workflow, Workflow) else None, self._clock)

    def _expect(self, kind: type[ReplyT], request: Request, wait_s: float = 0.0) -> ReplyT:
        reply = self.ask(request, wait_s)
        if not isinstance(reply, kind):
            raise NodeRefusedError("failed", f"a node answered a {type(request).__name__} with {type(reply).__name__}")
        return reply

    def ask(self, request: Request, wait_s: float = 0.0) -> Reply:
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
                    heard = self._caller.ask(step.address, request, step.timeout)
                except NodeUnavailableError as error:
                    heard = error
            else:
                self._clock.sleep(step.seconds)

    def close(self) -> None:
        self._caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
