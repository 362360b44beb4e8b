"""The timeout strategies of document 002: `LocalAuthorityTimeout`, where the manager decides, and `GateCoordinatedTimeout`, where the gate does.

They are the only code that knows the two apart. Their rules are pure class methods: decisions use them (`check_job` below, and `gate_exchange`), and the leader of a
datacenter arms and checks its jobs through them. The async methods are the document's face over the same rules. All that survives a leader is in
`JobInfo.timeout_tracking`; a strategy object holds no state.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from tenure.errors import ConfigurationError
from tenure.jobs.attempts import RecordProgress
from tenure.jobs.deadlines import NEVER, Expiry, LocalTimeoutReported, ends_at, expiry, fallback_at, stuck_at
from tenure.jobs.decisions import RULES, Command, Decides, Decision, Folds, Outcome, Rule, Rules
from tenure.jobs.endings import CancelJob, end
from tenure.jobs.messages import Identity, JobGlobalTimeout
from tenure.jobs.model import Address, JobInfo, JobSubmission, wall
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import JobState, StrategyType
from tenure.timers import Timers

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


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


class CheckJob(Command, frozen=True, kw_only=True):
    """Asks whether the job's time has run out. Results that were enqueued up to `drained_until` are recorded; None means up to now."""

    job_id: str
    drained_until: float | None = None
    progress_at: float = 0.0
    """The newest progress that the leader has seen; it may be newer than what is journaled."""


class TimeoutVerdict(NamedTuple):
    """`(is_timed_out, reason)`, as the document unpacks it."""

    is_timed_out: bool
    reason: str


class TimeoutHost(Protocol):
    """The part of a leader that a strategy uses."""

    @property
    def book(self) -> JobBook: ...

    @property
    def timers(self) -> Timers[str]:
        """When each job is to be checked."""

    @property
    def progress(self) -> ProgressWatch: ...

    @property
    def identity(self) -> Identity: ...

    def now(self) -> float:
        """Returns the engine's time."""

    async def commit(self, command: Command) -> Decision:
        """Returns the decision once it is durable and folded. Raises when this manager no longer leads."""


class TimeoutStrategy(ABC):
    """Base timeout strategy with state recovery."""

    kind: ClassVar[StrategyType]
    __slots__ = ("manager",)

    def __init__(self, manager: TimeoutHost) -> None:
        self.manager = manager

    # The rules

    @classmethod
    def due(cls, info: JobInfo, settings: JobSettings, progress_at: float = 0.0, rules: Rules = RULES) -> float:
        """Returns the next time at which checking a live job can matter.

        The checks compare strictly, so this is the first instant after the deadline. A timer that fires at it finds the deadline passed.
        """
        return math.nextafter(min(ends_at(info), stuck_at(info, progress_at)), NEVER)

    @classmethod
    def awaited(cls, book: JobBook, info: JobInfo, now: float, rules: Rules) -> Decision | None:
        """Returns the decision on a job whose timeout is somebody else's to decide; None while nobody else is waited for."""
        return None

    @classmethod
    @abstractmethod
    def run_out(cls, book: JobBook, info: JobInfo, over: Expiry, now: float) -> Decision:
        """Returns the decision on a job whose time ran out here."""

    @classmethod
    @abstractmethod
    def why_not_obey(cls) -> str:
        """Returns the reason why no gate may decide about such a job; empty where one may."""

    # Called by a leader

    def track(self, info: JobInfo) -> None:
        """Sets the timer of a job, or cancels it where the job has ended."""
        host = self.manager
        due = next_due(info, host.book.settings, host.progress.last(info.id))
        if due < NEVER:
            host.timers.set(info.id, due)
        else:
            host.timers.cancel(info.id)

    def check(self, job_id: str, drained_until: float | None = None) -> CheckJob:
        """Returns the command that checks a job. Results that were enqueued up to `drained_until` are recorded. A deadline after it does not
        fire yet: an earlier result may still come."""
        progress_at = self.manager.progress.last(job_id)
        return CheckJob(by="leader", job_id=job_id, drained_until=drained_until, progress_at=progress_at)

    # The document's methods

    @abstractmethod
    async def handle_global_timeout(
        self, job_id: str, reason: str, fence_token: int, *, gate_epoch: int | None = None
    ) -> bool:
        """Handle a global timeout decision from the gate: True if accepted, False if rejected (stale)."""

    async def start_tracking(
        self, job_id: str, timeout_seconds: float | None, gate_addr: Address | None = None
    ) -> None:
        """Start tracking on job submission. The state itself was made with the job, by the same append. None: it has no deadline."""
        info = self._own(job_id)
        tracking = info.timeout_tracking
        if wall(tracking.timeout_seconds) != wall(timeout_seconds) or tracking.gate_addr != gate_addr:
            raise ConfigurationError(
                f"job {job_id!r} was submitted with {wall(tracking.timeout_seconds):g} s and gate {tracking.gate_addr}, "
                f"not {wall(timeout_seconds):g} s and {gate_addr}",
                remedy="The journal decides: track it as it was submitted",
            )
        self.track(info)

    async def resume_tracking(self, job_id: str) -> None:
        """Resume tracking after leader transfer: `LeaderElected` raised the token, `started_at` is as it was."""
        self.track(self._own(job_id))

    async def report_progress(self, job_id: str, progress_type: str) -> None:
        """Record workflow progress event. The journal gets it with the worker's next report that is due (`RecordProgress`)."""
        self.manager.progress.touch(job_id, self.manager.now())
        self.track(self._own(job_id))

    async def check_timeout(self, job_id: str, *, drained_until: float | None = None) -> TimeoutVerdict:
        """Check if job timed out: (is_timed_out, reason). Idempotent - safe to call multiple times."""
        await self._commit(self.check(job_id, drained_until))
        info = self.manager.book.job(job_id)
        tracking = info.timeout_tracking
        over = info.state is JobState.TIMED_OUT or (tracking.locally_timed_out and not info.state.terminal)
        return TimeoutVerdict(over, (info.reason or tracking.timeout_reason) if over else "")

    async def stop_tracking(self, job_id: str, reason: str) -> None:
        """Stops the job's clock. An ended job keeps its end, and a live one is cancelled."""
        await self._commit(CancelJob(job_id=job_id, reason=reason))
        self.manager.timers.cancel(job_id)

    def _own(self, job_id: str) -> JobInfo:
        info = self.manager.book.job(job_id)
        if info.timeout_tracking.strategy_type is not self.kind:
            raise ConfigurationError(f"job {job_id!r} is under {info.timeout_tracking.strategy_type}, not {self.kind}")
        return info

    async def _commit(self, command: Command) -> Decision:
        decision = await self.manager.commit(command)
        if decision.events and decision.job_id:
            self.track(self.manager.book.job(decision.job_id))
        return decision


