"""Everything that a manager's journal can say about jobs.

Each event is a decision that was made, with who made it, by which rule, when, and from which inputs: the journal is
the evidence. One event is one line of JSON that a person can read. Folding events never fails for an event that
`decide` made, and never asks anything but the event and the state before it.
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
    """Which rule decided. `words.py` says each in a sentence."""

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
    """What all events carry."""

    at: float
    """The engine's time."""
    by: str = ""
    """Who decided, or whose word it was: a client, a worker, the leader, a gate."""
    rule: Rule = Rule.FOLLOWED
    evidence: Evidence = {}
    """The inputs that led to it."""


class JobEvent(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    job_id: str


class LeaderElected(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The first word of a leader. Tokens rise, stuck clocks restart."""

    epoch: int
    leader: str


class JobSubmitted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    submission: JobSubmission
    digest: str


class CronFired(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Written in one append with the `JobSubmitted` that it caused: an instant fires once."""

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
    """The newest of them."""
    count: int
    reason: str


class Dispatched(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The attempt is in the engine; until then a new leader sends it again, which is safe."""

    workflow: str
    attempt: int


class WorkflowStarted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    workflow: str
    attempt: int
    worker: str
    incarnation: str = ""
    delivery: int = 1


class ProgressRecorded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The counter of an attempt rose; journaled at most every quarter of the stuck threshold."""

    workflow: str = ""
    """Empty when the job as a whole is said to have advanced."""
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
    """Where the stack dump taken before a kill lies in the store."""
    redelivered: int = 0
    """How often the engine had given this attempt out before, without any outcome. Each counts as an attempt."""


class ResultRefused(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    workflow: str
    attempt: int
    delivery: int = 0
    worker: str = ""


class JobEnded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The one terminal transition. Whatever was not done is cancelled with it."""

    state: JobState
    reason: str
    gate_epoch: int = 0
    """Of the gate that decided, when a gate did."""

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
    """Time ran out here, and the gate is told, with this leader's token."""

    reason: TimeoutReason
    token: int


class GlobalDecisionRefused(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A decision of the gate was stale; the answer was a correction."""

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
    """What one worker's series can add up to: the cap of the time that a job can be given."""
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
    """Its attempts fail in the same append, and are issued anew elsewhere."""

    worker: str
    reason: str
    incarnation: str = ""
    jobs: tuple[str, ...] = ()


class WorkerForgotten(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Nothing more is expected of it; whoever comes under its name is new."""

    worker: str
    reason: str = ""


class QueueChanged(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    queue: str
    paused: bool = False
    max_running: int | None = None
    rate: float | None = None
    burst: int = 1


class ResultsExpired(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Its results were kept for as long as its submission asked."""


class WorkerDrained(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An operator's word on a worker: it stands over restarts of the worker, and whatever its health says."""

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
"""One event as the journal keeps it."""

_decoder: msgspec.json.Decoder[ManagerEvent] = msgspec.json.Decoder(ManagerEvent)


def decode_event(encoded: bytes) -> ManagerEvent:
    """The event that was written; raises `msgspec.ValidationError` for anything else."""
    return _decoder.decode(encoded)
