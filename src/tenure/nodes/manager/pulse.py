"""Counts what happened in the last ten minutes, for the chart of the overview."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tenure.control.messages.nodes import Pulse
from tenure.jobs.attempt_results import AttemptFailed, WorkflowCompleted
from tenure.jobs.attempts import WorkflowStarted
from tenure.jobs.decisions import Event
from tenure.jobs.submission import JobSubmitted

STEP_S = 5.0
STEPS = 120
"""Ten minutes in all: long enough to see what led to now, short enough that operators do not take it for monitoring."""
_COUNTED: dict[type[Event], str] = {
    JobSubmitted: "submitted",
    WorkflowStarted: "started",
    WorkflowCompleted: "completed",
    AttemptFailed: "failed",
}


@dataclass(slots=True)
class _Step:
    number: int
    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    waiting: int = 0
    running: int = 0


class PulseCounter:
    """Counts events as they become durable. The observer sets how many attempts wait and run (`level`)."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=STEPS)

    def count(self, events: Iterable[Event]) -> None:
        for event in events:
            name = _COUNTED.get(type(event))
            if name is not None:
                step = self._at(event.at)
                setattr(step, name, getattr(step, name) + 1)

    def level(self, now: float, waiting: int, running: int) -> None:
        step = self._at(now)
        step.waiting, step.running = waiting, running

    def _at(self, at: float) -> _Step:
        """Returns the step of this time, or the newest step when the engine's clock was set back."""
        number = int(at // STEP_S)
        if not self._steps:
            self._steps.append(_Step(number))
        last = self._steps[-1]
        # Steps between two calls count no events, and keep the numbers of waiting and running attempts until the next `level`.
        for missing in range(max(last.number + 1, number - STEPS + 1), number + 1):
            self._steps.append(_Step(missing, waiting=last.waiting, running=last.running))
        return self._steps[-1]

    def read(self, now: float) -> Pulse:
        until = (self._at(now).number + 1) * STEP_S
        columns = {
            name: tuple(getattr(step, name) for step in self._steps)
            for name in ("submitted", "started", "completed", "failed", "waiting", "running")
        }
        return Pulse(step_s=STEP_S, until=until, **columns)
