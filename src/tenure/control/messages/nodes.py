"""Requests about the nodes of a datacenter, and the overview of all that it does."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tenure import bounds as b
from tenure.control.messages.queues import QueueView
from tenure.control.messages.wire import Grant, Missing, Placed, Reply


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
    closed: str = ""
    """Why it accepts no new jobs; empty while it does."""


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
    loss_s: float = 0.0
    """The seconds of work that would be lost if all that it runs ended now: since each attempt last saved."""
    leaves_by: float = 0.0
    """When all that it runs has to have left, where an operator set a time; the engine's time."""
    moved: int = 0
    """The attempts that left it since it was drained."""
    lost_s: float = 0.0
    """The seconds of work that these lost."""
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
    verdict: str = ""
    """The verdict of the gate that answers: route, investigate, drain or evict; empty for itself."""


class NodeList(Reply, frozen=True, kw_only=True, tag="node_list"):
    managers: tuple[ManagerNode, ...]
    workers: tuple[WorkerNode, ...]
    now: float
    gates: tuple[GateNode, ...] = ()
    """Where a gate answers: it and its peers."""
    missing: tuple[Missing, ...] = ()
    """Where a gate answers: datacenters that did not."""


class DrainNode(Placed, frozen=True, kw_only=True, tag="drain"):
    """Give a worker no more work, or a manager no more jobs; what it has goes on. It holds until it is undone, over restarts of the node too. Leader only."""

    node: b.AnyName
    """A worker's name, or `manager/NAME` for a manager."""
    reason: b.Reason = ""
    by: b.Person = ""
    within_s: b.PositiveSeconds | None = None
    """Set: what runs on the worker leaves within so many seconds, each attempt when the least work is lost. None: it may run to its end."""


class UndrainNode(Placed, frozen=True, kw_only=True, tag="undrain"):
    """Let a drained worker take work again, or a drained manager jobs. Leader only."""

    node: b.AnyName
    by: b.Person = ""


class HoldName(Placed, frozen=True, kw_only=True, tag="hold_name"):
    """Say that something is down which attempts wait for: their clocks stand still, and nothing is charged. Leader only."""

    name: b.AnyName
    """As `ctx.depends` and `ctx.silence(on=)` name it."""
    most_s: b.PositiveSeconds = 6 * 3_600.0
    """The clocks run again after this, whatever is down."""
    rate: b.Rate = 5.0
    """Attempts a second that are released when it is back."""
    reason: b.Reason = ""
    by: b.Person = ""


class ReleaseName(Placed, frozen=True, kw_only=True, tag="release_name"):
    """Say that something is back: clocks run again. Leader only."""

    name: b.AnyName
    reason: b.Reason = ""
    by: b.Person = ""


class Severity(StrEnum):
    WRONG = "wrong"  # work does not go on until somebody acts
    LOOK = "look"  # something ended badly or is about to; a person should look
    NOTE = "note"  # on purpose or harmless, and good to know


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    severity: Severity
    kind: str
    subject: str
    text: str
    remedy: str = ""
    """A command, or what to look at."""
    since: float = 0.0
    """The engine's time; 0 where nobody knows."""


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """The last minutes in equal steps, oldest first. A leader counts from its election on."""

    step_s: float
    until: float
    """The end of the last step, by the engine's time: it is still being counted."""
    submitted: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    completed: tuple[int, ...] = ()
    """Attempts that brought a result."""
    failed: tuple[int, ...] = ()
    """Attempts that did not."""
    waiting: tuple[int, ...] = ()
    """Attempts that waited at the end of each step."""
    running: tuple[int, ...] = ()


class AskOverview(Placed, frozen=True, kw_only=True, tag="overview"):
    """How the datacenter is. Leader only: nobody else hears of workers."""


class Overview(Reply, frozen=True, kw_only=True, tag="overview_view"):
    datacenter: str
    leader: str
    epoch: int
    elected_at: float
    now: float
    troubles: tuple[Trouble, ...]
    """The worst first."""
    jobs: dict[str, int]
    """In memory, by state."""
    attempts: dict[str, int]
    """Open ones: resting, held, queued, running."""
    workers: dict[str, int]
    """By what they are told."""
    slots: int
    free: int
    queues: tuple[QueueView, ...]
    dead_letters: int
    pulse: Pulse
