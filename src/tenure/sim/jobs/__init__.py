"""Jobs and deadlines under every interleaving of a small world, and under many of a large one.

`search` visits all states of a world of two datacenters, their leaders and gates, and asks of each whether it keeps the
promises and still settles. `simulate` plays long random schedules of many jobs. Both drive `tenure.jobs` itself: its
`decide`, its fold, its snapshots.

    python -m tenure.sim.jobs search
    python -m tenure.sim.jobs counterexamples          what happens when a ruling is left out, as stories
    python -m tenure.sim.jobs simulate --seeds 0:1000
    python -m tenure.sim.jobs simulate --seeds 42 --story
"""
