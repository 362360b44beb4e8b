"""Three signals, earned extensions and a brake. Pure: told the time, does no I/O."""

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.health.brake import BrakeConfig as BrakeConfig
    from tenure.health.brake import BrakePhase as BrakePhase
    from tenure.health.brake import BrakeStatus as BrakeStatus
    from tenure.health.brake import EvictionBrake as EvictionBrake
    from tenure.health.deadlines import ExtensionConfig as ExtensionConfig
    from tenure.health.deadlines import ExtensionRecord as ExtensionRecord
    from tenure.health.deadlines import WorkerHealthManager as WorkerHealthManager
    from tenure.health.extension import Denial as Denial
    from tenure.health.extension import ExtensionGrant as ExtensionGrant
    from tenure.health.extension import ExtensionReason as ExtensionReason
    from tenure.health.extension import ExtensionTracker as ExtensionTracker
    from tenure.health.extension import HealthcheckExtensionRequest as HealthcheckExtensionRequest
    from tenure.health.extension import HealthcheckExtensionResponse as HealthcheckExtensionResponse
    from tenure.health.extension import extension_bound as extension_bound
    from tenure.health.node_states import GateHealthState as GateHealthState
    from tenure.health.node_states import HealthPiggyback as HealthPiggyback
    from tenure.health.node_states import ManagerHealthState as ManagerHealthState
    from tenure.health.node_states import NodeType as NodeType
    from tenure.health.node_states import WorkerHealthState as WorkerHealthState
    from tenure.health.node_states import has_quorum as has_quorum
    from tenure.health.overload import HybridOverloadDetector as HybridOverloadDetector
    from tenure.health.overload import OverloadAssessment as OverloadAssessment
    from tenure.health.overload import OverloadConfig as OverloadConfig
    from tenure.health.overload import OverloadState as OverloadState
    from tenure.health.placement import DatacenterAssessment as DatacenterAssessment
    from tenure.health.placement import DatacenterHealth as DatacenterHealth
    from tenure.health.placement import DatacenterRule as DatacenterRule
    from tenure.health.placement import classify_datacenter as classify_datacenter
    from tenure.health.signals import Assessment as Assessment
    from tenure.health.signals import HealthClass as HealthClass
    from tenure.health.signals import HealthConfig as HealthConfig
    from tenure.health.signals import HealthSignals as HealthSignals
    from tenure.health.signals import NodeHealthState as NodeHealthState
    from tenure.health.signals import ProgressState as ProgressState
    from tenure.health.signals import RoutingDecision as RoutingDecision
    from tenure.health.signals import classify as classify
    from tenure.health.tracker import Eviction as Eviction
    from tenure.health.tracker import HistoryEntry as HistoryEntry
    from tenure.health.tracker import NodeHealthTracker as NodeHealthTracker
    from tenure.health.tracker import Sweep as Sweep
    from tenure.health.tracker import Verdict as Verdict
    from tenure.health.window import CompletionRate as CompletionRate
    from tenure.health.window import EventWindow as EventWindow
    from tenure.health.window import Flow as Flow
    from tenure.health.window import FlowWindow as FlowWindow
    from tenure.health.window import ProgressCounts as ProgressCounts
    from tenure.health.window import ProgressWindow as ProgressWindow

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

__getattr__ = lazy_names(
    __name__,
    {
        "brake": "BrakeConfig BrakePhase BrakeStatus EvictionBrake",
        "deadlines": "ExtensionConfig ExtensionRecord WorkerHealthManager",
        "extension": "Denial ExtensionGrant ExtensionReason ExtensionTracker HealthcheckExtensionRequest HealthcheckExtensionResponse extension_bound",
        "node_states": "GateHealthState HealthPiggyback ManagerHealthState NodeType WorkerHealthState has_quorum",
        "overload": "HybridOverloadDetector OverloadAssessment OverloadConfig OverloadState",
        "placement": "DatacenterAssessment DatacenterHealth DatacenterRule classify_datacenter",
        "signals": "Assessment HealthClass HealthConfig HealthSignals NodeHealthState ProgressState RoutingDecision classify",
        "tracker": "Eviction HistoryEntry NodeHealthTracker Sweep Verdict",
        "window": "CompletionRate EventWindow Flow FlowWindow ProgressCounts ProgressWindow",
    },
)
