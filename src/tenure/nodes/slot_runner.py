"""What a worker node asks of whatever runs its work.

In a process that is the supervisor of slot processes; in the simulator a cast that plays scripted workflows (advance, hang, crash, lie).
The node decides nothing about attempts, and the runner knows nothing of leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tenure.nodes.messages.worker import AttemptReport


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
    mishaps: int = 0
    """Errors of our own that ended one thing only, and that somebody should look at."""


class SlotRunner(Protocol):
    """May be called from the node's thread at any time; nothing here waits."""

    @property
    def incarnation(self) -> str:
        """Each start has its own. After `evict` it is the old one until everything of it is gone."""

    def view(self) -> SlotsView: ...

    def listen(self, bell: Callable[[], None]) -> None:
        """Call this, from any thread, when an attempt began or ended, and when the incarnation changed. The last one given counts."""

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        """How many slots may take new work from now on: None for all, 1 while under investigation, 0 for none.

        `peers`: how many other workers are able; without any, work that excludes this worker is taken all the same.
        """

    def cancel(self, job: str, *, workflow_id: str = "", attempt: int = 0, reason: str = "") -> bool:
        """Ask attempts to end; True when one runs here."""

    def evict(self, reason: str) -> None:
        """Stop every attempt, clean up, and go on as a new incarnation, which takes nothing until it is allowed to."""
