"""Decides which claimed work a worker gives back so that another worker can take it. Pure: the caller passes the time.

A worker declines work that excludes it, because an earlier attempt failed there, and work whose workflow or version it does not have.
So two versions of a workflow live side by side during a deploy. Work must never be stranded: a worker without peers declines nothing,
and no worker declines the same attempt for longer than its patience.
"""

from __future__ import annotations

from collections.abc import Callable

from tenure.work.envelope import WorkItem

PATIENCE_S = 30.0
UNKNOWN_PATIENCE_S = 300.0
"""The patience for work that this worker does not have. It is long, because taking such work here means to fail it for good."""
STRANGER_PATIENCE_S = 10.0
"""The patience for such work while the number of peers is unknown, as it is for a worker that has just started."""
PAUSE_S = 0.25
MOST_PAUSE_S = 2.0
_REMEMBERED = 1_000
LONGEST_NAME = 1_000
"""No worker can have a workflow with a longer name. Such work is taken and failed here: declining it would only hold up the work behind it."""


class ClaimFilter:
    """Remembers which attempts one slot has declined, and since when."""

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
        """The slot waits this long before its next claim: otherwise it would claim the same message again at once."""

    def declines(self, item: WorkItem, peers: int | None, now: float) -> bool:
        """Returns True for work that another worker should have; the slot then waits `pause_s`. `peers` is None while their number is unknown."""
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
