"""Defines the messages about what workflows emit while they run."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure import bounds as b
from tenure.control.messages.wire import Placed, Reply

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
