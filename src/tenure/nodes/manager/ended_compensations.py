"""The leader's look at the compensations of a job that has ended: a job of their own runs them, or they are deleted because nobody needs them.

It comes after the messages of the job are revoked, and before the job counts as cleaned. So a leader that dies in between is followed by one that looks
again, and an attempt that goes on without knowing of the end can register nothing that nobody would see.
"""

from __future__ import annotations

from typing import NamedTuple

from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.jobs import JobBook
from tenure.jobs.states import JobState
from tenure.jobs.undo import StartUndo
from tenure.jobs.undo_rules import may_have_compensations
from tenure.nodes.manager.ledger import JobLedger
from tenure.work.kept_compensations import COMPENSATIONS_STORE, compensations_prefix, registered_workflow


class EndedWork(NamedTuple):
    """The job whose compensations are in question, and whether they are needed any more."""

    origin: str
    needed: bool
    is_undo: bool


class EndedCompensations:
    """Part of a leader. Every step is safe to repeat."""

    def __init__(self, ledger: JobLedger, engine: Engine, calls: Calls) -> None:
        self._ledger, self._calls, self._store = ledger, calls, engine.store(COMPENSATIONS_STORE)

    async def look(self, job_id: str) -> None:
        """Starts the job that runs the compensations of an ended one, if it has any; deletes those that nobody needs."""
        ended = await self._ledger.read(lambda book: _ended(book, job_id))
        if ended is None:
            return
        keys = await self._keys(ended.origin)
        if not ended.needed:
            for key in keys:
                await self._calls.run(self._store.delete, key)
        elif not ended.is_undo and (names := tuple(filter(None, map(registered_workflow, keys)))):
            await self._ledger.commit(StartUndo(by="leader", job_id=job_id, workflows=names))

    async def _keys(self, job_id: str) -> list[str]:
        prefix, found = compensations_prefix(job_id), list[str]()
        while page := await self._calls.run(self._store.list, prefix, after=found[-1] if found else None):
            found += page
        return found


def _ended(book: JobBook, job_id: str) -> EndedWork | None:
    """Returns the ended job as far as it matters here; None for one that registered nothing for sure."""
    info = book.jobs[job_id]
    if not may_have_compensations(info):
        return None
    completed = info.state is JobState.COMPLETED and not info.failed_workflows
    if origin := info.job.submission.undo_of:
        return EndedWork(origin, not completed, is_undo=True)
    return EndedWork(job_id, info.state is not JobState.COMPLETED, is_undo=False)
