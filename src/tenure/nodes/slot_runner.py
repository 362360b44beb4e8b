"""Defines `SlotRunner`: the calls by which a worker node controls the slots that run its work, and the view that it gets of them.

In a worker process the runner is the supervisor of slot processes; in threads and in the simulator it is `InlineSlots`.
The node decides nothing about attempts, and the runner knows nothing of leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tenure.beat.proof import must_show_news
from tenure.beat.record import BeatReading, Brake, Phase
from tenure.control.messages.workers import AttemptReport, HeldName
from tenure.engines.contracts import Fence
from tenure.served_workflow import ServedWorkflow

UNPROVEN_AFTER = 100
"""Beats without anything new after which a report says so: work that has just begun has shown nothing yet."""


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
    serves: tuple[ServedWorkflow, ...] | None = None
    """The workflows that the slots serve; None until a slot has imported them."""
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

    def hold(self, holds: tuple[HeldName, ...]) -> None:
        """Sets everything that is down: clocks of attempts that wait for one of these stand still, and only some of them may try."""

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, fence: Fence | None = None, reason: str = ""
    ) -> bool:
        """Asks the matching attempts to end; with `fence`, only those of that delivery. Returns True when one of them runs here."""

    def evict(self, reason: str) -> None:
        """Stops every attempt, cleans up, and goes on as a new incarnation, which takes no work until `allow` is called."""


def attempt_report(reading: BeatReading, now: float, lease_s: float = 0.0) -> AttemptReport | None:
    """Returns the report of a running attempt; None where no managed attempt runs. `lease_s`: the seconds that are left of its lease."""
    occupant = reading.occupant
    if reading.phase is not Phase.RUNNING or occupant is None or not occupant.managed:
        return None
    declared = now < reading.silent_until
    # A declared silence holds the stall clock, which starts anew where the silence ends.
    quiet_s = occupant.stall_s + max(reading.beat_at, reading.silent_until) - now
    if reading.brake is not Brake.NONE:
        quiet_s = max(quiet_s, occupant.stall_s)  # its clocks stand still
    return AttemptReport(
        job_id=occupant.job,
        workflow=occupant.workflow_id,
        attempt=occupant.attempt,
        delivery=occupant.ticket.delivery_count,
        generation=occupant.ticket.generation,
        steps=reading.steps,
        fraction=reading.progress if 0 <= reading.progress <= 1 else None,
        silent_s=0.0 if declared else max(0.0, now - reading.beat_at),
        stall_s=occupant.stall_s,
        quiet_s=max(0.0, quiet_s),
        note=occupant.note[:200],
        exposed=occupant.exposed,
        lease_s=max(0.0, lease_s),
        news=reading.mark >> 1,
        mark=reading.saved,
        counts=must_show_news(reading.mark, occupant.proof),
        waits_on=occupant.waits_on,
        waited_s=max(0.0, now - reading.beat_at) if occupant.waits_on else 0.0,
        failures=reading.failures,
        held=reading.brake is Brake.HELD,
        unproven=reading.steps > UNPROVEN_AFTER and not reading.mark and not occupant.proof,
    )
