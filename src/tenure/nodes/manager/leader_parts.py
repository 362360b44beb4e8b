"""The parts that a leader of a datacenter may have beside its own loops: reports to gates, traces, notices, metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from tenure.jobs import Decision
from tenure.jobs.decisions import Event

Follower = Callable[[Decision, Iterable[str]], None]
"""Takes note of a decision that is durable, about these jobs."""


class LeaderPart:
    """Something more that a leader does during one term, such as reporting to gates. A subclass overrides what it needs."""

    heeds: ClassVar[frozenset[type[Event]] | None] = frozenset()
    """The events of which `note` takes note; None: all."""

    async def run(self) -> None:
        """Runs until cancelled, and raises `DeposedError` like every loop of a leader. By default it returns at once."""

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        """Takes note of a decision about these jobs, with an event that the part heeds. The decision is durable."""
