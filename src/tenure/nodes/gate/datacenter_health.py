"""Watches a gate's datacenters: it probes their managers, classifies each datacenter with a reason, and knows its room and latency.

"Unknown" is a state of its own: no manager answered yet, so nothing is concluded. When most datacenters fall silent at once, the gate suspects
its own link first: classes stay as they were, and silence proves nothing, until the brake's longest hold is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from tenure.control.messages.gates import AskDatacenter, DatacenterView, ManagerVerdict, PlaceView
from tenure.health.brake import BrakeConfig, BrakePhase, BrakeStatus, EvictionBrake
from tenure.health.node_states import ManagerHealthState
from tenure.health.placement import (
    CandidateDatacenter,
    Choice,
    DatacenterAssessment,
    DatacenterHealth,
    DatacenterRule,
    PlacementConfig,
    SteadyHealth,
    choose,
    classify_datacenter,
)
from tenure.health.signals import RoutingDecision
from tenure.health.tracker import NodeHealthTracker, Verdict
from tenure.nodes.gate.probes import Probed, Prober, ProbeSettings, ProbeTools

UNKNOWN = "UNKNOWN"


class PlaceRule(StrEnum):
    """The rules by which a gate itself describes a datacenter, beyond the one that classified it (`DatacenterRule`)."""

    NOTHING_HEARD = "nothing_heard"
    LINK_SUSPECT = "link_suspect"
    DRAINED = "drained"
    CLOSED = "closed"


SILENT_AFTER = 2
"""After this many misses in a row a datacenter counts as silent for the brake, long before it becomes UNHEALTHY."""
OWN_LINK = BrakeConfig(min_nodes=2)


class Datacenter:
    """One datacenter, as the probes of its managers show it."""

    def __init__(self, name: str, managers: list[Probed[DatacenterView]], config: PlacementConfig) -> None:
        self.name, self.managers = name, managers
        self.steady = SteadyHealth(config)
        self.assessment: DatacenterAssessment | None = None
        self.assessed_at = float("-inf")
        self.held = False
        self.sent_since = 0
        """The jobs that this gate placed there since its leader last told its free slots. They count against those slots."""
        self.was_silent = False
        self.spoke_at = float("-inf")
        """When the datacenter last sent a report, or answered a request that is no probe."""
        self.led_by = ""
        """The address of the manager that last said that it leads."""

    @property
    def leader(self) -> Probed[DatacenterView] | None:
        leading = [one for one in self.managers if one.view is not None and one.view.leads]
        return max(leading, key=lambda one: one.heard_at, default=None)

    @property
    def capacity(self) -> int:
        leader = self.leader
        free = leader.view.available_capacity if leader is not None and leader.view is not None else 0
        return max(0, free - self.sent_since)

    @property
    def latency_s(self) -> float:
        answered = [one.latency_s for one in self.managers if one.known and not one.misses]
        return min(answered, default=0.0)

    @property
    def drained(self) -> bool:
        """True when operators drained every worker of this datacenter."""
        leader = self.leader
        view = leader.view if leader is not None else None
        return view is not None and view.drained_worker_count > 0 and view.active_worker_count == 0

    @property
    def closed(self) -> str:
        """The reason why its leading manager accepts no new jobs; empty while it does, or while nobody is known to lead there."""
        leader = self.leader
        return leader.view.closed if leader is not None and leader.view is not None else ""

    @property
    def error(self) -> str:
        """The error of a manager that did not answer; empty where there is none."""
        return next((one.error for one in self.managers if one.error), "")

    @property
    def silent(self) -> bool:
        """True when every manager missed `SILENT_AFTER` probes, and nothing else came from this datacenter since the last missed one was sent."""
        return all(one.misses >= SILENT_AFTER and one.missed_at > self.spoke_at for one in self.managers)

    def states(self, settings: ProbeSettings) -> list[ManagerHealthState]:
        """Returns the health state of every manager (document 001). A standby counts as having the workers of its leader."""
        leader = self.leader
        workers = leader.view.active_worker_count if leader is not None and leader.view is not None else 0
        return [self._state(one, workers, settings) for one in self.managers]

    def _state(self, one: Probed[DatacenterView], workers: int, settings: ProbeSettings) -> ManagerHealthState:
        view = one.view
        return ManagerHealthState(
            manager_id=view.manager_id if view else one.address,
            datacenter_id=self.name,
            last_liveness_response=one.heard_at,
            consecutive_liveness_failures=one.misses,
            has_quorum=view is not None and view.has_quorum,
            accepting_jobs=view is not None and view.accepting_jobs,
            active_worker_count=workers,
            jobs_accepted_last_interval=view.jobs_accepted_last_interval if view else 0,
            workflows_dispatched_last_interval=view.workflows_dispatched_last_interval if view else 0,
            expected_throughput=view.expected_throughput if view else 0.0,
            workflows_waiting=view.workflows_waiting if view else 0,
            config=settings.health,
        )


class DatacenterWatch:
    """All datacenters of a gate. `run` probes them; the other methods answer from the results."""

    def __init__(
        self,
        tools: ProbeTools,
        datacenters: Mapping[str, Sequence[str]],
        *,
        on_return: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`on_return` is called with the name of a datacenter that was silent and answers again, or that another manager leads now."""
        self._settings, self._clock, self._log, self._on_return = tools.settings, tools.clock, tools.log, on_return
        self._placement = PlacementConfig()
        addresses = [address for addresses in datacenters.values() for address in addresses]
        self.prober = Prober(tools, addresses, AskDatacenter(), DatacenterView, self._heard)
        nodes = self.prober.nodes
        self.datacenters = {
            name: Datacenter(name, [nodes[address] for address in addresses], self._placement)
            for name, addresses in datacenters.items()
        }
        self._of = {address: self.datacenters[name] for name, addresses in datacenters.items() for address in addresses}
        self._brake = EvictionBrake(OWN_LINK)
        self._verdicts: NodeHealthTracker[ManagerHealthState] = NodeHealthTracker("manager", clock=tools.clock)
        """The verdicts on all managers, by address: with the tracker and the brake by which managers judge their workers."""
        self._last_choice: tuple[str, ...] = ()
        self.run = self.prober.run

    # Answers from the probes

    @property
    def reached(self) -> set[str]:
        """The datacenters of which a manager answered its last probe."""
        return {
            name
            for name, datacenter in self.datacenters.items()
            if any(one.known and not one.misses for one in datacenter.managers)
        }

    @property
    def connected(self) -> int:
        return len(self.reached)

    def link_suspect(self) -> bool:
        """Returns True while so many datacenters are silent at once that the gate suspects its own link before them."""
        self._observe()
        return self._brake.phase(self._clock.monotonic()) is BrakePhase.HOLDING

    def brake(self) -> BrakeStatus:
        self._observe()
        return self._brake.status(self._clock.monotonic())

    def health(self, name: str) -> DatacenterHealth | None:
        """Returns the class of a datacenter; None while it is unknown."""
        self._assess(self.datacenters[name])
        return self.datacenters[name].steady.health

    def class_of(self, name: str) -> str:
        """Returns the class as text; `UNKNOWN` also for a datacenter that this gate does not know."""
        return str(self.health(name) or UNKNOWN) if name in self.datacenters else UNKNOWN

    def silent(self, name: str) -> bool:
        """Returns True for a datacenter that is silent, or that this gate does not know."""
        return name not in self.datacenters or self.datacenters[name].silent

    def why_silent(self, name: str) -> str:
        """Returns the reason why a silent datacenter need not be asked; empty for one that should be."""
        datacenter = self.datacenters[name]
        return f"it is silent ({datacenter.error})" if datacenter.silent else ""

    def verdict(self, address: str) -> Verdict:
        """Returns the verdict on one manager (document 001)."""
        return self._verdicts.get_verdict(address, now=self._clock.monotonic())

    def ask_order(self, addresses: Sequence[str]) -> list[str]:
        """Returns the managers in the order in which they should be asked: those to evict come last, whatever was asked of them before."""
        now = self._clock.monotonic()
        decide = self._verdicts.get_routing_decision
        return sorted(addresses, key=lambda address: decide(address, now=now) is RoutingDecision.EVICT)

    def views(self) -> tuple[PlaceView, ...]:
        return tuple(self._view(datacenter) for datacenter in self.datacenters.values())

    def _view(self, datacenter: Datacenter) -> PlaceView:
        health, found = self.health(datacenter.name), datacenter.assessment
        reason = found.reason if found else "nothing was heard of it yet"
        rule: str = found.rule if found else PlaceRule.NOTHING_HEARD
        if datacenter.error and (found is None or found.rule is DatacenterRule.NO_MANAGER_ANSWERS):
            reason = f"{reason} ({datacenter.error})"
        if datacenter.drained:
            reason, rule = f"{reason}; operators drained every worker there", PlaceRule.DRAINED
        if datacenter.closed:
            reason, rule = f"{reason}; it accepts no new jobs: {datacenter.closed}", PlaceRule.CLOSED
        if datacenter.held:
            reason, rule = f"{reason}; it keeps its class, for {self.brake().reason}", PlaceRule.LINK_SUSPECT
        return PlaceView(
            name=datacenter.name,
            health=health or UNKNOWN,
            reason=reason,
            rule=str(rule),
            capacity=datacenter.capacity,
            latency_ms=round(datacenter.latency_s * 1000, 1),
            held=datacenter.held,
            managers=tuple(self._manager(one.address) for one in datacenter.managers),
        )

    def _manager(self, address: str) -> ManagerVerdict:
        found = self.verdict(address)
        return ManagerVerdict(address=address, verdict=found.decision.value, reason=found.reason)

    def choose(self, count: int) -> Choice:
        """Chooses the datacenters for a job that names none. The job counts against their free slots until their leaders tell them again."""
        places = [
            CandidateDatacenter(
                name,
                self.health(name),
                datacenter.capacity,
                datacenter.latency_s,
                datacenter.drained,
                datacenter.closed,
            )
            for name, datacenter in self.datacenters.items()
        ]
        choice = choose(places, count, previous=self._last_choice, config=self._placement)
        self._last_choice = choice.chosen
        for name in choice.chosen:
            self.datacenters[name].sent_since += 1
        return choice

    # Results of probes, and other signs of life

    def spoke(self, name: str) -> None:
        """Notes that a report or an answer came from a datacenter: it is not silent, even if its probes are missed."""
        datacenter = self.datacenters.get(name)
        if datacenter is not None:
            datacenter.spoke_at = self._clock.monotonic()

    def _heard(self, node: Probed[DatacenterView], answered: bool) -> None:
        datacenter, led_anew = self._of[node.address], False
        if answered and node.view is not None:
            if node.view.datacenter != datacenter.name:
                self._log.warning(
                    f"{node.address} says that it is {node.view.datacenter!r}, and should be {datacenter.name!r}"
                )
            if node.view.leads:
                datacenter.sent_since = 0
                led_anew, datacenter.led_by = datacenter.led_by not in ("", node.address), node.address
        self._judge(datacenter)
        was_away = datacenter.steady.health is DatacenterHealth.UNHEALTHY or datacenter.held
        self._assess(datacenter, count=True)
        # Also for a new leader: messages to the last one may have died with it, and their next resend may be half a minute away.
        if answered and (was_away or datacenter.was_silent or led_anew):
            self._on_return(datacenter.name)
        datacenter.was_silent = datacenter.silent

    def _judge(self, datacenter: Datacenter) -> None:
        """Judges every manager of a datacenter anew: a standby counts as having the workers of its leader, so one answer may change them all."""
        now = self._clock.monotonic()
        for one, state in zip(datacenter.managers, datacenter.states(self._settings), strict=True):
            before = self._verdicts.get_routing_decision(one.address, now=now)
            self._verdicts.update_state(one.address, state, now=now)
            found = self._verdicts.get_verdict(one.address, now=now)
            if found.decision is not before and before is not RoutingDecision.UNKNOWN:
                self._log.info(f"manager {one.address} of {datacenter.name}: {found.decision} ({found.reason})")

    def _observe(self) -> None:
        silent = sum(datacenter.silent for datacenter in self.datacenters.values())
        self._brake.observe(silent, len(self.datacenters), self._clock.monotonic())

    def _assess(self, datacenter: Datacenter, *, count: bool = False) -> None:
        now = self._clock.monotonic()
        if not count and now - datacenter.assessed_at < self._settings.interval_s / 4:
            return  # every submission calls this, and little changes between two probes
        datacenter.assessed_at = now
        heard = any(one.known for one in datacenter.managers)
        waited = all(now - one.heard_at >= self._settings.suspicion_s for one in datacenter.managers)
        if not heard and not waited:
            return  # it stays unknown until a manager answers, or the suspicion time is over
        found = classify_datacenter(datacenter.states(self._settings), datacenter.capacity, now=now)
        suspect = self.link_suspect()
        datacenter.assessment = found
        datacenter.held = suspect and datacenter.silent and datacenter.steady.health is not None
        if datacenter.held:
            return
        worse = datacenter.steady.health is None or found.health.preference <= datacenter.steady.health.preference
        if count or worse:
            before = datacenter.steady.health
            after = datacenter.steady.observe(found.health)
            if after is not before:
                self._log.info(f"datacenter {datacenter.name} is {after} (before: {before or UNKNOWN}): {found.reason}")
