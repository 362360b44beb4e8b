"""Requests about the catalogue: the workflows that workers serve."""

from __future__ import annotations

import msgspec

from tenure import bounds as b
from tenure.control.messages.wire import Missing, Placed, Reply
from tenure.served_workflow import ServedWorkflow


class ListWorkflows(Placed, frozen=True, kw_only=True, tag="workflows"):
    """Every workflow that a worker registered within 7 days, in every version."""

    name: b.AnyNameOrNone = ""
    """Only the workflow of this name."""


class WorkflowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow in one version."""

    served: ServedWorkflow
    """The workflow as its worker registered it."""
    workers: tuple[str, ...] = ()
    """The workers that serve it now."""
    queues: tuple[str, ...] = ()
    """The queues in which they do."""
    gone_at: float = 0.0
    """When the last worker that served it left; 0 while one does."""
    parked: int = 0
    """Workflows that wait for a worker that serves this."""
    usual_s: float | None = None
    """The seconds that it usually takes, by its last runs; None before five completed."""
    datacenter: str = ""
    """Where it is served; empty where a manager answers."""


class WorkflowList(Reply, frozen=True, kw_only=True, tag="workflow_list"):
    workflows: tuple[WorkflowEntry, ...]
    now: float
    missing: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that did not."""
