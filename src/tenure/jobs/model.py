"""Defines a job as plain data: the submission that asks for it, and the records that its leader and its gate keep of it.

Submissions and specs are frozen. Only the folds change `JobInfo`, `WorkflowRecord`, `TimeoutTrackingState` and `GateJobTrackingInfo`.
Every field is plain data, so a snapshot is an encoding and nothing more.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

from tenure import bounds as b
from tenure.attempt_data import Signal, WaitsFor
from tenure.backoff import Retry
from tenure.jobs.settings import GRACE_S, STUCK_THRESHOLD_S
from tenure.jobs.states import (
    AttemptCause,
    AttemptStop,
    JobState,
    OnFailure,
    PauseRecord,
    StrategyType,
    TimeoutReason,
    Undoes,
    WorkflowState,
)
from tenure.served_workflow import KeyLimit, Unique

Address = b.Address


class WorkflowSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workflow of a submission: a registered function and its arguments. What is left out is the function's (`door.py`)."""

    name: b.WorkflowName
    function: b.CalledFunction = ""
    """The registered name of the function. When it is empty, the workflow's own name is used."""
    arguments: dict[str, Any] = {}
    arguments_at: b.StoreKey = ""
    """The key in the store of the arguments that are too large for the journal. Only a leader fills it, and a mark stands for each of them (`arguments.py`)."""
    after: Annotated[tuple[b.WorkflowName, ...], b.items(0, 1_000)] = ()
    on_failure: OnFailure = OnFailure.FAIL
    retry: Retry | None = None
    max_attempts: b.Attempts | None = None
    """Stands for that of `retry`, whosever that is."""
    stall: b.PositiveSeconds | None = None
    """The longest silence between two beats; after it the worker kills the slot. None: the worker's own threshold."""
    version: b.VersionName = ""
    concurrency: KeyLimit | None = None  # the key by which its work takes turns; None: the queue's

    @property
    def called(self) -> str:
        return self.function or self.name

    @property
    def policy(self) -> Retry:
        """The retry policy. A spec that was accepted has one, and one of an earlier release that left it out means the default."""
        return self.retry or Retry()


class JobSubmission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for a job, from a client, a schedule or a gate. Sent twice, it makes one job. An earlier release has its defaults for what is left out."""

    job_id: b.JobId
    workflows: Annotated[tuple[WorkflowSpec, ...], b.items(1, 1_000)]
    timeout_seconds: b.PositiveSeconds | None = None
    """The seconds after which the job ends, done or not. None: there is no such wall. The job ends by its result, by a cancel, or because it stands still."""
    stuck_threshold: b.PositiveSeconds | None = None
    """None: 120 s, or twice the longest stall of its workflows."""
    gate_addr: Address | None = None
    """The gate to report to. When it is set, the gate is the authority over the deadline (document 002, part 1)."""
    gate_addrs: Annotated[tuple[Address, ...], b.items(0, 100)] = ()
    """More addresses of the same gate cluster. The manager tries them when the first does not answer."""
    gate_epoch: b.Epoch = 0
    target_datacenters: Annotated[tuple[b.DatacenterName, ...], b.items(0, 1_000)] = ()
    datacenters: b.DatacenterCount = 1
    """The number of datacenters in which a gate runs the job, in each the whole of it. It counts when `target_datacenters` is empty."""
    global_submitted_at: b.UnixTime = 0.0
    """The gate's time of submission. Reports carry it back, as evidence for a gate that has to rebuild the job."""
    idempotency_key: b.IdempotencyKey = ""
    name: b.DisplayName = ""
    queue: b.QueueOrNone = ""
    """Empty: the function's own queue, or `default`. The queue of an accepted job is never empty."""
    priority: b.Priority | None = None
    """Higher goes first. Each priority of a queue has a mailbox of its own. None: the function's, or 0."""
    park: bool = False
    """True to accept work that nobody has registered yet: it waits for a worker that serves it."""
    delay: b.Seconds = 0.0
    """Seconds to wait before the first dispatch; they do not count against the timeout."""
    result_ttl: b.PositiveSeconds | None = None
    """The seconds for which results are kept after the job's end. None: for as long as the record of the job."""
    submitted_by: b.Person = ""
    labels: b.Labels = {}
    retry_of: b.JobIdOrNone = ""  # the ended job that this one repeats. What completed there is not run again
    retry_from: b.AnyNameOrNone = (
        ""  # the step of that job from which this one begins again, with the results of those before it
    )
    grace: b.Seconds | None = None
    """The first of the extensions that a job can earn past its deadline; each further one is half as long. None: 30 s. 0: it can earn none."""
    unique: Unique | None = None  # says which other jobs are the same as this one, and what then becomes of it
    undo_of: b.JobIdOrNone = ""  # the ended job whose compensations this one runs. Only a leader fills it
    among: b.Labels = {}  # the labels that its caller is bound to: only a job with the same ones is the same as this one

    @property
    def grace_s(self) -> float:
        return GRACE_S if self.grace is None else self.grace


