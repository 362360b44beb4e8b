"""The deterministic simulator: a virtual-time event loop, a network and faults, all decided by one seed."""
