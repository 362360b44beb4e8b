"""Answers a gate's requests about jobs, as a manager does: views, lists, reasons, many submissions, results, retries, logs, evidence.

A workflow of a job in several datacenters is called `datacenter/workflow` here, because each datacenter runs the whole job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.clock import Clock
from tenure.control.messages.events import GetEvents
from tenure.control.messages.job_details import (
    GetEvidence,
    GetLogs,
    GetResult,
    ManySubmitted,
    ResultView,
    RetryJob,
    SubmitMany,
)
from tenure.control.messages.jobs import (
    MAX_LISTED,
    AskWhy,
    GetJob,
    JobView,
    ListJobs,
    Problem,
    ProblemKind,
    Submit,
)
from tenure.control.messages.wire import Reply, Request
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import (
    ConfigurationError,
    NodeUnavailableError,
    UnknownJobError,
)
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import GateJobTrackingInfo
from tenure.jobs.states import WorkflowState
from tenure.nodes.gate.reading import Reading
from tenure.nodes.job_listing import gate_list
from tenure.nodes.manager.job_desk import RETRY_OF, next_id, submitted
from tenure.nodes.manager.waiting import Waiting

if TYPE_CHECKING:
    from tenure.nodes.gate.gate import Gate


class GateJobDesk:
    """Part of a gate: its handlers run where the gate leads."""

    def __init__(self, gate: Gate, engine: Engine, calls: Calls, clock: Clock) -> None:
        self._gate = gate
        self._reading = Reading(engine, calls, gate.lines, gate.watch, gate.candidacy.time.now)
        self._waiting = Waiting(self._has_ended, clock)
        self.look, self.close = self._waiting.look, self._waiting.close
        self.handlers: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {
            GetJob: self._job,
            ListJobs: self._list,
            AskWhy: self._why,
            SubmitMany: self._submit_many,
            GetResult: self._result,
            RetryJob: self._retry,
            GetLogs: self._there,
            GetEvidence: self._there,
        }

    # Views, lists and reasons

    async def _job(self, request: GetJob) -> Reply:
        if request.wait_s:
            await self._waiting.until_ended(request.job_id, request.wait_s)
        return await self._view(await self.known(request.job_id))

    async def _view(self, info: GateJobTrackingInfo, *, whole: bool = True) -> JobView | Problem:
        candidacy = self._gate.candidacy
        return await self._reading.job(info, candidacy.ledger.book.deadline(info), candidacy.time.now(), whole=whole)

    async def _list(self, request: ListJobs) -> Reply:
        candidacy = self._gate.candidacy
        now, leader = candidacy.time.now(), candidacy.leader
        return await candidacy.ledger.read(
            lambda tracker: gate_list(tracker, now, request, leader.tally.of if leader is not None else None)
        )

    async def known(self, job_id: str) -> GateJobTrackingInfo:
        """Returns a copy of a job's record, also of an archived job. Raises `UnknownJobError`."""

        def look(tracker: GateJobTracker) -> GateJobTrackingInfo | None:
            info = tracker.jobs.get(job_id)
            return None if info is None else _copy(info)

        info = await self._gate.candidacy.ledger.read(look) or await self._reading.archived(job_id)
        if info is None:
            raise UnknownJobError(job_id)
        return info

    async def _why(self, request: AskWhy) -> Reply:
        info = await self.known(request.job_id)
        tracker = GateJobTracker()
        tracker.state.jobs[request.job_id] = info
        return await self._reading.why(tracker, request.job_id)

    def _has_ended(self, job_id: str) -> bool:
        tracker = self._gate.candidacy.ledger.book
        info = tracker.jobs.get(job_id)
        return info.state.terminal if info is not None else job_id in tracker.state.archive

    # For those who follow events

    async def state_for(self, request: GetEvents) -> tuple[int, Reply | None]:
        """Returns the state from which a listener that missed events begins, and a sequence that it covers.

        The sequence is read before the state, so the state holds at least everything up to it.
        """
        seq = self._gate.candidacy.ledger.seq
        if not request.job_id:
            return seq, await self._list(ListJobs(limit=MAX_LISTED, queue=request.queue))
        try:
            info = await self.known(request.job_id)
        except UnknownJobError:
            return seq, None
        return seq, await self._view(info, whole=False)

    def queue_of(self, job_id: str) -> str:
        info = self._gate.candidacy.ledger.book.jobs.get(job_id)
        return info.submission.queue if info is not None and info.submission is not None else ""

    # More about jobs

    async def _submit_many(self, request: SubmitMany) -> Reply:
        """Places all jobs together, so that the ledger writes them in as few appends as it can."""
        outcomes = await self._gate.placing.place_all(request.submissions)
        answers = tuple(submitted(one, outcome) for one, outcome in zip(request.submissions, outcomes, strict=True))
        return ManySubmitted(jobs=answers, epoch=self._gate.candidacy.epoch)

    async def _result(self, request: GetResult) -> Reply:
        view = await self._job(GetJob(job_id=request.job_id, wait_s=request.wait_s))
        if not isinstance(view, JobView):
            return view
        names = [one.name for one in view.workflows]
        if not names and not view.ended:
            return ResultView(job_id=view.job_id, workflow=request.workflow, state=view.state, ready=False)
        name = chosen(request.job_id, request.workflow, names)
        one = next(one for one in view.workflows if one.name == name)
        done = one.state is WorkflowState.COMPLETED
        return ResultView(
            job_id=view.job_id,
            workflow=name,
            state=view.state,
            ready=done,
            result=one.result,
            error=one.error or ("" if done else view.reason),
        )

    async def _retry(self, request: RetryJob) -> Reply:
        """Submits an ended job again, as a new job that names the old one; in the same datacenters, where the old job named them."""
        info = await self.known(request.job_id)
        if not info.state.terminal:
            return Problem(
                kind=ProblemKind.CONFLICT,
                fact=f"job {request.job_id!r} has not ended",
                remedy="Wait for its end, or cancel it first",
            )
        if info.submission is None:
            return Problem(
                kind=ProblemKind.UNKNOWN,
                fact=f"the gate lost its journal, and knows of job {request.job_id!r} only how it ended",
                remedy="Submit it anew",
            )
        again = msgspec.structs.replace(
            info.submission,
            job_id=request.new_job_id or next_id(request.job_id),
            idempotency_key="",
            delay=0.0,
            labels={**info.submission.labels, RETRY_OF: request.job_id},
            submitted_by=request.by or info.submission.submitted_by,
        )
        return await self._gate.handlers[Submit](Submit(submission=again))

    async def _there(self, request: GetLogs | GetEvidence) -> Reply:
        """Passes the request on to the datacenter where the workflow ran."""
        info = await self.known(request.job_id)
        datacenter, workflow = where(info, request.workflow)
        line = self._gate.lines.get(datacenter)
        if line is None:
            raise NodeUnavailableError(f"this gate was not told of datacenter {datacenter!r}")
        return await line.ask(msgspec.structs.replace(request, workflow=workflow))


def where(info: GateJobTrackingInfo, workflow: str) -> tuple[str, str]:
    """Splits `datacenter/workflow` into its two parts. A job in one datacenter may leave out the first part."""
    if len(info.target_datacenters) == 1:
        only = info.target_datacenters[0]
        return only, workflow.removeprefix(f"{only}/")
    datacenter, _, rest = workflow.partition("/")
    if datacenter in info.target_datacenters:
        return datacenter, rest
    raise ConfigurationError(
        f"job {info.job_id!r} ran in {len(info.target_datacenters)} datacenters, and {workflow!r} names none of them",
        remedy=f"Name one as DATACENTER/WORKFLOW, of: {', '.join(info.target_datacenters)}",
    )


def chosen(job_id: str, given: str, names: list[str]) -> str:
    if given in names:
        return given
    if not given and len(names) == 1:
        return names[0]
    fact = f"job {job_id!r} has no workflow {given!r}" if given else f"job {job_id!r} has {len(names)} workflows"
    raise ConfigurationError(fact, remedy=f"Name one of: {', '.join(names[:20])}")


def _copy(info: GateJobTrackingInfo) -> GateJobTrackingInfo:
    """Returns a deep copy, because the fold changes the record in place."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(info), type=GateJobTrackingInfo)
