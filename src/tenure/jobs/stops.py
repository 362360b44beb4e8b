"""Defines the records of a paused job and of an attempt that was asked to end, as plain data (see `steering.py`)."""

from __future__ import annotations

import msgspec

from tenure.jobs.states import AttemptCause


class PauseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Records that somebody paused a job."""

    at: float
    by: str = ""
    reason: str = ""


class AttemptStop(msgspec.Struct, frozen=True, kw_only=True):
    """Records that somebody wants the present attempt of a workflow to end, and the next one to go on from its checkpoint."""

    cause: AttemptCause
    """`paused`, `moved` or `preempted`."""
    worker: str = ""
    """Where the attempt is to end: that of a move, or for urgent work, ends on this worker only."""
    by: str = ""
    reason: str = ""
    saved_at: float = 0.0
    """When it had saved last, as far as the leader knew; 0 where nobody watched."""
    mark: int = 0
    """Names what it had saved then."""
    for_work: str = ""
    """The urgent work that gets its slot, as `job/workflow`; empty where nothing does."""

    def lost_s(self, mark: int | None, now: float) -> float:
        """Returns the seconds of work that end with it: none where it saved once more, or nobody knows."""
        return max(0.0, now - self.saved_at) if self.saved_at and mark in (None, self.mark) else 0.0
