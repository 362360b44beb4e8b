"""The listeners of a gossip node. An error in one of them is logged, and harms neither the others nor the pool."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tenure.gossip.effects import Event, HealthEvent, PoolWarning
from tenure.health.piggyback import HealthPiggyback

log = logging.getLogger("tenure.gossip")

EventListener = Callable[[Event], object]
HealthListener = Callable[[str, HealthPiggyback], object]


class GossipListeners:
    """Calls listeners with events, in the order in which they were added."""

    def __init__(self) -> None:
        self._events: list[EventListener] = []
        self._health: list[HealthListener] = []

    def add(self, listener: EventListener) -> Callable[[], None]:
        """Calls `listener` with every event. Returns a function that ends this."""
        self._events.append(listener)
        return lambda: self._events.remove(listener)

    def add_health(self, listener: HealthListener) -> Callable[[], None]:
        """Calls `listener` with the node and its health when it has changed. Returns a function that ends this."""
        self._health.append(listener)
        return lambda: self._health.remove(listener)

    def publish(self, event: Event) -> None:
        """Gives an event to the listeners. Warnings go to the log as well."""
        if isinstance(event, PoolWarning):
            log.warning("%s: %s: %s", event.complaint, event.node, event.why)
        for listener in self._events:
            _call(listener, event)
        if isinstance(event, HealthEvent):
            for health_listener in self._health:
                _call(health_listener, event.node, event.health)


def _call(listener: Callable[..., object], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:
        log.exception("a gossip listener raised")
