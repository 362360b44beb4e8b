"""A worker as a node: it reports to the leader what its slots do, and makes the slots do what the leader wants."""
