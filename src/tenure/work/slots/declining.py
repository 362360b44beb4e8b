"""Whether a worker leaves work to others that it had before and did not bring home. Pure: told the time.

Work must never be stranded: a worker without peers declines nothing, and none declines the same attempt for longer than its patience.
"""

from __future__ import annotations

from tenure.work.envelope import WorkItem

PATIENCE_S = 30.0
PAUSE_S = 0.25
MOST_PAUSE_S = 2.0
_REMEMBERED = 1_000


class Declining:
    """What one slot left to others, and since when."""

    def __init__(self, worker: str, patience_s: float = PATIENCE_S) -> None:
        self._worker, self._patience_s = worker, patience_s
        self._since: dict[tuple[str, str, int], float] = {}
        self.pause_s = PAUSE_S
        """Before the next claim: what was given back is the first that would be claimed again."""

    def declines(self, item: WorkItem, peers: int, now: float) -> bool:
        """True for work that others should have; then `pause_s` says how long to leave it to them."""
        if self._worker not in item.excluded or peers < 1:
            self.pause_s = PAUSE_S
            return False
        since = self._since.setdefault((item.job_id, item.workflow_id, item.attempt), now)
        if now - since >= self._patience_s:
            return False
        if len(self._since) > _REMEMBERED:
            del self._since[next(iter(self._since))]
        self.pause_s = min(MOST_PAUSE_S, self.pause_s * 2)
        return True
