"""Measures signal 3 of a gate: the jobs that it passed on to datacenters in the last interval, and those that wait although the way is free."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tenure.clock import Clock
from tenure.health.window import EventWindow, FlowWindow


class Forwarded(NamedTuple):
    """The counts of the last interval that a `GateHealthState` holds."""

    forwarded: int
    aggregated: int
    expected: float
    waiting: int


class Forwarding:
    """Measures each datacenter by itself, and counts only those that answer: one that is out of reach is no fault of the gate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._flows: dict[str, FlowWindow] = {}
        self._aggregated = EventWindow(history=0)

    def accepted(self, datacenters: Iterable[str]) -> None:
        for name in datacenters:
            self._flows.setdefault(name, FlowWindow()).arrive(self._clock.monotonic())

    def passed_on(self, datacenter: str, count: int) -> None:
        if count:
            self._flows.setdefault(datacenter, FlowWindow()).leave(self._clock.monotonic(), count)

    def aggregated(self, count: int) -> None:
        self._aggregated.record(self._clock.monotonic(), count)

    def measure(self, connected: Collection[str]) -> Forwarded:
        now = self._clock.monotonic()
        flows = [flow.measure(now) for name, flow in self._flows.items() if name in connected]
        return Forwarded(
            sum(flow.left_last_interval for flow in flows),
            int(self._aggregated.last_interval(now)),
            sum(flow.expected for flow in flows),
            sum(flow.overdue for flow in flows),
        )
