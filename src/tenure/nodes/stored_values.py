"""Keeps values that are too large for a journal in the engine's store: results and arguments, for as long as somebody may ask for them.

A result is under `JOB/WORKFLOW/ATTEMPT`. While its job lives it has a year, because a workflow may come after it months later; when the job is
archived, it has the time of the job's record, or what is left of the job's `result_ttl`.

Arguments are under `JOB/WORKFLOW/CONTENTS` before the journal has the job, and have the same times. Those of a schedule are under the schedule's own
name for as long as it stands, because each of its runs reads them.

The store also knows ids that a book had to forget before their time (`RememberedIds`), so that a submission that is made again makes no second job
(decision 0651). The book remembers the newest archived ids, 250,000 of them. A busy datacenter archives as many within hours; their records, and an entry
for each idempotency key, are in the store for longer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from tenure.attempt_data import (
    ARGUMENTS_STORE,
    LIVE_TTL_S,
    MAX_INLINE_BYTES,
    MAX_MESSAGE_RESULT_BYTES,
    MAX_SHOWN_BYTES,
    RESULTS_STORE,
    HandedResult,
    elsewhere,
    result_key,
)
from tenure.control.messages.jobs import JobView
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Store
from tenure.errors import EngineCorruptError
from tenure.jobs.arguments import arguments_key, too_large
from tenure.jobs.book import JobBook
from tenure.jobs.endings import results_expire_at
from tenure.jobs.model import JobInfo, JobSubmission, WorkflowSpec
from tenure.jobs.outbox import Dispatch
from tenure.jobs.result_flow import handed_result
from tenure.jobs.states import WorkflowState
from tenure.jobs.submission import FormerJob
from tenure.jobs.undo_rules import check_not_kept

_encode = msgspec.json.encode
RecordT = TypeVar("RecordT")


def read_record(stored: bytes, kind: type[RecordT] | Any, what: str) -> RecordT:
    """Returns the record that a node keeps in a store as these bytes; `what` names it.

    Raises `EngineCorruptError` for bytes that cannot be read: that is the store's damage, and no fault of the node that asks for the record.
    """
    try:
        return msgspec.json.decode(stored, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineCorruptError(
            f"the store's record of {what} cannot be read: {error}",
            remedy="It was written by something else, or damaged; delete it from the store, or restore it from a backup",
        ) from error


class StoredValues:
    """Reads and writes results. Every step is safe to repeat."""

    def __init__(self, engine: Engine, calls: Calls) -> None:
        self._calls, self._results = calls, engine.store(RESULTS_STORE)

    async def keep_result(self, key: str, result: bytes) -> None:
        """Keeps the result of a live job."""
        await self._calls.run(self._results.put, key, result, ttl=LIVE_TTL_S)

    async def with_results(self, view: JobView, keys: Sequence[tuple[str, str]]) -> JobView:
        """Returns the view with the results that are in the store, as far as one answer can hold them."""
        found: dict[str, Any] = {}
        size, most = 0, MAX_SHOWN_BYTES if view.ended else MAX_MESSAGE_RESULT_BYTES
        for name, key in keys:
            stored = await self._calls.run(self._results.get, key)
            size += len(stored or b"")
            fits = stored is None or size <= most
            found[name] = _value(stored, key) if fits else elsewhere(len(stored or b""))
        workflows = (
            msgspec.structs.replace(one, result=found[one.name]) if one.name in found else one for one in view.workflows
        )
        return msgspec.structs.replace(view, workflows=tuple(workflows)) if found else view

    async def result(self, key: str) -> Any:
        """Returns one stored result; None where it is gone."""
        return _value(await self._calls.run(self._results.get, key), key)

    async def delete_results(self, info: JobInfo) -> None:
        for _, key in large_results(info):
            await self._calls.run(self._results.delete, key)

    async def archived(self, info: JobInfo, now: float, keep_s: float) -> JobInfo:
        """Returns the record to archive. Its stored results get `keep_s`, or the time that is left to them, so that the engine itself deletes them.

        Where the submission limits the time of its results, those in the record move into the store, too.
        """
        left = results_expire_at(info) - now
        limited = 0 < left < float("inf")
        workflows = dict(info.workflows)
        for name, one in info.workflows.items():
            key = one.result_key or result_key(info.id, name, one.attempt)
            kept = await self._calls.run(self._results.get, key) if one.result_key else None
            if kept is None and (one.result_key or not limited):
                continue
            ttl = min(left, keep_s) if one.result_key else left
            await self._calls.run(self._results.put, key, kept or _encode(one.result), ttl=max(ttl, 1.0))
            workflows[name] = msgspec.structs.replace(one, result=None, result_key=key)
        return msgspec.structs.replace(info, workflows=workflows)

    async def fitted(self, order: Dispatch) -> Dispatch:
        """Returns the order with results that fit into one message. Those of the journal go into the store first where they are too many."""
        return order._replace(results=await self._fitted(order.results)) if order.results else order

    async def taken(
        self, info: JobInfo | None, submission: JobSubmission, forked: Sequence[str] = ()
    ) -> dict[str, HandedResult]:
        """Returns the results that a job takes over from the ended one that it repeats: those of its finished workflows, if they are the same work.

        Stored ones are copied, so that neither job loses a result with the other.
        """
        specs = {spec.name: spec for spec in submission.workflows}
        if info is None or not info.state.terminal or info.results_expired:
            return {}
        # What these workflows did was taken back, or is done anew: their results are not taken over.
        undone = info.undo.workflows if info.undo is not None else forked
        found = {
            name: handed_result(info, name)
            for name, one in info.workflows.items()
            if one.state is WorkflowState.COMPLETED and _same_work(one.spec, specs.get(name)) and name not in undone
        }
        copied = {name: await self._copied(one, submission.job_id, name) for name, one in found.items()}
        kept = {name: one for name, one in copied.items() if one is not None}
        while stale := [name for name in kept if not kept.keys() >= set(specs[name].after)]:
            for name in stale:  # it comes after one that runs again, and gets another result than before
                del kept[name]
        # A job in which everything completed is run again as a whole.
        return await self._fitted(kept, submission.job_id) if len(kept) < len(specs) else {}

    async def _copied(self, one: HandedResult, job_id: str, name: str) -> HandedResult | None:
        if not one.key:
            return one
        kept = await self._calls.run(self._results.get, one.key)
        if kept is None:
            return None  # its time is over: the workflow runs again
        key = result_key(job_id, name, one.attempt)
        await self.keep_result(key, kept)
        return msgspec.structs.replace(one, key=key)

    async def _fitted(self, results: dict[str, HandedResult], job_id: str = "") -> dict[str, HandedResult]:
        if sum(len(_encode(one.result)) for one in results.values()) <= MAX_INLINE_BYTES:
            return results
        return {name: await self._by_key(name, one, job_id) for name, one in results.items()}

    async def _by_key(self, name: str, one: HandedResult, job_id: str) -> HandedResult:
        if one.key or one.error:
            return one
        key = result_key(job_id or one.job_id, name, one.attempt)
        await self.keep_result(key, _encode(one.result))
        return msgspec.structs.replace(one, result=None, key=key)


def _value(stored: bytes | None, key: str) -> Any:
    return None if stored is None else read_record(stored, Any, f"result {key!r}")


def large_results(info: JobInfo) -> list[tuple[str, str]]:
    """Returns (workflow, key in the store) for each result that is kept in the store and not in the record."""
    return [(name, one.result_key) for name, one in info.workflows.items() if one.result_key]


def _same_work(one: Any, other: Any) -> bool:
    return other is not None and (one.called, one.arguments, one.version, one.after) == (
        other.called,
        other.arguments,
        other.version,
        other.after,
    )


class StoredArguments:
    """Reads and writes arguments, for managers and gates alike. Every step is safe to repeat."""

    def __init__(self, engine: Engine, calls: Calls) -> None:
        self._calls, self._store = calls, engine.store(ARGUMENTS_STORE)

    async def kept(
        self, submission: JobSubmission, owner: str = "", ttl: float | None = LIVE_TTL_S, *, write: bool = True
    ) -> JobSubmission:
        """Returns the submission as a journal can hold it. Its large arguments are in the store when this returns, under `owner`, or its job's id.

        Without `write` they must be there: the submission only shows whether it is the one that is known. Raises `ConfigurationError` for an id
        that is no job's own.
        """
        large = too_large(submission)
        if not large:
            return submission
        if not owner:
            # Before anything is written: what a refused submission stored is deleted, and under such an id that may be a schedule's.
            check_not_kept(submission.job_id)
        specs = []
        for spec in submission.workflows:
            if (split := large.get(spec.name)) is not None:
                key = arguments_key(owner or submission.job_id, spec.name, split.name)
                if write:
                    await self._calls.run(self._store.put, key, msgspec.json.encode(split.stored), ttl=ttl)
                spec = msgspec.structs.replace(spec, arguments=split.kept, arguments_at=key)
            specs.append(spec)
        return msgspec.structs.replace(submission, workflows=tuple(specs))

    async def whole(self, submission: JobSubmission) -> JobSubmission:
        """Returns the submission as it was asked for. Raises `EngineCorruptError` where the store has its arguments no more."""
        if not stored_keys(submission):
            return submission
        specs = [await self._whole(spec) for spec in submission.workflows]
        return msgspec.structs.replace(submission, workflows=tuple(specs))

    async def _whole(self, spec: WorkflowSpec) -> WorkflowSpec:
        if not spec.arguments_at:
            return spec
        stored = await self._calls.run(self._store.get, spec.arguments_at)
        if stored is None:
            raise EngineCorruptError(
                f"the store has the arguments of workflow {spec.name!r} no more",
                remedy="Submit the job anew, with its arguments",
            )
        large: dict[str, Any] = read_record(stored, dict[str, Any], f"arguments {spec.arguments_at!r}")
        return msgspec.structs.replace(spec, arguments={**spec.arguments, **large}, arguments_at="")

    async def delete(self, keys: Collection[str]) -> None:
        for key in keys:
            await self._calls.run(self._store.delete, key)

    async def keep_for(self, keys: Collection[str], ttl: float) -> None:
        """Lets the engine delete them after `ttl` seconds."""
        for key in keys:
            stored = await self._calls.run(self._store.get, key)
            if stored is not None:
                await self._calls.run(self._store.put, key, stored, ttl=max(ttl, 1.0))


def stored_keys(submission: JobSubmission | None, owner: str = "") -> list[str]:
    """Returns the keys of a submission's large arguments: all, or those of this owner."""
    if submission is None:
        return []
    keys = [spec.arguments_at for spec in submission.workflows if spec.arguments_at]
    return [one for one in keys if one.rpartition("/")[0].rpartition("/")[0] == owner] if owner else keys


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
