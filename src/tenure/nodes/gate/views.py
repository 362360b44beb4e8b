"""Builds the views that a gate gives of itself, of its peers and of its datacenters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.control.messages.gates import GateView
from tenure.control.messages.jobs import LeaderView, address_of
from tenure.control.messages.nodes import GateNode

if TYPE_CHECKING:
    from tenure.nodes.gate.gate import Gate


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
