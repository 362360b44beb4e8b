"""Answers gates in a datacenter: takes their submissions and global decisions, and answers forwarded requests and probes.

Every answer about a job says where the job stands here, so that a gate that lost an answer, or its journal, learns it from the next one. A
manager that does not lead sends the gate on to the leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenure.bound_checks import check
from tenure.control.async_caller import AsyncCaller
from tenure.control.messages.gates import (
    AskDatacenter,
    DatacenterSaid,
    DatacenterView,
    Forward,
    GateWord,
    TellDatacenter,
)
from tenure.control.messages.operations import BY_NAME
from tenure.control.messages.wire import Placed, Reply, Request, address_of
from tenure.control.request_decoding import read_body
from tenure.errors import (
    ConfigurationError,
    DatacenterFullError,
    DeposedError,
    OutOfBoundsError,
    ProductFailedError,
    SubmissionConflictError,
    TenureError,
)
from tenure.health.node_states import has_quorum
from tenure.jobs import Decision, JobBook
from tenure.jobs.decisions import NO_TOKEN, Command
from tenure.jobs.gate_exchange import (
    AnswerQuery,
    ObeyGlobalCancel,
    ObeyGlobalTimeout,
    correction,
    progress_report,
    report_for,
)
from tenure.jobs.messages import (
    Identity,
    JobGlobalCancel,
    JobGlobalTimeout,
    JobOrder,
    JobProgressReport,
    JobStatusCorrection,
    JobStatusQuery,
    JobTimeoutReport,
)
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import JobState
from tenure.jobs.steering import ObeyOrder
from tenure.nodes.fleet.member import room as room_for_work
from tenure.nodes.manager.gate_reports import GateReporting
from tenure.nodes.manager.job_handlers import ABOUT_ONE
from tenure.nodes.manager.leader import DatacenterLeader

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager

Report = JobProgressReport | JobTimeoutReport


class GateHandlers:
    """Answers gates: `handlers` are its handlers, `reporting` makes its part of each leader that this node becomes."""

    def __init__(self, manager: Manager, caller: AsyncCaller, identity: Identity) -> None:
        self._manager, self._caller, self._identity = manager, caller, identity
        self.handlers: dict[type[Request], Callable[[Any], Awaitable[Reply]]] = {
            TellDatacenter: self.told,
            AskDatacenter: self.probed,
            Forward: self.forwarded,
        }

    def reporting(self, leader: DatacenterLeader) -> GateReporting:
        return GateReporting(leader, self._caller, self._identity)

    async def told(self, request: TellDatacenter) -> Reply:
        """Takes the submissions and decisions of a gate. Raises `DeposedError` when this node does not lead."""
        if request.datacenter != self._identity.datacenter:
            raise ConfigurationError(
                f"a gate takes this for datacenter {request.datacenter!r}, and it is {self._identity.datacenter!r}",
                remedy="Start the gate with the address of each datacenter under its own name",
            )
        # Submissions first: the cancellation of a job may travel in the same message as its submission.
        reports, refused = await self._submit(request.submissions)
        corrections = await self.obey(request.words)
        return DatacenterSaid(
            datacenter=self._identity.datacenter, reports=tuple(reports), corrections=(*refused, *corrections)
        )

    async def forwarded(self, request: Forward) -> Reply:
        """Answers a request about this datacenter that a gate passes on. The gate has checked who its caller is, and that the caller may ask it."""
        operation = BY_NAME.get(request.name)
        if operation is None or not issubclass(operation.request, Placed):
            raise ConfigurationError(f"a gate passes on what is about one datacenter, and not {request.name!r}")
        inner = read_body(operation, bytes(request.body))
        return await self._manager.answer(f"gate {request.by}", inner)

    async def _submit(self, submissions: Sequence[JobSubmission]) -> tuple[list[Report], list[JobStatusCorrection]]:
        if not submissions:
            return [], []
        # Unanswered submissions stay owed: the gate sends them again, and says meanwhile that this datacenter accepts none.
        submissions = [one for one in submissions if self._manager.takes(one)]
        taken, answers, commands = [], [], []
        for one in submissions:
            try:
                commands.append((one, await self._manager.jobs.submit_command(one, by="gate")))
            except ABOUT_ONE as error:
                answers.append(self._never(one.job_id, one.gate_epoch, str(error)))
        submissions = [one for one, _ in commands]
        outcomes = await self._commit_each([command for _, command in commands])
        await self._manager.jobs.drop_unused([command for _, command in commands], outcomes)
        for one, outcome in zip(submissions, outcomes, strict=True):
            if isinstance(outcome, DatacenterFullError):
                continue  # not answered, so the gate still owes it and sends it again
            if isinstance(outcome, (SubmissionConflictError, ConfigurationError, ProductFailedError)):
                answers.append(self._never(one.job_id, one.gate_epoch, str(outcome)))
            elif isinstance(outcome, TenureError):
                raise outcome
            else:
                # An idempotency key may have been used before, by another job: that one runs, and this one does not.
                taken.append((one.job_id, outcome.job_id))
        now = self._manager.now()

        def look(book: JobBook) -> list[tuple[str, Report | None]]:
            return [(asked, self._report(book, asked, found, now)) for asked, found in taken]

        found = await self._manager.ledger.read(look)
        unknown = [JobStatusQuery(job_id=job_id) for job_id, report in found if report is None]
        reports = [report for _, report in found if report is not None]
        return reports, [*answers, *await self.obey(unknown)]

    async def _commit_each(self, commands: Sequence[Command]) -> list[Decision | TenureError]:
        """Commits all commands together. One that our own code failed on is tried again alone: another command may have caused the failure."""
        outcomes = await self._manager.leadership.commit_all(commands)
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, ProductFailedError):
                outcomes[place] = (await self._manager.leadership.commit_all([commands[place]]))[0]
        return outcomes

    def _report(self, book: JobBook, asked: str, found: str, now: float) -> Report | None:
        info = book.jobs.get(asked)
        if info is None or found != asked:
            return None
        return report_for(info, self._identity, now, book.settings) or progress_report(
            info, self._identity, now, book.settings
        )

    def _never(self, job_id: str, gate_epoch: int, reason: str) -> JobStatusCorrection:
        """Returns the refusal of a job that will not run here, however often the gate sends it: it counts as failed."""
        return correction(self._identity, job_id, JobState.FAILED, NO_TOKEN, gate_epoch, reason=f"refused: {reason}")

    async def obey(self, words: Sequence[GateWord]) -> list[JobStatusCorrection]:
        taken: list[GateWord] = []
        replies: list[JobStatusCorrection] = []
        for word in words:
            try:
                check(word)
                taken.append(word)
            except OutOfBoundsError as error:
                # A gate of an earlier release sent it. It can mean no job of ours, so we refuse it for good, and the gate does not send it again.
                replies.append(self._never(word.job_id, word.gate_epoch, str(error)))
        for outcome in await self._commit_each([self._command_for(word) for word in taken]):
            if isinstance(outcome, DeposedError):
                raise outcome
            # A message about an unknown job needs a tombstone. When there is no room for one, or when our own code failed on the message,
            # the gate gets no answer to it and sends it again. The other messages are answered.
            if isinstance(outcome, TenureError):
                continue
            assert outcome.reply is not None, "a gate's word that is heard is answered"
            replies.append(outcome.reply)
        return replies

    def _command_for(self, word: GateWord) -> ObeyGlobalTimeout | ObeyGlobalCancel | AnswerQuery | ObeyOrder:
        if isinstance(word, JobOrder):
            return ObeyOrder(by="gate", message=word, identity=self._identity)
        if isinstance(word, JobGlobalTimeout):
            return ObeyGlobalTimeout(by="gate", message=word, identity=self._identity)
        if isinstance(word, JobGlobalCancel):
            return ObeyGlobalCancel(by="gate", message=word, identity=self._identity)
        return AnswerQuery(by="gate", message=word, identity=self._identity)

    # Probes

    async def probed(self, request: AskDatacenter) -> Reply:
        """Answers a gate's probe. Every manager does, also while none of them leads."""
        manager, leadership = self._manager, self._manager.leadership
        flow, closed = manager.flow(), manager.closed
        free = room_for_work(manager.standings(), leadership.ledger.book.state.drained)
        return DatacenterView(
            datacenter=self._identity.datacenter,
            manager_id=self._identity.manager_id,
            leads=manager.leads,
            leader=address_of(leadership.known_leader),
            has_quorum=has_quorum(engine_answers=leadership.engine_answers, term_is_current=leadership.term_is_current),
            accepting_jobs=not closed,
            closed=closed,
            active_worker_count=free.workers,
            drained_worker_count=free.drained,
            available_capacity=free.capacity,
            jobs_accepted_last_interval=flow.accepted,
            workflows_dispatched_last_interval=flow.dispatched,
            expected_throughput=flow.expected,
            workflows_waiting=flow.waiting,
        )
