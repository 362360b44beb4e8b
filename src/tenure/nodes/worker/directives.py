"""Decides which directives of a leader a worker obeys, and when it asks the leader for more time (document 000). Pure: callers pass the time.

The worker asks when its healthcheck deadline nears and its work advanced since it last asked: without progress the leader denies a request,
and should.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from tenure.control.messages.workers import AttemptReport, ExtensionReply, WorkerDirective
from tenure.health.extension import ExtensionReason, HealthcheckExtensionRequest
from tenure.health.overload import OverloadState
from tenure.health.signals import RoutingDecision
from tenure.nodes.slot_runner import SlotsView

INTAKE: Mapping[RoutingDecision, int | None] = {
    RoutingDecision.ROUTE: None,
    RoutingDecision.INVESTIGATE: 1,
    RoutingDecision.DRAIN: 0,
    RoutingDecision.EVICT: 0,
    RoutingDecision.UNKNOWN: None,
}
"""Maps each verdict to the number of slots that may take new work; None: all of them."""


class Obedience:
    """Accepts the directives of the newest epoch that the worker has seen, and refuses those of older ones.

    `epoch` only grows. A deposed leader that does not know it yet answers under a lower epoch, so its orders have no effect.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.refused = 0

    def heard(self, directive: WorkerDirective) -> bool:
        """Returns False for a directive of a deposed leader: its epoch is below one that the worker has seen."""
        if directive.epoch < self.epoch:
            self.refused += 1
            return False
        self.epoch = directive.epoch
        return True


NEAR_SHARE = 1 / 3
"""A deadline is near when at most this share of the longest span that was ever left is left."""
PAUSE_S = 1.0
"""A pause of the whole process that lasts this long becomes the reason of the request."""


class Earning:
    """The deadline of one incarnation as the leader told it, and the requests for more time."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self.span = 0.0
        """The most seconds that were ever left, which is what a report with progress gives; 0 before the leader told any."""
        self._asked_steps: int | None = None
        self._denied_at: float | None = None
        self._pause_s = 0.0
        self._first_seen: dict[tuple[str, str, int, int], tuple[float, float]] = {}

    def left(self, seconds: float, now: float) -> None:
        """Notes the seconds that the leader says are left; 0 where no deadline runs."""
        self._deadline = now + seconds if seconds > 0 else None
        self.span = max(self.span, seconds)

    def paused(self, seconds: float) -> None:
        """Notes that this process woke `seconds` later than it asked to."""
        self._pause_s = max(self._pause_s, seconds)

    def request(
        self, worker: str, view: SlotsView, now: float, wall: float, overload: OverloadState
    ) -> HealthcheckExtensionRequest | None:
        """Returns the request to send now; None where the worker should not ask."""
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
            # Only evidence for people. 0 where an attempt does not tell its progress.
            estimated_completion=wall + remaining if remaining is not None else 0.0,
            active_workflow_count=len(view.attempts),
            progress_counter=view.steps,
        )

    def answered(self, reply: ExtensionReply, steps: int, now: float) -> None:
        self._asked_steps = steps
        self._denied_at = None if reply.response.granted else now
        self.left(reply.left_s, now)

    def _advanced(self, view: SlotsView) -> bool:
        """Returns True when there were steps since the last request. Before the first one, a declared silence counts, too."""
        if self._asked_steps is None:
            return view.steps > 0 or any(one.silent_s == 0 for one in view.attempts)
        return view.steps > self._asked_steps

    def _denied_lately(self, now: float) -> bool:
        return self._denied_at is not None and now - self._denied_at < self.span * NEAR_SHARE

    def _remaining(self, attempts: tuple[AttemptReport, ...], now: float) -> float | None:
        """Returns the seconds until the slowest attempt ends, at its pace since it was first seen; None where one attempt shows no progress."""
        self._first_seen = {one.name: self._first_seen.get(one.name, (now, one.fraction or 0.0)) for one in attempts}
        longest = 0.0
        for one in attempts:
            since, first = self._first_seen[one.name]
            gained = (one.fraction or 0.0) - first
            if one.fraction is None or gained <= 0:
                return None
            longest = max(longest, (1 - one.fraction) * (now - since) / gained)
        return longest
