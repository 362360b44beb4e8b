"""Requests about the catalogue: the workflows that workers serve, and their stall thresholds, set and learned (decision 0485)."""

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


class ListThresholds(Placed, frozen=True, kw_only=True, tag="thresholds"):
    """The stall threshold of every workflow that was learned of, in every version: the set one, the learned one, and which of them holds."""

    name: b.AnyNameOrNone = ""
    """Only the workflow of this name."""


class ThresholdExample(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt on which the learned threshold and the set one disagree."""

    job_id: str
    at: float
    learned_s: float
    silent_s: float
    """The silence after which it went on; for one that hung, the silence after which the set threshold ends it."""
    text: str


class ThresholdEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The stall thresholds of one workflow in one version."""

    name: str
    version: str
    attempts: int
    """The attempts that taught it."""
    set_s: float
    """The threshold that is set; 0 where no attempt ran under it yet."""
    learned_s: float | None
    """The learned one; None before enough attempts taught it."""
    false_kills: float
    """The share of healthy attempts that the learned one may end."""
    learns: bool
    """True when its author switched it on (`stall="learn"`). Otherwise it is only compared."""
    holds_s: float
    """The threshold that the next attempt gets; 0 where that is not known."""
    why: str
    """Why that one holds."""
    wrong: int
    """Attempts that the learned threshold would have ended, or whose retry showed that, and that went on."""
    found: int
    """Attempts that hung and that it ended, or would have ended, sooner than the set one."""
    sooner_s: float
    """The seconds by which it was sooner, in all."""
    last_wrong: ThresholdExample | None = None
    last_found: ThresholdExample | None = None
    datacenter: str = ""
    """Where it was learned; empty where a manager answers."""


class ThresholdList(Reply, frozen=True, kw_only=True, tag="threshold_list"):
    thresholds: tuple[ThresholdEntry, ...]
    now: float
    missing: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that did not."""
