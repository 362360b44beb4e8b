"""What a job is: the submission that asks for it, and what its leader knows of it.

Submissions and specs are frozen. `JobInfo`, `Workflow` and `TimeoutTrackingState` are changed by the fold (`fold.py`)
and by nothing else. Every field is plain data, so a snapshot is an encoding and nothing more.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tenure import bounds as b
from tenure.jobs.settings import DEFAULT_TIMEOUT_S, STUCK_THRESHOLD_S
from tenure.jobs.states import (
    AttemptCause,
    JobState,
    OnFailure,
    StrategyType,
    TimeoutReason,
    WorkflowState,
)

Address = b.Address
EVICTED = "evict"
"""The verdict on a worker whose work was issued anew."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often a workflow is tried, and how long it rests in between."""

    max_attempts: b.Attempts = 3
    """All attempts count, evictions and lost leases too: a poison job must not spread."""
    delay: b.Seconds = 1.0
    factor: b.Factor = 2.0
    max_delay: b.Seconds = 300.0
    jitter: b.Fraction = 0.1
    """The share of the delay that is spread, by the key of the attempt: replay gives the same."""


class WorkflowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow of a submission: a registered function and its arguments."""

    name: b.WorkflowName
    function: b.CalledFunction = ""
    """The registered name; the workflow's own name when empty."""
    arguments: dict[str, Any] = {}
    after: Annotated[tuple[b.WorkflowName, ...], b.items(0, 1_000)] = ()
    on_failure: OnFailure = OnFailure.FAIL
    retry: RetryPolicy = RetryPolicy()
    stall: b.PositiveSeconds | None = None
    """The longest silence between beats before its slot is killed; None: the worker's own threshold."""
    version: b.VersionName = ""

    @property
    def called(self) -> str:
        return self.function or self.name


class JobSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """What a client, a schedule or a gate asks for. The same submission twice is one job."""

    job_id: b.JobId
    workflows: Annotated[tuple[WorkflowSpec, ...], b.items(1, 1_000)]
    timeout_seconds: b.PositiveSeconds = DEFAULT_TIMEOUT_S
    stuck_threshold: b.PositiveSeconds | None = None
    """None: 120 s, or twice the longest stall of its workflows."""
    gate_addr: Address | None = None
    """Where to report; its presence makes the gate the authority over the deadline (document 002, part 1)."""
    gate_addrs: Annotated[tuple[Address, ...], b.items(0, 100)] = ()
    """More addresses of the same gate cluster, tried when the first does not answer."""
    gate_epoch: b.Epoch = 0
    target_datacenters: Annotated[tuple[b.DatacenterName, ...], b.items(0, 1_000)] = ()
    datacenters: b.DatacenterCount = 1
    """In how many a gate runs it, each the whole of it, where `target_datacenters` names none."""
    global_submitted_at: b.UnixTime = 0.0
    """The gate's time of submission, carried back in reports so that a successor can rebuild."""
    idempotency_key: b.IdempotencyKey = ""
    name: b.DisplayName = ""
    queue: b.QueueName = "default"
    priority: b.Priority = 0
    """Higher goes first: one mailbox for each priority of a queue."""
    delay: b.Seconds = 0.0
    """Seconds to wait before the first dispatch; they do not count against the timeout."""
    result_ttl: b.PositiveSeconds | None = None
    """Seconds after its end for which results are kept; None: for as long as the record of the job."""
    submitted_by: b.Person = ""
    labels: b.Labels = {}


class Job(msgspec.Struct, frozen=True):
    """A submission that was accepted, and when."""

    submission: JobSubmission
    submitted_at: float

    @property
    def id(self) -> str:
        return self.submission.job_id


