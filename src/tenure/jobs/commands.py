"""What can be asked of a datacenter's jobs, and the shape of every answer.

A shell calls `decide(book, command, now)`, appends the events, folds them, and only then acts. Commands carry what was
observed; they never carry a conclusion.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from tenure import bounds as b
from tenure.jobs.events import Event, Rule
from tenure.jobs.messages import JobGlobalCancel, JobGlobalTimeout, JobReportAck, JobStatusCorrection, JobStatusQuery
from tenure.jobs.model import JobSubmission
from tenure.jobs.schedule import Schedule
from tenure.jobs.states import AttemptCause


class Outcome(StrEnum):
    """What became of a command."""

    ACCEPTED = "accepted"
    ALREADY = "already"  # it was done before: the same answer again
    REFUSED = "refused"
    NOTHING = "nothing"  # nothing to do, or not yet


class Decision(NamedTuple):
    """The events to append, in one append, and the answer with its reason."""

    events: list[Event]
    outcome: Outcome
    rule: Rule
    reason: str = ""
    job_id: str = ""
    reply: JobStatusCorrection | None = None
    """What goes back to a gate."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked or observed, and by whom."""

    by: str = ""


class TakeLead(Command, frozen=True, kw_only=True):
    epoch: int
    leader: str


class SubmitJob(Command, frozen=True, kw_only=True):
    submission: JobSubmission


class FireCron(Command, frozen=True, kw_only=True):
    """An instant of a schedule has come."""

    schedule: str
    instant: float


class RunSchedule(Command, frozen=True, kw_only=True):
    """Somebody wants a run now, beside those of its instants. The same `job_id` again is the same run."""

    schedule: str
    job_id: str


class SkipInstants(Command, frozen=True, kw_only=True):
    """These instants have come, and by the schedule's rule for missed ones they do not run."""

    schedule: str
    until: float
    count: int
    reason: str


class PutSchedule(Command, frozen=True, kw_only=True):
    """A new schedule, or another one under a name that there is."""

    schedule: Schedule


class RemoveSchedule(Command, frozen=True, kw_only=True):
    """Nothing more fires; what runs goes on."""

    schedule: str


class CancelJob(Command, frozen=True, kw_only=True):
    job_id: str
    reason: str = ""


class FailJob(Command, frozen=True, kw_only=True):
    """The leader's own code raised while it handled this job: the job ends, and everything else goes on."""

    job_id: str
    doing: str
    error: str
    trace: str = ""


class PauseSchedule(Command, frozen=True, kw_only=True):
    """The leader's own code raised while it handled this schedule: it fires no more until somebody sets it anew."""

    schedule: str
    error: str
    trace: str = ""


class AttemptCommand(Command, frozen=True, kw_only=True):
    """Something about one attempt of one workflow."""

    job_id: str
    workflow: str
    attempt: int


class RecordDispatched(AttemptCommand, frozen=True, kw_only=True):
    """The engine has the message (or refused it because it has it already)."""


class RecordStarted(AttemptCommand, frozen=True, kw_only=True):
    worker: str
    incarnation: str = ""
    delivery: int = 1


class RecordProgress(AttemptCommand, frozen=True, kw_only=True):
    """A worker's word on an attempt that it runs: the counter, which only grows, and the fraction beside it."""

    worker: str
    steps: int
    fraction: float | None = None
    incarnation: str = ""
    delivery: int = 1
    note: str = ""


class TouchProgress(Command, frozen=True, kw_only=True):
    """Something of the job advanced: document 002's `report_progress`, which names no workflow."""

    job_id: str
    progress_type: str


class RecordResult(AttemptCommand, frozen=True, kw_only=True):
    worker: str = ""
    delivery: int = 0
    """0: not known; otherwise a delivery below the one that was started last is stale."""
    result: Any = None
    result_key: str = ""
    enqueued_at: float = 0.0


