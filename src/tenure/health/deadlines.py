"""Healthcheck deadlines: how long a worker may go on without proof that its work moves (document 000).

The worker's report is the answer to a standing probe. A report that shows progress moves the deadline; a granted
extension adds to it; past it the worker is suspect, gets no more time, and is evicted as the brake allows. Silence that
the work is allowed earns nothing, and costs no life either: while reports arrive, the worker is not suspect before that
silence may have ended (decision 0306). This file joins the extension rules with the fleet's tracker; messages, epochs and the journal are the shell's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tenure.clock import Clock, SystemClock
from tenure.errors import UnknownWorkerError
from tenure.health.brake import BrakeConfig
from tenure.health.extension import ExtensionTracker, HealthcheckExtensionRequest, HealthcheckExtensionResponse
from tenure.health.node_states import WorkerHealthState
from tenure.health.signals import HealthClass, finite, whole
from tenure.health.tracker import NodeHealthTracker, Sweep
from tenure.timers import Timers


@dataclass(frozen=True, slots=True)
class ExtensionConfig:
    """The document's defaults: a deadline of 30 s, five extensions, none under a second."""

    base_deadline: float = 30.0
    min_grant: float = 1.0
    max_extensions: int = 5
    evidence: int = 16  # requests kept per worker

    def __post_init__(self) -> None:
        self.tracker("check")  # the tracker's own rules
        whole("evidence", self.evidence, least=1)

    def tracker(self, worker_id: str) -> ExtensionTracker:
        """Returns a fresh tracker for a worker."""
        return ExtensionTracker(worker_id, self.base_deadline, self.min_grant, self.max_extensions)


class ExtensionRecord(NamedTuple):
    """A request and its answer: the evidence, with the fields that no rule reads."""

    at: float
    request: HealthcheckExtensionRequest
    response: HealthcheckExtensionResponse


@dataclass(slots=True)
class _Worker:
    extensions: ExtensionTracker
    deadline: float
    records: deque[ExtensionRecord]
    suspect: str | None = None
    well_since: float | None = field(default=None)
    denied: bool = False
    """True from a denial, or from the end of the deadline, until the next proof of progress. It gets no new work meanwhile."""
    heard_at: float = 0.0
    allowed_until: float = 0.0
    """Until when the work that runs there may be silent, by the last report, which came at `heard_at`."""