class LocalAuthorityTimeout(TimeoutStrategy):
    """Single datacenter: the manager leader has full authority, and ends the job itself."""

    kind = StrategyType.LOCAL_AUTHORITY
    __slots__ = ()

    @classmethod
    def run_out(cls, book: JobBook, info: JobInfo, over: Expiry, now: float) -> Decision:
        ended = end(info, now, JobState.TIMED_OUT, over.rule, over.words, by=book.state.leader, evidence=over.evidence)
        return Decision([ended], Outcome.ACCEPTED, over.rule, over.words, info.id)

    @classmethod
    def why_not_obey(cls) -> str:
        return "this job was submitted without a gate: its manager alone decides"

    async def handle_global_timeout(
        self, job_id: str, reason: str, fence_token: int, *, gate_epoch: int | None = None
    ) -> bool:
        """Returns False: no gate submitted this job, so none can end it."""
        self._own(job_id)
        return False


class GateCoordinatedTimeout(TimeoutStrategy):
    """Several datacenters: the manager detects and reports, and the gate decides. After 300 s without its answer the manager decides itself."""

    kind = StrategyType.GATE_COORDINATED
    __slots__ = ()

    @classmethod
    def due(cls, info: JobInfo, settings: JobSettings, progress_at: float = 0.0, rules: Rules = RULES) -> float:
        tracking = info.timeout_tracking
        if not tracking.locally_timed_out:
            return super().due(info, settings, progress_at, rules)
        if rules.must_report_again(tracking):
            return 0.0
        return math.nextafter(fallback_at(tracking, settings), NEVER)

    @classmethod
    def awaited(cls, book: JobBook, info: JobInfo, now: float, rules: Rules) -> Decision | None:
        """Ends a job that the gate has not answered for `fallback_after`, or reports its timeout again, as a new leader."""
        tracking = info.timeout_tracking
        if not tracking.locally_timed_out:
            return None
        assert tracking.reported_reason is not None, "a local timeout has a reason"
        waited = now - tracking.first_reported_at
        if now > fallback_at(tracking, book.settings):
            reason = f"{tracking.reported_reason}: the gate has not answered for {waited:.0f} s"
            fallback_after = book.settings.fallback_after
            evidence = {"waited": waited, "fallback_after": fallback_after, "token": tracking.reported_token}
            ended = end(info, now, JobState.TIMED_OUT, Rule.FALLBACK, reason, by=book.state.leader, evidence=evidence)
            return Decision([ended], Outcome.ACCEPTED, Rule.FALLBACK, reason, info.id)
        if rules.must_report_again(tracking):
            again = LocalTimeoutReported(
                at=now,
                by=book.state.leader,
                rule=Rule.REPORT_AGAIN,
                job_id=info.id,
                reason=tracking.reported_reason,
                token=tracking.timeout_fence_token,
                evidence={"reported_token": tracking.reported_token, "first_reported_at": tracking.first_reported_at},
            )
            return Decision([again], Outcome.ACCEPTED, Rule.REPORT_AGAIN, "a new leader reports again", info.id)
        words = f"reported {waited:.0f} s ago: {tracking.reported_reason}"
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, words, info.id)

    @classmethod
    def run_out(cls, book: JobBook, info: JobInfo, over: Expiry, now: float) -> Decision:
        reported = LocalTimeoutReported(
            at=now,
            by=book.state.leader,
            rule=over.rule,
            job_id=info.id,
            reason=over.reason,
            token=info.timeout_tracking.timeout_fence_token,
            evidence={**over.evidence, "gate_epoch": info.timeout_tracking.gate_epoch},
        )
        return Decision([reported], Outcome.ACCEPTED, over.rule, over.words, info.id)

    @classmethod
    def why_not_obey(cls) -> str:
        return ""

    async def handle_global_timeout(
        self, job_id: str, reason: str, fence_token: int, *, gate_epoch: int | None = None
    ) -> bool:
        """Obeys, or refuses as stale. A decision without a gate epoch is taken to come from the newest gate."""
        from tenure.jobs.gate_exchange import (
            ObeyGlobalTimeout,  # it imports this module for the rules of the strategies
        )

        host = self.manager
        if gate_epoch is None:
            gate_epoch = self._own(job_id).timeout_tracking.gate_epoch
        message = JobGlobalTimeout(
            job_id=job_id, reason=reason, timed_out_at=host.now(), fence_token=fence_token, gate_epoch=gate_epoch
        )
        decision = await self._commit(ObeyGlobalTimeout(message=message, identity=host.identity))
        return decision.outcome is Outcome.ACCEPTED and decision.rule is Rule.GLOBAL_TIMEOUT


