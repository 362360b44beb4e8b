"""What is asked about the nodes of a datacenter."""

from __future__ import annotations

import msgspec

from tenure.nodes.messages.wire import Reply, Request


class ListNodes(Request, frozen=True, kw_only=True, tag="nodes"):
    """Managers and workers, as the leader sees them. Leader only: nobody else hears of workers."""


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


class WorkerNode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    incarnation: str = ""
    verdict: str = "unknown"
    """What it is told: route, investigate, drain or evict."""
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


class NodeList(Reply, frozen=True, kw_only=True, tag="node_list"):
    managers: tuple[ManagerNode, ...]
    workers: tuple[WorkerNode, ...]
    now: float


class DrainNode(Request, frozen=True, kw_only=True, tag="drain"):
    """Give a worker no more work; what it runs goes on. It holds until it is undone, over restarts of the worker too. Leader only."""

    node: str
    """A worker's name."""
    reason: str = ""
    by: str = ""


class UndrainNode(Request, frozen=True, kw_only=True, tag="undrain"):
    """Let a drained worker take work again. Leader only."""

    node: str
    by: str = ""
