"""The common part of the leaders of managers and gates: `TermLeader` runs the loops of one term, and `JobStrikes` ends the jobs that fail it.

A leader reads off its book which effects the decisions still owe, performs them in steps, and journals that it did. A job that its own code
fails on ends alone, so that everything else goes on: by a rule of its own, with the traceback as evidence (`FailJob`, `GateFailJob`). Where even
that cannot be committed, the job is set aside in memory for the rest of the term, and the next leader tries it again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple

from tenure.errors import DeposedError, TenureError
from tenure.jobs.attempts import RecordDispatched, RecordWithdrawn
from tenure.jobs.decisions import Command, Outcome
from tenure.jobs.endings import ArchiveJob, CancelJob, ConfirmCleaned
from tenure.jobs.gate_decisions import CheckGlobal
from tenure.jobs.gate_jobs import GateArchive
from tenure.jobs.timeout import CheckJob
from tenure.jobs.unsigned_results import FailUnsigned
from tenure.jobs.waits import WakeSleeper
from tenure.nodes.journal_reading import BookT
from tenure.nodes.ledger import NodeLedger
from tenure.nodes.loop_keeper import FailedOn, Loop, LoopKeeper, ProductFailures, concerns_all
from tenure.nodes.node_journal import DecisionT, OrderedMessage, decided
from tenure.nodes.process import Environment

TEND = "tend"
"""The name of the loop that takes a leader's steps."""
SAVE = "save"
"""The name of the loop that saves the state."""
TEND_AT_LEAST_S = 5.0
"""The longest rest between two rounds of that loop."""

JobCommand = (
    ArchiveJob
    | CheckJob
    | ConfirmCleaned
    | RecordDispatched
    | RecordWithdrawn
    | WakeSleeper
    | CancelJob
    | CheckGlobal
    | GateArchive
    | FailUnsigned
)


class Struck(NamedTuple):
    """A job that a leader's own code failed on, with the evidence."""

    job_id: str
    doing: str
    error: str
    trace: str


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


class Mandate(NamedTuple, Generic[BookT, DecisionT]):
    """The things that a leader works with during one term."""

    ledger: NodeLedger[BookT, DecisionT]
    """It has taken the lead. Its commits raise `DeposedError` once the term is over."""
    environment: Environment
    now: Callable[[], float]
    """Returns the engine's time."""
    term_s: float
    keeper: LoopKeeper
    """Keeps the loops of this term, and ends with it."""
    of_engine: Callable[[float], float]
    """Returns the time, as `now` tells it, of a moment that the engine stamped."""
    set_forward_since: Callable[[float], Awaitable[bool]]
    """Returns True when the engine's clock was set forward after this time, and ended the leases of then."""


class TermLeader(ABC, Generic[BookT, DecisionT]):
    """Leads for one term. `run` returns when the ledger is deposed."""

    def __init__(self, mandate: Mandate[BookT, DecisionT], fail: Callable[[Struck], Command]) -> None:
        """`fail` makes the command that ends a job on which our own code failed."""
        self.ledger, self.keeper, self.now = mandate.ledger, mandate.keeper, mandate.now
        environment = mandate.environment
        self.clock, self.log, self._calls = environment.clock, environment.log, environment.calls
        self.strikes: JobStrikes[DecisionT] = JobStrikes(mandate.ledger.commit_all, mandate.keeper.failures, fail)
        self.overtaken = 0
        """An epoch above this leader's that another node has told of; 0 for none. Then the node steps down and campaigns above it."""
        self._changed = asyncio.Event()
        """Set by `wake`, for the steps."""
        self._grown = asyncio.Event()
        """Set by `wake`, for the saving of the state."""
        self._steps: dict[str, Loop] = {}
        """The steps of the tending loop, in the order in which each round takes them. The subclass fills it."""

    # Defined by the subclass

    @abstractmethod
    def follow(self, decision: DecisionT) -> None:
        """Does what follows from a decision. The ledger calls it once the decision is durable, also when its caller has hung up (decision 0182)."""

    def orders_along(self) -> Sequence[OrderedMessage]:
        """Returns the messages that leave with the append which the ledger is about to make. By default there are none."""
        return ()

    @abstractmethod
    def missed(self) -> None:
        """Has the consequences of decisions read off the book: some became durable without `follow`, or `follow` failed on one."""

    @abstractmethod
    async def _begin(self) -> None:
        """Begins with what the last leader, or the last failure of the loop, left undone."""

    @abstractmethod
    def _due(self) -> float:
        """Returns the engine's time at which the next thing is due."""

    def loops(self) -> dict[str, Loop]:
        """Returns the loops of this leader by their names."""
        return {TEND: self._tend, SAVE: self._save}

    def close(self) -> None:
        """Lets go of what this leader holds, because its term is over."""

    # The loops

    async def run(self) -> None:
        """Leads until deposed."""
        try:
            await self.keeper.keep_all(self.loops())
        except DeposedError as error:
            self.log.warning(f"stopped leading: {error}")

    def wake(self) -> None:
        """Has the steps look again now: the book changed, or something else came up."""
        self._changed.set()
        self._grown.set()

    async def _tend(self) -> None:
        await self._begin()
        while True:
            self._changed.clear()  # before the steps read the book: a change while they run must wake the next round
            if await self.keeper.turn(self._steps):
                # A step that our own code failed in may have left the indexes of the book half changed.
                self.ledger.rebuild_soon()
            left = self.keeper.rest_s(min(self._due() - self.now(), TEND_AT_LEAST_S), self._steps)
            await self.clock.async_wait(self._changed, left)

    async def _save(self) -> None:
        """Saves the state whenever it is due. No step of the other loop may hold it up: under steady load some never rest (RULINGS.md, 21)."""
        while True:
            self._grown.clear()
            await self.ledger.snapshot_if_due()
            await self._grown.wait()
