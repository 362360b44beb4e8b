"""What of a node's state can make a difference to what comes: the rest is forgotten before states are compared."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tenure.jobs.book import JobBook
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.states import JobState
from tests.worlds.jobs.scene import DATACENTERS, JOB

canonical = msgspec.msgpack.Encoder(order="sorted").encode
"""An encoding in which the order of dictionaries makes no difference."""


class DatacenterView(NamedTuple):
    """What the promises ask about a datacenter's state."""

    state: JobState | None
    waiting: bool
    """It timed out locally, told the gate, and waits."""
    by_decision: bool
    leaders: int


class GateView(NamedTuple):
    decided: bool
    ended: bool
    known: bool
    epoch: int


def forget_in_book(book: JobBook, now: float) -> None:
    """Names, words and moments that no rule reads; of an ended job all that its end has made irrelevant.

    Ticks are further apart than every threshold, so of a moment only this matters: is it of this tick, or older?
    """
    book.state.leader, book.state.elected_at = "", 0.0
    for job_id, stone in book.state.tombstones.items():
        book.state.tombstones[job_id] = msgspec.structs.replace(stone, at=0.0, reason="")
    info = book.jobs.get(JOB)
    if info is None:
        return
    tracking = info.timeout_tracking
    info.reason, info.started_at, info.ended_at = "", 0.0, 0.0
    info.job = msgspec.structs.replace(info.job, submitted_at=0.0)
    tracking.timeout_reason, tracking.last_report_at, tracking.last_refused = "", 0.0, None
    for workflow in info.workflows.values():
        workflow.dispatched_at = workflow.started_at = workflow.ended_at = workflow.not_before = 0.0
    fresh = max(tracking.last_progress_at, tracking.resumed_at) >= now
    tracking.last_progress_at, tracking.resumed_at = now if fresh else 0.0, 0.0
    tracking.first_reported_at = now if tracking.first_reported_at >= now else 0.0
    tracking.started_at = 0.0
    if tracking.locally_timed_out:
        tracking.last_progress_at = 0.0
    if info.state.terminal:
        info.cleaned = True
        book.state.epoch = tracking.timeout_fence_token = 1
        tracking.last_progress_at = tracking.first_reported_at = 0.0
        tracking.reported_token, tracking.reported_reason = 0, None
        tracking.locally_timed_out = tracking.globally_timed_out = False


def forget_in_gate(tracker: GateJobTracker, now: float) -> None:
    state = tracker.state
    state.leader = ""
    for job_id, stone in state.tombstones.items():
        state.tombstones[job_id] = msgspec.structs.replace(stone, at=0.0, reason="")
    info = tracker.jobs.get(JOB)
    if info is None:
        return
    info.target_datacenters.sort()
    info.decided_at = info.ended_at = info.submitted_at = 0.0
    info.timeout_reason = info.reason = ""
    info.decided_reason = "its time is over" if info.decided is not None else ""
    for dc, moment in info.dc_last_progress.items():
        info.dc_last_progress[dc] = now if max(moment, info.resumed_at) >= now else 0.0
    info.resumed_at = 0.0
    for dc, status in info.dc_status.items():
        if status.terminal:
            info.dc_last_progress[dc], info.dc_fence_tokens[dc], info.dc_heard[dc] = 0.0, 0, True
    if info.decided is not None or info.state.terminal:
        info.dc_timeouts.clear()
        info.dc_last_progress = dict.fromkeys(info.dc_last_progress, 0.0)


def view_of(book: JobBook) -> DatacenterView:
    info = book.jobs.get(JOB)
    stone = book.state.tombstones.get(JOB)
    if info is None:
        return DatacenterView(stone.state if stone else None, False, stone is not None, book.epoch)
    waiting = info.timeout_tracking.locally_timed_out and not info.state.terminal
    return DatacenterView(info.state, waiting, info.ended_by_gate, book.epoch)


def gate_view_of(tracker: GateJobTracker) -> GateView:
    info = tracker.jobs.get(JOB)
    if info is None:
        return GateView(False, False, False, tracker.epoch)
    return GateView(info.decided is not None, info.state.terminal, True, tracker.epoch)


def exchange(encoded: bytes) -> bytes:
    """The two datacenters' names, exchanged: they are of one length, so lengths stay right."""
    first, second = (name.encode() for name in DATACENTERS)
    return encoded.replace(first, b"dc-?").replace(second, first).replace(b"dc-?", second)
