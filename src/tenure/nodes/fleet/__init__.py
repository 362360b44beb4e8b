"""The workers of a datacenter as its leader sees them. Pure: told the time."""
