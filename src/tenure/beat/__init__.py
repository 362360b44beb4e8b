"""Proof of work in a process: heartbeats, the leases that they earn, the watchdog, and the probes (documents 003 and 004)."""

from tenure.beat.heartbeat import Heartbeat, Silence, Watch
from tenure.beat.ladder import Ladder, Rule, derived_stuck
from tenure.beat.lease import ExtensionCounts, LeaseExtender, LeaseExtenderConfig, LeaseHold, Outcome
from tenure.beat.probes import HealthServer
from tenure.beat.readiness import LoopState, LoopVitals, Readiness, judge_readiness, readiness_of
from tenure.beat.watchdog import Stall, StallReport, Watchdog, kill_this_process

__all__ = [
    "ExtensionCounts",
    "HealthServer",
    "Heartbeat",
    "Ladder",
    "LeaseExtender",
    "LeaseExtenderConfig",
    "LeaseHold",
    "LoopState",
    "LoopVitals",
    "Outcome",
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
