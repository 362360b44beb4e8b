"""Measures a gate, compares it with its peers, and decides if it should lead (document 001).

Its load is the duration of its answers, the lateness of its event loop, and the memory of its machine. It is not the share of a core that the gate uses: a busy
core is no fault, and latency shows when it is too much. A gate that reaches no datacenter, is overloaded, or passes nothing on stands back, as long as it knows a
peer that is better off. When no gate is, one of them has to lead nevertheless. A leader that is cut off from every datacenter hands over to a peer that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenure import machine
from tenure.clock import Clock
from tenure.control.messages.gates import AskGate, GateView
from tenure.control.messages.jobs import Submit, SubmitMany
from tenure.control.messages.nodes import GateNode
from tenure.control.messages.wire import Request, address_of
from tenure.health.node_states import GateHealthState
from tenure.health.overload import (
    ASSESS_EVERY_S,
    HybridOverloadDetector,
    OverloadAssessment,
    OverloadConfig,
    OverloadState,
    RequestKind,
    retry_after_s,
    what_passes,
    why_shed,
)
from tenure.health.signals import ProgressState, RoutingDecision
from tenure.health.tracker import NodeHealthTracker, Verdict
from tenure.health.window import EventWindow, FlowWindow
from tenure.jobs.messages import JobProgressReport
from tenure.jobs.model import GateJobTrackingInfo
from tenure.logs import NodeLog
from tenure.nodes.gate.datacenter_health import DatacenterWatch
from tenure.nodes.gate.probes import Probed, Prober, ProbeTools
from tenure.nodes.job_views import WorkflowCounts

if TYPE_CHECKING:
    from tenure.nodes.gate.gate import Gate


def memory_percent() -> float:
    """Returns the share of the machine's memory that is in use; 0 where that cannot be read."""
    return machine.here.memory_percent()


class Shed(NamedTuple):
    """The refusal of a request by an overloaded gate: its reason, a remedy, and the seconds that the caller should stay away."""

    fact: str
    remedy: str
    retry_after_s: float


def priority_of(request: Request) -> int:
    """Returns the highest priority of the jobs in a request, so that no job is turned away because of the others beside it."""
    if isinstance(request, Submit):
        return request.submission.priority or 0
    return max((one.priority or 0 for one in request.submissions), default=0) if isinstance(request, SubmitMany) else 0


class GateLoad:
    """Feeds a `HybridOverloadDetector`, and sheds requests by its state."""

    def __init__(
        self,
        clock: Clock,
        *,
        config: OverloadConfig | None = None,
        memory: Callable[[], float] = memory_percent,
        on_shed: Callable[[RequestKind, int], None] = lambda asked, priority: None,
        log: NodeLog | None = None,
    ) -> None:
        """`on_shed` is called with the kind and the priority of each request that is refused."""
        self._clock, self._memory, self._on_shed, self._log = clock, memory, on_shed, log or NodeLog("gate")
        self._detector = HybridOverloadDetector(config)
        self.assessment = OverloadAssessment(OverloadState.HEALTHY, "not assessed yet")
        self.turned_away = 0

    @property
    def state(self) -> OverloadState:
        return self.assessment.state

    def took(self, seconds: float) -> None:
        """Records the duration of an answer."""
        self._detector.record_latency(max(0.0, seconds) * 1000)

    def why_not(self, asked: RequestKind, priority: int = 0) -> Shed | None:
        """Returns the refusal of a request; None when the request may pass."""
        why = why_shed(self.state, asked, priority)
        if not why:
            return None
        self.turned_away += 1
        self._on_shed(asked, priority)
        rest, other = retry_after_s(self.state), what_passes(self.state, asked)
        remedy = f"Ask again after {rest:g} s" + (f", {other}" if other else "")
        return Shed(f"{why} ({self.assessment.reason})", remedy, rest)

    def assess(self) -> None:
        before = self.state
        self.assessment = self._detector.assess(memory_percent=self._memory())
        if self.state is not before:
            self._log.info(f"is {self.state} (before: {before}): {self.assessment.reason}")

    async def run(self) -> None:
        """Assesses the load once a second. A wake-up that comes late counts as a latency, too."""
        while True:
            due = self._clock.monotonic() + ASSESS_EVERY_S
            await self._clock.async_sleep(ASSESS_EVERY_S)
            late = self._clock.monotonic() - due
            if late > 0.05:
                self.took(late)
            self.assess()


