"""More that clients ask about jobs: many at once, results, another try, logs and what was found of an attempt that died."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tenure import bounds as b
from tenure.control.messages.jobs import ProblemKind
from tenure.control.messages.wire import Placed, Reply, Request
from tenure.jobs.decisions import Outcome
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import JobState

MAX_SUBMISSIONS = 1_000
MAX_LOG_BYTES = 262_144
"""The most bytes of one page of a log."""


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


class RetryJob(Placed, frozen=True, kw_only=True, tag="retry"):
    """Submit what an ended job was once more, as a new job that names the old one. Leader only.

    Asked again, it is the same new job; to try a third time, retry that one.
    """

    job_id: b.JobId
    new_job_id: b.JobIdOrNone = ""
    """By default the old one with a number behind it: `encode~2`, `encode~3`."""
    by: b.Person = ""


class GetLogs(Placed, frozen=True, kw_only=True, tag="logs"):
    """Returns the lines that an attempt logged. To follow it, ask again with the `next` of the last page until it is `ended`."""

    job_id: b.JobId
    workflow: b.AnyPath = ""
    """May be left out for a job of one workflow."""
    attempt: b.Attempt = 0
    """0: the newest."""
    offset: b.Count = 0
    """In bytes: 0, or the `next` of a page."""
    limit: b.LogBytes = 65_536


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    level: str
    text: str
    trace: str = ""
    """The id of the trace that the attempt belongs to, where traces are collected."""


class LogPage(Reply, frozen=True, kw_only=True, tag="log_page"):
    job_id: str
    workflow: str
    attempt: int
    lines: tuple[LogLine, ...]
    next: int
    """The offset of what comes after these lines."""
    more: bool
    """True when more lines are there already."""
    ended: bool
    """True when the attempt can log no more."""


class GetEvidence(Placed, frozen=True, kw_only=True, tag="evidence"):
    """Returns the evidence of an attempt that was killed or died: stacks, the state of its process, its exit."""

    job_id: b.JobId
    workflow: b.AnyPath = ""
    attempt: b.Attempt = 0


class EvidenceView(Reply, frozen=True, kw_only=True, tag="evidence_view"):
    job_id: str
    workflow: str
    attempt: int
    found: Any = None
    """None where nothing was kept: it ended well, or too long ago."""
