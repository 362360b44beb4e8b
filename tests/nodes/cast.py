"""Slots that play what a test tells them to, for `ManagedWorker`: an implementation of `SlotRunner` without processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.control.messages.workers import AttemptReport, HeldName
from tenure.engines.contracts import Fence
from tenure.nodes.slot_runner import SlotsView


class Cast:
    """Two slots. A test begins, steps and ends attempts; what the node asked for is written down."""

    def __init__(self, name: str = "w-1", *, slots: int = 2) -> None:
        self.name, self.slots = name, slots
        self.starts = 1
        self.running: dict[str, AttemptReport] = {}
        self.completed = self.failed = self.ended_steps = 0
        self.most: int | None = None
        self.peers = 0
        self.cancelled: list[tuple[str, int, str]] = []
        self.evicted: list[str] = []
        self.slow_to_end = False
        self._bell: Callable[[], None] = lambda: None

    @property
    def incarnation(self) -> str:
        return f"{self.name}#{self.starts}"

    def begin(self, job_id: str = "j-1", *, attempt: int = 1, **rest: Any) -> None:
        rest = {"workflow": "encode", "delivery": 1, "steps": 1, **rest}
        self.running[job_id] = AttemptReport(job_id=job_id, attempt=attempt, **rest)
        self._bell()

    def step(self, job_id: str = "j-1", **changes: Any) -> None:
        before = {name: getattr(self.running[job_id], name) for name in AttemptReport.__struct_fields__}
        self.running[job_id] = AttemptReport(**{**before, "steps": before["steps"] + 1, **changes})

    def end(self, job_id: str = "j-1", *, ok: bool = True) -> None:
        self.ended_steps += self.running.pop(job_id).steps
        self.completed += ok
        self.failed += not ok
        self._bell()

    def view(self) -> SlotsView:
        attempts = tuple(self.running.values())
        steps = self.ended_steps + sum(one.steps for one in attempts)
        free = self.slots - len(attempts)
        return SlotsView(attempts, self.slots, free, True, ("default.p0",), self.completed, self.failed, steps)

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell = bell

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        self.most, self.peers = most, peers

    def hold(self, holds: tuple[HeldName, ...]) -> None:
        self.holds = holds

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, fence: Fence | None = None, reason: str = ""
    ) -> bool:
        self.cancelled.append((job, attempt, reason))
        found = self.running.pop(job, None)
        if found is not None:
            self._bell()
        return found is not None

    def evict(self, reason: str) -> None:
        self.evicted.append(reason)
        if not self.slow_to_end:
            self.come_back()

    def come_back(self) -> None:
        """Everything of the last incarnation is gone."""
        self.running.clear()
        self.completed = self.failed = self.ended_steps = 0
        self.starts += 1
        self._bell()
