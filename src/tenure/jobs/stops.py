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
    """`paused` or `moved`."""
    worker: str = ""
    """Where the attempt is to end: that of a move ends on this worker only."""
    by: str = ""
    reason: str = ""
