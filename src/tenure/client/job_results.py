"""Reads a job's view and its events: the result, the attempts, the words for an event. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.control.messages.events import EventLine
from tenure.control.messages.jobs import JobView
from tenure.jobs.endings import JobEnded
from tenure.jobs.gate_decisions import GateJobEnded
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
