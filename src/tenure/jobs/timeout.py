"""Implements document 002's timeout strategies, `LocalAuthorityTimeout` and `GateCoordinatedTimeout`. `gate_addr` chooses one per job.

They are a thin face over `decide`: each method calls it, and hands the decision to the manager, which journals and folds it. All that
survives a leader is in `JobInfo.timeout_tracking`; a strategy object holds no state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from tenure.errors import ConfigurationError
from tenure.jobs.attempts import ProgressWatch, TouchProgress
from tenure.jobs.book import JobBook
from tenure.jobs.deadlines import NEVER, CheckJob, next_due
from tenure.jobs.decisions import Decision, Outcome, Rule
from tenure.jobs.endings import CancelJob
from tenure.jobs.extensions import GrantExtension
from tenure.jobs.gate_exchange import ObeyGlobalTimeout
from tenure.jobs.messages import Identity, JobGlobalTimeout
from tenure.jobs.model import Address, JobInfo, JobSubmission
from tenure.jobs.states import JobState, StrategyType
from tenure.jobs.timers import Timers
from tenure.jobs.topics import decide


class TimeoutVerdict(NamedTuple):
    """`(is_timed_out, reason)`, as the document unpacks it."""

    is_timed_out: bool
    reason: str


class TimeoutHost(Protocol):
    """The part of a manager that a strategy uses."""

    book: JobBook
    timers: Timers[str]
    progress: ProgressWatch
    identity: Identity

    def now(self) -> float:
        """Returns the engine's time."""

    async def record(self, decision: Decision) -> None:
        """Append the events, then fold them. Raises when this manager no longer leads."""


class TimeoutStrategy(ABC):
    """Base timeout strategy with state recovery."""

    kind: StrategyType

    def __init__(self, manager: TimeoutHost) -> None:
        self.manager = manager

    @abstractmethod
    async def handle_global_timeout(
        self, job_id: str, reason: str, fence_token: int, *, gate_epoch: int | None = None
    ) -> bool:
        """Handle a global timeout decision from the gate: True if accepted, False if rejected (stale)."""

    async def start_tracking(self, job_id: str, timeout_seconds: float, gate_addr: Address | None = None) -> None:
        """Start tracking on job submission. The state itself was made with the job, by the same append."""
        info = self._own(job_id)
        tracking = info.timeout_tracking
        if tracking.timeout_seconds != timeout_seconds or tracking.gate_addr != gate_addr:
            raise ConfigurationError(
                f"job {job_id!r} was submitted with {tracking.timeout_seconds:g} s and gate {tracking.gate_addr}, "
                f"not {timeout_seconds:g} s and {gate_addr}",
                remedy="The journal decides: track it as it was submitted",
            )
        self._arm(info)

    async def resume_tracking(self, job_id: str) -> None:
        """Resume tracking after leader transfer: `LeaderElected` raised the token, `started_at` is as it was."""
        self._arm(self._own(job_id))

    async def report_progress(self, job_id: str, progress_type: str) -> None:
        """Record workflow progress event."""
        host = self.manager
        host.progress.touch(job_id, host.now())
        await self._record(decide(host.book, TouchProgress(job_id=job_id, progress_type=progress_type), host.now()))

    async def check_timeout(self, job_id: str, *, drained_until: float | None = None) -> TimeoutVerdict:
        """Check if job timed out: (is_timed_out, reason). Idempotent - safe to call multiple times.

        Results that were enqueued up to `drained_until` are recorded. A deadline after it does not fire yet: an earlier result may still come.
        """
        host = self.manager
        check = CheckJob(job_id=job_id, drained_until=drained_until, progress_at=host.progress.last(job_id))
        await self._record(decide(host.book, check, host.now()))
        info = host.book.job(job_id)
        tracking = info.timeout_tracking
        over = info.state is JobState.TIMED_OUT or (tracking.locally_timed_out and not info.state.terminal)
        return TimeoutVerdict(over, (info.reason or tracking.timeout_reason) if over else "")

    async def record_extension(self, job_id: str, worker_id: str, seconds: float, *, bound: float) -> None:
        """Records that a worker on which this job advanced was granted time (document 002, part 8)."""
        record = self.manager.book.state.workers.get(worker_id)
        count, total = (record.extension_count, record.total_extended) if record else (0, 0.0)
        grant = GrantExtension(
            worker=worker_id,
            seconds=seconds,
            count=count + 1,
            total=total + seconds,
            bound=bound,
            progress=record.last_progress if record else 0.0,
            advanced=(job_id,),
        )
        await self._record(decide(self.manager.book, grant, self.manager.now()))
        self._arm(self._own(job_id))

    async def stop_tracking(self, job_id: str, reason: str) -> None:
        """Stops the job's clock. An ended job keeps its end, and a live one is cancelled."""
        await self._record(decide(self.manager.book, CancelJob(job_id=job_id, reason=reason), self.manager.now()))
        self.manager.timers.cancel(job_id)

    def _own(self, job_id: str) -> JobInfo:
        info = self.manager.book.job(job_id)
        if info.timeout_tracking.strategy_type is not self.kind:
            raise ConfigurationError(f"job {job_id!r} is under {info.timeout_tracking.strategy_type}, not {self.kind}")
        return info

    async def _record(self, decision: Decision) -> None:
        if decision.events:
            await self.manager.record(decision)
            if decision.job_id:
                self._arm(self.manager.book.job(decision.job_id))

    def _arm(self, info: JobInfo) -> None:
        host = self.manager
        due = next_due(info, host.book.settings, host.progress.last(info.id))
        if due < NEVER:
            host.timers.set(info.id, due)
        else:
            host.timers.cancel(info.id)


class LocalAuthorityTimeout(TimeoutStrategy):
    """Single datacenter: the manager leader has full authority, and ends the job itself."""

    kind = StrategyType.LOCAL_AUTHORITY

    async def handle_global_timeout(
        self, job_id: str, reason: str, fence_token: int, *, gate_epoch: int | None = None
    ) -> bool:
        """Returns False: no gate submitted this job, so none can end it."""
        self._own(job_id)
        return False


class GateCoordinatedTimeout(TimeoutStrategy):
    """Several datacenters: the manager detects and reports, and the gate decides. After 300 s without its answer the manager decides itself."""

    kind = StrategyType.GATE_COORDINATED

    async def handle_global_timeout(
        self, job_id: str, reason: str, fence_token: int, *, gate_epoch: int | None = None
    ) -> bool:
        """Obeys, or refuses as stale. A decision without a gate epoch is taken to come from the newest gate."""
        host = self.manager
        if gate_epoch is None:
            gate_epoch = self._own(job_id).timeout_tracking.gate_epoch
        message = JobGlobalTimeout(
            job_id=job_id, reason=reason, timed_out_at=host.now(), fence_token=fence_token, gate_epoch=gate_epoch
        )
        decision = decide(host.book, ObeyGlobalTimeout(message=message, identity=host.identity), host.now())
        await self._record(decision)
        return decision.outcome is Outcome.ACCEPTED and decision.rule is Rule.GLOBAL_TIMEOUT


def strategy_for(job_submission: JobSubmission, manager: TimeoutHost) -> TimeoutStrategy:
    """Returns the multi-DC strategy if a gate submitted the job, the single-DC one otherwise. It needs no configuration."""
    if job_submission.gate_addr is not None:
        return GateCoordinatedTimeout(manager)
    return LocalAuthorityTimeout(manager)