class RecordFailure(AttemptCommand, frozen=True, kw_only=True):
    cause: AttemptCause
    worker: str = ""
    delivery: int = 0
    error: str = ""
    dump_key: str = ""
    retryable: bool = True
    enqueued_at: float = 0.0
    redelivered: int = 0
    """How often the engine had given this attempt out before: a worker that dies says nothing."""
    evidence: dict[str, Any] = {}


class EvictWorker(Command, frozen=True, kw_only=True):
    """Health decided it: the worker's attempts fail, and are issued anew."""

    worker: str
    reason: str
    incarnation: str = ""
    evidence: dict[str, Any] = {}


class JudgeWorker(Command, frozen=True, kw_only=True):
    worker: str
    verdict: str
    reason: str
    incarnation: str = ""
    evidence: dict[str, Any] = {}


class GrantExtension(Command, frozen=True, kw_only=True):
    """Health granted a worker time. `advanced`: the jobs whose workflows advanced there since the last grant."""

    worker: str
    seconds: float
    count: int
    total: float
    bound: float
    progress: float
    advanced: tuple[str, ...]
    counter: int | None = None
    deadline: float = 0.0
    """Until when the worker has time now, in the engine's time: a new leader goes on from there."""
    reason: str = ""
    evidence: dict[str, Any] = {}


class DenyExtension(Command, frozen=True, kw_only=True):
    worker: str
    reason: str
    evidence: dict[str, Any] = {}


class ResetExtensions(Command, frozen=True, kw_only=True):
    worker: str
    reason: str


class ForgetWorker(Command, frozen=True, kw_only=True):
    """It left, or was evicted long ago and never came back."""

    worker: str
    reason: str


class CheckJob(Command, frozen=True, kw_only=True):
    """Has time run out? Results that were enqueued up to `drained_until` are recorded: None means up to now."""

    job_id: str
    drained_until: float | None = None
    progress_at: float = 0.0
    """The newest progress that the leader has seen; it may be newer than what is journaled."""


class Identity(msgspec.Struct, frozen=True):
    """Who speaks for a datacenter, as its messages name it."""

    datacenter: str
    manager_id: str
    host: str = ""
    port: int = 0


class ObeyGlobalTimeout(Command, frozen=True, kw_only=True):
    message: JobGlobalTimeout
    identity: Identity


class ObeyGlobalCancel(Command, frozen=True, kw_only=True):
    message: JobGlobalCancel
    identity: Identity


class AnswerQuery(Command, frozen=True, kw_only=True):
    """A gate that lost its journal asks how a job stands."""

    message: JobStatusQuery
    identity: Identity


class HearGate(Command, frozen=True, kw_only=True):
    """The gate answered a report."""

    message: JobReportAck


class ConfirmCleaned(Command, frozen=True, kw_only=True):
    """The messages of an ended job are revoked."""

    job_id: str


class SetQueue(Command, frozen=True, kw_only=True):
    """What is not given stays as it is; None lifts a limit."""

    queue: b.QueueName
    paused: bool | UnsetType = UNSET
    max_running: b.MaxRunning | UnsetType | None = UNSET
    rate: b.Rate | UnsetType | None = UNSET
    burst: b.Burst | UnsetType = UNSET


class ExpireResults(Command, frozen=True, kw_only=True):
    """What the job's results were kept for is over; whatever of them is in the store is deleted."""

    job_id: str


class DrainWorker(Command, frozen=True, kw_only=True):
    """An operator wants a worker to get no more work, or to get some again."""

    worker: str
    drained: bool = True
    reason: str = ""


class ArchiveJob(Command, frozen=True, kw_only=True):
    """The record of an ended job is in the store: let it leave memory."""

    job_id: str


class ForgetOld(Command, frozen=True, kw_only=True):
    """Let go of ids and tombstones that are past their memory."""


def cron_job_id(schedule: str, instant: float) -> str:
    """`name/instant`: whoever fires it, however often, it is one job."""
    return f"{schedule}/{int(instant)}"