class WorkerHealthManager:
    """Manages worker health with extension support.

    `workers` is the tracker of the same fleet: `register`, `on_report`, `sweep` and `remove` keep both in step. Methods
    take `now`, in monotonic seconds, and ask `clock` where it is not given; deadlines leave as Unix time.
    """

    def __init__(
        self, *, clock: Clock | None = None, config: ExtensionConfig | None = None, brake: BrakeConfig | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._config = config or ExtensionConfig()
        self._known: dict[str, _Worker] = {}
        self._expiries: Timers[str] = Timers()
        self.workers: NodeHealthTracker[WorkerHealthState] = NodeHealthTracker(
            "worker",
            clock=self._clock,
            brake=brake,
            deadline_of=self._deadline_of,
            stuck_grace_s=self._config.base_deadline,
        )

    def register(
        self,
        worker_id: str,
        *,
        now: float | None = None,
        deadline: float | None = None,
        extensions: ExtensionTracker | None = None,
    ) -> float:
        """Begin to watch a worker, or a new incarnation of it; its deadline.

        A new leader gives the journaled deadline and extensions: the clock goes on from them or from now, as is later.
        """
        now = self._time(now)
        worker = _Worker(extensions or self._config.tracker(worker_id), now, deque(maxlen=self._config.evidence))
        self._known[worker_id] = worker
        # Nothing was reported yet: no work for it, and its silence counts from now. A worker that comes back is not taken
        # out of the tracker first: the brake would count it as lost.
        self.workers.clear_suspect(worker_id, now=now)
        self.workers.update_state(worker_id, WorkerHealthState(worker_id, now, 0, False, 0, 0, 0, 0.0), now=now)
        self._move(worker_id, worker, now + self._config.base_deadline)
        if deadline is not None:
            self._move(worker_id, worker, finite("deadline", deadline))
        return worker.deadline

    def on_report(self, state: WorkerHealthState, *, now: float | None = None, allowed_until: float = 0.0) -> float:
        """Notes that a worker's report was accepted, and returns its deadline. Raises `UnknownWorkerError`.

        One that shows progress, or has nothing to do, moves the deadline and ends a suspicion. One that is well for a
        full interval has its extensions back. `allowed_until`: when the last allowed silence of what runs there ends.
        """
        now = self._time(now)
        worker = self._get(state.worker_id)
        self.workers.update_state(state.worker_id, state, now=now)
        worker.heard_at, worker.allowed_until = now, finite("allowed_until", allowed_until)
        if state.proven:
            self._renew(state.worker_id, worker, now)
        if not state.proven or state.class_at(now) < HealthClass.BUSY:
            worker.well_since = None
        elif worker.well_since is None:
            worker.well_since = now
        elif now - worker.well_since >= self._config.base_deadline:
            worker.well_since = now
            worker.extensions.reset()
        return worker.deadline

    def on_worker_healthy(self, worker_id: str, *, now: float | None = None) -> None:
        """Reset extension tracker when worker completes successfully; one that is gone needs none."""
        now = self._time(now)
        if worker_id in self._known:
            worker = self._known[worker_id]
            worker.extensions.reset()
            self._renew(worker_id, worker, now)

    def handle_extension_request(
        self, request: HealthcheckExtensionRequest, *, now: float | None = None, wall: float | None = None
    ) -> HealthcheckExtensionResponse:
        """Process extension request from worker. Raises `UnknownWorkerError`."""
        now = self._time(now)
        wall = self._clock.wall() if wall is None else wall
        worker = self._get(request.worker_id)
        grant = worker.extensions.request_extension(
            reason=request.reason,
            current_progress=request.current_progress,
            counter=request.progress_counter,
            # `expire` may not have run yet; the deadline passed all the same.
            suspect=worker.suspect or (_overdue(worker, now) if now >= worker.deadline else None),
        )
        seconds = grant.extension_seconds
        worker.denied = not grant.granted
        if grant.granted:
            # A worker that completes one short workflow after another gets series after series: what it saved up must
            # not hide a hang for longer than two whole series could.
            latest = now + self._config.base_deadline + 2 * worker.extensions.bound
            if worker.deadline + seconds > latest:
                seconds = max(0.0, latest - worker.deadline)
            self._move(request.worker_id, worker, worker.deadline + seconds)
        response = HealthcheckExtensionResponse(
            granted=grant.granted,
            extension_seconds=seconds,
            new_deadline=wall + worker.deadline - now,
            remaining_extensions=worker.extensions.remaining_extensions,
            denial_reason=None if grant.granted else grant.reason,
            warning=grant.warning,
        )
        worker.records.append(ExtensionRecord(now, request, response))
        return response

    def mark_suspect(self, worker_id: str, why: str, *, now: float | None = None) -> None:
        """Take a worker for suspect (gossip says so, or its deadline passed). Raises `UnknownWorkerError`."""
        now = self._time(now)
        self._get(worker_id).suspect = why
        self.workers.mark_suspect(worker_id, why, now=now)

    def expire(self, *, now: float | None = None) -> list[str]:
        """Returns the workers whose deadline has passed since the last call: they are suspect now."""
        now = self._time(now)
        expired = []
        for worker_id in self._expiries.pop_due(now):
            worker = self._known[worker_id]
            worker.denied = True
            if worker.suspect is None and now < (until := self._ends(worker)):
                self._expiries.set(worker_id, until)
                continue
            expired.append(worker_id)
            if worker.suspect is None:
                self.mark_suspect(worker_id, _overdue(worker, now), now=now)
        return expired

    def sweep(self, *, now: float | None = None) -> Sweep:
        """Expire deadlines, then decide all evictions that are due."""
        now = self._time(now)
        self.expire(now=now)
        return self.workers.sweep(now=now)

    def remove(self, worker_id: str) -> bool:
        """Forget a worker; False when it is not known."""
        self._expiries.cancel(worker_id)
        self.workers.remove(worker_id)
        return self._known.pop(worker_id, None) is not None

    def deadline(self, worker_id: str) -> float:
        """Returns the deadline that a worker earned, in monotonic seconds. Raises `UnknownWorkerError`."""
        return self._get(worker_id).deadline

    def suspect_at(self, worker_id: str) -> float:
        """Returns when a worker becomes suspect unless it reports or advances: not before its deadline. Raises `UnknownWorkerError`."""
        return self._ends(self._get(worker_id))

    def without_excuse(self, state: WorkerHealthState) -> WorkerHealthState:
        """Returns the state of a worker as it counts. Raises `UnknownWorkerError`.

        Allowed silence excuses nothing once more time was denied: the worker is stuck then, and gets no new work until something advances.
        """
        denied = state.workflows_silent > 0 and self._get(state.worker_id).denied
        return replace(state, workflows_silent=0) if denied else state

    def suspicion(self, worker_id: str) -> str | None:
        """Returns why a worker is suspect, or None. Raises `UnknownWorkerError`."""
        return self._get(worker_id).suspect

    def extensions(self, worker_id: str) -> ExtensionTracker:
        """Returns a worker's extension tracker. Raises `UnknownWorkerError`."""
        return self._get(worker_id).extensions

    def evidence(self, worker_id: str) -> tuple[ExtensionRecord, ...]:
        """Returns the latest requests of a worker with their answers, oldest first. Raises `UnknownWorkerError`."""
        return tuple(self._get(worker_id).records)

    def _time(self, now: float | None) -> float:
        return self._clock.monotonic() if now is None else now

    def _get(self, worker_id: str) -> _Worker:
        try:
            return self._known[worker_id]
        except KeyError:
            raise UnknownWorkerError(worker_id) from None

    def _deadline_of(self, worker_id: str) -> float | None:
        worker = self._known.get(worker_id)
        return self._ends(worker) if worker else None

    def _ends(self, worker: _Worker) -> float:
        """Returns the later of the earned deadline and the end of the allowed silence, with a deadline's time to act on that end.

        It counts only while reports arrive: the silence of an attempt never excuses the silence of its supervisor.
        """
        base = self._config.base_deadline
        return max(worker.deadline, min(worker.allowed_until, worker.heard_at) + base if worker.allowed_until else 0.0)

    def _move(self, worker_id: str, worker: _Worker, deadline: float) -> None:
        """Moves a deadline, only to a later time: a report must not take back what an extension gave."""
        worker.deadline = max(worker.deadline, deadline)
        self._expiries.set(worker_id, worker.deadline)

    def _renew(self, worker_id: str, worker: _Worker, now: float) -> None:
        self._move(worker_id, worker, now + self._config.base_deadline)
        worker.denied = False
        if worker.suspect is not None:
            worker.suspect = None
            self.workers.clear_suspect(worker_id, now=now)


def _overdue(worker: _Worker, now: float) -> str:
    return f"its healthcheck deadline passed {now - worker.deadline:.1f} s ago without progress"
