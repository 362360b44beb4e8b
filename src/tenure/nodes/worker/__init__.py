"""A worker as a node: what its slots do, told to the leader, and what the leader wants, done."""
