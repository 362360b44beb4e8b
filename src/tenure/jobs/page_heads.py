"""Says of a page of waiting jobs what a start has to know of them, so that it need not decode their records (decision 1000). Pure.

A start needs of a job that waits its id and what the indexes keep: some 20 bytes. Its record has 1,900, which took most of a start of a million queued jobs
to be unpacked, decoded, read for the indexes and dropped. The head of a page has those 20 bytes of each of its jobs. The records stay as they are, and alone
are the state: a head that is not understood, or that another release wrote, counts for nothing, and the records are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import NamedTuple

import msgspec

from tenure.jobs.deadlines import needs_its_leader
from tenure.jobs.fold import election_bytes
from tenure.jobs.job_kinds import JobKind, KindTable, PageSummary
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.states import WorkflowState
from tenure.jobs.unique_jobs import unique_name
from tenure.jobs.work_indexes import NeedsTable, WorkNeeds, lane_of

HEAD_VERSION = 1
"""Raise it when `JobBook.index` reads something else off a waiting job: the heads of before count for nothing then."""


class Run(NamedTuple):
    """Some jobs of a page, one after the other, whose only workflow needs the same of a worker."""

    jobs: int
    needs: WorkNeeds
    name: str
    """The name of that workflow."""


class PageHead(msgspec.Struct, frozen=True, array_like=True):
    """Each number of a job is its place in the page."""

    written_by: str
    """The `readers_mark` of the writer."""
    ids: list[str]
    runs: list[Run]
    kinds: list[tuple[JobKind, int]]
    """Those of the page's summary, and the number of jobs of each."""
    tags: list[int]
    first_at: float
    last_at: float
    history: int
    """The bytes of the histories of all jobs, and how many of them are elections that their histories end with."""
    elected: int
    attended: list[int]
    """The jobs that a new leader has to look at."""
    keys: dict[int, str]
    """The idempotency keys of the jobs that have one."""
    unique: dict[int, tuple[str, float]]
    """The names of the unique jobs, and when each was submitted."""
    resting: dict[int, tuple[float, int]]
    """When the work of each job is due that is not in the engine, and its place."""


def head_of(infos: Iterable[JobInfo], table: KindTable, summary: PageSummary | None = None) -> bytes:
    """Returns the head of a page with these records, and this summary of them; nothing where some do more than wait for their turn."""
    jobs: list[tuple[JobInfo, WorkflowRecord]] = []
    for info in infos:
        workflow = _waiting(info)
        if workflow is None:
            return b""
        jobs.append((info, workflow))
    summary, needs = summary or table.summary([info for info, _ in jobs]), NeedsTable()
    held = [(needs.of(lane_of(info), workflow), workflow.spec.name) for info, workflow in jobs]
    named = [unique_name(info.job.submission) for info, _ in jobs]
    return _encode(
        PageHead(
            written_by=readers_mark(),
            ids=[info.id for info, _ in jobs],
            runs=[Run(len(list(same)), *one) for one, same in groupby(held)],
            kinds=list(summary.kinds.items()),
            tags=list(summary.tags),
            first_at=summary.first_at,
            last_at=summary.last_at,
            history=sum([sum(map(len, info.history)) for info, _ in jobs]),
            elected=sum([election_bytes(info) for info, _ in jobs]),
            attended=[place for place, (info, _) in enumerate(jobs) if needs_its_leader(info)],
            keys={place: key for place, (info, _) in enumerate(jobs) if (key := info.job.submission.idempotency_key)},
            unique={place: (name, jobs[place][0].job.submitted_at) for place, name in enumerate(named) if name},
            resting={
                place: (workflow.not_before, workflow.place)
                for place, (_, workflow) in enumerate(jobs)
                if workflow.state is WorkflowState.PENDING
            },
        )
    )


def _waiting(info: JobInfo) -> WorkflowRecord | None:
    """Returns the only workflow of a job of which no index but those of a head knows anything; None for any other job."""
    if info.state.terminal or info.timeout_tracking.pause is not None or info.job.submission.undo_of:
        return None
    if len(info.workflows) != 1:
        return None
    (workflow,) = info.workflows.values()
    waits = workflow.state is WorkflowState.QUEUED or workflow.state is WorkflowState.PENDING
    return workflow if waits and workflow.unsigned is None and not workflow.held_on else None


def read_head(encoded: bytes) -> PageHead | None:
    """Returns the head that this release may believe; None for any other, and for what is no head."""
    if not encoded:
        return None
    try:
        head: PageHead = _decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return head if head.written_by == readers_mark() and _adds_up(head) else None


def _adds_up(head: PageHead) -> bool:
    count = len(head.ids)
    places = (head.attended, head.keys, head.unique, head.resting)
    return (
        count == len(set(head.ids)) == sum([run.jobs for run in head.runs]) == sum([of for _, of in head.kinds])
        and all(run.jobs > 0 for run in head.runs)
        and all(of > 0 and not kind.state.terminal for kind, of in head.kinds)
        and all(0 <= place < count for some in places for place in some)
        and all(0 <= tag <= 0xFFFF for tag in head.tags)
        and 0 <= head.elected <= head.history
    )


@cache
def readers_mark() -> str:
    """Returns a name of what a record is for this release. A start that reads no records must not take over those that it could not read."""
    schema = msgspec.json.schema(JobInfo)
    about = msgspec.json.encode((HEAD_VERSION, schema), order="sorted")
    return hashlib.blake2b(about, digest_size=8).hexdigest()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PageHead).decode
