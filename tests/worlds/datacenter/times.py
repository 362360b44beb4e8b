"""The time scale of simulated datacenters: real settings, made small in proportion, so that a run of half a minute sees several of each."""

from __future__ import annotations

from tenure.health.brake import BrakeConfig
from tenure.health.extension import extension_bound
from tenure.nodes.fleet.member import FleetSettings
from tenure.nodes.worker.worker import ReportSettings
from tenure.work.slots.settings import SlotSettings

TERM_S = 2.0
"""How long a leader that fell silent is waited for."""
REPORTS = ReportSettings(every_s=0.6, idle_every_s=1.2, gap_s=0.1, listen_s=4.0, answer_s=1.0, rest_s=0.5)
FLEET = FleetSettings(
    healthcheck_s=1.8, forget_s=60.0, brake=BrakeConfig(max_hold_s=4.0, rate_period_s=2.0, memory_s=4.0)
)
SLOTS = SlotSettings(
    queue="default.p0", slots=2, lease_s=3.0, claim_s=1.0, stall_s=1.2, grace_s=0.4, wait_s=6.0, tick_s=0.25
)
DECLINE_S = 3.0
"""How long a worker leaves work to others that it had before and did not bring home."""
STUCK_S = 5.0
TIMEOUT_S = 9.0
"""What most jobs ask for; some ask for more than any of their attempts needs, some for less."""
DRIFT_S = 0.05 * SLOTS.lease_s
"""By how much a clock that drifts may count a lease too long."""
EXTENSION_BOUND_S = extension_bound(base_deadline=FLEET.healthcheck_s, min_grant=FLEET.extensions.min_grant)
LATE_S = 3 * TERM_S
"""How long after its deadline a job may end at the latest, not counting the time in which something was disturbed: the rest of a dead
leader's term, an election, and the drain before deadlines are armed."""
SETTLE_S = 1.5 * TIMEOUT_S + EXTENSION_BOUND_S + LATE_S
"""How long after the last fault, and the last job that was accepted, everything has ended: the longest timeout, all the time that can be
earned, and what a deadline may be late."""
