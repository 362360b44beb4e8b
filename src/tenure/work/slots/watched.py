"""What a supervisor keeps of one attempt that it follows, and what it says when that attempt's slot died."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tenure.work.attempt_handle import CancelCode
from tenure.work.envelope import WorkFailure
from tenure.work.slots.attempt import CAUSES
from tenure.work.slots.attempt_watch import AttemptWatch


@dataclass(slots=True, eq=False)
class Watched:
    """One attempt that is being followed."""

    watch: AttemptWatch
    serial: int
    extending: bool = False
    facts: dict[str, str] | None = None
    dump_offset: int = 0


def failure_of(watched: Watched | None, exit_failure: WorkFailure, last_trouble: str = "") -> WorkFailure:
    """Our own reason where we killed it, else what the exit says. `last_trouble`: the last thing that its slot complained of."""
    facts = (watched.facts if watched else None) or {}
    if watched is None or watched.watch.code is CancelCode.NONE:
        return msgspec.structs.replace(exit_failure, evidence={**exit_failure.evidence, **facts})
    reason = f"{watched.watch.reason}; its slot was killed"
    if watched.watch.code is CancelCode.UNSETTLED and last_trouble:
        facts = {**facts, "last_trouble": last_trouble}
    return WorkFailure(cause=CAUSES[watched.watch.code], reason=reason, evidence=facts)
