"""Defines the messages about what attempts leave behind: their logs, what they emit, and the evidence of those that were killed or died."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure import bounds as b
from tenure.control.messages.wire import Placed, Reply
from tenure.jobs.why_answer import AttemptEvidence


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
    """As the worker kept it. None where nothing was kept: it ended well, or too long ago."""
    evidence: AttemptEvidence | None = None
    """`found` in the form that `why` shows, with the end of the log."""


MAX_OUTPUT_BYTES = 262_144
"""The most bytes of the items of one page, but for a single item that has more."""


class GetOutput(Placed, frozen=True, kw_only=True, tag="output"):
    """Returns the items that a workflow has emitted, from an offset on. To follow it, ask again with the `next` of the last page until it is `ended`."""

    job_id: b.JobId
    workflow: b.AnyPath = ""
    """May be left out for a job of one workflow."""
    after: b.Count = 0
    """The offset to go on from: 0, or the `next` of a page."""
    limit: b.Listed = 1_000
    wait_s: b.WaitSeconds = 0.0
    """The answer may wait so long for an item."""


class OutputItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item. An offset keeps its item, but for one that a worker wrote in the moment in which it lost its lease (decision 0491)."""

    offset: int
    item: Any
    at: float
    attempt: int
    """The attempt that emitted it."""


class OutputPage(Reply, frozen=True, kw_only=True, tag="output_page"):
    job_id: str
    workflow: str
    items: tuple[OutputItem, ...]
    next: int
    """The offset of what comes after these items."""
    more: bool
    """True when more items are there already."""
    ended: bool
    """True when the workflow can emit no more."""
