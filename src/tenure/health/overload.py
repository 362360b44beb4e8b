"""How loaded a node is, in four words."""

from __future__ import annotations

from enum import StrEnum


class OverloadState(StrEnum):
    """From calm to drowning. A gate that is stressed or worse takes no new work."""

    HEALTHY = "healthy"
    BUSY = "busy"
    STRESSED = "stressed"
    OVERLOADED = "overloaded"
