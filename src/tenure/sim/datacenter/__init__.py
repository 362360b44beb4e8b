"""Whole datacenters in the simulator: real managers and workers, scripted slots and clients, and an observer."""

from __future__ import annotations

from tenure.sim.datacenter.failover import Failover, Vanishing
from tenure.sim.datacenter.scenario import Datacenter

__all__ = ["Datacenter", "Failover", "Vanishing"]
