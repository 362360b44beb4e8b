"""The workers of a datacenter as its leader sees them. Pure: callers pass the time."""
