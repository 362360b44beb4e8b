"""The health of a fleet of one kind (document 001): who may get work, who is to go, and when the brake says no.

Liveness decays by itself, so counts kept at updates alone would lie; an expiry heap moves a node's class when its time
comes. A decision is amortised O(log n), a sweep touches the failing nodes only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from tenure.clock import Clock, SystemClock
from tenure.health.brake import BrakeConfig, BrakePhase, BrakeStatus, EvictionBrake
from tenure.health.signals import (
    DECISIONS,
    HealthClass,
    HealthSignals,
    NodeHealthState,
    RoutingDecision,
    classify,
    finite,
    whole,
)
from tenure.timers import Timers

T = TypeVar("T", bound=HealthSignals)


class Eviction(NamedTuple):
    """The decision to evict a node or not, with its reason."""

    should_evict: bool
    reason: str


class Verdict(NamedTuple):
    """The decision about a node, with its reason. `held` is True while the brake keeps the previous decision."""

    decision: RoutingDecision
    reason: str
    health_class: HealthClass | None
    held: bool = False


class Sweep(NamedTuple):
    """All evictions that are due, and what the brake does."""

    evict: tuple[tuple[str, str], ...]
    """Node and reason, in the order in which they began to fail."""
    draining: int
    """Stuck nodes whose healthcheck deadline has not passed."""
    held: int
    """Nodes that would go, were it not for the brake."""
    brake: BrakeStatus


class HistoryEntry(NamedTuple):
    """A change of a node's class."""

    at: float
    health_class: HealthClass
    decision: RoutingDecision
    reason: str


_UNTOLD: Final = "its signals say so"

UNKNOWN: Final = Eviction(False, "unknown node")
HEALTHY: Final = Eviction(False, "healthy")
DRAINING: Final = Eviction(False, "stuck, draining until its healthcheck deadline")
HELD: Final = Eviction(False, "systemic failure detected, holding eviction")
NOT_ITS_TURN: Final = Eviction(False, "systemic failure detected, evicting at a limited rate")
MET: Final = Eviction(True, "eviction criteria met")
ITS_TURN: Final = Eviction(True, "eviction criteria met, at a limited rate (systemic failure detected)")


@dataclass(slots=True)
class _Node(Generic[T]):
    state: T
    timed: NodeHealthState | None  # the state again, when it can say when its liveness ends
    health_class: HealthClass
    changes: list[tuple[float, HealthClass, NodeHealthState | str]]  # when, to what, and what explains it
    # The last decision that was not evict. A node that failed from the start never had one: it gets no new work.
    previous: RoutingDecision = RoutingDecision.DRAIN
    stuck_since: float = 0.0
    suspected: str | None = None
    let_go: Eviction | None = None  # granted once, granted until it recovers: asking twice uses no second place


