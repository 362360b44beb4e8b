"""Requests of clients about jobs: one or many, results, another try, and those that act on a job while it runs.

A submission names its job and a cancel is done once, so each may be sent again. What workers say is in `workers`, what attempts leave behind in `job_output`;
which requests there are, who may send them and what they answer is the table in `operations`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from tenure import bounds as b
from tenure.attempt_data import Signal
from tenure.control.messages.wire import Grant, Placed, ProblemKind, Reply, Request
from tenure.jobs.decisions import Outcome
from tenure.jobs.eta import Eta
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import JobState, PauseRecord, WorkflowState
from tenure.jobs.why_answer import Why

MAX_WAIT_S = 30.0
"""The longest that a request may ask a node to hold its answer back."""
MAX_LISTED = 1_000


class Submit(Request, frozen=True, kw_only=True, tag="submit"):
    """Run this job, once, however often it is asked. Leader only."""

    submission: Annotated[JobSubmission, b.CHECKED_WHERE_DECIDED]


class Cancel(Placed, frozen=True, kw_only=True, tag="cancel"):
    """End this job; one that is not known yet will not run. Leader only."""

    job_id: b.JobId
    reason: b.Reason = ""
    by: b.Person = ""


class GetJob(Placed, frozen=True, kw_only=True, tag="job"):
    """Returns how one job stands; with `wait_s`, when it has ended, or after that time."""

    job_id: b.JobId
    wait_s: b.WaitSeconds = 0.0
    signals_after: b.Count | None = None
    """With it, the answer has the signals that the job has got, but for so many of the first. A gate leaves them out: ask with `datacenter`."""


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
    arg: b.LabelFilter = ""
    """An argument of one of its workflows: `tenant`, or `tenant=7`; `a.b=7` looks inside. Secrets fit nothing."""
    args: bool = False
    """Also show the arguments, each row's on one line."""
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
    proof: str = ""
    """Says that the running attempt has shown nothing but beats, and what to do about it; else empty."""
    grants: tuple[Grant, ...] = ()
    """Time left to the attempt and its worker, as the leader knows it."""
    waits_for: str = ""
    """Names the worker that a parked workflow waits for; empty for one that is not parked."""
    eta: Eta | None = None
    """When it will be done at the rate of its fraction, as the leader sees it."""
    arguments: dict[str, Any] = {}
    """For people: secrets are masked, and long values are cut."""
    after: tuple[str, ...] = ()
    """The workflows of this job that it comes after. It finds their results in `ctx.results`."""
    taken_from: str = ""
    """The job whose attempt made the result, where this job repeats that one; else empty."""
    exposed: dict[str, Any] = {}
    """The values that its code shows (`ctx.expose`)."""
    signal: str = ""
    """The name of the signal that it waits for; empty where it waits for none."""
    signal_shape: dict[str, Any] | None = None
    """A JSON Schema of an object whose property `payload` is that of this signal, where the workflow's author declared its type."""
    version: str = ""
    """The version of the function that has to do it; empty: any. Suspended work goes on in the version that suspended it, or in a compatible one."""


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
    deadline: float | None
    """None for a job without one."""
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
    pause: PauseRecord | None = None
    """Since when, by whom and why it is paused; null for a job that is not."""
    signals: tuple[Signal, ...] = ()
    """The signals that were asked for, oldest first."""

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
    waits_for: str = ""
    """Names the worker that its first parked workflow waits for; empty where none is parked."""
    grants: tuple[Grant, ...] = ()
    """The grant of each kind that runs out first, over all its workflows; empty once the job has ended."""
    paused: bool = False
    args: str = ""
    """Its calls with their arguments, where the list was asked for them; secrets are masked."""


class JobList(Reply, frozen=True, kw_only=True, tag="job_list"):
    jobs: tuple[JobRow, ...]
    known: int
    """The number of jobs that match, also where fewer were asked for. A filter on arguments stops after some thousand jobs: then it is the number found so far."""
    now: float
    next: str = ""
    """Give it as `after` for the next page; empty on the last one."""


class WhyReply(Reply, frozen=True, kw_only=True, tag="why_reply"):
    why: Why
    text: str
    now: float = 0.0
    """The time of the node whose times these are: clocks of nodes differ. 0.0 from nodes of earlier releases."""


MAX_SUBMISSIONS = 1_000


