"""Defines every event about jobs in a manager's journal.

Each event is a decision, with its author, its rule, its time and its inputs: the journal is
the evidence. One event is one line of JSON that a person can read. Folding events never fails for an event that
`decide` made, and reads nothing but the event and the state before it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tenure.jobs.model import JobSubmission
from tenure.jobs.schedule import Schedule
from tenure.jobs.states import AttemptCause, JobState, TimeoutReason

Evidence = dict[str, Any]


class Rule(StrEnum):
    """The rule that decided. `words.py` puts each into a sentence."""

    ASKED = "asked"  # a user, a schedule or an operator asked for it
    FOLLOWED = "followed"  # it follows from an earlier decision
    TAKEOVER = "takeover"
    WORKER_SAID = "worker_said"
    ENGINE_SAID = "engine_said"
    HEALTH = "health"
    ALL_DONE = "all_done"
    NOTHING_DONE = "nothing_done"
    FAILED_FOR_GOOD = "failed_for_good"
    TOMBSTONE = "tombstone"
    OVERALL_TIMEOUT = "overall_timeout"
    STUCK = "stuck"
    REPORT_AGAIN = "report_again"
    GLOBAL_TIMEOUT = "global_timeout"
    GLOBAL_CANCEL = "global_cancel"
    FALLBACK = "fallback"
    STALE_TOKEN = "stale_token"  # noqa: S105
    STALE_GATE = "stale_gate"
    STALE_ATTEMPT = "stale_attempt"
    STALE_DELIVERY = "stale_delivery"
    JOB_ENDED = "job_ended"
    ALREADY_RECORDED = "already_recorded"
    RETENTION = "retention"
    ANY_DATACENTER = "any_datacenter"
    ALL_STUCK = "all_stuck"
    REBUILT = "rebuilt"
    DATACENTER_SAID = "datacenter_said"
    PRODUCT_FAILED = "product_failed"  # our own code raised while it handled this one job or schedule


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The fields that all events carry."""

    at: float
    """The engine's time."""
    by: str = ""
    """The author of the decision or of the report: a client, a worker, the leader, a gate."""
    rule: Rule = Rule.FOLLOWED
    evidence: Evidence = {}
    """The inputs that led to the decision."""


