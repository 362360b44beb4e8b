"""A gate's orders about pause and time: somebody pauses a job everywhere, lets it go on, or gives it another deadline (decision 0450).

The gate decides on the time of its jobs, so it stops its own clocks and moves its own deadline first. The order goes to each datacenter until that has
obeyed it (`gate_outbox`). A datacenter's report of a timeout that is older than the order does not count.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from tenure.errors import UnknownJobError
from tenure.jobs.decisions import Command, Decides, Folds, GateDecision, JobEvent, Outcome, Rule, Rules
from tenure.jobs.messages import JobOrder
from tenure.jobs.model import NO_DEADLINE_S, GateJobTrackingInfo, wall
from tenure.jobs.states import PauseRecord
from tenure.jobs.steering import new_timeout, over_already

if TYPE_CHECKING:
    from tenure.jobs.gate_tracker import GateJobTracker


class GateSteer(Command, frozen=True, kw_only=True):
    """Somebody steers a job in all its datacenters. What is not given stays as it is."""

    job_id: str
    paused: bool | None = None
    timeout_seconds: float | UnsetType | None = UNSET
    add_s: float = 0.0
    reason: str = ""


class GateJobSteered(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Somebody paused the job, let it go on, or gave it another deadline, everywhere. It holds the whole wanted state."""

    number: int
    paused: bool
    timeout_seconds: float
    reason: str = ""


def gate_steer(tracker: GateJobTracker, command: GateSteer, now: float, rules: Rules) -> GateDecision:
    job_id = command.job_id
    info = tracker.jobs.get(job_id)
    if info is None:
        if archived := tracker.state.archive.get(job_id):
            return refused(job_id, f"it has ended: {archived.state}")
        raise UnknownJobError(job_id)
    if info.state.terminal or info.decided is not None:
        return refused(
            job_id, f"it has ended: {info.state}" if info.state.terminal else f"it is ending: {info.decided}"
        )
    paused = info.pause is not None if command.paused is None else command.paused
    wanted = wanted_timeout(tracker, info, command, now)
    if isinstance(wanted, str):
        return refused(job_id, wanted)
    if paused is (info.pause is not None) and wall(wanted) == wall(info.timeout_seconds):
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is so already", job_id)
    event = GateJobSteered(
        at=now,
        by=command.by,
        rule=Rule.ASKED,
        job_id=job_id,
        number=info.steered + 1,
        paused=paused,
        timeout_seconds=wanted if wanted < math.inf else NO_DEADLINE_S,
        reason=command.reason,
        evidence=changes(info, paused, wanted, now),
    )
    return GateDecision([event], Outcome.ACCEPTED, Rule.ASKED, words_of(event), job_id)


def wanted_timeout(tracker: GateJobTracker, info: GateJobTrackingInfo, command: GateSteer, now: float) -> float | str:
    """Returns the seconds that the job may take from now on; the reason where they cannot be."""
    had = wall(info.timeout_seconds)
    if not command.add_s and command.timeout_seconds is UNSET:
        return had
    wanted = new_timeout(info.timeout_seconds, command.timeout_seconds, command.add_s)
    begun = tracker.deadline(info, running=True) - had if had < math.inf else info.submitted_at
    if isinstance(wanted, str) or info.pause is not None:
        return wanted
    return over_already(begun, wanted, now) or wanted


def refused(job_id: str, reason: str) -> GateDecision:
    return GateDecision([], Outcome.REFUSED, Rule.JOB_ENDED, reason, job_id)


def changes(info: GateJobTrackingInfo, paused: bool, timeout_seconds: float, now: float) -> dict[str, object]:
    """Returns what the order changes, for the words of the event."""
    found: dict[str, object] = {}
    if paused is not (info.pause is not None):
        found["pause"] = "begins" if paused else "ends"
        if info.pause is not None:
            found["paused_for"] = round(now - info.pause.at, 3)
    if wall(timeout_seconds) != wall(info.timeout_seconds):
        found["before"] = info.timeout_seconds if wall(info.timeout_seconds) < math.inf else NO_DEADLINE_S
    return found


def words_of(event: GateJobSteered) -> str:
    said = {"begins": "paused", "ends": "resumed"}.get(str(event.evidence.get("pause", "")), "")
    return said or "retimed"


def gate_job_steered(tracker: GateJobTracker, event: GateJobSteered) -> None:
    info = tracker.job(event.job_id)
    if event.paused and info.pause is None:
        info.pause = PauseRecord(at=event.at, by=event.by, reason=event.reason)
    elif not event.paused and info.pause is not None:
        info.paused_s += max(0.0, event.at - info.pause.at)
        info.pause = None
        for dc in info.running:  # the stuck clocks stood still, and start anew
            info.dc_last_progress[dc] = max(info.dc_last_progress[dc], event.at)
    info.timeout_seconds, info.steered = event.timeout_seconds, event.number
    info.steered_by, info.steered_reason = event.by, event.reason
    info.dc_timeouts.clear()  # they are about a time that does not hold any more


def order_for(info: GateJobTrackingInfo, gate_epoch: int) -> JobOrder:
    """Returns the newest order about a job, as the gate sends it."""
    return JobOrder(
        job_id=info.job_id,
        number=info.steered,
        paused=info.pause is not None,
        timeout_seconds=info.timeout_seconds,
        by=info.steered_by,
        reason=info.steered_reason,
        gate_epoch=gate_epoch,
    )


def owes_order(info: GateJobTrackingInfo, datacenter: str) -> bool:
    """Returns True when a datacenter has not obeyed the newest order."""
    return info.steered > info.dc_steered.get(datacenter, 0)


DECIDE: Decides = {GateSteer: gate_steer}
FOLD: Folds = {GateJobSteered: gate_job_steered}
