"""Holds the newest progress of jobs as a leader sees it. It is not journaled, and dies with the term."""

from __future__ import annotations

from tenure.jobs.attempts import RecordProgress


class ProgressWatch:
    """Holds the newest progress of each job."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._steps: dict[tuple[str, str], tuple[int, int]] = {}

    def observe(self, command: RecordProgress, now: float) -> bool:
        """Notes a report about the attempt that counts. Returns True when its counter rose."""
        key = (command.job_id, command.workflow)
        seen = self._steps.get(key, (0, 0))
        fresh = (command.attempt, command.steps)
        if fresh <= seen:
            return False
        self._steps[key] = fresh
        if command.steps == 0:
            return False  # a new attempt that has not done anything yet
        self._last[command.job_id] = now
        return True

    def touch(self, job_id: str, now: float) -> None:
        """Notes that the job advanced, in any of its workflows."""
        self._last[job_id] = now

    def last(self, job_id: str) -> float:
        """Returns when this leader last saw the job advance; 0 when it never did."""
        return self._last.get(job_id, 0.0)

    def steps(self, job_id: str, workflow: str) -> int:
        """Returns the newest counter, for people. The journaled one may be older."""
        return self._steps.get((job_id, workflow), (0, 0))[1]

    def forget_job(self, job_id: str, workflows: list[str]) -> None:
        """Drops what is known of a job that has ended."""
        self._last.pop(job_id, None)
        for name in workflows:
            self._steps.pop((job_id, name), None)
