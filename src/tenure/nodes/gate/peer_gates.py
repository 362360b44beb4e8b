"""Compares a gate with its peers, decides if it should lead (document 001), and builds the views of itself and of them.

A gate that reaches no datacenter, is overloaded, or passes nothing on stands back, as long as it knows a peer that is better off. When no gate
is, one of them has to lead nevertheless. A leader that is cut off from every datacenter hands over to a peer that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tenure.control.messages.gates import AskGate, GateView
from tenure.control.messages.jobs import LeaderView, address_of
from tenure.control.messages.nodes import GateNode
from tenure.health.node_states import GateHealthState
from tenure.nodes.gate.datacenter_health import DatacenterWatch
from tenure.nodes.gate.measurements import Forwarding, GateLoad
from tenure.nodes.gate.probes import Probed, Prober, ProbeTools

if TYPE_CHECKING:
    from tenure.nodes.gate.gate import Gate


class GateFitness:
    """Compares a gate with its peers, which it probes."""

    def __init__(
        self,
        name: str,
        tools: ProbeTools,
        peers: Sequence[str],
        watch: DatacenterWatch,
        load: GateLoad,
        forwarding: Forwarding,
        on_hand_over: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`on_hand_over` is called with the reason when this gate should hand the lead over to a peer."""
        self._name, self._watch, self._load, self._forwarding = name, watch, load, forwarding
        self._settings, self._clock, self._on_hand_over = tools.settings, tools.clock, on_hand_over
        self._unfit_since: float | None = None
        self.prober = Prober(tools, peers, AskGate(), GateView, self._heard)
        self.run = self.prober.run

    def own_state(self) -> GateHealthState:
        """Returns the health state of this gate, which its peers are told."""
        flow = self._forwarding.measure(self._watch.reached)
        return GateHealthState(
            gate_id=self._name,
            last_liveness_response=self._clock.monotonic(),
            consecutive_liveness_failures=0,
            has_dc_connectivity=self._watch.connected > 0,
            connected_dc_count=self._watch.connected,
            overload_state=self._load.state,
            jobs_forwarded_last_interval=flow.forwarded,
            stats_aggregated_last_interval=flow.aggregated,
            expected_forward_rate=flow.expected,
            jobs_waiting=flow.waiting,
            config=self._settings.health,
        )

    def peer_states(self) -> list[GateHealthState]:
        """Returns the health states of the peers that ever answered."""
        return [self._state(node.view, node) for node in self.prober.nodes.values() if node.view is not None]

    def _state(self, view: GateView, node: Probed[GateView]) -> GateHealthState:
        return GateHealthState(
            gate_id=view.gate_id,
            last_liveness_response=node.heard_at,
            consecutive_liveness_failures=node.misses,
            has_dc_connectivity=view.connected_dc_count > 0,
            connected_dc_count=view.connected_dc_count,
            overload_state=view.overload_state,
            jobs_forwarded_last_interval=view.jobs_forwarded_last_interval,
            stats_aggregated_last_interval=view.stats_aggregated_last_interval,
            expected_forward_rate=view.expected_forward_rate,
            jobs_waiting=view.jobs_waiting,
            config=self._settings.health,
        )

    def fit(self) -> bool:
        """Returns True when this gate may stand for election."""
        now = self._clock.monotonic()
        return self.own_state().should_participate_in_election_at(now) or not self._better_peer(now)

    def _better_peer(self, now: float) -> bool:
        return any(state.should_participate_in_election_at(now) for state in self.peer_states())

    def _heard(self, node: Probed[GateView], answered: bool) -> None:
        """Hands over to a peer when this gate was cut off from every datacenter for the suspicion time, and the peer is fit to lead."""
        now = self._clock.monotonic()
        if self._watch.connected or not self._watch.datacenters:
            self._unfit_since = None
            return
        if self._unfit_since is None:
            self._unfit_since = now
        if now - self._unfit_since >= self._settings.suspicion_s and self._better_peer(now):
            self._unfit_since = now  # not again before another suspicion time
            self._on_hand_over("this gate reaches no datacenter, and a peer does")


def leader_view(gate: Gate) -> LeaderView:
    ledger = gate.leadership.ledger
    leader = gate.leadership.name if gate.leads else ledger.book.state.gate
    epoch = gate.leadership.epoch if gate.leads else ledger.book.epoch
    return LeaderView(leader=leader, address=address_of(leader), epoch=epoch, leads=gate.leads, seq=ledger.seq)


def gate_view(gate: Gate, now: float) -> GateView:
    state, book = gate.fitness.own_state(), gate.leadership.ledger.book
    return GateView(
        gate_id=gate.name,
        leads=gate.leads,
        epoch=gate.leadership.epoch if gate.leads else book.epoch,
        leader=gate.address if gate.leads else address_of(book.state.gate),
        connected_dc_count=state.connected_dc_count,
        overload_state=gate.load.state,
        overload_reason=gate.load.assessment.reason,
        jobs_forwarded_last_interval=state.jobs_forwarded_last_interval,
        stats_aggregated_last_interval=state.stats_aggregated_last_interval,
        expected_forward_rate=state.expected_forward_rate,
        jobs_waiting=state.jobs_waiting,
        fit_to_lead=state.should_participate_in_election_at(now),
        datacenters=gate.watch.views(),
        link_suspect=gate.watch.link_suspect(),
        jobs_tracked=len(book.jobs),
    )


def gate_nodes(gate: Gate, now: float) -> tuple[GateNode, ...]:
    """Returns this gate, and its peers as the probes show them."""
    own = GateNode(
        address=gate.address,
        name=gate.name,
        leads=gate.leads,
        epoch=gate.leadership.epoch if gate.leads else gate.leadership.ledger.book.epoch,
        overload=gate.load.state,
        reason=gate.load.assessment.reason,
    )
    peers = [
        GateNode(
            address=peer.address,
            name=peer.view.gate_id if peer.view is not None else "",
            leads=peer.view is not None and peer.view.leads and not peer.misses,
            epoch=peer.view.epoch if peer.view is not None else 0,
            answers=peer.known and not peer.misses,
            overload=peer.view.overload_state if peer.view is not None else "",
            reason=peer.error or (peer.view.overload_reason if peer.view is not None else ""),
            heard_s_ago=now - peer.heard_at,
        )
        for peer in gate.fitness.prober.nodes.values()
    ]
    return (own, *peers)