NO_DEADLINE_S = b.YEAR_S
"""Stands for "no deadline" in journals and between nodes, because records of format 1 have a number there. It is the longest that anybody may
ask for, so the release before, to which a datacenter may go back, reads a deadline that does no harm."""


def wall(timeout_seconds: float | None) -> float:
    """Returns a deadline as rules reckon with it: "no deadline" is infinity."""
    return math.inf if timeout_seconds is None or timeout_seconds >= NO_DEADLINE_S else timeout_seconds


def as_recorded(submission: JobSubmission) -> JobSubmission:
    """Returns the submission as journals hold it: with a number for its deadline, also where it has none."""
    if submission.timeout_seconds is not None:
        return submission
    return msgspec.structs.replace(submission, timeout_seconds=NO_DEADLINE_S)


class AcceptedJob(msgspec.Struct, frozen=True):
    """A submission that the leader accepted, and the time at which it did."""

    submission: JobSubmission
    submitted_at: float

    @property
    def id(self) -> str:
        return self.submission.job_id


class TimeoutTrackingState(msgspec.Struct, kw_only=True):
    """Tracks the timeout of one job (document 002, part 2). It is part of `JobInfo`, so every leader inherits it.

    Times are the engine's. The fields of the document come first, then those that its part 8 and our rulings need.
    """

    strategy_type: StrategyType
    gate_addr: Address | None
    started_at: float
    """The time at which the deadline began to run. It never changes, so a change of leader gives the job no extra time."""
    last_progress_at: float
    last_report_at: float = 0.0
    """The time of the last report of a local timeout to the gate. Reports of progress are not journaled, so they do not show here."""
    timeout_seconds: float | None
    """None for a job without a deadline: `wall` makes it infinity, so check 1 never holds, and everything else is as for other jobs."""
    stuck_threshold: float = STUCK_THRESHOLD_S
    locally_timed_out: bool = False
    globally_timed_out: bool = False
    timeout_reason: str = ""
    timeout_fence_token: int = 0
    """1 under the first leader, one more under each that follows. A decision of the gate that echoes a lower one answers an earlier leader."""

    extensions_by_worker: dict[str, float] = {}
    """Grants of releases in which a worker's own extensions counted for its jobs. Their maximum is in the total below."""
    total_extensions_granted: float = 0.0
    """The seconds that the job earned past its deadline: at most 1.9375 x its grace, over all attempts, workers and leaders."""
    extension_count: int = 0
    """The grants that the job has used, for life: nothing gives them back."""
    extended_by: str = ""
    """The start of the worker to which the last grant was given, and that worker's counter then. It must have risen for the next."""
    extended_counter: int = 0
    denied: str = ""
    """The kind of the last denial since the last grant. The same is not journaled twice."""
    resumed_at: float = 0.0
    """The time at which the present leader took over. The stuck clock starts no earlier: progress that the last leader did not journal is lost."""
    reported_reason: TimeoutReason | None = None
    reported_token: int = 0
    """The token with which a leader last reported the local timeout. When it is below `timeout_fence_token`, the leader reports again."""
    first_reported_at: float = 0.0
    """The fallback counts from this time, so a change of leader does not postpone it."""
    gate_epoch: int = 0
    """The highest gate epoch seen. The leader refuses decisions of lower ones: they come from a gate that was replaced."""
    last_refused: tuple[int, int] | None = None
    """(token, gate epoch) of the stale decision that was refused last. When the gate repeats it, the leader journals no second refusal."""
    pause: PauseRecord | None = None
    """Set while the job is paused: no clock of it runs then."""
    paused_s: float = 0.0
    """The seconds of all pauses that are over. They move the deadline."""
    steered: int = 0
    """The number of the last order of the gate about pause and time that was obeyed."""
    stuck_chosen: bool = False
    """True when the submission itself set `stuck_threshold`: then it stands as it is, whatever stall a worker has."""


class UndoRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The job that runs the compensations of an ended one, and the workflows that have any."""

    job_id: str
    workflows: tuple[str, ...]


class WorkflowRecord(msgspec.Struct, kw_only=True):
    """One workflow, and its newest attempt: the only one that counts."""

    spec: WorkflowSpec
    state: WorkflowState = WorkflowState.WAITING
    attempt: int = 1
    """Grows after each failure. The leader refuses results of lower ones."""
    withdrawn: int = (
        0  # dispatches beyond the attempts: its message was taken back from the engine, or it was suspended
    )
    by_workflow: bool = False
    """True when its messages go to the mailbox of its workflow, and not to that of all workflows (`JobSubmitted.by_workflow`)."""
    not_before: float = 0.0
    place: int = 0  # while it is pending: of attempts that are due at one instant, the one with the lowest goes first
    worker: str = ""
    incarnation: str = ""
    delivery: int = 0
    dispatched_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    steps: int = 0  # the attempt's progress counter as last journaled; it only grows within an attempt
    fraction: float | None = None
    excluded: list[str] = []
    """Workers that had an attempt and may be to blame for its end. The next attempt goes elsewhere while other workers take work."""
    cause: AttemptCause | None = None
    error: str = ""
    result: Any = None
    result_key: str = ""
    taken_from: str = ""  # the job whose attempt made the result, where this job repeats that one
    redelivered: int = 0  # times that the engine delivered an attempt again because its worker died without a report
    mark: int = 0  # names the saved work that the last charge knew (`WorkResult.mark`)
    spent: int | None = None
    """The attempts and redeliveries since the last new saved work, which count against max_attempts. None: all of them, as earlier releases counted."""
    uncharged: int = 0  # attempts that failed on something that was down
    held_on: str = ""  # the name on which the last attempt failed
    failed_on: tuple[int, float] = (0, 0.0)  # those in a row that failed on it and were charged, and when
    stop: AttemptStop | None = None
    stalled: int = 0  # attempts that were ended for their silence. After one of them no learned threshold holds for it
    refused: list[tuple[int, int, str]] = []  # (attempt, delivery, worker) of each result that was refused, once
    unsigned: tuple[int, float] | None = (
        None  # the generation of which a result was refused for its signature, and when
    )
    suspensions: int = 0  # times that it was suspended; above 0 its steps are in the store, too
    waits: WaitsFor | None = None  # what it waits for, or waited for last
    wakes_at: float = 0.0  # 0: no time ends the wait, which began at `waits_since`
    waits_since: float = 0.0
    woken_by_time: bool = False
    exposed: dict[str, Any] = {}  # the values that its last attempt that ended showed
    undoes: Undoes = Undoes.NONE
    suspended_in: str = ""
    """The version that suspended it last. It goes on in that one, or in a later one that is compatible with it."""

    @property
    def version(self) -> str:
        """The version that has to do it; empty: any."""
        return self.suspended_in or self.spec.version

    @property
    def generation(self) -> int:
        """The generation of its message. It grows with every dispatch, the attempt only after a failure (RULINGS 6)."""
        return self.attempt + self.withdrawn


class JobInfo(msgspec.Struct, kw_only=True):
    """Holds everything that the leader knows of one job."""

    job: AcceptedJob
    state: JobState = JobState.PENDING
    workflows: dict[str, WorkflowRecord]
    timeout_tracking: TimeoutTrackingState
    digest: str  # names the submission's contents. It tells a retry from a conflict
    reason: str = ""
    started_at: float = 0.0
    """The time at which the first attempt started. The deadline runs from `timeout_tracking.started_at`."""
    ended_at: float = 0.0
    waiting_workflows: int = 0
    open_workflows: int = 0
    """The number of workflows that are not terminal. The job ends when it reaches 0, or earlier."""
    running_workflows: int = 0
    completed_workflows: int = 0
    failed_workflows: int = 0
    cleaned: bool = True
    """False from the end of a job that may have live messages until the leader has revoked them."""
    ended_by_gate: bool = False
    """True when a gate's decision ended the job. A gate that lost its journal learns its own decision back from this."""
    gate_acked: bool = False
    """True when the gate has acknowledged how the job ended here, or when an ended job has no gate."""
    results_expired: bool = False
    origins: dict[str, str] = {}  # maps each setting that a function gave to that function (`door.with_settings`)
    signals: list[Signal] = []
    undo: UndoRecord | None = None  # the job that runs its compensations
    history: list[bytes] = []
    elided: int = 0

    @property
    def id(self) -> str:
        return self.job.submission.job_id

    @property
    def attempts(self) -> int:
        """All attempts of all its workflows. A workflow that waits for another has none yet, and one that was taken over none here."""
        ran = (one for one in self.workflows.values() if one.state is not WorkflowState.WAITING and not one.taken_from)
        return sum(one.attempt for one in ran)


