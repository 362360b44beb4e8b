"""Requests of clients about jobs, and the replies that any request may get.

A submission names its job and a cancel is done once, so each may be sent again. What workers say is in `worker_messages`; which
requests there are, who may send them and what they answer is the table in `operations`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tenure import bounds as b
from tenure.control.messages.grants import Grant
from tenure.control.messages.wire import Placed, Reply, Request
from tenure.jobs.decisions import Outcome
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.why import Why

MAX_WAIT_S = 30.0
"""The longest that a request may ask a node to hold its answer back."""
MAX_LISTED = 1_000


class Submit(Request, frozen=True, kw_only=True, tag="submit"):
    """Run this job, once, however often it is asked. Leader only."""

    submission: JobSubmission


class Cancel(Placed, frozen=True, kw_only=True, tag="cancel"):
    """End this job; one that is not known yet will not run. Leader only."""

    job_id: b.JobId
    reason: b.Reason = ""
    by: b.Person = ""


class GetJob(Placed, frozen=True, kw_only=True, tag="job"):
    """How one job stands; answered when it has ended, or after `wait_s`."""

    job_id: b.JobId
    wait_s: b.WaitSeconds = 0.0


class ListJobs(Placed, frozen=True, kw_only=True, tag="jobs"):
    """The newest jobs that are not archived, those that fit every filter that is given."""

    state: JobState | None = None
    queue: b.AnyNameOrNone = ""
    name: b.AnyNameOrNone = ""
    """A prefix of the job's name or id."""
    function: b.AnyNameOrNone = ""
    """A function that one of its workflows calls."""
    label: b.LabelFilter = ""
    """`key`, or `key=value`."""
    since: b.UnixTime = 0.0
    """Submitted at this time or later; Unix time."""
    until: b.UnixTime | None = None
    """Submitted before this time."""
    after: b.PageCursor = ""
    """The `next` of the last page. Jobs that were submitted meanwhile do not move the pages."""
    limit: b.Listed = 100


class AskWhy(Placed, frozen=True, kw_only=True, tag="why"):
    """Explains the decisions that brought a job to where it is."""

    job_id: b.JobId


class AskLeader(Request, frozen=True, kw_only=True, tag="leader"):
    """Asks who leads, as far as this node knows."""


class Done(Reply, frozen=True, kw_only=True, tag="done"):
    """A write is durable: what became of it, and the job it is about."""

    job_id: str
    outcome: Outcome
    epoch: int
    reason: str = ""


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow of a job, for people and programs."""

    name: str
    function: str
    state: WorkflowState
    attempt: int
    max_attempts: int
    worker: str = ""
    steps: int = 0
    fraction: float | None = None
    started_at: float = 0.0
    ended_at: float = 0.0
    cause: str = ""
    error: str = ""
    result: Any = None
    datacenter: str = ""
    """Where it runs; empty where a manager answers."""
    note: str = ""
    """The attempt's last note, or the silence that it declared."""
    grants: tuple[Grant, ...] = ()
    """Time left to the attempt and its worker, as the leader knows it."""


class DatacenterJob(msgspec.Struct, frozen=True, kw_only=True):
    """How a job stands in one of its datacenters, as its gate knows."""

    name: str
    state: JobState
    health: str = ""
    """The gate's class for that datacenter."""
    heard: bool = True
    """False until the datacenter has said anything about this job."""
    answers: bool = True
    """False where it could not be asked for this answer: what it runs is then left out."""


class JobView(Reply, frozen=True, kw_only=True, tag="job_view"):
    """How a job stands. Times are the engine's; `now` is its time of this answer."""

    job_id: str
    name: str
    state: JobState
    reason: str
    submitted_at: float
    started_at: float
    ended_at: float
    deadline: float
    now: float
    workflows: tuple[WorkflowView, ...]
    queue: str = "default"
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    submitted_by: str = ""
    results_expired: bool = False
    """They were kept for as long as the submission asked, and are gone."""
    datacenters: tuple[DatacenterJob, ...] = ()
    """Where a gate sent it; empty where a manager answers."""
    grants: tuple[Grant, ...] = ()
    """Time left to the job as a whole; empty once it has ended."""

    @property
    def ended(self) -> bool:
        return self.state.terminal


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list of jobs."""

    job_id: str
    name: str
    state: JobState
    submitted_at: float
    ended_at: float
    total: int
    completed: int
    failed: int
    running: int
    attempts: int
    """All attempts of all its workflows."""
    progress: float
    """From 0 to 1: ended workflows, and the fraction of those that run."""
    reason: str = ""
    queue: str = "default"
    labels: dict[str, str] = {}
    grants: tuple[Grant, ...] = ()
    """The grant of each kind that runs out first, over all its workflows; empty once the job has ended."""


class JobList(Reply, frozen=True, kw_only=True, tag="job_list"):
    jobs: tuple[JobRow, ...]
    known: int
    """The number of jobs that match, also where fewer were asked for."""
    now: float
    next: str = ""
    """Give it as `after` for the next page; empty on the last one."""


class WhyReply(Reply, frozen=True, kw_only=True, tag="why_reply"):
    why: Why
    text: str


class LeaderView(Reply, frozen=True, kw_only=True, tag="leader_view"):
    """The leader, and the sequence up to which this node has read."""

    leader: str
    address: str
    epoch: int
    leads: bool
    """True when the answering node leads."""
    seq: int


class Redirect(Reply, frozen=True, kw_only=True, tag="redirect"):
    """Only the leader can say: ask there."""

    address: str
    epoch: int


class ProblemKind(StrEnum):
    """Why a request was not done."""

    INVALID = "invalid"
    """It cannot be read, or a field is outside of its bounds."""
    IMPOSSIBLE = "impossible"
    """Each field is within its bounds, and together, or here, it cannot be done."""
    UNKNOWN = "unknown"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    FORBIDDEN = "forbidden"
    """Nobody knows who asks."""
    DENIED = "denied"
    """It is known who asks, and that one may not."""
    TOO_MANY = "too_many"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class Problem(Reply, frozen=True, kw_only=True, tag="problem"):
    """It was not done, or nobody knows whether it was: then `retryable`, and asking again is safe."""

    kind: ProblemKind
    fact: str
    remedy: str = ""
    retryable: bool = False
    retry_after_s: float = 0.0
    """Seconds to wait before asking again, where they are known."""
    request_id: str = ""
    """Under which the node's log tells more."""


MANAGER_ELECTION = "manager"
GATE_ELECTION = "gate"
"""The engine's election in which a datacenter's managers stand. Whoever opens the engine finds the leader through it."""


def candidate_at(name: str, address: str) -> str:
    """How a manager stands for election: whoever reads the result knows where to find it."""
    return f"{name}@{address}"


def address_of(candidate: str) -> str:
    """Where a leader listens; empty when its candidate string does not say."""
    return candidate.rpartition("@")[2] if "@" in candidate else ""
