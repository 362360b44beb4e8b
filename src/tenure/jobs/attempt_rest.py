"""Decides how long a workflow rests before its next attempt."""

from __future__ import annotations

import zlib

from tenure.backoff import Retry
from tenure.jobs.model import WorkflowRecord
from tenure.jobs.states import AttemptCause


def rest_before_next(
    job_id: str, workflow: WorkflowRecord, cause: AttemptCause, rest_s: float | None, spent: int
) -> float:
    """Returns the rest that the work asked for, or else that of its retry policy. Work that lost its worker by eviction does not rest."""
    if rest_s is not None:
        return rest_s
    evicted = cause is AttemptCause.EVICTED
    return 0.0 if evicted else backoff(workflow.spec.policy, job_id, workflow, max(1, spent))


def backoff(retry: Retry, job_id: str, workflow: WorkflowRecord, failures: int) -> float:
    """Returns the rest before the next attempt. Its jitter comes from the attempt's key, so that every replay gives the same."""
    chance = zlib.crc32(f"{job_id}/{workflow.spec.name}/{workflow.attempt}".encode()) / 0xFFFFFFFF
    return retry.delay_s(failures, chance)
