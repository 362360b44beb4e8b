"""Proof of work in a process: heartbeats, the leases that they earn, the watchdog, and the probes (documents 003 and 004)."""

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.beat.board import BeatBoard as BeatBoard
    from tenure.beat.heartbeat import BeatWatcher as BeatWatcher
    from tenure.beat.heartbeat import Heartbeat as Heartbeat
    from tenure.beat.heartbeat import Silence as Silence
    from tenure.beat.ladder import Ladder as Ladder
    from tenure.beat.ladder import LadderRule as LadderRule
    from tenure.beat.lease import ExtensionCounts as ExtensionCounts
    from tenure.beat.lease import ExtensionOutcome as ExtensionOutcome
    from tenure.beat.lease import LeaseExtender as LeaseExtender
    from tenure.beat.lease import LeaseExtenderConfig as LeaseExtenderConfig
    from tenure.beat.lease import LeaseHold as LeaseHold
    from tenure.beat.probes import HealthServer as HealthServer
    from tenure.beat.record import Occupant as Occupant
    from tenure.beat.record import Phase as Phase
    from tenure.beat.watchdog import LoopState as LoopState
    from tenure.beat.watchdog import LoopVitals as LoopVitals
    from tenure.beat.watchdog import Readiness as Readiness
    from tenure.beat.watchdog import Stall as Stall
    from tenure.beat.watchdog import StallReport as StallReport
    from tenure.beat.watchdog import Watchdog as Watchdog
    from tenure.beat.watchdog import judge_readiness as judge_readiness
    from tenure.beat.watchdog import kill_this_process as kill_this_process
    from tenure.beat.watchdog import readiness_of as readiness_of

__all__ = [
    "BeatBoard",
    "BeatWatcher",
    "ExtensionCounts",
    "ExtensionOutcome",
    "HealthServer",
    "Heartbeat",
    "Ladder",
    "LadderRule",
    "LeaseExtender",
    "LeaseExtenderConfig",
    "LeaseHold",
    "LoopState",
    "LoopVitals",
    "Occupant",
    "Phase",
    "Readiness",
    "Silence",
    "Stall",
    "StallReport",
    "Watchdog",
    "judge_readiness",
    "kill_this_process",
    "readiness_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        "board": "BeatBoard",
        "record": "Occupant Phase",
        "heartbeat": "Heartbeat Silence BeatWatcher",
        "ladder": "Ladder LadderRule",
        "lease": "ExtensionCounts LeaseExtender LeaseExtenderConfig LeaseHold ExtensionOutcome",
        "probes": "HealthServer",
        "watchdog": (
            "LoopState LoopVitals Readiness Stall StallReport Watchdog judge_readiness kill_this_process readiness_of"
        ),
    },
)
