"""Answers a manager's requests about jobs. Any manager answers the reads, from a book that is never ahead of the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from tenure.clock import Clock
from tenure.control.messages.job_details import EvidenceView, GetEvidence, GetLogs, LogLine, LogPage
from tenure.control.messages.jobs import AskWhy, Cancel, JobView, ListJobs, Problem, ProblemKind, WhyReply
from tenure.control.messages.wire import Reply
from tenure.control.problems import problem
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import DeposedError, LimitError, TenureError, UnknownJobError
from tenure.jobs import Decision, JobBook
from tenure.jobs.endings import CancelJob
from tenure.jobs.model import JobInfo, JobSubmission
from tenure.jobs.submission import SubmitJob
from tenure.jobs.why import Why, why
from tenure.nodes.job_handlers import JobHandlers, Repeatable, choose, read_record
from tenure.nodes.job_listing import manager_list
from tenure.nodes.job_views import Granted, Live, large_results, manager_view, with_results
from tenure.nodes.manager.housekeeping import ARCHIVE, LARGE_RESULTS
from tenure.work.attempt_logs import log_key

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager

LOGS, EVIDENCE = "logs", "evidence"
ViewT = TypeVar("ViewT")


class NamedAttempt(NamedTuple):
    """The attempt that a request means. `ended` is False while the attempt may still log."""

    workflow: str
    number: int
    ended: bool


class ManagerJobHandlers(JobHandlers):
    """Part of a manager."""

    def __init__(self, manager: Manager, engine: Engine, calls: Calls, clock: Clock) -> None:
        super().__init__(clock)
        self._manager, self._calls = manager, calls
        self._archive, self._large = engine.store(ARCHIVE), engine.store(LARGE_RESULTS)
        self._logs, self._evidence = engine.store(LOGS), engine.store(EVIDENCE)

    @property
    def position(self) -> tuple[int, int]:
        return self._manager.epoch, self._manager.ledger.seq

    async def accept(self, submissions: Sequence[JobSubmission]) -> Sequence[Decision | TenureError]:
        commands = [SubmitJob(submission=one, by=one.submitted_by) for one in submissions]
        return await self._manager.leadership.commit_all(commands)

    async def cancel(self, request: Cancel) -> Decision:
        return await self._manager.leadership.commit(
            CancelJob(job_id=request.job_id, reason=request.reason, by=request.by)
        )

    # Reads

    def has_ended(self, job_id: str) -> bool:
        book = self._manager.ledger.book
        info = book.jobs.get(job_id)
        return info.state.terminal if info is not None else job_id in book.state.archive

    def queue_of(self, job_id: str) -> str:
        info = self._manager.ledger.book.jobs.get(job_id)
        return info.job.submission.queue if info is not None else ""

    def _newest(self) -> tuple[Live | None, Granted | None]:
        """Returns what workers reported since the last append; nothing on a standby, because workers report to the leader only."""
        reports = self._manager.worker_reports if self._manager.leads else None
        return (reports.live, reports.granted) if reports is not None else (None, None)

    async def list_jobs(self, request: ListJobs) -> Reply:
        now = self._manager.now()
        return await self._manager.ledger.read(lambda book: manager_list(book, now, request, *self._newest()))

    async def view(self, job_id: str, *, whole: bool = True) -> Reply:
        now = self._manager.now()

        def look(book: JobBook) -> tuple[JobView, list[tuple[str, str]]] | None:
            info = book.jobs.get(job_id)
            return (manager_view(info, now, *self._newest()), large_results(info)) if info is not None else None

        found = await self._manager.ledger.read(look)
        if found is None:
            info = await self._archived(job_id)
            if info is None:
                return self._unknown(job_id)
            found = manager_view(info, now), large_results(info)
        return await self._with_results(*found)

    async def _with_results(self, view: JobView, keys: Sequence[tuple[str, str]]) -> JobView:
        results: dict[str, Any] = {}
        for name, key in keys:
            stored = await self._calls.run(self._large.get, key)
            results[name] = read_record(stored, Any, f"result {key!r}") if stored is not None else None
        return with_results(view, results) if results else view

    async def why(self, request: AskWhy) -> Reply:
        job_id = request.job_id

        def look(book: JobBook) -> Why | None:
            return why(book, job_id) if job_id in book.jobs else None

        found = await self._manager.ledger.read(look)
        if found is None:
            info = await self._archived(job_id)
            if info is None:
                return self._unknown(job_id)
            book = JobBook()
            book.state.jobs[job_id] = info
            found = why(book, job_id)
        return WhyReply(why=found, text=str(found))

    async def repeatable(self, job_id: str) -> Repeatable | Reply:
        return await self._look_at(job_id, lambda info: Repeatable(info.job.submission, info.state.terminal))

    async def _look_at(self, job_id: str, look: Callable[[JobInfo], ViewT]) -> ViewT | Reply:
        """Returns what `look` finds in a job, live or archived; for an unknown job, the reply. `look` must return what no fold changes."""
        found = await self._manager.ledger.read(
            lambda book: (look(book.jobs[job_id]),) if job_id in book.jobs else None
        )
        if found is not None:
            return found[0]
        info = await self._archived(job_id)
        return look(info) if info is not None else self._unknown(job_id)

    async def _archived(self, job_id: str) -> JobInfo | None:
        stored = await self._calls.run(self._archive.get, job_id)
        return read_record(stored, JobInfo, f"job {job_id!r}") if stored is not None else None

    def _unknown(self, job_id: str) -> Reply:
        """Returns the reply for a job that this node did not find. Only the leader may call it unknown: a standby may not have read so far."""
        if not self._manager.leads:
            raise DeposedError("only the leader knows every job")
        if job_id in self._manager.ledger.book.jobs:
            # The job was not in the book when we looked. While we asked the archive, this node was elected and read on.
            return Problem(
                kind=ProblemKind.UNAVAILABLE, fact=f"job {job_id!r} came to be known just now", retryable=True
            )
        return problem(UnknownJobError(job_id))

    # Logs and evidence of an attempt

    async def logs(self, request: GetLogs) -> Reply:
        # Look at the attempt before reading its log: if it has ended, the log then holds everything that it logged before its end.
        attempt = await self._attempt(request)
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

    async def evidence(self, request: GetEvidence) -> Reply:
        attempt = await self._attempt(request)
        if isinstance(attempt, Reply):
            return attempt
        key = f"{request.job_id}/{attempt.workflow}/{attempt.number}"
        data = await self._calls.run(self._evidence.get, key)
        found = read_record(data, Any, f"evidence {key!r}") if data is not None else None
        return EvidenceView(job_id=request.job_id, workflow=attempt.workflow, attempt=attempt.number, found=found)

    async def _attempt(self, request: GetLogs | GetEvidence) -> NamedAttempt | Reply:
        """Returns the attempt that a request means. Only names that a known job has ever become part of a key."""
        number = request.attempt

        def look(info: JobInfo) -> NamedAttempt:
            name = choose(request.job_id, request.workflow, list(info.workflows))
            newest = info.workflows[name].attempt
            if not 0 <= number <= newest:
                raise LimitError("attempt", number, f"between 1 and {newest}, or 0 for the newest")
            ended = info.state.terminal or info.workflows[name].state.terminal or 0 < number < newest
            return NamedAttempt(name, number or newest, ended)

        return await self._look_at(request.job_id, look)


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
