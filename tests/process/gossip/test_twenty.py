"""Twenty real processes of ours beside twenty Serf agents: the short version of `bench/bench_gossip.py`.

The bench has the bars of the issue (1.1 times for medians of many kills). Here are few kills, on a machine that may be busy
with other things, so the bars leave room for chance; what must never happen is not a matter of chance.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest
from bench.bench_gossip import both
from bench.gossip_pools import Remote, can_isolate
from tests.process.gossip.serf import find_serf

NODES = 20
KILLS = 2


@pytest.fixture
def pools() -> Iterator[tuple[Remote, Remote]]:
    binary, why = find_serf()
    if binary is None:
        pytest.skip(why)
    isolated = can_isolate()
    ours, theirs = (Remote(kind, NODES, binary, isolated=isolated) for kind in ("ours", "serf"))
    yield ours, theirs
    ours.end()
    theirs.end()


@pytest.mark.slow
def test_twenty_nodes_beside_twenty_serf_agents(pools: tuple[Remote, Remote]) -> None:
    ours, theirs = pools
    both(ours, theirs, "start")
    both(ours, theirs, "idle", seconds=5.0)  # the joins die down
    mine, other = both(ours, theirs, "idle", seconds=6.0)
    assert mine["cpu_share"] < 6 * other["cpu_share"] + 0.01
    if mine["bytes_per_s"] is not None:
        # In so short a time one push/pull more or less weighs much; the bench has the bar of 1.5.
        assert mine["bytes_per_s"] < 2 * other["bytes_per_s"]
    stopped, _ = both(ours, theirs, "stop", index=7, seconds=4.0)
    assert stopped["failed"] == 0
    assert stopped["suspected"] > 0  # it was noticed, by most of them
    first, last = [], []
    for index in range(2, 2 + KILLS):
        mine, other = both(ours, theirs, "kill", index=index)
        assert mine["false_positives"] == 0
        first.append((mine["first_s"], other["first_s"]))
        last.append((mine["last_s"], other["last_s"]))
    for pairs in (first, last):
        us, them = (statistics.median(side) for side in zip(*pairs, strict=True))
        assert us < 1.1 * them + 3.0, (first, last)  # 3 s: when the first probe comes is chance
