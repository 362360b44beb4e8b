"""Turns a record of the beat board into the report of an attempt for the leader. Pure."""

from __future__ import annotations

from tenure.beat.board import BeatReading, Phase
from tenure.control.messages.workers import AttemptReport


def attempt_report(reading: BeatReading, now: float, lease_s: float = 0.0) -> AttemptReport | None:
    """Returns the report of a running attempt; None where no managed attempt runs. `lease_s`: the seconds that are left of its lease."""
    occupant = reading.occupant
    if reading.phase is not Phase.RUNNING or occupant is None or not occupant.managed:
        return None
    declared = now < reading.silent_until
    return AttemptReport(
        job_id=occupant.job,
        workflow=occupant.workflow_id,
        attempt=occupant.attempt,
        delivery=occupant.ticket.delivery_count,
        steps=reading.steps,
        fraction=reading.progress if 0 <= reading.progress <= 1 else None,
        silent_s=0.0 if declared else max(0.0, now - reading.beat_at),
        stall_s=occupant.stall_s,
        note=occupant.note[:200],
        lease_s=max(0.0, lease_s),
    )