class GateJobTrackingInfo(msgspec.Struct, kw_only=True):
    """A gate's view of one job across all datacenters. The document's fields come first, then those that our rulings need."""

    job_id: str
    submitted_at: float
    """Global start time, by the gate's own clock."""
    timeout_seconds: float | None
    """None for a job without a deadline."""
    target_datacenters: list[str]
    dc_status: dict[str, JobState] = {}
    dc_last_progress: dict[str, float] = {}
    """The time at which the gate received a report of progress, by its own clock. Never a report's timestamp."""
    dc_manager_addrs: dict[str, Address] = {}
    globally_timed_out: bool = False
    timeout_reason: str = ""
    timeout_fence_token: int = 0
    """Counts this gate's decisions about the job. It is not compared with any manager's token."""

    dc_fence_tokens: dict[str, int] = {}
    """The highest manager token seen from each datacenter. A decision made from reports echoes it."""
    dc_extensions: dict[str, float] = {}
    dc_timeouts: dict[str, int] = {}
    """Maps each datacenter that reported a local timeout to the token of its report."""
    dc_heard: dict[str, bool] = {}
    """False until the datacenter has answered. Until then the gate sends the submission, or the query, again."""
    submission: JobSubmission | None = None
    """None for a job that was rebuilt from reports."""
    digest: str = ""
    decided: JobState | None = None
    decided_reason: str = ""
    decided_at: float = 0.0
    decided_from_reports: bool = False
    state: JobState = JobState.RUNNING
    reason: str = ""
    ended_at: float = 0.0
    resumed_at: float = 0.0
    pause: PauseRecord | None = None
    paused_s: float = 0.0
    steered: int = 0
    """Counts the orders about pause and time. Each datacenter is sent the newest one until it has obeyed it."""
    steered_by: str = ""
    steered_reason: str = ""
    dc_steered: dict[str, int] = {}
    """Maps each datacenter to the newest order that it has obeyed."""
    history: list[bytes] = []
    elided: int = 0

    @property
    def running(self) -> list[str]:
        """The datacenters that are not terminal."""
        return [dc for dc in self.target_datacenters if not self.dc_status[dc].terminal]

    @property
    def standing(self) -> str:
        """The job's state, or `ending` while a decision is on its way to datacenters that have not obeyed yet."""
        return "ending" if self.decided is not None and not self.state.terminal else self.state.value


class ArchivedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of an archived job that stays in memory: enough to recognise its id and key, and how it ended."""

    state: JobState
    ended_at: float
    archived_at: float
    digest: str
    idempotency_key: str = ""
    fence_token: int = 0
    gate_epoch: int = 0
    ended_by_gate: bool = False
    unique: str = ""  # names what it is unique by, until `submitted_at` is too long ago for any later job
    submitted_at: float = 0.0


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job that is not known yet. A submission that comes later under this id ends at once."""

    at: float
    state: JobState
    reason: str
    by: str
    gate_epoch: int = 0
