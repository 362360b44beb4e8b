"""Finds jobs whose ids the book had to forget before their time, so that a submission that is made again makes no second job (decision 0651).

The book remembers the newest archived ids, 250,000 of them. A busy datacenter archives as many within hours; their records, and an entry for each
idempotency key, are in the engine's store for longer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Store
from tenure.errors import EngineCorruptError
from tenure.jobs.book import JobBook
from tenure.jobs.model import JobInfo, JobSubmission
from tenure.jobs.submission import FormerJob
from tenure.nodes.stored_values import read_record

ARCHIVE = "jobs"
"""The store that keeps the records of jobs that left the book."""
KEYS = "idempotency-keys"
"""The store that maps idempotency keys of archived jobs to these."""
RECORDS_AT_ONCE = 50
"""The most records that one look takes into memory: each may have results of many hundred kilobytes, and a caller may name a thousand old jobs."""


class RememberedIds:
    """Part of a manager."""

    def __init__(self, engine: Engine, calls: Calls) -> None:
        self._calls = calls
        self._archive: Store = engine.store(ARCHIVE)
        self._keys: Store = engine.store(KEYS)

    async def keep_keys(self, jobs: Iterable[JobInfo], keep_s: float) -> None:
        """Keeps the idempotency keys of jobs that are about to be archived."""
        former = {
            _name(key): msgspec.json.encode(FormerJob(job_id=info.id, digest=info.digest))
            for info in jobs
            if (key := info.job.submission.idempotency_key)
        }
        if former:
            await self._calls.run(self._keys.put_each, former, ttl=keep_s)

    async def find(self, book: JobBook, submissions: Sequence[JobSubmission]) -> dict[str, FormerJob]:
        """Maps the id of each of these submissions that made a job before, which the book has forgotten, to that job.

        It asks the engine nothing until the book has forgotten an id before its time. A job cannot be forgotten between this look and the
        decision: thousands of others would have to be archived first.
        """
        if not book.state.forgotten_early:
            return {}
        # A gate keeps the ids of its jobs itself.
        asked = [one for one in submissions if one.gate_addr is None and book.known_digest(one.job_id) is None]
        if not asked:
            return {}
        names = {
            one.job_id: _name(one.idempotency_key)
            for one in asked
            if one.idempotency_key and one.idempotency_key not in book.keys
        }
        keys = await self._calls.run(self._keys.get_many, list(set(names.values()))) if names else {}
        former = {job_id: found for job_id, name in names.items() if (found := _of_key(keys.get(name))) is not None}
        ids = [one.job_id for one in asked]
        for start in range(0, len(ids), RECORDS_AT_ONCE):
            records = await self._calls.run(self._archive.get_many, ids[start : start + RECORDS_AT_ONCE])
            # An id is a stronger name than a key.
            former |= {job_id: _of_record(job_id, stored) for job_id, stored in records.items()}
        return former


def _of_key(stored: bytes | None) -> FormerJob | None:
    try:
        return msgspec.json.decode(stored, type=FormerJob) if stored is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # what cannot be read names no job, and must not refuse the submissions beside it


def _of_record(job_id: str, stored: bytes) -> FormerJob:
    try:
        info: JobInfo = read_record(stored, JobInfo, f"job {job_id!r}")
    except EngineCorruptError:
        return FormerJob(job_id=job_id, digest="")  # there was such a job, so any contents are taken for the same
    return FormerJob(job_id=job_id, digest=info.digest)


def _name(key: str) -> str:
    """Returns the name of a key in the store, which takes shorter and plainer ones."""
    return hashlib.blake2b(key.encode(), digest_size=20).hexdigest()
