"""Takes work back from the engine that nobody shall start: work that no worker serves any more, and that of paused jobs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tenure.engines.contracts import Mailbox, Withdrawal
from tenure.jobs import Decision
from tenure.jobs.attempts import RecordWithdrawn
from tenure.jobs.book import JobBook, WorkflowKey
from tenure.jobs.outbox import mailbox_of, message_key, to_take_back, to_withdraw
from tenure.jobs.states import WorkflowState
from tenure.nodes.manager.ledger import JobMandate, ResultIntake
from tenure.nodes.term_leader import JobStrikes
from tenure.work.delivery import WorkItem, WorkResult

PARKING = "taking it back from the engine"
MOST_WITHDRAWN = 200
WITHDRAW_AFTER_S = 10.0
"""The seconds after the last worker left for which its work stays in the engine."""
SHARED_AFTER_S = 1.0
"""The seconds after the catalogue came into force for which work that nobody serves stays in a mailbox that all workflows share. It was sent before
anybody had registered, and what is behind it waits for it (decision 0521)."""
PAUSED_AGAIN_S = 2.0
"""The pause between two looks at messages of paused jobs that a worker had claimed and not started."""


class Withdrawals:
    """Part of a leader: `tend` is one of its steps."""

    def __init__(
        self,
        mandate: JobMandate,
        strikes: JobStrikes[Decision],
        results: ResultIntake,
        mailbox: Callable[[str], Mailbox[WorkItem, WorkResult]],
    ) -> None:
        self._ledger, self._strikes, self._results, self._mailbox = mandate.ledger, strikes, results, mailbox
        self._calls, self._now = mandate.environment.calls, mandate.now
        self._was_leased = False
        """True when the last look found a message in a shared mailbox that a worker had claimed."""
        self._looked_at = -math.inf
        """The time of the last look at paused jobs."""
        self._looked_for: float | None = None
        """The `lost_at` for which the mailboxes that all workflows share have been looked through."""

    def next_due(self) -> float:
        paused = self._looked_at + PAUSED_AGAIN_S if to_take_back(self._ledger.book, limit=1) else math.inf
        return min(self._shared_at(), self._unserved_at(), paused)

    async def tend(self) -> None:
        """Takes back what nobody serves any more, some seconds after the last worker left: a worker that restarts finds its work where it was.
        The messages of paused jobs are taken back at once."""
        now = self._now()
        if now >= self._shared_at():
            looks_for = self._ledger.book.lost_at
            if await self._withdraw(partial(to_withdraw, limit=MOST_WITHDRAWN, shared_only=True)) < MOST_WITHDRAWN:
                self._looked_for = looks_for
        if now >= self._unserved_at():
            await self._withdraw(partial(to_withdraw, limit=MOST_WITHDRAWN), unserved=True)
        if now >= self._looked_at + PAUSED_AGAIN_S and to_take_back(self._ledger.book, limit=1):
            self._looked_at = now
            await self._withdraw(partial(to_take_back, limit=MOST_WITHDRAWN))

    async def _withdraw(self, choose: Callable[[JobBook], list[WorkflowKey]], *, unserved: bool = False) -> int:
        """Returns how many messages were gone from the engine afterwards."""
        gone: list[tuple[str, str, int]] = []
        self._was_leased = False
        for key in await self._ledger.read(choose):
            await self._strikes.attempt(key[0], partial(self._take_back, key, gone), PARKING)
        if unserved and len(gone) < MOST_WITHDRAWN:
            # What is leased now runs, or comes back to a worker. Set before anything is waited for: a worker that leaves meanwhile sets it anew.
            # What a mailbox shares comes back to one that does not know it, so it is looked for again.
            self._ledger.book.lost_at = self._now() if self._was_leased else None
        # A message may be absent because its work has just ended: then it is not recorded as taken back.
        await self._results.drain()
        await self._strikes.commit_all(
            [
                RecordWithdrawn(by="leader", job_id=job_id, workflow=name, attempt=attempt)
                for job_id, name, attempt in gone
            ],
            PARKING,
        )
        return len(gone)

    def _shared_at(self) -> float:
        book = self._ledger.book
        if book.lost_at is None or book.lost_at == self._looked_for:
            return math.inf
        return max(book.lost_at, book.state.elected_at) + SHARED_AFTER_S

    def _unserved_at(self) -> float:
        book = self._ledger.book
        return math.inf if book.lost_at is None else max(book.lost_at, book.state.elected_at) + WITHDRAW_AFTER_S

    async def _take_back(self, key: WorkflowKey, gone: list[tuple[str, str, int]]) -> None:
        info = self._ledger.book.jobs[key[0]]
        workflow = info.workflows[key[1]]
        mailbox = self._mailbox(mailbox_of(info, workflow))
        found = await self._calls.run(mailbox.withdraw, message_key(*key), workflow.generation)
        self._was_leased = self._was_leased or (found is Withdrawal.LEASED and not workflow.by_workflow)
        # One that is absent was taken back by a leader that died before it recorded that.
        if found is not Withdrawal.LEASED and workflow.state is WorkflowState.QUEUED:
            gone.append((*key, workflow.attempt))
