"""Three signals, earned extensions and a brake. Pure: told the time, does no I/O."""

from tenure.health.extension import (
    Denial,
    ExtensionGrant,
    ExtensionReason,
    ExtensionTracker,
    HealthcheckExtensionRequest,
    HealthcheckExtensionResponse,
    extension_bound,
)
from tenure.health.overload import OverloadState
from tenure.health.piggyback import HealthPiggyback, NodeType

__all__ = [
    "Denial",
    "ExtensionGrant",
    "ExtensionReason",
    "ExtensionTracker",
    "HealthPiggyback",
    "HealthcheckExtensionRequest",
    "HealthcheckExtensionResponse",
    "NodeType",
    "OverloadState",
    "extension_bound",
]