class SubmitMany(Request, frozen=True, kw_only=True, tag="submit_many"):
    """Run these jobs, each once. One that is refused does not keep the others from running. Leader only."""

    submissions: Annotated[tuple[JobSubmission, ...], b.each_alone(1, MAX_SUBMISSIONS)]


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one submission of many: an outcome, or the kind of problem that kept it from being accepted."""

    job_id: str
    outcome: Outcome
    reason: str = ""
    problem: ProblemKind | None = None


class ManySubmitted(Reply, frozen=True, kw_only=True, tag="many_submitted"):
    """In the order in which they were given. Those that were accepted are durable."""

    jobs: tuple[Submitted, ...]
    epoch: int


class GetResult(Placed, frozen=True, kw_only=True, tag="result"):
    """Returns the result of a workflow when its job has ended, or after `wait_s`."""

    job_id: b.JobId
    workflow: b.AnyPath = ""
    """May be left out for a job of one workflow."""
    wait_s: b.WaitSeconds = 0.0


class ResultView(Reply, frozen=True, kw_only=True, tag="result_view"):
    job_id: str
    workflow: str
    state: JobState
    """The state of the job."""
    ready: bool
    """True when there is a result; a workflow may well have returned null."""
    result: Any = None
    error: str = ""
    taken_from: str = ""
    """The job whose attempt made the result, where this job repeats that one; else empty."""


class AwaitJobs(Placed, frozen=True, kw_only=True, tag="ended"):
    """Returns those of these jobs that have ended, as soon as there is one, or after `wait_s`. Jobs out of the caller's bounds are left out."""

    job_ids: Annotated[tuple[b.JobId, ...], b.items(1, MAX_LISTED)]
    wait_s: b.WaitSeconds = 0.0


class EndedJobs(Reply, frozen=True, kw_only=True, tag="ended_jobs"):
    """As many as one answer holds; ask again for the others."""

    jobs: tuple[JobView, ...]
    ask_alone: tuple[str, ...] = ()
    """Jobs that have ended and cannot be shown with the others: ask for each with `job`, whose answer says why."""


class RetryJob(Placed, frozen=True, kw_only=True, tag="retry"):
    """Submit what an ended job was once more, as a new job that names the old one. Leader only.

    Asked again, it is the same new job; to try a third time, retry that one.
    """

    job_id: b.JobId
    new_job_id: b.JobIdOrNone = ""
    """By default the old one with a number behind it: `encode~2`, `encode~3`."""
    by: b.Person = ""
    whole: bool = False
    """True to run all its workflows again, also those that completed in a job that did not."""
    from_step: b.AnyNameOrNone = ""
    """A recorded step of the job, to begin again from: the steps before it keep their results."""
    timeout_seconds: b.PositiveSeconds | None = None
    """The time that the new job may take. Left out: as much as the old one."""


class PauseRunningJob(Placed, frozen=True, kw_only=True, tag="pause_job"):
    """Start nothing more of this job, and have what runs end with its checkpoint. None of its clocks runs until it is resumed. Leader only."""

    job_id: b.JobId
    reason: b.GivenReason
    by: b.Person = ""


class ResumePausedJob(Placed, frozen=True, kw_only=True, tag="resume_job"):
    """Let a paused job go on from its checkpoints. Its deadline moves by the time of the pause. Leader only."""

    job_id: b.JobId
    reason: b.GivenReason
    by: b.Person = ""


class RetimeRunningJob(Placed, frozen=True, kw_only=True, tag="retime_job"):
    """Give a job that has not ended another deadline: so many seconds from its start, null for none; or so many more. Leader only."""

    job_id: b.JobId
    reason: b.GivenReason
    timeout_seconds: b.PositiveSeconds | UnsetType | None = UNSET
    """The whole time that it may take. Left out: `add_s` counts."""
    add_s: b.Seconds = 0.0
    by: b.Person = ""


class MoveRunningJob(Placed, frozen=True, kw_only=True, tag="move_job"):
    """Have what runs of this job end with its checkpoint, and go on from there on another worker. It is not charged as an attempt. Leader only."""

    job_id: b.JobId
    reason: b.GivenReason
    workflow: b.AnyPath = ""
    """Left out: everything of it that runs."""
    by: b.Person = ""


class SignalJob(Placed, frozen=True, kw_only=True, tag="signal_job"):
    """Send a signal to this job. It is kept until a workflow of it waits for it. The same id again is the same signal. Leader only."""

    job_id: b.JobId
    name: b.AnyName
    signal_id: b.AnyName
    payload: Annotated[Any, b.CHECKED_WHERE_DECIDED] = None
    by: b.Person = ""


SteeringRequest = PauseRunningJob | ResumePausedJob | RetimeRunningJob | MoveRunningJob | SignalJob
