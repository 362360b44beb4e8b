"""Counts the calls of an agent's tools, by name: a fold over its session, and counters for Prometheus.

Names are those of tools that exist; what a model makes up is counted as `unknown`, so that no model can invent labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from tenure.agent.events import Event, ToolAnswered
from tenure.beat.metrics import counter

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

UNKNOWN = "unknown"


class ToolUse(msgspec.Struct, frozen=True):
    """How often a tool was called, how often that failed, how long it ran in all, and how often it beat meanwhile."""

    calls: int = 0
    failures: int = 0
    seconds: float = 0.0
    beats: int = 0

    def __add__(self, other: ToolUse) -> ToolUse:
        return ToolUse(
            self.calls + other.calls,
            self.failures + other.failures,
            self.seconds + other.seconds,
            self.beats + other.beats,
        )


class ToolOutcome(StrEnum):
    """How a tool call ended."""

    OK = "ok"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # the work's time was over, or the model wants to see more of its prompt first


def tools_used(events: Iterable[Event]) -> dict[str, ToolUse]:
    """By tool, in the order of their first calls. Calls that were never made do not count."""
    found: dict[str, ToolUse] = {}
    for event in events:
        if isinstance(event, ToolAnswered) and event.made:
            use = ToolUse(1, int(not event.success), event.seconds, event.beats)
            found[event.call.name] = found.get(event.call.name, ToolUse()) + use
    return found


def count_tool_call(
    tool: str, outcome: ToolOutcome, seconds: float, beats: int, registry: CollectorRegistry | None = None
) -> None:
    """`tenure_tool_calls_total{tool, outcome}`, `tenure_tool_seconds_total{tool}` and `tenure_tool_beats_total{tool}`."""
    counter("tenure_tool_calls", "Calls of tools, by outcome.", ["tool", "outcome"], registry).labels(
        tool, outcome
    ).inc()
    counter("tenure_tool_seconds", "Seconds that tools ran.", ["tool"], registry).labels(tool).inc(seconds)
    counter("tenure_tool_beats", "Beats while tools ran.", ["tool"], registry).labels(tool).inc(beats)
