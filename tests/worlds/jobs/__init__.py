"""Jobs and deadlines under every interleaving of a small world.

`search` visits all states of a world of two datacenters, their leaders and gates, and asks of each whether it keeps the
promises and still settles. It drives `tenure.jobs` itself: its `decide`, its fold, its snapshots. Long schedules of many jobs are
played with real nodes, in `tests.worlds.datacenter` and `tests.worlds.gates`.

    python -m tests.worlds.jobs search
    python -m tests.worlds.jobs counterexamples          what happens when a ruling is left out, as stories
"""
