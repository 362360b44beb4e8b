"""Ends the one job that a leader's own code failed on, so that everything else goes on. Part of every leader, of managers and of gates.

The job ends by a rule of its own, with the traceback as evidence (`FailJob`, `GateFailJob`). Where even that cannot be committed, the job is
set aside in memory for the rest of the term, and the next leader tries it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from tenure.errors import DeposedError, EngineError, TenureError
from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.deadlines import CheckJob
from tenure.jobs.decisions import Command, Outcome
from tenure.jobs.endings import ArchiveJob, CancelJob, ConfirmCleaned
from tenure.jobs.gate_decisions import CheckGlobal
from tenure.jobs.gate_jobs import GateArchive
from tenure.nodes.ledger import Decided, decided
from tenure.nodes.loop_keeper import FailedOn, ProductFailures

JobCommand = ArchiveJob | CheckJob | ConfirmCleaned | RecordDispatched | CancelJob | CheckGlobal | GateArchive


class Struck(NamedTuple):
    """A job that a leader's own code failed on, with the evidence."""

    job_id: str
    doing: str
    error: str
    trace: str


class Answered(Decided, Protocol):
    """A decision that says what became of its command."""

    @property
    def outcome(self) -> Outcome: ...


DecisionT = TypeVar("DecisionT", bound=Answered)


class JobStrikes(Generic[DecisionT]):
    """Ends or sets aside the jobs that a leader's code fails on. `aside` holds the jobs that this term leaves alone."""

    def __init__(
        self,
        commit_many: Callable[[Sequence[Command]], Awaitable[list[DecisionT | TenureError]]],
        failures: ProductFailures,
        fail: Callable[[Struck], Command],
    ) -> None:
        """`fail` makes the command that ends a job."""
        self._commit_many, self._failures, self._fail = commit_many, failures, fail
        self.aside: dict[str, None] = {}

    async def strike(self, job_id: str, doing: str, error: Exception) -> None:
        """Ends the job. Raises only the errors that concern every job: `DeposedError` and `EngineError`."""
        if concerns_all(error):
            raise error
        failed = self._failures.note(FailedOn.JOB, job_id, doing, error)
        struck = Struck(job_id, doing, f"{type(error).__name__}: {error}", failed.trace)
        try:
            decision = await self._commit(self._fail(struck))
            if decision.outcome is not Outcome.ACCEPTED:
                self.aside[job_id] = None  # the job had ended before, so it cannot fail: leave it alone
        except Exception as second:
            if concerns_all(second):
                raise
            doing = "failing it; it is left alone until another leader takes over"
            self._failures.note(FailedOn.JOB, job_id, doing, second)
            self.aside[job_id] = None

    async def commit_all(self, commands: Sequence[JobCommand], doing: str) -> None:
        """Commits commands that the leader itself gives about jobs. It tries a refused command again alone, because another command of the
        batch may have caused the refusal. When that fails, too, it fails the job: no caller waits for the command and would see its error."""
        outcomes = await self._commit_many(commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(outcome, TenureError):
                if concerns_all(outcome):
                    raise outcome
                await self.attempt(command.job_id, partial(self._commit, command), doing)

    async def attempt(self, job_id: str, act: Callable[[], Awaitable[object]], doing: str) -> bool:
        """Calls `act` for one job, and once more where it raises, because the cause may pass. Returns True when it succeeded.

        Otherwise it fails the job, or sets it aside where the job had ended before.
        """
        try:
            await act()
            return True
        except Exception as error:
            if concerns_all(error):
                raise
        try:
            await act()
            return True
        except Exception as error:
            await self.strike(job_id, doing, error)
            return False

    async def _commit(self, command: Command) -> DecisionT:
        return decided(await self._commit_many((command,)))[0]


def concerns_all(error: BaseException) -> bool:
    """Returns True for an error that no single job causes: `DeposedError` or `EngineError`."""
    return isinstance(error, (DeposedError, EngineError))
