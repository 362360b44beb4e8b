"""The health of a worker as managers see it, of a manager as gates see it, and of a gate as its peers see it (document 001).

Each is a snapshot of the three signals of one node. `signals.py` has the matrix that judges them. `HealthPiggyback` is the health of any
node as it rides on gossip messages ("SWIM Piggyback for Health State"). It is small enough to share one datagram with gossip, says which
version wrote it, and takes no bytes for health that are not. Gossip is lossy and never authoritative for work: a lost piggyback costs
routing quality.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import msgspec

from tenure.clock import Clock
from tenure.errors import LimitError, PiggybackError
from tenure.health.overload import OverloadState
from tenure.health.signals import HealthConfig, NodeHealthState, ProgressState, finite, name, whole

NOT_READY: Final = frozenset({OverloadState.STRESSED, OverloadState.OVERLOADED})


@dataclass(frozen=True, slots=True)
class WorkerHealthState(NodeHealthState):
    """Unified health state combining all three signals."""

    worker_id: str

    # Signal 1: Liveness
    last_liveness_response: float  # monotonic seconds of the watcher
    consecutive_liveness_failures: int

    # Signal 2: Readiness
    accepting_work: bool  # reported by worker
    available_capacity: int

    # Signal 3: Progress (where these come from: window.py)
    workflows_assigned: int
    completions_last_interval: int
    expected_completion_rate: float  # completions per assigned workflow and interval

    # Workflows that showed progress in the interval. Counting completions alone, one long workflow looks stuck.
    workflows_advancing: int = 0

    # Workflows that do not advance and may be silent: within their stall threshold, or in a silence that they declared.
    # They keep the worker from being stuck, and prove nothing. 0 once the worker was denied more time.
    workflows_silent: int = 0

    config: HealthConfig = field(default=HealthConfig(), kw_only=True)
    clock: Clock | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_liveness()
        whole("available_capacity", self.available_capacity)
        whole("workflows_assigned", self.workflows_assigned)
        whole("completions_last_interval", self.completions_last_interval)
        whole("workflows_advancing", self.workflows_advancing)
        whole("workflows_silent", self.workflows_silent)
        finite("expected_completion_rate", self.expected_completion_rate)

    @property
    def readiness(self) -> bool:
        """Can the worker accept new work?"""
        return self.accepting_work and self.available_capacity > 0

    @property
    def progress_state(self) -> ProgressState:
        """Is work completing at expected rate, or advancing?"""
        if self.workflows_assigned == 0:
            return ProgressState.IDLE
        # The expected rate says how fast work should end, not whether it may stand still.
        if not self.proven and self.workflows_silent == 0:
            return ProgressState.STUCK
        expected = self.expected_completion_rate
        # A workflow that advances, or is allowed its silence, does what is expected of it, however long it takes to complete.
        as_expected = self.workflows_advancing + self.workflows_silent
        actual = (self.completions_last_interval + as_expected * expected) / self.workflows_assigned
        return self.config.grade(actual, expected)

    @property
    def proven(self) -> bool:
        """True when the worker has nothing to do, or its work completed or advanced in the interval. Only that moves its deadline."""
        return self.workflows_assigned == 0 or self.completions_last_interval > 0 or self.workflows_advancing > 0

    def _why_not_ready(self) -> str:
        return "does not accept work" if not self.accepting_work else "has no free slot"

    def _progress_in_words(self) -> str:
        if self.workflows_assigned == 0:
            return "idle"
        expected = self.workflows_assigned * self.expected_completion_rate
        silent = f"{self.workflows_silent} may be silent, " if self.workflows_silent else ""
        return (
            f"progress {self.progress_state}: of {self.workflows_assigned} workflows {self.workflows_advancing} advance, {silent}"
            f"{self.completions_last_interval} completed in the interval ({expected:.3g} expected)"
        )


def has_quorum(*, engine_answers: bool, term_is_current: bool) -> bool:
    """Can a manager's datacenter make authoritative decisions?

    The engine replicates, not the managers: what the document calls a quorum is an engine that answers and a leader whose
    term is current (the manager's own, or the one that this standby follows).
    """
    return engine_answers and term_is_current


@dataclass(frozen=True, slots=True)
class ManagerHealthState(NodeHealthState):
    """Three-signal health state for managers (monitored by gates)."""

    manager_id: str
    datacenter_id: str

    # Signal 1: Liveness
    last_liveness_response: float  # monotonic seconds of the watcher
    consecutive_liveness_failures: int

    # Signal 2: Readiness
    has_quorum: bool  # Can make authoritative decisions
    accepting_jobs: bool  # Self-reported
    active_worker_count: int  # Workers that are alive, busy ones too: a full datacenter is ready, and BUSY

    # Signal 3: Progress (where these come from: window.py)
    jobs_accepted_last_interval: int
    workflows_dispatched_last_interval: int
    expected_throughput: float  # what could be dispatched: work that was there, bounded by room at the workers

    # Work that waits for dispatch. A manager that takes nothing new and leaves a backlog lying is not idle.
    workflows_waiting: int = 0

    config: HealthConfig = field(default=HealthConfig(), kw_only=True)
    clock: Clock | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_liveness()
        whole("active_worker_count", self.active_worker_count)
        whole("jobs_accepted_last_interval", self.jobs_accepted_last_interval)
        whole("workflows_dispatched_last_interval", self.workflows_dispatched_last_interval)
        whole("workflows_waiting", self.workflows_waiting)
        finite("expected_throughput", self.expected_throughput)

    @property
    def readiness(self) -> bool:
        """Can the manager accept jobs?"""
        return self.has_quorum and self.accepting_jobs and self.active_worker_count > 0

    @property
    def progress_state(self) -> ProgressState:
        """Is work flowing to the workers?"""
        if self.jobs_accepted_last_interval == 0 and self.workflows_waiting == 0:
            return ProgressState.IDLE
        return self.config.grade(self.workflows_dispatched_last_interval, self.expected_throughput)

    def _why_not_ready(self) -> str:
        if not self.has_quorum:
            return "has no quorum (its engine does not answer, or no term is current)"
        return "does not accept jobs" if not self.accepting_jobs else "has no workers"

    def _progress_in_words(self) -> str:
        if self.progress_state is ProgressState.IDLE:
            return "idle"
        return (
            f"progress {self.progress_state}: {self.jobs_accepted_last_interval} jobs accepted, "
            f"{self.workflows_dispatched_last_interval} workflows dispatched in the interval "
            f"({self.expected_throughput:.3g} expected), {self.workflows_waiting} waiting"
        )


@dataclass(frozen=True, slots=True)
class GateHealthState(NodeHealthState):
    """Three-signal health state for gates (monitored by peer gates)."""

    gate_id: str

    # Signal 1: Liveness
    last_liveness_response: float  # monotonic seconds of the watcher
    consecutive_liveness_failures: int

    # Signal 2: Readiness
    has_dc_connectivity: bool  # Can reach at least one DC
    connected_dc_count: int
    overload_state: OverloadState | str  # From HybridOverloadDetector

    # Signal 3: Progress (where these come from: window.py)
    jobs_forwarded_last_interval: int
    stats_aggregated_last_interval: int
    expected_forward_rate: float

    # Jobs that could be forwarded and are not: without it a gate that forwards nothing always looks idle.
    jobs_waiting: int = 0

    config: HealthConfig = field(default=HealthConfig(), kw_only=True)
    clock: Clock | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_liveness()
        whole("connected_dc_count", self.connected_dc_count)
        whole("jobs_forwarded_last_interval", self.jobs_forwarded_last_interval)
        whole("stats_aggregated_last_interval", self.stats_aggregated_last_interval)
        whole("jobs_waiting", self.jobs_waiting)
        finite("expected_forward_rate", self.expected_forward_rate)
        try:
            object.__setattr__(self, "overload_state", OverloadState(self.overload_state))
        except ValueError:
            raise LimitError(
                "overload_state", repr(self.overload_state), "one of " + ", ".join(OverloadState)
            ) from None

    @property
    def readiness(self) -> bool:
        """Can the gate handle jobs?"""
        return self.has_dc_connectivity and self.connected_dc_count > 0 and self.overload_state not in NOT_READY

    @property
    def progress_state(self) -> ProgressState:
        """Is work flowing to the datacenters?"""
        if self.jobs_forwarded_last_interval == 0:
            return ProgressState.STUCK if self.jobs_waiting > 0 else ProgressState.IDLE
        return self.config.grade(self.jobs_forwarded_last_interval, self.expected_forward_rate)

    def should_participate_in_election(self) -> bool:
        """Gates with poor health shouldn't become leaders."""
        return self.should_participate_in_election_at(self._now())

    def should_participate_in_election_at(self, now: float) -> bool:
        """As above, told the time."""
        return (
            self.liveness_at(now)
            and self.readiness
            and self.progress_state in (ProgressState.IDLE, ProgressState.NORMAL)
        )

    def _why_not_ready(self) -> str:
        if not self.has_dc_connectivity or self.connected_dc_count == 0:
            return "reaches no datacenter"
        return f"is {self.overload_state}"

    def _progress_in_words(self) -> str:
        if self.progress_state is ProgressState.IDLE:
            return "idle"
        return (
            f"progress {self.progress_state}: {self.jobs_forwarded_last_interval} jobs forwarded in the interval "
            f"({self.expected_forward_rate:.3g} expected), {self.jobs_waiting} waiting"
        )


VERSION: Final = 1
MAX_BYTES: Final = 200
"""No encoded piggyback is longer: `MAX_NODE_ID_BYTES`, six numbers of at most five bytes, and seven bytes around them."""
MAX_NODE_ID_BYTES: Final = 128
_MOST: Final = 2**32 - 1


class NodeType(StrEnum):
    """The three kinds of nodes that watch each other."""

    WORKER = "worker"
    MANAGER = "manager"
    GATE = "gate"


# Codes on the wire are positions in these tuples: append, never reorder.
_NODE_TYPES: Final = (NodeType.WORKER, NodeType.MANAGER, NodeType.GATE)
_OVERLOAD_STATES: Final = (
    OverloadState.HEALTHY,
    OverloadState.BUSY,
    OverloadState.STRESSED,
    OverloadState.OVERLOADED,
)

_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class _Wire(msgspec.Struct, array_like=True, frozen=True):
    """The fields in their order on the wire. Only append: a version 1 reader ignores what follows."""

    node_id: str
    node_type: Annotated[int, msgspec.Meta(ge=0, lt=len(_NODE_TYPES))]
    accepting_work: bool
    capacity: _Count
    throughput: _Count
    expected_throughput: _Count
    overload_state: Annotated[int, msgspec.Meta(ge=0, lt=len(_OVERLOAD_STATES))]
    waiting: _Count
    advancing: _Count
    sequence: _Count


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Wire)


