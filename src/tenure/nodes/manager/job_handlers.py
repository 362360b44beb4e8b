"""Answers a manager's requests about jobs, and records each job that ends as one span of its trace.

Any manager answers the reads, from a book that is never ahead of the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from tenure.attempt_data import OUTPUT_STORE, HandedResult, Signal
from tenure.beat.proof import UNPROVEN
from tenure.clock import Clock
from tenure.control.claims import scope
from tenure.control.messages.job_output import (
    MAX_OUTPUT_BYTES,
    EvidenceView,
    GetEvidence,
    GetLogs,
    GetOutput,
    LogPage,
    OutputItem,
    OutputPage,
)
from tenure.control.messages.jobs import AskWhy, Cancel, JobView, ListJobs, SteeringRequest, WhyReply, WorkflowView
from tenure.control.messages.wire import Problem, ProblemKind, Reply
from tenure.control.problems import problem
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import (
    ConfigurationError,
    DeposedError,
    EngineCorruptError,
    LimitError,
    NodeUnavailableError,
    TenureError,
    UnknownJobError,
    WorkError,
)
from tenure.jobs import Decision, JobBook
from tenure.jobs.arguments import check_not_stored, secret_names, too_large
from tenure.jobs.door import enter, shape_of_wait
from tenure.jobs.endings import CancelJob
from tenure.jobs.model import JobInfo, JobSubmission
from tenure.jobs.submission import FormerJob, SubmitJob
from tenure.jobs.why import attempts_to_look_at, why
from tenure.jobs.why_answer import AttemptEvidence, Why, evidence_of, utc
from tenure.nodes.grant_views import Granted
from tenure.nodes.job_handlers import JobHandlers, Repeatable, choose
from tenure.nodes.job_listing import manager_list
from tenure.nodes.job_views import Live, manager_view, newest_report
from tenure.nodes.manager.earned_time import as_asked
from tenure.nodes.manager.ended_work import EndedSteps
from tenure.nodes.manager.log_pages import cut, log_page
from tenure.nodes.manager.manager_health import MANAGER
from tenure.nodes.manager.steering import check_goal, command_of
from tenure.nodes.stored_values import ARCHIVE, RememberedIds, StoredValues, large_results, read_record, stored_keys
from tenure.work.log_lines import log_key, read_log
from tenure.work.output_stream import output_items

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager


LOGS, EVIDENCE = "logs", "evidence"
LOG_TAIL_BYTES, MOST_LOG_LINES = 16_384, 20
"""The end of an attempt's log that its evidence shows."""
CLOSED_AGAIN_S = 10.0
"""The seconds after which a client may submit again to a manager that an operator drained."""
FULL_AGAIN_S = 5.0
"""The seconds after which it may submit again to one whose engine is full: an append that waits for room may have found it."""
ViewT = TypeVar("ViewT")


OUTPUT_LOOK_S = 0.25
"""The pause between two looks at the output of a workflow for a caller that waits."""


ABOUT_ONE = (ConfigurationError, WorkError, UnknownJobError, EngineCorruptError)
"""The errors by which one submission of many is refused, and the others are not."""


class NamedAttempt(NamedTuple):
    """The attempt that a request means. `ended` is False while the attempt may still log."""

    workflow: str
    number: int
    ended: bool


