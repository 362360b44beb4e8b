"""Splits many submissions into few requests, and reads the answers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tenure.bound_checks import check
from tenure.control.messages.job_details import MAX_SUBMISSIONS, ManySubmitted
from tenure.errors import NodeRefusedError
from tenure.jobs.model import JobSubmission

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
