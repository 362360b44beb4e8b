"""What a worker node asks of whatever runs its work.

In a process that is the supervisor of slot processes; in the simulator a cast that plays scripted workflows (advance, hang, crash, lie).
The node decides nothing about attempts, and the runner knows nothing of leaders.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tenure.nodes.worker_messages import AttemptReport


class SlotsView(NamedTuple):
    """How the slots stand now. Counters are of this incarnation, and only grow."""

    attempts: tuple[AttemptReport, ...]
    slots: int
    free: int
    accepting: bool
    lanes: tuple[str, ...]
    completed: int
    failed: int
    steps: int


class SlotRunner(Protocol):
    """May be called from the node's thread at any time; nothing here waits."""

    @property
    def incarnation(self) -> str:
        """Each start has its own."""

    def view(self) -> SlotsView: ...

    def allow(self, most: int | None) -> None:
        """How many slots may take new work from now on: None for all, 1 while under investigation, 0 for none."""

    def cancel(self, job: str, *, workflow_id: str = "", attempt: int = 0, reason: str = "") -> bool:
        """Ask attempts to end; True when one runs here."""

    def evict(self, reason: str) -> None:
        """Stop every attempt, clean up, and go on as a new incarnation, which takes work when it is allowed to."""