@dataclass(frozen=True, slots=True)
class HealthPiggyback:
    """Health state embedded in SWIM messages."""

    node_id: str
    node_type: NodeType | str

    # Readiness signal
    accepting_work: bool
    capacity: int  # available slots

    # Progress signal (last interval)
    throughput: int  # completions, dispatches or forwards
    expected_throughput: int

    # Overload signal
    overload_state: OverloadState | str

    # Not in the document. Without the first two, a receiver cannot tell a long workflow or an idle node from a stuck
    # one; the third lets the newest of two win that arrive out of order (it grows within one incarnation of the node).
    waiting: int = 0
    advancing: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        name("node_id", self.node_id, most_bytes=MAX_NODE_ID_BYTES)
        _choice(self, "node_type", NodeType)
        _choice(self, "overload_state", OverloadState)
        if not isinstance(self.accepting_work, bool):
            raise LimitError("accepting_work", repr(self.accepting_work), "True or False")
        for number in ("capacity", "throughput", "expected_throughput", "waiting", "advancing", "sequence"):
            whole(number, getattr(self, number), most=_MOST)

    def encode(self) -> bytes:
        """Returns at most `MAX_BYTES` bytes: a version byte, then a msgpack array."""
        fields = {name: getattr(self, name) for name in _Wire.__struct_fields__}
        fields["node_type"] = _NODE_TYPES.index(NodeType(self.node_type))
        fields["overload_state"] = _OVERLOAD_STATES.index(OverloadState(self.overload_state))
        return bytes((VERSION,)) + _encoder.encode(_Wire(**fields))

    @classmethod
    def decode(cls, data: bytes) -> HealthPiggyback:
        """Read what `encode` wrote. Raises `PiggybackError`, and nothing else, for any other bytes."""
        if not 1 <= len(data) <= MAX_BYTES:
            raise PiggybackError(f"a health piggyback has 1 to {MAX_BYTES} bytes, this one {len(data)}")
        if data[0] != VERSION:
            raise PiggybackError(f"health piggyback of version {data[0]}, and this node reads version {VERSION}")
        try:
            wire = _decoder.decode(memoryview(data)[1:])
            fields = msgspec.structs.asdict(wire)
            fields["node_type"] = _NODE_TYPES[wire.node_type]
            fields["overload_state"] = _OVERLOAD_STATES[wire.overload_state]
            return cls(**fields)
        except (msgspec.MsgspecError, UnicodeDecodeError, LimitError) as error:
            raise PiggybackError(f"{len(data)} bytes are not a health piggyback: {error}") from error


def _choice(piggyback: HealthPiggyback, field: str, kind: type[StrEnum]) -> None:
    """Turn the document's string into its enum (they compare equal), or say what may stand there."""
    value = getattr(piggyback, field)
    try:
        object.__setattr__(piggyback, field, kind(value))
    except ValueError:
        raise LimitError(field, repr(value), "one of " + ", ".join(kind)) from None


class PoolWord(NamedTuple):
    """The belief of the gossip pool about one worker. It counts for the start that it names, and for no other start under that name."""

    start: str
    alive: bool
    health: HealthPiggyback | None = None
    """The health that this start last sent by gossip, if it lives and has sent any."""
