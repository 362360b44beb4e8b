"""The same outage on real nodes: manager, workers, slots, engine and network in virtual time (issue 26). With TENURE_SOAK=1 there are 500 agents on 50 workers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from tests.worlds.outage.nodes import AgentWorld

from tenure.health.outage import OutageSettings
from tenure.jobs import outages
from tenure.jobs.outages import OutagePhase

SOAK = bool(os.environ.get("TENURE_SOAK"))
WORKERS, EACH = (50, 10) if SOAK else (5, 4)
OUTAGE_S = 1_800.0
RATE = 5.0 if SOAK else 0.5
HUNG = "j7"


@contextmanager
def agents(
    settings: OutageSettings, *, outage_s: float = OUTAGE_S, manners: Sequence[str] = ("hangs", "fails")
) -> Iterator[AgentWorld]:
    found = AgentWorld(settings, workers=WORKERS, each=EACH, manners=manners)
    try:
        found.play(outage_s=outage_s, hung=HUNG)
        yield found
    finally:
        found.close()


@pytest.mark.timeout(1_800 if SOAK else 300)
def test_half_an_hour_ends_and_charges_nobody_and_the_one_that_hangs_is_found() -> None:
    with agents(OutageSettings(rate=RATE)) as found:
        assert not found.over()
        assert found.stalled() == [HUNG]
        assert found.charged() == {HUNG: 1}
        assert set(found.phases.values()) == set(OutagePhase), "it was held, probed and released"
        assert found.released
        assert not found.too_many(RATE, canaries=WORKERS)
        assert not found.held, "it is over"
        assert found.running() == WORKERS * EACH


def test_with_the_rule_off_the_same_outage_ends_and_charges_agents() -> None:
    with agents(OutageSettings(enabled=False), outage_s=700.0) as found:
        assert len(found.charged()) > 1 or found.over()
        assert found.over() or len(found.stalled()) > 1


def test_a_release_without_its_rate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = outages.hold_of

    def all_at_once(record: outages.OutageRecord, worker: str, now: float) -> outages.Hold:
        hold = sound(record, worker, now)
        return outages.Hold(0, 1_000) if record.phase is OutagePhase.RELEASING else hold

    monkeypatch.setattr("tenure.nodes.manager.outage_brake.hold_of", all_at_once)
    # All of them fail, and so are held: of those that hang in a call, none waits to be let go, and too few would be left to tell.
    with agents(OutageSettings(rate=RATE), outage_s=400.0, manners=("fails",)) as found:
        assert found.too_many(RATE, canaries=WORKERS)