class Forwarded(NamedTuple):
    """The counts of the last interval that a `GateHealthState` holds."""

    forwarded: int
    aggregated: int
    expected: float
    waiting: int


class Forwarding:
    """Measures each datacenter by itself, and counts only those that answer: one that is out of reach is no fault of the gate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._flows: dict[str, FlowWindow] = {}
        self._aggregated = EventWindow(history=0)

    def accepted(self, datacenters: Iterable[str]) -> None:
        for name in datacenters:
            self._flows.setdefault(name, FlowWindow()).arrive(self._clock.monotonic())

    def passed_on(self, datacenter: str, count: int) -> None:
        if count:
            self._flows.setdefault(datacenter, FlowWindow()).leave(self._clock.monotonic(), count)

    def aggregated(self, count: int) -> None:
        self._aggregated.record(self._clock.monotonic(), count)

    def measure(self, connected: Collection[str]) -> Forwarded:
        now = self._clock.monotonic()
        flows = [flow.measure(now) for name, flow in self._flows.items() if name in connected]
        return Forwarded(
            sum(flow.left_last_interval for flow in flows),
            int(self._aggregated.last_interval(now)),
            sum(flow.expected for flow in flows),
            sum(flow.overdue for flow in flows),
        )


class ReportedCounts:
    """The counts of workflows, by job and datacenter."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], WorkflowCounts] = {}

    def heard(self, report: JobProgressReport) -> None:
        self._newest[report.job_id, report.datacenter] = WorkflowCounts(
            report.workflows_total,
            report.workflows_completed,
            report.workflows_failed,
            report.workflows_running,
            report.attempts,
        )

    def of(self, info: GateJobTrackingInfo) -> WorkflowCounts:
        """Returns the sum of a job's counts over its datacenters."""
        places = [(info.job_id, name) for name in info.target_datacenters]
        known = [self._newest[place] for place in places if place in self._newest]
        return WorkflowCounts(*(sum(column) for column in zip(*known, strict=True))) if known else WorkflowCounts()

    def forget(self, job_id: str, datacenters: Iterable[str]) -> None:
        for name in datacenters:
            self._newest.pop((job_id, name), None)


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
        self._verdicts: NodeHealthTracker[GateHealthState] = NodeHealthTracker("gate", clock=tools.clock)
        """The verdicts on the peers that ever answered, by address: with the tracker and the brake by which managers judge their workers."""
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

    def verdict(self, address: str) -> Verdict:
        """Returns the verdict on a peer (document 001)."""
        return self._verdicts.get_verdict(address, now=self._clock.monotonic())

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
        states = ((address, self._verdicts.state(address)) for address in self.prober.nodes)
        return any(
            state is not None
            and self._verdicts.get_routing_decision(address, now=now) is RoutingDecision.ROUTE
            and state.should_participate_in_election_at(now)
            for address, state in states
        )

    def _heard(self, node: Probed[GateView], answered: bool) -> None:
        """Judges the peer. Hands over to a peer that is fit to lead, when this gate was unfit for the suspicion time."""
        now = self._clock.monotonic()
        if node.view is not None:
            self._verdicts.update_state(node.address, self._state(node.view, node), now=now)
        why = self._why_unfit()
        if not why:
            self._unfit_since = None
            return
        if self._unfit_since is None:
            self._unfit_since = now
        if now - self._unfit_since >= self._settings.suspicion_s and self._better_peer(now):
            self._unfit_since = now  # not again before another suspicion time
            self._on_hand_over(why)

    def _why_unfit(self) -> str:
        """Returns the reason to hand over. Overload is none: the next leader would get the same load, and hand it back."""
        if not self._watch.connected and self._watch.datacenters:
            return "this gate reaches no datacenter, and a peer does"
        stuck = self.own_state().progress_state is ProgressState.STUCK
        return "this gate passes nothing on although work waits, and a peer is well" if stuck else ""


def gate_view(gate: Gate, now: float) -> GateView:
    state, book = gate.fitness.own_state(), gate.leadership.ledger.book
    return GateView(
        gate_id=gate.name,
        leads=gate.leads,
        epoch=gate.leadership.known_epoch,
        leader=address_of(gate.leadership.known_leader),
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
        epoch=gate.leadership.known_epoch,
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
            verdict=gate.fitness.verdict(peer.address).decision.value,
        )
        for peer in gate.fitness.prober.nodes.values()
    ]
    return (own, *peers)
