"""Proof of work inside a process: heartbeats, leases, the watchdog, probes, the beat board."""
