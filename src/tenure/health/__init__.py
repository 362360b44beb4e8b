"""Three signals, earned extensions and a brake. Pure: told the time, does no I/O."""

from tenure.health.brake import BrakeConfig, BrakePhase, BrakeStatus, EvictionBrake
from tenure.health.deadlines import ExtensionConfig, ExtensionRecord, WorkerHealthManager
from tenure.health.extension import (
    Denial,
    ExtensionGrant,
    ExtensionReason,
    ExtensionTracker,
    HealthcheckExtensionRequest,
    HealthcheckExtensionResponse,
    extension_bound,
)
from tenure.health.node_states import (
    GateHealthState,
    HealthPiggyback,
    ManagerHealthState,
    NodeType,
    WorkerHealthState,
    has_quorum,
)
from tenure.health.overload import HybridOverloadDetector, OverloadAssessment, OverloadConfig, OverloadState
from tenure.health.placement import DatacenterAssessment, DatacenterHealth, DatacenterRule, classify_datacenter
from tenure.health.signals import (
    Assessment,
    HealthClass,
    HealthConfig,
    HealthSignals,
    NodeHealthState,
    ProgressState,
    RoutingDecision,
    classify,
)
from tenure.health.tracker import Eviction, HistoryEntry, NodeHealthTracker, Sweep, Verdict
from tenure.health.window import CompletionRate, EventWindow, Flow, FlowWindow, ProgressCounts, ProgressWindow

__all__ = [
    "Assessment",
    "BrakeConfig",
    "BrakePhase",
    "BrakeStatus",
    "CompletionRate",
    "DatacenterAssessment",
    "DatacenterHealth",
    "DatacenterRule",
    "Denial",
    "EventWindow",
    "Eviction",
    "EvictionBrake",
    "ExtensionConfig",
    "ExtensionGrant",
    "ExtensionReason",
    "ExtensionRecord",
    "ExtensionTracker",
    "Flow",
    "FlowWindow",
    "GateHealthState",
    "HealthClass",
    "HealthConfig",
    "HealthPiggyback",
    "HealthSignals",
    "HealthcheckExtensionRequest",
    "HealthcheckExtensionResponse",
    "HistoryEntry",
    "HybridOverloadDetector",
    "ManagerHealthState",
    "NodeHealthState",
    "NodeHealthTracker",
    "NodeType",
    "OverloadAssessment",
    "OverloadConfig",
    "OverloadState",
    "ProgressCounts",
    "ProgressState",
    "ProgressWindow",
    "RoutingDecision",
    "Sweep",
    "Verdict",
    "WorkerHealthManager",
    "WorkerHealthState",
    "classify",
    "classify_datacenter",
    "extension_bound",
    "has_quorum",
]
