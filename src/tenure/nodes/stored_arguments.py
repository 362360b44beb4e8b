"""Keeps the arguments that are too large for a journal in the engine's store, for managers and gates alike.

They are under `JOB/WORKFLOW/CONTENTS` before the journal has the job, and have a year then, as results of live jobs have; when the job is archived, they have
the time of its record. Those of a schedule are under the schedule's own name for as long as it stands, because each of its runs reads them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from tenure.attempt_data import ARGUMENTS_STORE, LIVE_TTL_S
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import EngineCorruptError
from tenure.jobs.arguments import arguments_key, too_large
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.undo_rules import check_not_kept
from tenure.nodes.job_handlers import read_record


class StoredArguments:
    """Reads and writes them. Every step is safe to repeat."""

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
