"""Handles what a job leaves when it has ended: the steps, which another job can begin again from for a while, and the compensations.

The leader looks at the compensations: a job of their own runs them, or they are deleted because nobody needs them. It looks after the messages of the job
are revoked, and before the job counts as cleaned. So a leader that dies in between is followed by one that looks again, and an attempt that goes on
without knowing of the end can register nothing that nobody would see.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tenure.attempt_data import LIVE_TTL_S
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import ConfigurationError, EngineCorruptError, UnknownJobError
from tenure.jobs import JobBook
from tenure.jobs.endings import has_kept_steps
from tenure.jobs.model import JobInfo, JobSubmission
from tenure.jobs.states import JobState
from tenure.jobs.undo import StartUndo
from tenure.jobs.undo_rules import may_have_compensations
from tenure.nodes.manager.ledger import JobLedger
from tenure.work.kept_compensations import COMPENSATIONS_STORE, compensations_prefix, registered_workflow
from tenure.work.kept_steps import SUSPENDED_STEPS, steps_key
from tenure.work.step_log import cut_before, step_names

ENDED_TTL_S = 7 * 86_400.0
"""The seconds for which the steps of a job that did not complete are kept after its end."""


class KeptOfJob(NamedTuple):
    """The keys under which the steps of an ended job are kept, and whether somebody may want them."""

    keys: list[str]
    wanted: bool


class EndedSteps:
    """Part of a leader, and of a manager that takes submissions. Every step is safe to repeat."""

    def __init__(self, engine: Engine, calls: Calls) -> None:
        self._calls, self._store = calls, engine.store(SUSPENDED_STEPS)

    async def let_go(self, keys: list[str], wanted: bool) -> None:
        """Deletes the steps of a completed job, and gives those of another a week."""
        for key in keys:
            kept = await self._calls.run(self._store.get, key) if wanted else None
            if kept is not None:
                await self._calls.run(self._store.put, key, kept, ttl=ENDED_TTL_S)
            else:
                await self._calls.run(self._store.delete, key)

    async def fork(self, info: JobInfo | None, submission: JobSubmission) -> tuple[str, ...]:
        """Puts the steps before `retry_from` into the store for the new job. Returns the workflow that has them. Raises `ConfigurationError`."""
        step = submission.retry_from
        if info is None:
            raise UnknownJobError(submission.retry_of)
        if info.undo is not None:
            raise ConfigurationError(
                f"job {info.id!r} cannot begin again from a step: its compensations have taken back what its steps did",
                remedy=f"Run it anew: tenure retry {info.id}",
            )
        kept = {name: await self._read(steps_key(info.id, name)) for name in info.workflows}
        cuts = {name: cut_before(records, step, info.id) for name, records in kept.items()}
        found = {name: records for name, records in cuts.items() if records is not None}
        if len(found) != 1:
            raise _which(info, step, kept, list(found))
        [(name, records)] = found.items()
        data = msgspec.msgpack.encode(records)
        await self._calls.run(self._store.put, steps_key(submission.job_id, name), data, ttl=LIVE_TTL_S)
        return (name,)

    async def _read(self, key: str) -> list[bytes]:
        kept = await self._calls.run(self._store.get, key)
        try:
            return msgspec.msgpack.decode(kept, type=list[bytes]) if kept is not None else []
        except msgspec.DecodeError as error:
            raise EngineCorruptError(
                f"the steps of {key!r} cannot be read: {error}", remedy="Run the job anew: tenure retry JOB"
            ) from error


def _which(info: JobInfo, step: str, kept: dict[str, list[bytes]], found: list[str]) -> ConfigurationError:
    if found:
        return ConfigurationError(
            f"step {step!r} is in several workflows of job {info.id!r}: {', '.join(found)}",
            remedy="Give steps that you may begin from names of their own",
        )
    names = [one for records in kept.values() for one in step_names(records)]
    has = f"it has {', '.join(names[:20])}" if names else "none of its steps are kept"
    return ConfigurationError(
        f"job {info.id!r} has no recorded step {step!r} to begin again from: {has}",
        remedy="Steps are kept for a week after a job failed, or was ended while it waited; `tenure retry` without --from runs it anew",
    )


def kept_of(book: JobBook, job_id: str) -> KeptOfJob:
    info = book.jobs[job_id]
    keys = [steps_key(job_id, name) for name, one in info.workflows.items() if has_kept_steps(info, one)]
    return KeptOfJob(keys, info.state is not JobState.COMPLETED)


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
