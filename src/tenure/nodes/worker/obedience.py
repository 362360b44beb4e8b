"""Decides which directives a worker obeys, and how many of its slots may take work under a verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.control.messages.workers import WorkerDirective
from tenure.health.signals import RoutingDecision

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
