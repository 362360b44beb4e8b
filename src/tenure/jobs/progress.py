"""Remembers the progress that a leader has seen and not journaled.

Progress is journaled at most every quarter of the stuck threshold, so a check that knew only the journal would come up
to that much too early. This is the leader's own memory. It dies with the leader's term, and a new leader's stuck clocks start
at its takeover.
"""

from __future__ import annotations

from tenure.jobs.commands import RecordProgress


class ProgressWatch:
    """Holds the newest progress of each job, and the jobs that advanced on each worker since the last `take_advanced`."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._steps: dict[tuple[str, str], tuple[int, int]] = {}
        self._advanced: dict[str, dict[str, None]] = {}

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
        self._advanced.setdefault(command.worker, {})[command.job_id] = None
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

    def take_advanced(self, worker: str) -> tuple[str, ...]:
        """Returns the jobs that advanced on this worker since the last call. A grant of time counts for these."""
        return tuple(self._advanced.pop(worker, ()))

    def forget_job(self, job_id: str, workflows: list[str]) -> None:
        """Drops what is known of a job that has ended."""
        self._last.pop(job_id, None)
        for name in workflows:
            self._steps.pop((job_id, name), None)

    def forget_worker(self, worker: str) -> None:
        self._advanced.pop(worker, None)