class NodeHealthTracker(Generic[T]):
    """Generic health tracker for any node type.

    Methods take `now`, and ask `clock` where it is not given. `deadline_of` gives a node's healthcheck deadline; without
    one a stuck node has `stuck_grace_s` to move.
    """

    def __init__(
        self,
        node_type: str,
        *,
        clock: Clock | None = None,
        brake: BrakeConfig | None = None,
        deadline_of: Callable[[str], float | None] | None = None,
        stuck_grace_s: float = 30.0,
        history: int = 16,
    ) -> None:
        self.node_type = node_type
        self._clock = clock or SystemClock()
        self._brake = EvictionBrake(brake)
        self._deadline_of = deadline_of
        self._stuck_grace_s = finite("stuck_grace_s", stuck_grace_s)
        self._history_length = whole("history", history, least=1)
        self._nodes: dict[str, _Node[T]] = {}
        self._failing: dict[str, None] = {}  # a set that keeps the order in which nodes began to fail
        self._untimed: dict[str, None] = {}  # states that cannot say when their liveness ends: asked each time
        self._expiries: Timers[str] = Timers()
        self._now = float("-inf")

    # What is known

    def update_state(self, node_id: str, state: T, *, now: float | None = None) -> None:
        """Notes a node's newest state."""
        now = self._advance(now)
        timed = state if isinstance(state, NodeHealthState) else None
        node = self._nodes.get(node_id)
        if node is None:
            node = _Node(state, timed, HealthClass.HEALTHY, [])
            self._nodes[node_id] = node
        node.state, node.timed = state, timed
        if timed is None:
            self._untimed[node_id] = None
        else:
            self._untimed.pop(node_id, None)
        self._reclassify(node_id, node, now)
        self._observe()

    def mark_suspect(self, node_id: str, why: str, *, now: float | None = None) -> None:
        """Take a node for suspect, whatever its signals say: its healthcheck deadline passed."""
        self._set_suspicion(node_id, why, now)

    def clear_suspect(self, node_id: str, *, now: float | None = None) -> None:
        """Judge a node by its signals again."""
        self._set_suspicion(node_id, None, now)

    def remove(self, node_id: str) -> bool:
        """Forget a node and its history; False when it is not known."""
        node = self._nodes.pop(node_id, None)
        if node is None:
            return False
        self._expiries.cancel(node_id)
        self._untimed.pop(node_id, None)
        if node_id in self._failing:
            del self._failing[node_id]
            self._brake.on_failing_removed(self._now)
        self._observe()
        return True

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def state(self, node_id: str) -> T | None:
        """Returns the newest state of a node."""
        node = self._nodes.get(node_id)
        return node.state if node else None

    def history(self, node_id: str) -> tuple[HistoryEntry, ...]:
        """Returns a node's latest changes of class, oldest first; bounded."""
        node = self._nodes.get(node_id)
        return tuple(_entry(*change) for change in node.changes) if node else ()

    # What follows

    def get_routing_decision(self, node_id: str, *, now: float | None = None) -> RoutingDecision:
        """Returns the decision about a node. While the brake holds, a failing node keeps its previous one."""
        now = self._advance(now)
        node = self._nodes.get(node_id)
        if node is None:
            return RoutingDecision.UNKNOWN
        return node.previous if self._is_held(node_id, node, now) else DECISIONS[node.health_class]

    def get_verdict(self, node_id: str, *, now: float | None = None) -> Verdict:
        """Returns the decision with its class and its reason in words."""
        now = self._advance(now)
        node = self._nodes.get(node_id)
        if node is None:
            return Verdict(RoutingDecision.UNKNOWN, "nothing was heard of this node", None)
        _, health_class, decision, reason = _entry(now, node.health_class, _witness(node))
        if not self._is_held(node_id, node, now):
            return Verdict(decision, reason, health_class)
        why = f"{reason}; keeps its previous verdict, the brake holds: {self._brake.status(now).reason}"
        return Verdict(node.previous, why, health_class, held=True)

    def get_healthy_nodes(self, *, now: float | None = None) -> list[str]:
        """Nodes that answer and can take work."""
        self._advance(now)
        return [
            node_id
            for node_id, node in self._nodes.items()
            if node.health_class is not HealthClass.SUSPECT and node.state.readiness
        ]

    def should_evict(self, node_id: str, *, now: float | None = None) -> Eviction:
        """Determine if node should be evicted with correlation check: (should_evict, reason)."""
        now = self._advance(now)
        node = self._nodes.get(node_id)
        if node is None:
            return UNKNOWN
        if node_id not in self._failing:
            return HEALTHY
        return self._eviction(node_id, node, self._brake.phase(now), now)

    def sweep(self, *, now: float | None = None) -> Sweep:
        """Decide for every failing node at once. The nodes stay until `remove`."""
        now = self._advance(now)
        phase = self._brake.phase(now)
        evict, draining, held = [], 0, 0
        for node_id in self._failing:
            node = self._nodes[node_id]
            eviction = self._eviction(node_id, node, phase, now)
            if eviction.should_evict:
                evict.append((node_id, f"{eviction.reason}: {_entry(now, node.health_class, _witness(node)).reason}"))
            elif eviction is DRAINING:
                draining += 1
            else:
                held += 1
        return Sweep(tuple(evict), draining, held, self._brake.status(now))

    def brake_status(self, *, now: float | None = None) -> BrakeStatus:
        """Returns the phase of the brake for this kind of node, with the reason."""
        return self._brake.status(self._advance(now))

    # How

    def _eviction(self, node_id: str, node: _Node[T], phase: BrakePhase, now: float) -> Eviction:
        if node.health_class is HealthClass.STUCK and now < self._stuck_deadline(node_id, node):
            return DRAINING
        if phase is BrakePhase.RELEASED:
            return MET
        if phase is BrakePhase.HOLDING:
            return HELD
        if node.let_go is None and self._brake.let_through(now):
            node.let_go = ITS_TURN
        return node.let_go or NOT_ITS_TURN

    def _stuck_deadline(self, node_id: str, node: _Node[T]) -> float:
        deadline = self._deadline_of(node_id) if self._deadline_of else None
        return node.stuck_since + self._stuck_grace_s if deadline is None else deadline

    def _is_held(self, node_id: str, node: _Node[T], now: float) -> bool:
        if node_id not in self._failing or node.let_go is not None:
            return False
        return self._brake.phase(now) is not BrakePhase.RELEASED

    def _advance(self, now: float | None) -> float:
        """Let time pass up to now: nodes that were not heard of for too long become suspect."""
        if now is None:
            now = self._clock.monotonic()
        if now > self._now:  # events may come out of order; what has decayed stays so
            self._now = now
            if due := self._expiries.pop_due(now):
                self._silence(due, now)
        if self._untimed:
            for node_id in self._untimed:
                self._reclassify(node_id, self._nodes[node_id], self._now)
            self._observe()
        return self._now

    def _silence(self, node_ids: list[str], now: float) -> None:
        """Notes that these nodes were not heard of for too long."""
        suspect, nodes, failing, length = HealthClass.SUSPECT, self._nodes, self._failing, self._history_length
        for node_id in node_ids:
            node = nodes[node_id]
            if node.health_class is not suspect:
                node.health_class = suspect
                failing[node_id] = None
                # As `_record_change` does, without a call: this may be half a fleet.
                node.changes.append((now, suspect, node.timed or _UNTOLD))
                if len(node.changes) > length:
                    del node.changes[0]
        self._observe()

    def _observe(self) -> None:
        """Tell the brake each time a count may have changed, so that a hold begins and ends when it should."""
        self._brake.observe(len(self._failing), len(self._nodes), self._now)

    def _set_suspicion(self, node_id: str, why: str | None, now: float | None) -> None:
        now = self._advance(now)
        node = self._nodes.get(node_id)
        if node is not None:
            node.suspected = why
            self._reclassify(node_id, node, now)
            self._observe()

    def _reclassify(self, node_id: str, node: _Node[T], now: float) -> None:
        before, after = node.health_class, _class_of(node, now)
        node.health_class = after
        if node.timed is not None and now < (until := node.timed.lives_until):
            self._expiries.set(node_id, until)
        else:
            self._expiries.cancel(node_id)
        if after is not before or not node.changes:
            self._record_change(node_id, node, now)

    def _record_change(self, node_id: str, node: _Node[T], now: float) -> None:
        decision = DECISIONS[node.health_class]
        if node.health_class is HealthClass.STUCK:
            node.stuck_since = now
        if decision is RoutingDecision.EVICT:
            self._failing[node_id] = None
        else:
            self._failing.pop(node_id, None)
            node.previous, node.let_go = decision, None
        # The words are made when somebody reads them: half a fleet may change at one instant.
        node.changes.append((now, node.health_class, _witness(node)))
        if len(node.changes) > self._history_length:
            del node.changes[0]


def _witness(node: _Node[T]) -> NodeHealthState | str:
    """Returns the reason for a node's class: the suspicion, or its state."""
    return node.suspected or node.timed or _UNTOLD


def _entry(at: float, health_class: HealthClass, witness: NodeHealthState | str) -> HistoryEntry:
    reason = witness if isinstance(witness, str) else witness.assess_at(at).reason
    return HistoryEntry(at, health_class, DECISIONS[health_class], reason)


def _class_of(node: _Node[T], now: float) -> HealthClass:
    if node.suspected is not None:
        return HealthClass.SUSPECT
    if node.timed is not None:
        return node.timed.class_at(now)
    return classify(node.state.liveness, node.state.readiness, node.state.progress_state)
