"""Lets go of old records on the leader: results past their time, jobs that ended long ago, ids that need not be remembered any more."""

from __future__ import annotations

from functools import partial

import msgspec

from tenure.jobs import Decision
from tenure.jobs.budget import needs_measuring
from tenure.jobs.endings import ArchiveJob, ExpireResults, ForgetOld, results_expire_at
from tenure.jobs.model import JobInfo
from tenure.jobs.outbox import to_archive, to_expire
from tenure.nodes.job_views import large_results
from tenure.nodes.manager.ledger import JobMandate
from tenure.nodes.term_leader import JobStrikes

ARCHIVE = "jobs"
"""The store that keeps the records of jobs that left the book."""
LARGE_RESULTS = "results"
LARGE_RESULTS_TTL_S = 7 * 86_400
FORGET_EVERY_S = 600.0
ARCHIVING = "archiving it"
ARCHIVED_AT_ONCE = 100
"""The most jobs that one call of `tend` archives; then dispatches and deadlines have their turn."""


class Housekeeping:
    """Part of a leader. Every step is safe to repeat."""

    def __init__(self, mandate: JobMandate, strikes: JobStrikes[Decision]) -> None:
        engine = mandate.environment.engine
        self._ledger, self._strikes, self._calls = mandate.ledger, strikes, mandate.environment.calls
        self._archive, self._large = engine.store(ARCHIVE), engine.store(LARGE_RESULTS)
        self._forget_at = 0.0

    async def tend(self, now: float) -> bool:
        """Does what is due, up to a limit. Returns True when more may be due. Each step changes the store before the journal records it."""
        book, strikes = self._ledger.book, self._strikes
        for job_id in to_expire(book, now):
            if job_id in strikes.aside:
                book.expiring.cancel(job_id)  # it rests until another leader reads it off the book
            else:
                await strikes.attempt(job_id, partial(self._expire, job_id), "letting go of its results")
        due = to_archive(book, now, limit=ARCHIVED_AT_ONCE, skip=strikes.aside)
        stored = [
            job_id
            for job_id in due
            if await strikes.attempt(job_id, partial(self._store_record, job_id, now), ARCHIVING)
        ]
        if stored:
            await strikes.commit_all([ArchiveJob(by="leader", job_id=job_id) for job_id in stored], ARCHIVING)
        if needs_measuring(book):
            book.measure()
        if now >= self._forget_at:
            self._forget_at = now + FORGET_EVERY_S
            await self._ledger.commit(ForgetOld(by="leader"))
        return len(due) == ARCHIVED_AT_ONCE

    async def _expire(self, job_id: str) -> None:
        info = self._ledger.book.jobs.get(job_id)
        for _, key in large_results(info) if info is not None else ():
            await self._calls.run(self._large.delete, key)
        await self._ledger.commit(ExpireResults(by="leader", job_id=job_id))

    async def _store_record(self, job_id: str, now: float) -> None:
        info = self._ledger.book.jobs.get(job_id)
        if info is not None:
            record = await self._without_lasting_results(info, now)
            await self._calls.run(self._archive.put, job_id, msgspec.json.encode(record))

    async def _without_lasting_results(self, info: JobInfo, now: float) -> JobInfo:
        """Returns the record to archive. Results that expire move into the store with a time to live, so that the engine itself deletes them."""
        left = results_expire_at(info) - now
        if not 0 < left < float("inf"):
            return info
        workflows = dict(info.workflows)
        for name, workflow in info.workflows.items():
            key = workflow.result_key or f"{info.id}/{name}/{workflow.attempt}"
            kept = await self._calls.run(self._large.get, key) if workflow.result_key else None
            if workflow.result_key and kept is None:
                continue
            await self._calls.run(self._large.put, key, kept or msgspec.json.encode(workflow.result), ttl=left)
            workflows[name] = msgspec.structs.replace(workflow, result=None, result_key=key)
        return msgspec.structs.replace(info, workflows=workflows)
