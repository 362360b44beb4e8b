"""Defines `SlotRunner`: the calls by which a worker node controls the slots that run its work, and the view that it gets of them.

In a worker process the runner is the supervisor of slot processes; in threads and in the simulator it is `InlineSlots`.
The node decides nothing about attempts, and the runner knows nothing of leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tenure.beat.board import BeatReading, Phase
from tenure.control.messages.workers import AttemptReport


class SlotsView(NamedTuple):
    """The state of the slots at one moment. The counters count this incarnation, and only grow."""

    attempts: tuple[AttemptReport, ...]
    slots: int
    free: int
    accepting: bool
    lanes: tuple[str, ...]
    completed: int
    failed: int
    steps: int
    mishaps: int = 0
    """Errors of Tenure's own code, each of which ended one attempt or one look only. An operator should look at them."""


class SlotRunner(Protocol):
    """Runs attempts in slots. The node's thread may call every method at any time; none of them waits."""

    @property
    def incarnation(self) -> str:
        """The id of this start of the slots. After `evict` it stays the old one until everything of the old start is gone."""

    def view(self) -> SlotsView: ...

    def listen(self, bell: Callable[[], None]) -> None:
        """Sets the `bell` that the runner calls, from any thread, when an attempt began or ended, and when the incarnation changed.

        A later call replaces the bell.
        """

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        """Sets the number of slots that may take new work from now on: None for all, 1 while under investigation, 0 for none.

        `peers`: the number of other workers that can do this work. Without any, the slots also take work that excludes this worker.
        """

    def cancel(self, job: str, *, workflow_id: str = "", attempt: int = 0, reason: str = "") -> bool:
        """Asks the matching attempts to end. Returns True when one of them runs here."""

    def evict(self, reason: str) -> None:
        """Stops every attempt, cleans up, and goes on as a new incarnation, which takes no work until `allow` is called."""


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
