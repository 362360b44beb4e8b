"""Which directives a worker obeys, and what a verdict means for its slots. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.health.signals import RoutingDecision
from tenure.nodes.messages.worker import WorkerDirective

INTAKE: Mapping[RoutingDecision, int | None] = {
    RoutingDecision.ROUTE: None,
    RoutingDecision.INVESTIGATE: 1,
    RoutingDecision.DRAIN: 0,
    RoutingDecision.EVICT: 0,
    RoutingDecision.UNKNOWN: None,
}
"""How many slots may take new work under each verdict; None: all of them."""


class Obedience:
    """Which directives count: those of the newest epoch that was ever heard."""

    def __init__(self) -> None:
        self.epoch = 0
        self.refused = 0

    def heard(self, directive: WorkerDirective) -> bool:
        """False for the word of a leader that was deposed."""
        if directive.epoch < self.epoch:
            self.refused += 1
            return False
        self.epoch = directive.epoch
        return True
