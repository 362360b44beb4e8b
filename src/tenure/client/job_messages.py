"""Reads the answers about jobs (results, attempts, the words for an event), and splits many submissions into few requests. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tenure.bound_checks import check
from tenure.control.messages.events import EventLine
from tenure.control.messages.job_details import MAX_SUBMISSIONS, ManySubmitted
from tenure.control.messages.jobs import JobView
from tenure.errors import NodeRefusedError
from tenure.jobs.endings import JobEnded
from tenure.jobs.gate_decisions import GateJobEnded
from tenure.jobs.model import JobSubmission
from tenure.jobs.topics import decode_any_event
from tenure.jobs.why import Link, link
from tenure.work.registry import Workflow

LONG_POLL_S = 10.0
"""A node holds one request for at most this long while a client waits for a job."""
LOOK_EVERY_S = 0.25
"""How often a progress bar moves."""
ENDED = frozenset({JobEnded.__name__, GateJobEnded.__name__})
"""The event that ends a job: a manager writes the first kind, a gate the second."""


def link_of(line: EventLine, begun: float) -> Link:
    """Returns an event in the words of `why`."""
    return link(decode_any_event(msgspec.json.encode(line.event)), begun)


def attempts_of(view: JobView) -> int:
    """Counts the attempts of all workflows. A workflow that waits for another has not been tried yet."""
    return sum(one.attempt for one in view.workflows if one.state != "waiting")


def result_of(view: JobView, workflow: Workflow[..., Any] | None) -> Any:
    """Returns the result of a job of one workflow, decoded as the function is annotated; of several, a dictionary by name."""
    if len(view.workflows) != 1:
        return {one.name: one.result for one in view.workflows}
    value = view.workflows[0].result
    return workflow.decode_result(value) if workflow is not None else value


BATCH_BYTES = 4 << 20
"""The most bytes of submissions in one request."""


def batches(submissions: list[JobSubmission]) -> Iterator[tuple[JobSubmission, ...]]:
    """The submissions in parts that fit into one request, by number and by size. Raises `OutOfBoundsError` before any is sent."""
    for place, one in enumerate(submissions):
        check(one, field=f"submissions[{place}]")
    return _parts(submissions)


def _parts(submissions: list[JobSubmission]) -> Iterator[tuple[JobSubmission, ...]]:
    part: list[JobSubmission] = []
    size = 0
    for one in submissions:
        bytes_of_one = len(msgspec.json.encode(one))
        if part and (len(part) == MAX_SUBMISSIONS or size + bytes_of_one > BATCH_BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(one)
        size += bytes_of_one
    if part:
        yield tuple(part)


def accepted(answer: ManySubmitted) -> list[str]:
    """Returns the ids of the jobs. Raises the first refusal; the accepted ones run all the same, and a repeated call submits
    the same jobs only where the caller gave them ids."""
    for one in answer.jobs:
        if one.problem is not None:
            raise NodeRefusedError(one.problem, f"job {one.job_id!r} of {len(answer.jobs)} was refused: {one.reason}")
    return [one.job_id for one in answer.jobs]
