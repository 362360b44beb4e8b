"""500 agents on 50 workers, and a provider that is away for half an hour (issue 26)."""

from __future__ import annotations

import pytest
from tests.worlds.outage.fleet import Fleet, play

from tenure.health.outage import OutageSettings

OUTAGE_S = 1_800.0


def the_outage(settings: OutageSettings, manner: str, *, workers: int = 50, agents: int = 500) -> Fleet:
    fleet = Fleet(settings, workers=workers, agents=agents, manner=manner)
    play(fleet, down_from=60.0, down_until=60.0 + OUTAGE_S, until=60.0 + OUTAGE_S + 300.0, hung="j7")
    return fleet


@pytest.mark.parametrize(("manner", "workers"), [("mixed", 50), ("fails", 8), ("hangs", 8)])
def test_an_outage_of_half_an_hour_ends_and_charges_nobody_and_the_one_that_hangs_is_found(
    manner: str, workers: int
) -> None:
    settings = OutageSettings(rate=5.0)
    fleet = the_outage(settings, manner, workers=workers, agents=10 * workers)
    assert not fleet.over
    assert [job for job, _ in fleet.stalled] == ["j7"]
    assert fleet.charged == 1, "the one that hung"
    assert not fleet.book.state.outages, "it is over"
    assert most_within(fleet.released, 10.0) <= settings.rate * 10 + len(fleet.workers), "canaries, and the rate"
    assert sum(len(worker.agents) for worker in fleet.workers) == 10 * workers, "all of them run"


def test_with_the_rule_off_the_same_outage_ends_agents() -> None:
    fleet = the_outage(OutageSettings(enabled=False), "fails", workers=10, agents=50)
    assert fleet.charged > 1
    assert len(fleet.over) > 1


def test_with_the_rule_off_silent_agents_are_taken_for_hung() -> None:
    fleet = the_outage(OutageSettings(enabled=False), "hangs", workers=10, agents=50)
    assert len(fleet.stalled) > 1


def test_one_waiter_that_hangs_alone_is_found() -> None:
    fleet = Fleet(OutageSettings(), workers=5, agents=50)
    agent = fleet.workers[0].agents[0]
    agent.manner = "hangs"
    now = 0.0
    while not fleet.stalled and now < 1_000:
        now += 1.0
        for one in fleet.workers[0].agents[:1]:
            one.calling_until = one.calling_until and now + 1  # its calls never end
        fleet.step(now, up=True)
    assert [job for job, _ in fleet.stalled] == [agent.job]
    assert not fleet.book.state.outages


def most_within(times: list[float], seconds: float) -> int:
    """Returns the most of these within any span of so many seconds."""
    return max((sum(start <= one < start + seconds for one in times) for start in set(times)), default=0)
