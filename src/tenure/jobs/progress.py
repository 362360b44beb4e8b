"""What a leader has seen of progress since the journal last heard of it.

Progress is journaled at most every quarter of the stuck threshold, so a check that only knew the journal would be up
to that much too early. This is the leader's own memory: it dies with its term, and a new leader's stuck clocks start
at its takeover.
"""

from __future__ import annotations

from tenure.jobs.commands import RecordProgress


class ProgressWatch:
    """The newest progress of each job, and which jobs advanced on which worker since it was last asked."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._steps: dict[tuple[str, str], tuple[int, int]] = {}
        self._advanced: dict[str, dict[str, None]] = {}

    def observe(self, command: RecordProgress, now: float) -> bool:
        """A report came, and its attempt is the one that counts; True when its counter rose."""
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
        """The job advanced, whichever workflow it was."""
        self._last[job_id] = now

    def last(self, job_id: str) -> float:
        """When this leader last saw the job advance; 0 when it never did."""
        return self._last.get(job_id, 0.0)

    def steps(self, job_id: str, workflow: str) -> int:
        """The newest counter, for people; the journaled one may be older."""
        return self._steps.get((job_id, workflow), (0, 0))[1]

    def take_advanced(self, worker: str) -> tuple[str, ...]:
        """The jobs that advanced there since the last call: a grant of time counts for these."""
        return tuple(self._advanced.pop(worker, ()))

    def forget_job(self, job_id: str, workflows: list[str]) -> None:
        """The job ended."""
        self._last.pop(job_id, None)
        for name in workflows:
            self._steps.pop((job_id, name), None)

    def forget_worker(self, worker: str) -> None:
        self._advanced.pop(worker, None)
