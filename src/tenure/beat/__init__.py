"""Proof of work in a process: heartbeats, the leases that they earn, the watchdog, and the probes (documents 003 and 004)."""

from typing import TYPE_CHECKING

from tenure.lazy import lazy_names

if TYPE_CHECKING:
    from tenure.beat.board import BeatBoard as BeatBoard
    from tenure.beat.board import Occupant as Occupant
    from tenure.beat.board import Phase as Phase
    from tenure.beat.heartbeat import Heartbeat as Heartbeat
    from tenure.beat.heartbeat import Silence as Silence
    from tenure.beat.heartbeat import Watch as Watch
    from tenure.beat.ladder import Ladder as Ladder
    from tenure.beat.ladder import Rule as Rule
    from tenure.beat.ladder import derived_stuck as derived_stuck
    from tenure.beat.lease import ExtensionCounts as ExtensionCounts
    from tenure.beat.lease import LeaseExtender as LeaseExtender
    from tenure.beat.lease import LeaseExtenderConfig as LeaseExtenderConfig
    from tenure.beat.lease import LeaseHold as LeaseHold
    from tenure.beat.lease import Outcome as Outcome
    from tenure.beat.probes import HealthServer as HealthServer
    from tenure.beat.readiness import LoopState as LoopState
    from tenure.beat.readiness import LoopVitals as LoopVitals
    from tenure.beat.readiness import Readiness as Readiness
    from tenure.beat.readiness import judge_readiness as judge_readiness
    from tenure.beat.readiness import readiness_of as readiness_of
    from tenure.beat.watchdog import Stall as Stall
    from tenure.beat.watchdog import StallReport as StallReport
    from tenure.beat.watchdog import Watchdog as Watchdog
    from tenure.beat.watchdog import kill_this_process as kill_this_process

__all__ = [
    "BeatBoard",
    "ExtensionCounts",
    "HealthServer",
    "Heartbeat",
    "Ladder",
    "LeaseExtender",
    "LeaseExtenderConfig",
    "LeaseHold",
    "LoopState",
    "LoopVitals",
    "Occupant",
    "Outcome",
    "Phase",
    "Readiness",
    "Rule",
    "Silence",
    "Stall",
    "StallReport",
    "Watch",
    "Watchdog",
    "derived_stuck",
    "judge_readiness",
    "kill_this_process",
    "readiness_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        "board": "BeatBoard Occupant Phase",
        "heartbeat": "Heartbeat Silence Watch",
        "ladder": "Ladder Rule derived_stuck",
        "lease": "ExtensionCounts LeaseExtender LeaseExtenderConfig LeaseHold Outcome",
        "probes": "HealthServer",
        "readiness": "LoopState LoopVitals Readiness judge_readiness readiness_of",
        "watchdog": "Stall StallReport Watchdog kill_this_process",
    },
)