STRATEGIES: dict[StrategyType, type[TimeoutStrategy]] = {
    made.kind: made for made in (LocalAuthorityTimeout, GateCoordinatedTimeout)
}


def strategy_type(submission: JobSubmission) -> StrategyType:
    """Returns the strategy of a job: the gate decides where a gate submitted it. It needs no configuration."""
    return StrategyType.LOCAL_AUTHORITY if submission.gate_addr is None else StrategyType.GATE_COORDINATED


def strategy_for(job_submission: JobSubmission, manager: TimeoutHost) -> TimeoutStrategy:
    """Returns the multi-DC strategy if a gate submitted the job, the single-DC one otherwise."""
    return STRATEGIES[strategy_type(job_submission)](manager)


def rules_for(info: JobInfo) -> type[TimeoutStrategy]:
    """Returns the strategy whose rules hold for a job, as the journal has it."""
    return STRATEGIES[info.timeout_tracking.strategy_type]


def next_due(info: JobInfo, settings: JobSettings, progress_at: float = 0.0) -> float:
    """Returns the next time at which checking this job can matter. `NEVER` for one that has ended."""
    return NEVER if info.state.terminal else rules_for(info).due(info, settings, progress_at, RULES)


def check_job(book: JobBook, command: CheckJob, now: float, rules: Rules) -> Decision:
    """Decides whether the job's time has run out, and what follows. Idempotent."""
    info = book.job(command.job_id)
    if rules.is_final(info.state):
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, info.reason, info.id)
    strategy = rules_for(info)
    if (awaited := strategy.awaited(book, info, now, rules)) is not None:
        return awaited
    over = expiry(info, now, command.progress_at)
    if over is None:
        return Decision([], Outcome.NOTHING, Rule.FOLLOWED, "", info.id)
    if command.drained_until is not None and command.drained_until < over.since:
        # A result enqueued before the deadline wins over the deadline, so the leader has to read those results first.
        return Decision(
            [], Outcome.NOTHING, over.rule, "results from before the deadline may still be waiting", info.id
        )
    return strategy.run_out(book, info, over, now)


DECIDE: Decides = {CheckJob: check_job}
FOLD: Folds = {}