class TimeoutTrackingState(msgspec.Struct, kw_only=True):
    """Timeout tracking of one job (document 002, part 2). Part of `JobInfo`, so every leader inherits it.

    Times are the engine's. The fields of the document come first, then those that its part 8 and our rulings need.
    """

    strategy_type: StrategyType
    gate_addr: Address | None
    started_at: float
    """When the deadline began to run. Never changes."""
    last_progress_at: float
    last_report_at: float = 0.0
    timeout_seconds: float
    stuck_threshold: float = STUCK_THRESHOLD_S
    locally_timed_out: bool = False
    globally_timed_out: bool = False
    timeout_reason: str = ""
    timeout_fence_token: int = 0
    """1 under the first leader, one more under each that follows."""

    extensions_by_worker: dict[str, float] = {}
    total_extensions_granted: float = 0.0
    """The maximum over workers, capped: 0 <= total <= the bound of one worker's series."""
    resumed_at: float = 0.0
    """When the present leader took over; the stuck clock starts no earlier."""
    reported_reason: TimeoutReason | None = None
    reported_token: int = 0
    """The token that the local timeout was last reported with; below our own, it is reported again."""
    first_reported_at: float = 0.0
    """The fallback counts from here, whoever leads."""
    gate_epoch: int = 0
    """The highest gate epoch seen; decisions of lower ones are refused."""
    last_refused: tuple[int, int] | None = None
    """(token, gate epoch) of the stale decision that was refused last, so that a repeated one is not journaled."""


class Workflow(msgspec.Struct, kw_only=True):
    """One workflow, and the attempt that counts."""

    spec: WorkflowSpec
    state: WorkflowState = WorkflowState.WAITING
    attempt: int = 1
    """The generation of the message; results of lower ones are refused. 1 <= attempt <= max_attempts."""
    not_before: float = 0.0
    worker: str = ""
    incarnation: str = ""
    delivery: int = 0
    dispatched_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    steps: int = 0
    """The attempt's progress counter as last journaled; it only grows within an attempt."""
    fraction: float | None = None
    excluded: list[str] = []
    """Workers that had it and did not bring it home."""
    cause: AttemptCause | None = None
    error: str = ""
    result: Any = None
    result_key: str = ""
    redelivered: int = 0
    """How often the engine gave one of its attempts out again, because a worker died without a word. Counts against max_attempts."""
    refused: list[tuple[int, int, str]] = []
    """(attempt, delivery, worker) of refused results, so that each is recorded once."""


class JobInfo(msgspec.Struct, kw_only=True):
    """What the leader knows of one job."""

    job: Job
    state: JobState = JobState.PENDING
    workflows: dict[str, Workflow]
    timeout_tracking: TimeoutTrackingState
    digest: str
    """Of the submission's contents, to tell a retry from a conflict."""
    reason: str = ""
    started_at: float = 0.0
    """When the first attempt started; the deadline runs from `timeout_tracking.started_at`."""
    ended_at: float = 0.0
    waiting_workflows: int = 0
    open_workflows: int = 0
    """Not terminal yet; the job ends when it reaches 0, or earlier."""
    running_workflows: int = 0
    completed_workflows: int = 0
    failed_workflows: int = 0
    cleaned: bool = True
    """False between the end of a job with live messages and the leader's word that they are revoked."""
    ended_by_gate: bool = False
    """A gate's decision ended it: one that lost its journal learns its own decision back from this."""
    gate_acked: bool = False
    """The gate knows how it ended here."""
    results_expired: bool = False
    history: list[bytes] = []
    elided: int = 0

    @property
    def id(self) -> str:
        return self.job.submission.job_id


class ArchivedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a job in memory: enough to know it again, and how it ended."""

    state: JobState
    ended_at: float
    archived_at: float
    digest: str
    idempotency_key: str = ""
    fence_token: int = 0
    gate_epoch: int = 0
    ended_by_gate: bool = False


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job that is not known yet: whatever comes later under this id is ended at once."""

    at: float
    state: JobState
    reason: str
    by: str
    gate_epoch: int = 0


class WorkerRecord(msgspec.Struct, kw_only=True):
    """What the journal knows of a worker, so that a new leader neither forgets a verdict nor grants a second series."""

    incarnation: str = ""
    verdict: str = "route"
    reason: str = ""
    since: float = 0.0
    extension_count: int = 0
    total_extended: float = 0.0
    last_progress: float = 0.0
    last_counter: int | None = None
    deadline: float = 0.0
    """Until when its last extension reaches; reports since may have moved its deadline further."""


class DrainRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An operator drained a worker."""

    at: float
    by: str = ""
    reason: str = ""


class QueueRecord(msgspec.Struct, kw_only=True):
    """What an operator decided about a queue."""

    paused: bool = False
    max_running: int | None = None
    """At most this many attempts in the engine or running."""
    rate: float | None = None
    """At most this many attempts a second, on average."""
    burst: int = 1
    """And at most this many at once after a pause."""
    even_at: float = 0.0
    """When what was sent is paid for by the rate."""
