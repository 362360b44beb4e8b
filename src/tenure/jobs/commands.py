"""Defines the commands about a datacenter's jobs that `decide` takes, and the decision that it returns.

A shell calls `decide(book, command, now)`, appends the events, folds them, and only then acts. Commands carry what a node
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
    """States what became of a command."""

    ACCEPTED = "accepted"
    ALREADY = "already"  # it was done before; the answer is the same again
    REFUSED = "refused"
    NOTHING = "nothing"  # nothing to do, or not yet


class Decision(NamedTuple):
    """The events to append, all in one append, and the answer with its reason."""

    events: list[Event]
    outcome: Outcome
    rule: Rule
    reason: str = ""
    job_id: str = ""
    reply: JobStatusCorrection | None = None
    """The answer to a gate, when the command came from one."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A request or an observation, and its author."""

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
    """A user wants a run now, beside those of the schedule's instants. The same `job_id` again is the same run."""

    schedule: str
    job_id: str


class SkipInstants(Command, frozen=True, kw_only=True):
    """These instants have come, and by the schedule's rule for missed ones they do not run."""

    schedule: str
    until: float
    count: int
    reason: str


class PutSchedule(Command, frozen=True, kw_only=True):
    """A user sets a new schedule, or replaces the one of that name."""

    schedule: Schedule


class RemoveSchedule(Command, frozen=True, kw_only=True):
    """A user removes a schedule. It fires no more; runs that have begun go on."""

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
    """The leader's own code raised while it handled this schedule: it fires no more until a user sets it anew."""

    schedule: str
    error: str
    trace: str = ""


class AttemptCommand(Command, frozen=True, kw_only=True):
    """A command about one attempt of one workflow."""

    job_id: str
    workflow: str
    attempt: int


class RecordDispatched(AttemptCommand, frozen=True, kw_only=True):
    """The engine has the message. It may have refused it now because it had it already."""


class RecordStarted(AttemptCommand, frozen=True, kw_only=True):
    worker: str
    incarnation: str = ""
    delivery: int = 1


class RecordProgress(AttemptCommand, frozen=True, kw_only=True):
    """A worker reports on an attempt that it runs: the counter, which only grows, and the fraction beside it."""

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
    """0 when it is not known. Otherwise a delivery below the one that was started last is stale."""
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
    """The number of times that the engine had delivered this attempt before. Only the engine knows it: a worker that dies reports nothing."""
    evidence: dict[str, Any] = {}


class EvictWorker(Command, frozen=True, kw_only=True):
    """The health rules evict a worker: its attempts fail, and the leader issues them anew."""

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
    """The health rules granted a worker time. `advanced` names the jobs whose workflows advanced there since the last grant."""

    worker: str
    seconds: float
    count: int
    total: float
    bound: float
    progress: float
    advanced: tuple[str, ...]
    counter: int | None = None
    deadline: float = 0.0
    """The engine's time until which the worker now has time. A new leader goes on from there."""
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
    """The worker left, or was evicted long ago and never came back."""

    worker: str
    reason: str


class CheckJob(Command, frozen=True, kw_only=True):
    """Asks whether the job's time has run out. Results that were enqueued up to `drained_until` are recorded; None means up to now."""

    job_id: str
    drained_until: float | None = None
    progress_at: float = 0.0
    """The newest progress that the leader has seen; it may be newer than what is journaled."""


class Identity(msgspec.Struct, frozen=True):
    """Names the manager that answers for a datacenter, as its messages carry it."""

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
    """A gate that lost its journal asks for the state of a job."""

    message: JobStatusQuery
    identity: Identity


class HearGate(Command, frozen=True, kw_only=True):
    """The gate answered a report."""

    message: JobReportAck


class ConfirmCleaned(Command, frozen=True, kw_only=True):
    """The messages of an ended job are revoked."""

    job_id: str


class SetQueue(Command, frozen=True, kw_only=True):
    """An operator changes a queue. A field that is not given stays as it is; None lifts a limit."""

    queue: b.QueueName
    paused: bool | UnsetType = UNSET
    max_running: b.MaxRunning | UnsetType | None = UNSET
    rate: b.Rate | UnsetType | None = UNSET
    burst: b.Burst | UnsetType = UNSET


class ExpireResults(Command, frozen=True, kw_only=True):
    """The time for which the job's results were kept is over. Those of them that are in the store are deleted, too."""

    job_id: str


class DrainWorker(Command, frozen=True, kw_only=True):
    """An operator wants a worker to get no more work, or to get work again."""

    worker: str
    drained: bool = True
    reason: str = ""


class ArchiveJob(Command, frozen=True, kw_only=True):
    """The record of an ended job is in the store: let it leave memory."""

    job_id: str


class ForgetOld(Command, frozen=True, kw_only=True):
    """Asks to drop the ids and tombstones that are older than `id_memory`."""


def cron_job_id(schedule: str, instant: float) -> str:
    """Returns `name/instant`. An instant that fires twice, also under two leaders, has one id and so is one job."""
    return f"{schedule}/{int(instant)}"