class ManagerJobHandlers(JobHandlers):
    """Part of a manager."""

    def __init__(self, manager: Manager, engine: Engine, calls: Calls, clock: Clock) -> None:
        super().__init__(engine, calls, clock)
        self._outputs = engine.store(OUTPUT_STORE)
        self._manager = manager
        self._archive, self._values = engine.store(ARCHIVE), StoredValues(engine, calls)
        self._steps = EndedSteps(engine, calls)
        self._ids = RememberedIds(engine, calls)
        self._logs, self._evidence = engine.store(LOGS), engine.store(EVIDENCE)

    @property
    def position(self) -> tuple[int, int]:
        return self._manager.epoch, self._manager.ledger.seq

    async def accept(self, submissions: Sequence[JobSubmission]) -> Sequence[Decision | TenureError]:
        refused: dict[int, TenureError] = {}  # by place: one call may name an id twice
        commands = []
        former = await self._ids.find(self._manager.ledger.book, submissions)
        for place, one in enumerate(submissions):
            if not self._manager.takes(one):
                refused[place] = self._refusal(one)
                continue
            try:
                commands.append(await self.submit_command(one, former=former.get(one.job_id)))
            except ABOUT_ONE as error:
                refused[place] = error
        outcomes = await self._manager.leadership.commit_all(commands)
        await self.drop_unused(commands, outcomes)
        made = iter(outcomes)
        return [refused.get(place) or next(made) for place in range(len(submissions))]

    async def drop_unused(self, commands: Sequence[SubmitJob], outcomes: Sequence[Decision | TenureError]) -> None:
        """Deletes the large arguments of submissions that became no job."""
        for command, outcome in zip(commands, outcomes, strict=True):
            if (isinstance(outcome, Decision) and outcome.events) or self.has_ended(command.submission.job_id):
                continue
            if command.former is not None:
                continue  # nothing was stored for it, and what is there is that job's
            if isinstance(outcome, TenureError) and outcome.retryable:
                continue  # it is submitted again; and one whose answer was lost may be in the journal
            used = stored_keys(self.submission_of(command.submission.job_id))
            await self._arguments.delete([one for one in stored_keys(command.submission) if one not in used])

    async def submit_command(
        self, submission: JobSubmission, by: str = "", former: FormerJob | None = None
    ) -> SubmitJob:
        """Returns the command that submits a job, with the results that it takes over from the job that it repeats; none where that ran elsewhere."""
        check_not_stored(submission)
        taken: dict[str, HandedResult] = {}
        forked: tuple[str, ...] = ()
        if submission.retry_of:
            found = await self._manager.ledger.read(lambda book: book.jobs.get(submission.retry_of))
            info = found or await self._archived(submission.retry_of)
            known = self._manager.ledger.book.known_digest(submission.job_id) is not None
            forked = await self._steps.fork(info, submission) if submission.retry_from and not known else ()
            taken = await self._values.taken(info, submission, forked)
        submission = await self._with_stored_arguments(submission, former)
        return SubmitJob(
            submission=submission, by=by or submission.submitted_by, taken=taken, forked=forked, former=former
        )

    async def _with_stored_arguments(self, submission: JobSubmission, former: FormerJob | None) -> JobSubmission:
        """Returns the submission as the journal can hold it. Large arguments are checked here: behind this nobody sees them but the worker."""
        if not too_large(submission):
            return submission
        now = self._manager.now()
        await self._manager.ledger.read(lambda book: enter(book, submission, now))
        # Only the marks of a job that is known are compared.
        known = former is not None or self._manager.ledger.book.known_digest(submission.job_id) is not None
        return await self._arguments.kept(submission, write=not known)

    def _refusal(self, submission: JobSubmission) -> NodeUnavailableError:
        fact, manager = f"job {submission.job_id!r} is not accepted: ", self._manager
        if drained := manager.drained:
            undo = f"tenure drain {MANAGER}{manager.plain_name} --undo"
            remedy = f"Submit it to another datacenter, or let this manager accept jobs again: {undo}"
            return NodeUnavailableError(f"{fact}this manager is {drained}", remedy=remedy, retry_after_s=CLOSED_AGAIN_S)
        remedy = "Make room for the engine, and submit it again; nothing was changed"
        return NodeUnavailableError(f"{fact}{manager.closed}", remedy=remedy, retry_after_s=FULL_AGAIN_S)

    async def cancel(self, request: Cancel) -> Decision:
        return await self._manager.leadership.commit(
            CancelJob(job_id=request.job_id, reason=request.reason, by=request.by)
        )

    async def steer(self, request: SteeringRequest) -> Decision:
        check_goal(self._manager, request)
        return await self._manager.leadership.commit(command_of(request))

    # Reads

    @property
    def book(self) -> JobBook:
        return self._manager.ledger.book

    async def signals(self, job_id: str) -> tuple[Signal, ...]:
        def look(book: JobBook) -> tuple[Signal, ...]:
            info = book.jobs.look(job_id)
            return tuple(info.signals) if info is not None else ()

        return await self._manager.ledger.read(look)

    def submission_of(self, job_id: str) -> JobSubmission | None:
        info = self._manager.ledger.book.jobs.look(job_id)
        return info.job.submission if info is not None else None

    def live_submissions(self) -> Iterable[JobSubmission]:
        return [info.job.submission for info in self._manager.ledger.book.live_jobs()]

    def _newest(self) -> tuple[Live | None, Granted | None]:
        """Returns what workers reported since the last append; nothing on a standby, because workers report to the leader only."""
        reports = self._manager.worker_reports if self._manager.leads else None
        return (reports.live, reports.granted) if reports is not None else (None, None)

    async def list_jobs(self, request: ListJobs) -> Reply:
        now, within = self._manager.now(), scope()
        return await self._manager.ledger.read(
            lambda book: manager_list(book, now, request, *self._newest(), within=within)
        )

    async def view(self, job_id: str, *, whole: bool = True) -> Reply:
        now = self._manager.now()

        def look(book: JobBook) -> tuple[JobView, list[tuple[str, str]]] | None:
            info = book.jobs.get(job_id)
            if info is None:
                return None
            waits_for, shape = partial(book.waits_for, now=now), partial(shape_of_wait, book, now=now)
            view = manager_view(info, now, *self._newest(), waits_for, partial(secret_names, book), shape)
            return view, large_results(info)

        found = await self._read(job_id, look)
        if found is None:
            info = await self._archived(job_id)
            if info is None:
                return self._unknown(job_id)
            known = partial(secret_names, self._manager.ledger.book)
            found = manager_view(info, now, secrets=known), large_results(info)
        return await self._values.with_results(*found)

    async def whole_result(self, view: JobView, one: WorkflowView) -> Any:
        found = await self._look_at(view.job_id, large_results)
        return None if isinstance(found, Reply) else await self._values.result(dict(found)[one.name])

    async def why(self, request: AskWhy) -> Reply:
        job_id, now = request.job_id, self._manager.now()

        def look(book: JobBook) -> tuple[Why, list[tuple[str, int, str]]] | None:
            info = book.jobs.get(job_id)
            return (why(book, job_id, now), attempts_to_look_at(info)) if info is not None else None

        found = await self._read(job_id, look)
        if found is None:
            info = await self._archived(job_id)
            if info is None:
                return self._unknown(job_id)
            book = JobBook()
            book.jobs[job_id] = info
            found = why(book, job_id), attempts_to_look_at(info)
        told, attempts = found
        evidence = [await self._found(job_id, *one) for one in attempts]
        told = msgspec.structs.replace(told, found=tuple(one for one in evidence if one is not None))
        return WhyReply(why=told, text=str(told) + self._unproven(job_id), now=self._manager.now())

    async def _found(self, job_id: str, workflow: str, attempt: int, worker: str = "") -> AttemptEvidence | None:
        """Returns what the store has of an attempt: its evidence, and the end of its log. None where it has neither."""
        kept = await self._kept(job_id, workflow, attempt)
        data = read_log(await self._calls.run(self._logs.get, log_key(job_id, workflow, attempt)))
        lines, _ = cut(data, max(0, data.rfind(b"\n", 0, max(0, len(data) - LOG_TAIL_BYTES)) + 1), LOG_TAIL_BYTES)
        if kept is None and not lines:
            return None
        said = tuple(f"{utc(line.at)[11:19]} {line.level} {line.text}" for line in lines[-MOST_LOG_LINES:])
        return evidence_of(workflow, attempt, worker, kept, said)

    def _unproven(self, job_id: str) -> str:
        """Returns a line for each running workflow of a job that has shown nothing but beats. It is no decision, so the journal has none."""
        live, info = self._newest()[0], self._manager.ledger.book.jobs.get(job_id)
        if live is None or info is None:
            return ""
        said = ((name, newest_report(job_id, name, one, live)) for name, one in info.workflows.items())
        return "".join(f"\n{name} is {UNPROVEN}.\n" for name, one in said if one is not None and one.unproven)

    async def repeatable(self, job_id: str) -> Repeatable | Reply:
        book = self._manager.ledger.book
        return await self._look_at(job_id, lambda info: Repeatable(as_asked(info, book), info.state.terminal))

    async def _look_at(self, job_id: str, look: Callable[[JobInfo], ViewT]) -> ViewT | Reply:
        """Returns what `look` finds in a job, live or archived; for an unknown job, the reply. `look` must return what no fold changes."""
        found = await self._read(job_id, lambda book: (look(book.jobs[job_id]),) if job_id in book.jobs else None)
        if found is not None:
            return found[0]
        info = await self._archived(job_id)
        return look(info) if info is not None else self._unknown(job_id)

    async def _read(self, job_id: str, look: Callable[[JobBook], ViewT]) -> ViewT:
        """Returns what `look` finds about one job, also while this manager still reads its journal, where it has read that job."""
        return await self._manager.ledger.read_job(lambda book: book.jobs, job_id, look)

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
        data = read_log(await self._calls.run(self._logs.get, key))
        lines, after, more = log_page(data, request.offset, request.limit)
        return LogPage(
            job_id=request.job_id,
            workflow=attempt.workflow,
            attempt=attempt.number,
            lines=lines,
            next=after,
            more=more,
            ended=attempt.ended,
        )

    async def output(self, request: GetOutput) -> Reply:
        """Returns the items that a workflow has emitted. It may wait for one; a store tells nobody that it was written, so it looks again and again."""
        until = self._clock.monotonic() + request.wait_s

        def look(info: JobInfo) -> NamedAttempt:
            name = choose(request.job_id, request.workflow, list(info.workflows))
            one = info.workflows[name]
            return NamedAttempt(name, one.attempt, info.state.terminal or one.state.terminal)

        while True:
            # Look at the workflow before its output: if it has ended, the output then holds all of it.
            found = await self._look_at(request.job_id, look)
            if isinstance(found, Reply):
                return found
            read = partial(output_items, self._outputs, request.job_id, found.workflow)
            items, more = await self._calls.run(read, request.after, request.limit, MAX_OUTPUT_BYTES)
            if items or found.ended or self._clock.monotonic() >= until:
                break
            await self._clock.async_sleep(OUTPUT_LOOK_S)
        return OutputPage(
            job_id=request.job_id,
            workflow=found.workflow,
            items=tuple(
                OutputItem(offset=offset, item=msgspec.json.decode(data), at=at, attempt=attempt)
                for offset, at, attempt, data in items
            ),
            next=items[-1][0] + 1 if items else request.after,
            more=more,
            ended=found.ended,
        )

    async def evidence(self, request: GetEvidence) -> Reply:
        attempt = await self._attempt(request)
        if isinstance(attempt, Reply):
            return attempt
        kept = await self._kept(request.job_id, attempt.workflow, attempt.number)
        shown = await self._found(request.job_id, attempt.workflow, attempt.number)
        return EvidenceView(
            job_id=request.job_id, workflow=attempt.workflow, attempt=attempt.number, found=kept, evidence=shown
        )

    async def _kept(self, job_id: str, workflow: str, attempt: int) -> Any:
        key = log_key(job_id, workflow, attempt)
        data = await self._calls.run(self._evidence.get, key)
        return read_record(data, Any, f"evidence {key!r}") if data is not None else None

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