class JobEvent(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    job_id: str


class LeaderElected(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The first event of a leader. Tokens rise and stuck clocks restart with it."""

    epoch: int
    leader: str


class JobSubmitted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    submission: JobSubmission
    digest: str


class CronFired(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An instant fired. The leader writes it in one append with the `JobSubmitted` that it caused, so an instant fires once."""

    schedule: str
    instant: float
    job_id: str


class ScheduleSet(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A schedule is new, or was changed: only instants after this count."""

    schedule: Schedule


class ScheduleRemoved(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    schedule: str


class InstantsSkipped(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Instants that came and will not run."""

    schedule: str
    until: float
    """The newest of the instants."""
    count: int
    reason: str


class Dispatched(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The attempt is in the engine. Without this event a new leader sends it again, which is safe."""

    workflow: str
    attempt: int


class WorkflowStarted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    workflow: str
    attempt: int
    worker: str
    incarnation: str = ""
    delivery: int = 1


class ProgressRecorded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The counter of an attempt rose. The leader journals it at most once in a quarter of the stuck threshold."""

    workflow: str = ""
    """Empty when the report was about the job as a whole."""
    attempt: int = 0
    worker: str = ""
    steps: int = 0
    fraction: float | None = None
    note: str = ""


class WorkflowCompleted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    workflow: str
    attempt: int
    worker: str = ""
    result: Any = None
    result_key: str = ""


class AttemptFailed(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An attempt ended without a result; `next_attempt` is 0 when it was the last."""

    workflow: str
    attempt: int
    cause: AttemptCause
    worker: str = ""
    error: str = ""
    next_attempt: int = 0
    not_before: float = 0.0
    exclude: bool = False
    dump_key: str = ""
    """The key in the store of the stack dump that was taken before a kill."""
    redelivered: int = 0
    """The number of times that the engine had delivered this attempt before, without any outcome. Each counts as an attempt."""


class ResultRefused(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    workflow: str
    attempt: int
    delivery: int = 0
    worker: str = ""


class JobEnded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The one terminal transition of a job. It cancels every workflow that has not ended."""

    state: JobState
    reason: str
    gate_epoch: int = 0
    """The epoch of the gate that decided; 0 when no gate did."""

    @property
    def by_gate(self) -> bool:
        return self.gate_epoch > 0


class JobCleaned(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The messages of an ended job are revoked."""


class TombstoneSet(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A job that is not known was cancelled or timed out."""

    state: JobState
    reason: str
    gate_epoch: int = 0


class LocalTimeoutReported(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Time ran out here. The leader reports it to the gate, with its own token."""

    reason: TimeoutReason
    token: int


class GlobalDecisionRefused(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A decision of the gate was stale. The leader answered with a correction."""

    fence_token: int
    gate_epoch: int


class GateEpochSeen(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    gate_epoch: int


class GateAcknowledged(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The gate knows how the job ended here."""

    gate_epoch: int = 0


class ExtensionGranted(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker earned time; it counts for the jobs whose workflows advanced there."""

    worker: str
    seconds: float
    jobs: tuple[str, ...]
    count: int
    total: float
    bound: float
    """The most seconds that one worker's series can add up to. It also caps the time that a job can be given."""
    progress: float = 0.0
    counter: int | None = None
    deadline: float = 0.0


class ExtensionDenied(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    worker: str
    reason: str
    jobs: tuple[str, ...] = ()


class ExtensionsReset(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The worker completed something, or was healthy for a whole interval: its series starts anew."""

    worker: str


class WorkerJudged(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The verdict on a worker changed."""

    worker: str
    verdict: str
    reason: str
    incarnation: str = ""
    jobs: tuple[str, ...] = ()


class WorkerEvicted(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker was evicted. Its attempts fail in the same append, and are issued anew elsewhere."""

    worker: str
    reason: str
    incarnation: str = ""
    jobs: tuple[str, ...] = ()


class WorkerForgotten(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The leader expects nothing more of a worker. A worker that comes under its name later is new."""

    worker: str
    reason: str = ""


class QueueChanged(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    queue: str
    paused: bool = False
    max_running: int | None = None
    rate: float | None = None
    burst: int = 1


class ResultsExpired(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The job's results are dropped: they were kept for as long as its submission asked."""


class WorkerDrained(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An operator drained a worker, or undid it. It holds over restarts of the worker, and whatever its health is."""

    worker: str
    drained: bool = True
    reason: str = ""


class JobArchived(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The whole record is in the store; its id and key stay known."""

    forget: tuple[str, ...] = ()
    """Older archived ids that have to go because there are too many."""


class Forgotten(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Archived ids and tombstones up to this time are past their memory."""

    until: float


ManagerEvent = (
    LeaderElected
    | JobSubmitted
    | CronFired
    | ScheduleSet
    | ScheduleRemoved
    | InstantsSkipped
    | Dispatched
    | WorkflowStarted
    | ProgressRecorded
    | WorkflowCompleted
    | AttemptFailed
    | ResultRefused
    | JobEnded
    | JobCleaned
    | TombstoneSet
    | LocalTimeoutReported
    | GlobalDecisionRefused
    | GateEpochSeen
    | GateAcknowledged
    | ExtensionGranted
    | ExtensionDenied
    | ExtensionsReset
    | WorkerJudged
    | WorkerEvicted
    | WorkerForgotten
    | QueueChanged
    | WorkerDrained
    | ResultsExpired
    | JobArchived
    | Forgotten
)

encode_event = msgspec.json.Encoder().encode
"""Encodes one event as the journal keeps it."""

_decoder: msgspec.json.Decoder[ManagerEvent] = msgspec.json.Decoder(ManagerEvent)


def decode_event(encoded: bytes) -> ManagerEvent:
    """Returns the event that was written; raises `msgspec.ValidationError` for anything else."""
    return _decoder.decode(encoded)
