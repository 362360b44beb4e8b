"""Answers the requests about jobs beyond one submission and one view: many submissions at once, results, retries, logs and evidence."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.control.messages.job_details import (
    EvidenceView,
    GetEvidence,
    GetLogs,
    GetResult,
    LogLine,
    LogPage,
    ManySubmitted,
    ResultView,
    RetryJob,
    SubmitMany,
    Submitted,
)
from tenure.control.messages.jobs import GetJob, JobView, Problem, ProblemKind
from tenure.control.messages.wire import Reply, Request
from tenure.control.problems import problem
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import ConfigurationError, DeposedError, LimitError, NodeUnavailableError, TenureError
from tenure.jobs import Decision, Outcome
from tenure.jobs.decisions import GateDecision
from tenure.jobs.model import JobInfo, JobSubmission
from tenure.jobs.states import WorkflowState
from tenure.jobs.submission import SubmitJob
from tenure.nodes.stored_record import read_record
from tenure.work.slots.attempt_logs import log_key

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager

LOGS, EVIDENCE = "logs", "evidence"
RETRY_OF = "tenure.retry_of"
"""The label that links a retry to the job that it repeats."""
_RETRIED = re.compile(r"(.*)~([1-9][0-9]{0,5})", re.DOTALL)


class Attempt(NamedTuple):
    """The attempt that a request means. `ended` is False while the attempt may still log."""

    workflow: str
    number: int
    ended: bool


class JobDesk:
    """Part of a manager. Only the leader takes its writes; any manager answers its reads."""

    def __init__(self, manager: Manager, engine: Engine, calls: Calls) -> None:
        self._manager, self._calls = manager, calls
        self._logs, self._evidence = engine.store(LOGS), engine.store(EVIDENCE)
        self.handlers: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {
            SubmitMany: self._submit_many,
            GetResult: self._result,
            RetryJob: self._retry,
            GetLogs: self._page,
            GetEvidence: self._found,
        }

    async def _submit_many(self, request: SubmitMany) -> Reply:
        """Submits all jobs at once, so that the ledger writes them in as few appends as it can."""
        commands = [SubmitJob(submission=one, by=one.submitted_by) for one in request.submissions]
        outcomes = await self._manager.commit_all(commands)
        answers = tuple(submitted(one, outcome) for one, outcome in zip(request.submissions, outcomes, strict=True))
        return ManySubmitted(jobs=answers, epoch=self._manager.epoch)

    async def _result(self, request: GetResult) -> Reply:
        view = await self._manager.handlers[GetJob](GetJob(job_id=request.job_id, wait_s=request.wait_s))
        if not isinstance(view, JobView):
            return view
        name = _choose(request.job_id, request.workflow, [one.name for one in view.workflows])
        one = next(one for one in view.workflows if one.name == name)
        return ResultView(
            job_id=view.job_id,
            workflow=name,
            state=view.state,
            ready=one.state is WorkflowState.COMPLETED,
            result=one.result,
            error=one.error or ("" if one.state is WorkflowState.COMPLETED else view.reason),
        )

    async def _retry(self, request: RetryJob) -> Reply:
        def look(info: JobInfo) -> tuple[JobSubmission, bool]:
            return info.job.submission, info.state.terminal

        found = await self._manager.look_at(request.job_id, look)
        if isinstance(found, Reply):
            return found
        submission, ended = found
        if not ended:
            return Problem(
                kind=ProblemKind.CONFLICT,
                fact=f"job {request.job_id!r} has not ended",
                remedy="Wait for its end, or cancel it first",
            )
        again = msgspec.structs.replace(
            submission,
            job_id=request.new_job_id or next_id(request.job_id),
            idempotency_key="",
            delay=0.0,
            labels={**submission.labels, RETRY_OF: request.job_id},
            submitted_by=request.by or submission.submitted_by,
        )
        return await self._manager.write(SubmitJob(submission=again, by=request.by))

    async def _page(self, request: GetLogs) -> Reply:
        # Look at the attempt before reading its log: if it has ended, the log then holds everything that it logged before its end.
        attempt = await self._attempt(request.job_id, request.workflow, request.attempt)
        if isinstance(attempt, Reply):
            return attempt
        key = log_key(request.job_id, attempt.workflow, attempt.number)
        data = await self._calls.run(self._logs.get, key) or b""
        lines, after = cut(data, request.offset, request.limit)
        return LogPage(
            job_id=request.job_id,
            workflow=attempt.workflow,
            attempt=attempt.number,
            lines=lines,
            next=after,
            more=after < len(data),
            ended=attempt.ended,
        )

    async def _found(self, request: GetEvidence) -> Reply:
        attempt = await self._attempt(request.job_id, request.workflow, request.attempt)
        if isinstance(attempt, Reply):
            return attempt
        key = f"{request.job_id}/{attempt.workflow}/{attempt.number}"
        data = await self._calls.run(self._evidence.get, key)
        found = read_record(data, Any, f"evidence {key!r}") if data is not None else None
        return EvidenceView(job_id=request.job_id, workflow=attempt.workflow, attempt=attempt.number, found=found)

    async def _attempt(self, job_id: str, workflow: str, number: int) -> Attempt | Reply:
        """Returns the attempt that a request means. Only names that a known job has ever become part of a key."""

        def look(info: JobInfo) -> Attempt:
            name = _choose(job_id, workflow, list(info.workflows))
            newest = info.workflows[name].attempt
            if not 0 <= number <= newest:
                raise LimitError("attempt", number, f"between 1 and {newest}, or 0 for the newest")
            ended = info.state.terminal or info.workflows[name].state.terminal or 0 < number < newest
            return Attempt(name, number or newest, ended)

        return await self._manager.look_at(job_id, look)


def submitted(submission: JobSubmission, outcome: Decision | GateDecision | TenureError) -> Submitted:
    """Returns the answer to one submission of many. Raises an error that concerns them all, so that the caller submits all of them again."""
    if isinstance(outcome, (DeposedError, NodeUnavailableError)):
        raise outcome
    if isinstance(outcome, TenureError):
        kind = problem(outcome).kind
        return Submitted(job_id=submission.job_id, outcome=Outcome.REFUSED, reason=str(outcome), problem=kind)
    return Submitted(job_id=outcome.job_id, outcome=outcome.outcome, reason=outcome.reason)


def next_id(job_id: str) -> str:
    """Returns the id of a retry: that of `encode` is `encode~2`, and the retry of that is `encode~3`."""
    numbered = _RETRIED.fullmatch(job_id)
    return f"{numbered[1]}~{int(numbered[2]) + 1}" if numbered else f"{job_id}~2"


def cut(data: bytes, offset: int, limit: int) -> tuple[tuple[LogLine, ...], int]:
    """Returns the whole lines from this offset on that fit the limit, but at least one; and the offset after them."""
    lines: list[LogLine] = []
    position = offset
    while position < len(data):
        end = data.find(b"\n", position) + 1
        if not end or (lines and end - offset > limit):
            break
        try:
            lines.append(msgspec.json.decode(data[position:end], type=LogLine))
        except (msgspec.DecodeError, UnicodeDecodeError):
            # The offset is inside a line: no page of ours gave it out.
            lines.append(LogLine(at=0.0, level="", text=data[position:end].decode(errors="replace").rstrip("\n")))
        position = end
    return tuple(lines), position


def _choose(job_id: str, given: str, names: list[str]) -> str:
    if given in names:
        return given
    if not given and len(names) == 1:
        return names[0]
    fact = f"job {job_id!r} has no workflow {given!r}" if given else f"job {job_id!r} has {len(names)} workflows"
    raise ConfigurationError(fact, remedy=f"Name one of: {', '.join(names[:20])}")
