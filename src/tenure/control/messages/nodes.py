"""Requests about the nodes of a datacenter."""

from __future__ import annotations

import msgspec

from tenure import bounds as b
from tenure.control.messages.grants import Grant
from tenure.control.messages.wire import Missing, Placed, Reply


class ListNodes(Placed, frozen=True, kw_only=True, tag="nodes"):
    """Managers and workers, as the leader sees them. Leader only: nobody else hears of workers."""

    attempts: bool = False
    """Also what each worker runs, with the time left on every grant."""


class ManagerNode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: str
    leads: bool
    epoch: int
    seq: int
    """How far it has read the journal."""
    version: str
    skew_s: float
    """How far its wall clock is ahead of the engine's: shown, and harmless."""
    started_at: float
    heard_s_ago: float
    datacenter: str = ""
    """Whose it is; empty where a manager answers."""


class RunningAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that a worker runs, by its last report."""

    job_id: str
    workflow: str
    attempt: int
    steps: int = 0
    fraction: float | None = None
    note: str = ""
    grants: tuple[Grant, ...] = ()


class WorkerNode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    incarnation: str = ""
    verdict: str = "unknown"
    """The leader's verdict: route, investigate, drain or evict."""
    reason: str = ""
    health: str = ""
    """Its class by the three signals."""
    drained: bool = False
    """An operator drained it; `reason` says why."""
    heard_s_ago: float = 0.0
    left_s: float = 0.0
    """Until its healthcheck deadline, unless it shows progress."""
    extensions_left: int = 0
    slots: int = 0
    free: int = 0
    running: int = 0
    lanes: tuple[str, ...] = ()
    version: str = ""
    skew_s: float = 0.0
    gossip: str = ""
    """`alive`, `dead`, or empty where gossip does not know it."""
    since: float = 0.0
    """When it was first told what it is told now; the engine's time, 0 where nobody knows."""
    attempts: tuple[RunningAttempt, ...] = ()
    """Where they were asked for."""
    grants: tuple[Grant, ...] = ()
    datacenter: str = ""
    """Where it is; empty where a manager answers."""


class GateNode(msgspec.Struct, frozen=True, kw_only=True):
    """A gate, as the one that answers sees it."""

    address: str
    name: str = ""
    """Empty until it has answered once."""
    leads: bool = False
    epoch: int = 0
    answers: bool = True
    overload: str = ""
    """healthy, busy, stressed or overloaded."""
    reason: str = ""
    heard_s_ago: float = 0.0


class NodeList(Reply, frozen=True, kw_only=True, tag="node_list"):
    managers: tuple[ManagerNode, ...]
    workers: tuple[WorkerNode, ...]
    now: float
    gates: tuple[GateNode, ...] = ()
    """Where a gate answers: it and its peers."""
    missing: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that did not."""


class DrainNode(Placed, frozen=True, kw_only=True, tag="drain"):
    """Give a worker no more work; what it runs goes on. It holds until it is undone, over restarts of the worker too. Leader only."""

    node: b.AnyName
    """A worker's name."""
    reason: b.Reason = ""
    by: b.Person = ""


class UndrainNode(Placed, frozen=True, kw_only=True, tag="undrain"):
    """Let a drained worker take work again. Leader only."""

    node: b.AnyName
    by: b.Person = ""
