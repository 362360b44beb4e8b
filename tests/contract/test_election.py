"""One leader at a time, and epochs that only grow."""

from __future__ import annotations

import pytest
from tests.contract.case import Background, EngineCase

from tenure.engines import Engine
from tenure.engines.contracts import term_margin
from tenure.errors import TermLostError


def test_the_first_candidate_leads_and_the_second_does_not(case: EngineCase, engine: Engine) -> None:
    one, two = engine.election("chief"), case.again().election("chief")
    assert one.current() is None
    term = one.campaign("a", 60)
    assert term is not None
    assert (term.candidate, term.epoch, term.ttl) == ("a", 1, 60)
    assert two.campaign("b", 60) is None
    leader = two.current()
    assert leader is not None
    assert (leader.candidate, leader.epoch) == ("a", 1)
    assert 55 < leader.expires_in <= 60


def test_a_term_that_is_not_renewed_runs_out_and_the_next_epoch_is_higher(case: EngineCase, engine: Engine) -> None:
    election = engine.election("chief")
    term = election.campaign("a", case.s(10))
    assert term is not None
    case.pass_time(10)
    assert election.current() is None
    with pytest.raises(TermLostError):
        election.renew(term)  # too late, though nobody else leads
    other = case.again().election("chief")
    new = other.campaign("b", 60)
    assert new is not None
    assert new.epoch > term.epoch
    with pytest.raises(TermLostError) as lost:
        election.renew(term)
    assert (lost.value.epoch, lost.value.current) == (term.epoch, new.epoch)
    election.resign(term)  # harmless
    leader = other.current()
    assert leader is not None
    assert leader.candidate == "b"


def test_a_renewed_term_goes_on_in_the_same_epoch(case: EngineCase, engine: Engine) -> None:
    election = engine.election("chief")
    term = election.campaign("a", case.s(20))
    assert term is not None
    for _ in range(3):
        case.pass_time(10)
        renewed = election.renew(term)
        assert renewed.epoch == term.epoch
        assert renewed.safe_until > term.safe_until
        term = renewed
    assert case.again().election("chief").campaign("b", 60) is None


@pytest.mark.exact
def test_a_term_ends_at_its_very_moment(case: EngineCase, engine: Engine) -> None:
    election = engine.election("chief")
    term = election.campaign("a", 10)
    assert term is not None
    case.pass_time(9.999)
    assert election.campaign("b", 10) is None
    case.pass_time(0.001)
    assert election.campaign("b", 10) is not None


def test_the_holder_steps_down_by_its_own_clock_counted_from_before_it_asked(case: EngineCase, engine: Engine) -> None:
    """Interleaving 7: a renewal that is answered late makes the holder more careful, never less."""
    election = engine.election("chief")
    asked = case.clock.boottime()
    term = election.campaign("a", 100)
    answered = case.clock.boottime()
    assert term is not None
    margin = term_margin(100)
    assert asked + 100 - margin <= term.safe_until <= answered + 100 - margin
    asked = case.clock.boottime()
    term = election.renew(term)
    assert asked + 100 - margin <= term.safe_until <= case.clock.boottime() + 100 - margin


def test_resigning_lets_the_next_one_lead_at_once_with_a_higher_epoch(case: EngineCase, engine: Engine) -> None:
    election = engine.election("chief")
    term = election.campaign("a", 60)
    assert term is not None
    election.resign(term)
    assert election.current() is None
    with pytest.raises(TermLostError):
        election.renew(term)
    new = case.again().election("chief").campaign("b", 60)
    assert new is not None
    assert new.epoch == term.epoch + 1
    election.resign(term)  # of a term long over: harmless
    assert case.again().election("chief").campaign("c", 60) is None


def test_a_leader_that_campaigns_again_gets_a_higher_epoch_and_its_old_term_is_over(engine: Engine) -> None:
    """It restarted, or lost the answer to its first campaign."""
    election = engine.election("chief")
    first, second = election.campaign("a", 60), election.campaign("a", 60)
    assert first is not None
    assert second is not None
    assert second.epoch > first.epoch
    with pytest.raises(TermLostError):
        election.renew(first)
    election.resign(first)
    assert election.renew(second).epoch == second.epoch


def test_an_epoch_is_above_the_journals_even_if_the_counter_was_lost(engine: Engine) -> None:
    election = engine.election("chief")
    term = election.campaign("a", 60, above=41)
    assert term is not None
    assert term.epoch == 42
    election.resign(term)
    lower = election.campaign("b", 60, above=7)
    assert lower is not None
    assert lower.epoch == 43


def test_elections_do_not_mix(engine: Engine) -> None:
    terms = [engine.election(name).campaign("a", 60) for name in ("x", "y", "x/y")]
    assert [term.epoch for term in terms if term] == [1, 1, 1]


def test_of_many_who_campaign_at_once_one_wins(case: EngineCase, live: Engine) -> None:
    engines = [live, case.live()]
    for round_ in range(1, 6):
        candidates = [
            Background(lambda n=number: engines[n % 2].election("chief").campaign(f"c{n}", 60)) for number in range(6)
        ]
        won = [term for term in (candidate.result() for candidate in candidates) if term is not None]
        assert len(won) == 1
        assert won[0].epoch == round_
        engines[0].election("chief").resign(won[0])
