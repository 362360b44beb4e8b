"""The promises that every single step has to keep. Those about where it all ends are in `settling`."""

from __future__ import annotations

from tenure.jobs.decisions import NO_TOKEN, Event, Rule
from tenure.jobs.endings import JobEnded
from tenure.jobs.gate_reports import DatacenterTimedOut
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import JobInfo


def broken_by_datacenter(event: Event, info: JobInfo | None) -> str | None:
    """The promise that a manager's event would break, judged by the state before it."""
    if not isinstance(event, JobEnded) or info is None:
        return None
    if info.state.terminal:
        return f"none ends twice: it was {info.state}, and would now be {event.state}"
    tracking = info.timeout_tracking
    if event.rule is Rule.GLOBAL_TIMEOUT:
        token, own = event.evidence["fence_token"], tracking.timeout_fence_token
        if token != NO_TOKEN and token < own:
            return f"no stale decision is obeyed: it echoed token {token}, and the leader's was {own}"
    if event.rule in (Rule.GLOBAL_TIMEOUT, Rule.GLOBAL_CANCEL) and event.gate_epoch < tracking.gate_epoch:
        return f"no stale decision is obeyed: gate epoch {event.gate_epoch}, after {tracking.gate_epoch} was seen"
    return None


def broken_by_gate(event: Event, tracker: GateJobTracker) -> str | None:
    """The promise that a gate's event would break."""
    if isinstance(event, DatacenterTimedOut):
        info = tracker.jobs.get(event.job_id)
        if info is None:
            return None
        highest = info.dc_fence_tokens[event.datacenter]
        if event.token < highest:
            return (
                f"no stale report is believed: {event.datacenter} reported a timeout with token {event.token}, "
                f"after its leader with token {highest} was heard"
            )
    return None
