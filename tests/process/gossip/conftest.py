from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.process.gossip.serf import SerfAgent, find_serf


@pytest.fixture
def serf(tmp_path: Path) -> Iterator[Callable[..., SerfAgent]]:
    """Starts agents, and ends all of them."""
    binary, why = find_serf()
    if binary is None:
        pytest.skip(why)
    agents: list[SerfAgent] = []

    def start(name: str, **options: object) -> SerfAgent:
        agents.append(SerfAgent(binary, name, folder=tmp_path, **options))  # type: ignore[arg-type]
        return agents[-1]

    yield start
    for agent in agents:
        agent.stop()
