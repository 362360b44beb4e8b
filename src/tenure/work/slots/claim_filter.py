"""Whether a worker leaves work to others: what it had before and did not bring home, and what it does not know. Pure: told the time.

So two versions of a workflow live side by side during a deploy: who has not got the version that a job names gives it back to those who have. Work must never be stranded: a worker without peers declines nothing, and none declines the same attempt for longer than its patience.
"""

from __future__ import annotations

from collections.abc import Callable

from tenure.work.envelope import WorkItem

PATIENCE_S = 30.0
UNKNOWN_PATIENCE_S = 300.0
"""For work that cannot be done here at all: its one way to end here is a failure for good."""
STRANGER_PATIENCE_S = 10.0
"""For such work while nobody has said yet whether there are others: a worker that has just started does not know."""
PAUSE_S = 0.25
MOST_PAUSE_S = 2.0
_REMEMBERED = 1_000
LONGEST_NAME = 1_000
"""Of a workflow. A longer one is not left to others: no worker can have it, and whoever waits for one holds up what is behind it."""


class ClaimFilter:
    """What one slot left to others, and since when."""

    def __init__(
        self,
        worker: str,
        *,
        knows: Callable[[str, str | None], bool] = lambda workflow, version: True,
        patience_s: float = PATIENCE_S,
        unknown_patience_s: float = UNKNOWN_PATIENCE_S,
    ) -> None:
        self._worker, self._knows = worker, knows
        self._patience_s, self._unknown_patience_s = patience_s, unknown_patience_s
        self._since: dict[tuple[str, str, int], float] = {}
        self.pause_s = PAUSE_S
        """Before the next claim: what was given back is the first that would be claimed again."""

    def declines(self, item: WorkItem, peers: int | None, now: float) -> bool:
        """True for work that others should have; then `pause_s` says how long to leave it to them. `peers`: None while nobody has said."""
        if len(item.workflow) > LONGEST_NAME:
            return False
        known = self._knows(item.workflow, item.version)
        alone = peers is not None and peers < 1
        if alone or (known and (self._worker not in item.excluded or peers is None)):
            self.pause_s = PAUSE_S
            return False
        patience_s = self._patience_s if known else self._unknown_patience_s if peers else STRANGER_PATIENCE_S
        since = self._since.setdefault((item.job_id, item.workflow_id, item.attempt), now)
        if now - since >= patience_s:
            return False
        if len(self._since) > _REMEMBERED:
            del self._since[next(iter(self._since))]
        self.pause_s = min(MOST_PAUSE_S, self.pause_s * 2)
        return True
