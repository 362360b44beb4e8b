"""Proof of work in a process: heartbeats, the leases that they earn, the watchdog, and the probes (documents 003 and 004)."""
