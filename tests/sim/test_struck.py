"""Our own code raises, at any call of a leader, a gate, a courier or a worker: no node ends, and at most the struck job fails."""

from __future__ import annotations

import pytest
from tests.sim import broken_struck
from tests.soak import sized
from tests.worlds.patching import first_failure
from tests.worlds.struck import datacenter, gates
from tests.worlds.struck.datacenter import Struck
from tests.worlds.struck.gates import StruckGates
from tests.worlds.struck.striker import Blow, whose_turn

from tenure.sim import Report, Scenario, run_seeds, story
from tenure.sim.world import World

CHUNK = 200
"""A run strikes one of some 230 functions by turn, and one more by chance: two chunks give each its turn."""
GATE_CHUNK = 100
"""A chunk gives each of 100 functions of some 350 its turn, the chunks of `make soak` all of them."""
CHUNKS = sized("times 200 schedules of a datacenter whose own code raises", short=2, long=40)
GATE_CHUNKS = sized("times 100 schedules of gates whose own code raises", short=1, long=20)
LEAST_STRUCK = 0.7
"""The share of the functions whose turn it is that are really struck: a blow at a late call may find that what was struck first has made it come no more."""


def test_the_first_blows_fell_nobody() -> None:
    report = run_seeds(Struck, range(20))
    report.require_ok()
    assert report.tally["once"] + report.tally["sticking"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_in_hundreds_of_schedules_no_node_ends_and_at_most_the_struck_job_fails(chunk: int) -> None:
    seeds = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    report = run_seeds(Struck, seeds)
    report.require_ok()
    assert share_struck(report, whose_turn(datacenter.calls_of(Struck), seeds)) > LEAST_STRUCK
    assert report.tally["sticking"] > 20
    # Most blows are survived. How many end their job depends on the functions that a chunk happens to strike: one had 5.
    assert report.tally["failed"] > 2
    assert report.tally["jobs"] > 2 * CHUNK


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(GATE_CHUNKS))
def test_nor_does_a_gate_end_or_lose_what_was_not_struck(chunk: int) -> None:
    seeds = range(chunk * GATE_CHUNK, (chunk + 1) * GATE_CHUNK)
    report = run_seeds(StruckGates, seeds)
    report.require_ok()
    assert share_struck(report, whose_turn(gates.calls_of(StruckGates), seeds)) > LEAST_STRUCK
    assert report.tally["failed"] >= 1
    assert report.tally["jobs"] > 4 * GATE_CHUNK


def share_struck(report: Report, labels: set[str]) -> float:
    return sum(f"struck {label}" in report.tally for label in labels) / len(labels)


class WrittenAndRaised(StruckGates):
    """Our own code raises after the engine has appended: the journal holds what nobody was told of."""

    def blows(self, world: World) -> list[Blow]:
        return [Blow("SureAppend.append", at_call=1 + world.seed % 3, kind=TypeError, late=True)]


def test_what_was_written_before_our_own_code_raised_is_followed_up() -> None:
    run_seeds(WrittenAndRaised, range(9)).require_ok()


@pytest.mark.slow
@pytest.mark.parametrize("name", broken_struck.MUTANTS)
def test_a_missing_defence_is_found(name: str) -> None:
    scenario: type[Scenario] = getattr(broken_struck, name)
    most = broken_struck.MUTANTS[name]
    found = first_failure(scenario, broken_struck.KNOWN.get(name, ()), most)
    assert found is not None, f"{name} was not found in {most} seeds"
    assert f"tests/sim/broken_struck.py:{name} --seed {found.seed}" in story(found)
