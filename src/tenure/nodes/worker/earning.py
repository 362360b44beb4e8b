"""When a worker asks for time beyond its healthcheck deadline, and what it says (document 000). Pure: told the time.

It asks when the deadline nears and its work advanced since it last asked: without progress a request would be denied, and should be.
"""

from __future__ import annotations

from statistics import fmean

from tenure.health.extension import ExtensionReason, HealthcheckExtensionRequest
from tenure.health.overload import OverloadState
from tenure.nodes.messages.worker import AttemptReport, ExtensionReply
from tenure.nodes.slot_runner import SlotsView

NEAR_SHARE = 1 / 3
"""A deadline is near when less than this share of the longest span that was ever left is left."""
PAUSE_S = 1.0
"""A pause of the whole process that is worth being named as the reason."""


class Earning:
    """One incarnation's deadline as it was told, and what it asked for."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self.span = 0.0
        """The longest that was ever left: what a report with progress gives; 0 before any is known."""
        self._asked_steps: int | None = None
        self._denied_at: float | None = None
        self._pause_s = 0.0
        self._first_seen: dict[tuple[str, str, int, int], tuple[float, float]] = {}

    def left(self, seconds: float, now: float) -> None:
        """The leader said how much is left; 0 where no deadline runs."""
        self._deadline = now + seconds if seconds > 0 else None
        self.span = max(self.span, seconds)

    def paused(self, seconds: float) -> None:
        """This process woke so much later than it asked to."""
        self._pause_s = max(self._pause_s, seconds)

    def request(
        self, worker: str, view: SlotsView, now: float, wall: float, overload: OverloadState
    ) -> HealthcheckExtensionRequest | None:
        """What to ask for now, if anything."""
        remaining = self._remaining(view.attempts, now)
        if not view.attempts or self._deadline is None or self._deadline - now > self.span * NEAR_SHARE:
            return None
        if not self._advanced(view) or self._denied_lately(now):
            return None
        pause, self._pause_s = self._pause_s, 0.0
        if pause >= PAUSE_S:
            reason = ExtensionReason.GC_PAUSE
        elif overload in (OverloadState.STRESSED, OverloadState.OVERLOADED):
            reason = ExtensionReason.RESOURCE_CONTENTION
        else:
            reason = ExtensionReason.LONG_WORKFLOW
        return HealthcheckExtensionRequest(
            worker_id=worker,
            reason=reason,
            current_progress=fmean(one.fraction or 0.0 for one in view.attempts),
            # Evidence only. 0: nothing is known that would let us guess.
            estimated_completion=wall + remaining if remaining is not None else 0.0,
            active_workflow_count=len(view.attempts),
            progress_counter=view.steps,
        )

    def answered(self, reply: ExtensionReply, steps: int, now: float) -> None:
        self._asked_steps = steps
        self._denied_at = None if reply.response.granted else now
        self.left(reply.left_s, now)

    def _advanced(self, view: SlotsView) -> bool:
        """Steps since the last time it asked; or a silence that was declared, which is work too."""
        if self._asked_steps is None:
            return view.steps > 0 or any(one.silent_s == 0 for one in view.attempts)
        return view.steps > self._asked_steps

    def _denied_lately(self, now: float) -> bool:
        return self._denied_at is not None and now - self._denied_at < self.span * NEAR_SHARE

    def _remaining(self, attempts: tuple[AttemptReport, ...], now: float) -> float | None:
        """How long the slowest will take at the pace since it was first seen; None where one does not say how far it is."""
        self._first_seen = {one.name: self._first_seen.get(one.name, (now, one.fraction or 0.0)) for one in attempts}
        longest = 0.0
        for one in attempts:
            since, first = self._first_seen[one.name]
            gained = (one.fraction or 0.0) - first
            if one.fraction is None or gained <= 0:
                return None
            longest = max(longest, (1 - one.fraction) * (now - since) / gained)
        return longest
