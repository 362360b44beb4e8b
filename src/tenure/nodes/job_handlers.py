"""Answers the requests about jobs that managers and gates answer alike: submissions, waits for an end, results, retries, and states for listeners.

A subclass for each kind of node finds the jobs of that node (`manager/job_handlers.py`, `gate/job_handlers.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from tenure.attempt_data import Signal, is_elsewhere
from tenure.clock import Clock
from tenure.control.claims import Scope, scope
from tenure.control.messages.events import GetEvents
from tenure.control.messages.job_output import GetEvidence, GetLogs, GetOutput
from tenure.control.messages.jobs import (
    MAX_LISTED,
    AskWhy,
    AwaitJobs,
    Cancel,
    Done,
    GetJob,
    GetResult,
    JobView,
    ListJobs,
    ManySubmitted,
    MoveRunningJob,
    PauseRunningJob,
    ResultView,
    ResumePausedJob,
    RetimeRunningJob,
    RetryJob,
    SignalJob,
    SteeringRequest,
    Submit,
    SubmitMany,
    Submitted,
    WorkflowView,
)
from tenure.control.messages.operations import WITHIN, Within
from tenure.control.messages.wire import Handlers, Problem, ProblemKind, Reply
from tenure.control.problems import problem
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import (
    ConfigurationError,
    DeposedError,
    NodeUnavailableError,
    SubmissionConflictError,
    TenureError,
    UnknownJobError,
)
from tenure.jobs.book import JobBook
from tenure.jobs.decisions import Decision, GateDecision, Outcome
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import WorkflowState
from tenure.jobs.unique_jobs import RETRY_OF, next_id
from tenure.nodes.held_requests import Held, ended_views
from tenure.nodes.stored_values import StoredArguments
from tenure.nodes.subject_quotas import SubjectQuotas


class Repeatable(NamedTuple):
    """The part of a job that a retry needs."""

    submission: JobSubmission | None
    """None for a job that a gate rebuilt from reports: it cannot be submitted again."""
    ended: bool
    ran_in: tuple[str, ...] = ()
    """At a gate, the datacenters in which it ran: they have its steps."""


class JobHandlers(ABC):
    """Part of a node. Only a leader takes its writes."""

    def __init__(self, engine: Engine, calls: Calls, clock: Clock) -> None:
        self._calls, self._clock, self._held = calls, clock, Held(clock)
        """The requests that wait for the end of a job, by its id."""
        self._arguments = StoredArguments(engine, calls)
        self._closed = False
        self._quotas = SubjectQuotas(self, clock)
        handlers: Handlers = {
            Submit: self._submit,
            SubmitMany: self._submit_many,
            Cancel: self._cancel,
            GetJob: self._job,
            AwaitJobs: self._ended,
            ListJobs: self.list_jobs,
            AskWhy: self.why,
            GetResult: self._result,
            RetryJob: self._retry,
            GetLogs: self.logs,
            GetEvidence: self.evidence,
            GetOutput: self.output,
            PauseRunningJob: self._steer,
            ResumePausedJob: self._steer,
            RetimeRunningJob: self._steer,
            MoveRunningJob: self._steer,
            SignalJob: self._steer,
        }
        self.handlers: Handlers = {
            kind: self._bounded(one) if WITHIN[kind] is Within.JOB else one for kind, one in handlers.items()
        }

    # Callers that are bound to queues or labels

    def _bounded(self, handler: Callable[[Any], Awaitable[Reply]]) -> Callable[[Any], Awaitable[Reply]]:
        """Returns the handler of a request about one job, for whose caller a job out of its bounds does not exist."""

        async def answer(request: Any) -> Reply:
            within = scope()
            refusal = await self._out_of_bounds(request.job_id, within) if within.scoped else None
            return refusal or await handler(request)

        return answer

    async def _out_of_bounds(self, job_id: str, within: Scope) -> Reply | None:
        try:
            found = await self.repeatable(job_id)
        except UnknownJobError as error:
            return problem(error)  # the other jobs of the same request are not concerned
        if isinstance(found, Reply):
            return found
        return None if within.covers(found.submission) else problem(UnknownJobError(job_id))

    # The jobs of this kind of node

    @property
    @abstractmethod
    def position(self) -> tuple[int, int]:
        """Returns the epoch in which this node leads, and the sequence up to which it has read the journal."""

    @abstractmethod
    async def accept(
        self, submissions: Sequence[JobSubmission]
    ) -> Sequence[Decision | TenureError] | Sequence[GateDecision | TenureError]:
        """Submits jobs, all with as few appends as they need. Returns for each its decision, or the error that refused it."""

    @abstractmethod
    async def cancel(self, request: Cancel) -> Decision | GateDecision: ...

    @abstractmethod
    async def steer(self, request: SteeringRequest) -> Decision | GateDecision:
        """Pauses, resumes, retimes or moves a job. A decision that refuses has the reason."""

    @abstractmethod
    async def view(self, job_id: str, *, whole: bool = True) -> Reply:
        """Returns the view of a job, or the reply that explains why there is none. With `whole`, a view without a result that there is does not do."""

    @abstractmethod
    async def whole_result(self, view: JobView, one: WorkflowView) -> Any:
        """Returns a result that was too large for the view of its job."""

    @abstractmethod
    async def list_jobs(self, request: ListJobs) -> Reply: ...

    @abstractmethod
    async def why(self, request: AskWhy) -> Reply: ...

    @abstractmethod
    async def logs(self, request: GetLogs) -> Reply: ...

    @abstractmethod
    async def evidence(self, request: GetEvidence) -> Reply: ...

    @abstractmethod
    async def output(self, request: GetOutput) -> Reply: ...

    @abstractmethod
    async def repeatable(self, job_id: str) -> Repeatable | Reply: ...

    async def whole_submission(self, submission: JobSubmission) -> JobSubmission:
        """Returns a submission of this node's book with the large arguments that the store has of it."""
        return await self._arguments.whole(submission)

    @property
    @abstractmethod
    def book(self) -> JobBook | GateJobTracker:
        """This node's book, which may be ahead of the journal."""

    def has_ended(self, job_id: str) -> bool:
        """Returns True when this node's book shows that the job has ended. Its indexes answer: no packed record is unpacked for it."""
        book = self.book
        return job_id in book.ended or (job_id in book.state.archive and job_id not in book.jobs)

    async def signals(self, job_id: str) -> tuple[Signal, ...]:
        """Returns the signals that a job has got for certain. A gate keeps none."""
        return ()

    @abstractmethod
    def submission_of(self, job_id: str) -> JobSubmission | None:
        """Returns the submission of a job in this node's book; None for one that is not there."""

    @abstractmethod
    def live_submissions(self) -> Iterable[JobSubmission]:
        """Returns the submissions of all jobs that have not ended."""

    # Waiting for the end of a job

    def look(self) -> None:
        """Wakes the requests whose job has ended. The node calls it after each change of its book."""
        self._held.ring_ended(self.book.ended, self.has_ended)

    def close(self) -> None:
        """Wakes every request, and holds no more: the node stops."""
        self._closed = True
        self._held.ring_all()

    async def _job(self, request: GetJob) -> Reply:
        if request.wait_s and not self._closed and not self.has_ended(request.job_id):
            await self._held.hold(request.job_id, request.wait_s)
        view = await self.view(request.job_id)
        if request.signals_after is None or not isinstance(view, JobView):
            return view
        return msgspec.structs.replace(view, signals=(await self.signals(request.job_id))[request.signals_after :])

    async def _ended(self, request: AwaitJobs) -> Reply:
        """Answers with the jobs that have ended. It waits only while this node's book shows none of them as ended."""
        within = scope()
        ids = [one for one in dict.fromkeys(request.job_ids) if not within.scoped or await self._is_within(one, within)]
        ended = [one for one in ids if self.has_ended(one)]
        if not ended and request.wait_s and not self._closed:
            await self._held.hold_any(ids, request.wait_s)
            ended = [one for one in ids if self.has_ended(one)]
        return await ended_views(self.view, ended, self._clock)

    async def _is_within(self, job_id: str, within: Scope) -> bool:
        return await self._out_of_bounds(job_id, within) is None

    # Writes

    def _done(self, decision: Decision | GateDecision) -> Done:
        epoch, _ = self.position
        return Done(job_id=decision.job_id, outcome=decision.outcome, reason=decision.reason, epoch=epoch)

    async def _accept(self, submissions: Sequence[JobSubmission]) -> Sequence[Decision | GateDecision | TenureError]:
        """Submits the jobs for which their token's quotas have room."""
        within = scope()
        refused = {one.job_id: why for one in submissions if (why := await self._refusal_of(one, within)) is not None}
        taken = [one for one in submissions if one.job_id not in refused]
        outcomes: Sequence[Decision | GateDecision | TenureError] = ()
        try:
            outcomes = await self.accept(taken) if taken else ()
        finally:
            for one, outcome in zip_longest(taken, outcomes):
                accepted = isinstance(outcome, (Decision, GateDecision)) and outcome.outcome is not Outcome.REFUSED
                self._quotas.settle(one, accepted=accepted)
        made = iter([await self._unnamed(one, within) for one in outcomes])
        return [refused.get(one.job_id) or next(made) for one in submissions]

    async def _unnamed(
        self, outcome: Decision | GateDecision | TenureError, within: Scope
    ) -> Decision | GateDecision | TenureError:
        """Returns the outcome of a submission. The refusal of a key that a job of others has names that job to nobody who may not see it."""
        if not isinstance(outcome, SubmissionConflictError) or not within.scoped:
            return outcome
        if await self._out_of_bounds(outcome.job_id, within) is None:
            return outcome
        return SubmissionConflictError(outcome.field, outcome.value, "")

    async def _refusal_of(self, submission: JobSubmission, within: Scope) -> TenureError | None:
        """Returns why a caller may not submit this. It may not take over results of a job that does not exist for it."""
        if submission.retry_of and within.scoped and await self._out_of_bounds(submission.retry_of, within) is not None:
            return UnknownJobError(submission.retry_of)
        return self._quotas.take(submission, within)

    async def _submit(self, request: Submit) -> Reply:
        (outcome,) = await self._accept((request.submission,))
        if isinstance(outcome, TenureError):
            raise outcome
        return self._done(outcome)

    async def _submit_many(self, request: SubmitMany) -> Reply:
        outcomes = await self._accept(request.submissions)
        answers = tuple(submitted(one, outcome) for one, outcome in zip(request.submissions, outcomes, strict=True))
        epoch, _ = self.position
        return ManySubmitted(jobs=answers, epoch=epoch)

    async def _cancel(self, request: Cancel) -> Reply:
        return self._done(await self.cancel(request))

    async def _steer(self, request: SteeringRequest) -> Reply:
        decision = await self.steer(request)
        if decision.outcome is Outcome.REFUSED:
            doing = str(request.__struct_config__.tag).removesuffix("_job")
            fact = f"job {request.job_id!r} was not changed: {decision.reason}"
            return Problem(kind=ProblemKind.CONFLICT, fact=fact, remedy=f"See how it stands before you {doing} it")
        return self._done(decision)

    async def _retry(self, request: RetryJob) -> Reply:
        """Submits an ended job again, as a new job that names the old one."""
        found = await self.repeatable(request.job_id)
        if isinstance(found, Reply):
            return found
        submission, ended, _ = found
        if not ended:
            return Problem(
                kind=ProblemKind.CONFLICT,
                fact=f"job {request.job_id!r} has not ended",
                remedy="Wait for its end, or cancel it first",
            )
        if submission is None:
            return Problem(
                kind=ProblemKind.UNKNOWN,
                fact=f"the gate lost its journal, and knows of job {request.job_id!r} only how it ended",
                remedy="Submit it anew",
            )
        submission = await self.whole_submission(submission)
        again = msgspec.structs.replace(
            submission,
            job_id=request.new_job_id or next_id(request.job_id),
            idempotency_key="",
            delay=0.0,
            labels={**submission.labels, RETRY_OF: request.job_id},
            retry_of=request.job_id if request.from_step or not request.whole else "",
            retry_from=request.from_step,
            timeout_seconds=submission.timeout_seconds if request.timeout_seconds is None else request.timeout_seconds,
            target_datacenters=(request.from_step and found.ran_in) or submission.target_datacenters,
            submitted_by=request.by or submission.submitted_by,
        )
        return await self._submit(Submit(submission=again))

    # Results, and states for those who follow events

    async def _result(self, request: GetResult) -> Reply:
        view = await self._job(GetJob(job_id=request.job_id, wait_s=request.wait_s))
        if not isinstance(view, JobView):
            return view
        names = [one.name for one in view.workflows]
        if not names and not view.ended:  # no datacenter of a gate has answered yet
            return ResultView(job_id=view.job_id, workflow=request.workflow, state=view.state, ready=False)
        name = choose(request.job_id, request.workflow, names)
        one = next(one for one in view.workflows if one.name == name)
        done = one.state is WorkflowState.COMPLETED
        return ResultView(
            job_id=view.job_id,
            workflow=name,
            state=view.state,
            ready=done,
            result=await self.whole_result(view, one) if is_elsewhere(one.result) else one.result,
            error=one.error or ("" if done else view.reason),
            taken_from=one.taken_from,
        )

    async def state_for(self, request: GetEvents) -> tuple[int, Reply | None]:
        """Returns a journal position and the state from which a listener that missed events begins.

        The position is read first, so the state holds at least everything up to it.
        """
        _, seq = self.position
        if not request.job_id:
            return seq, await self.list_jobs(ListJobs(limit=MAX_LISTED, queue=request.queue))
        within = scope()
        try:
            if within.scoped and await self._out_of_bounds(request.job_id, within) is not None:
                return seq, None
            found = await self.view(request.job_id, whole=False)
        except UnknownJobError:
            return seq, None
        return seq, found if isinstance(found, JobView) else None


def submitted(submission: JobSubmission, outcome: Decision | GateDecision | TenureError) -> Submitted:
    """Returns the answer to one submission of many. Raises an error that concerns them all, so that the caller submits all of them again."""
    if isinstance(outcome, (DeposedError, NodeUnavailableError)):
        raise outcome
    if isinstance(outcome, TenureError):
        kind = problem(outcome).kind
        return Submitted(job_id=submission.job_id, outcome=Outcome.REFUSED, reason=str(outcome), problem=kind)
    return Submitted(job_id=outcome.job_id, outcome=outcome.outcome, reason=outcome.reason)


def choose(job_id: str, given: str, names: Sequence[str]) -> str:
    """Returns the workflow that a request means. A job of one workflow need not name it."""
    if given in names:
        return given
    if not given and len(names) == 1:
        return names[0]
    fact = f"job {job_id!r} has no workflow {given!r}" if given else f"job {job_id!r} has {len(names)} workflows"
    raise ConfigurationError(fact, remedy=f"Name one of: {', '.join(names[:20])}")
