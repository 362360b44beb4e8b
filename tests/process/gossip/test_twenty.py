"""Twenty real processes of ours at the LAN settings: they find each other, forgive a pause and agree on deaths.

How fast, and at what cost beside twenty Serf agents, is measured by `bench/bench_gossip.py`: a peer's program and a
busy machine decide no test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.gossip_pools import Remote, can_isolate
from tests.patience import wait_until
from tests.process.stillness import Stillness

NODES = 20
STOP_S = 4.0
ENOUGH_S = 5.0
"""At the LAN settings twenty nodes may declare a silent one dead after 5.2 s of suspicion, and that is right."""


@pytest.fixture
def pool() -> Iterator[Remote]:
    pool = Remote("ours", NODES, Path("not-needed"), isolated=can_isolate())
    yield pool
    pool.end()


def told(pool: Remote, do: str, **more: object) -> dict[str, float]:
    pool.ask(do, **more)
    return pool.answer()


def pause_was_noticed(pool: Remote) -> bool:
    """Stops a node for a while. Nodes whose own loops are late probe up to eight times less often: on a busy machine nobody may have probed it meanwhile."""
    stopped = told(pool, "stop", index=7, seconds=STOP_S)
    if stopped["failed"]:
        # The machine itself stood still: the node was stopped for longer than it was asked to be.
        assert stopped["lasted_s"] >= ENOUGH_S, stopped
        told(pool, "settle")
    return stopped["suspected"] > 0


@pytest.mark.slow
def test_twenty_nodes_find_each_other_forgive_a_pause_and_agree_on_deaths(pool: Remote) -> None:
    told(pool, "start")  # answers when all know all
    wait_until(lambda: pause_was_noticed(pool), "twenty nodes notice that one of them stands still for 4 s")
    for index in (2, 3):
        with Stillness() as machine:
            killed = told(pool, "kill", index=index)  # answers when all others know
        assert killed["false_positives"] == 0 or machine.excuses(1.0)
