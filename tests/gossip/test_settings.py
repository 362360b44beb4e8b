"""Each formula on its own: memberlist's tables and the Lifeguard paper's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigurationError, LimitError
from tenure.gossip.settings import (
    Awareness,
    GossipSettings,
    Preset,
    Suspicion,
    confirmations_wanted,
    push_pull_scale,
    retransmit_limit,
    suspicion_min_s,
    suspicion_timeout_s,
)


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 4), (5, 4), (10, 4), (20, 5.204), (100, 8), (1000, 12)])
def test_a_suspicion_grows_with_the_logarithm_of_the_pool(nodes: int, seconds: float) -> None:
    assert suspicion_min_s(4, nodes, 1.0) == pytest.approx(seconds, abs=0.001)


@pytest.mark.parametrize(
    ("mult", "nodes", "wanted"), [(4, 2, 0), (4, 3, 0), (4, 4, 2), (4, 500, 2), (6, 5, 0), (3, 9, 1), (2, 9, 0)]
)
def test_confirmations_are_wanted_only_where_enough_others_live(mult: int, nodes: int, wanted: int) -> None:
    assert confirmations_wanted(mult, nodes) == wanted


@pytest.mark.parametrize(("confirmed", "seconds"), [(0, 30.0), (1, 14.226), (2, 5.0), (3, 5.0)])
def test_confirmations_shorten_it_from_the_longest_to_the_shortest(confirmed: int, seconds: float) -> None:
    assert suspicion_timeout_s(confirmed, 2, 5.0, 30.0) == pytest.approx(seconds, abs=0.001)


def test_without_wanted_confirmations_it_is_short_at_once() -> None:
    assert suspicion_timeout_s(0, 0, 5.0, 30.0) == 5.0


@pytest.mark.parametrize(("nodes", "limit"), [(1, 4), (9, 4), (10, 8), (99, 8), (100, 12), (999, 12)])
def test_a_rumour_is_passed_on_a_number_of_times_that_grows_slowly(nodes: int, limit: int) -> None:
    assert retransmit_limit(4, nodes) == limit


@pytest.mark.parametrize(("nodes", "scale"), [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3), (128, 3), (500, 5)])
def test_push_pull_becomes_rarer_above_32_nodes(nodes: int, scale: int) -> None:
    assert push_pull_scale(nodes) == scale


def suspicion(wanted: int = 2) -> Suspicion:
    return Suspicion(now=100.0, accuser="a", incarnation=7, wanted=wanted, min_s=5.0, max_s=30.0)


def test_only_others_than_the_accuser_confirm_and_each_once() -> None:
    doubt = suspicion()
    assert not doubt.confirm("a")
    assert doubt.confirm("b")
    assert not doubt.confirm("b")
    assert doubt.confirm("c")
    assert not doubt.confirm("d")  # enough: nothing is gained by passing it on
    assert doubt.confirmations == 2
    assert doubt.deadline == 105.0


@given(st.lists(st.sampled_from("abcdefgh"), max_size=20), st.integers(0, 5))
def test_a_deadline_only_comes_nearer_and_never_below_the_shortest(names: list[str], wanted: int) -> None:
    doubt = suspicion(wanted)
    for name in names:
        before = doubt.deadline
        doubt.confirm(name)
        assert 105.0 <= doubt.deadline <= before


def test_a_pause_of_ours_is_given_back() -> None:
    doubt = suspicion()
    doubt.delay(4.0)
    doubt.confirm("b")
    doubt.confirm("c")
    assert doubt.deadline == 109.0


def test_the_score_stays_between_well_and_worst_and_stretches_times() -> None:
    score = Awareness(8)
    score.add(-1)
    assert score.scaled(1.0) == 1.0
    score.add(3)
    assert score.scaled(1.0) == 4.0
    score.add(100)
    assert (score.score, score.scaled(0.5)) == (7, 4.0)
    off = Awareness(8, enabled=False)
    off.add(5)
    assert off.scaled(1.0) == 1.0


@pytest.mark.parametrize(
    ("preset", "row"),
    [
        (Preset.LAN, (1, 0.5, 4, 4, 3, 0.2, 3, 30, 30, 10)),
        (Preset.WAN, (5, 3, 6, 4, 3, 0.5, 4, 60, 60, 30)),
        (Preset.LOCAL, (1, 0.2, 3, 2, 1, 0.1, 3, 15, 15, 1)),
    ],
)
def test_the_presets_are_memberlists(preset: Preset, row: tuple[float, ...]) -> None:
    s = GossipSettings.preset(preset)
    assert row == (
        s.probe_interval_s,
        s.probe_timeout_s,
        s.suspicion_mult,
        s.retransmit_mult,
        s.indirect_checks,
        s.gossip_interval_s,
        s.gossip_nodes,
        s.push_pull_interval_s,
        s.gossip_to_the_dead_s,
        s.stream_timeout_s,
    )


def test_a_nack_comes_before_the_prober_gives_up() -> None:
    for preset in Preset:
        s = GossipSettings.preset(preset)
        assert s.probe_timeout_s + s.nack_after_s < s.probe_interval_s


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"probe_timeout_s": 1.0}, "must be shorter than the interval"),
        ({"probe_interval_s": 0.0}, "probe_interval_s is 0.0"),
        ({"gossip_nodes": 0}, "gossip_nodes is 0"),
        ({"packet_bytes": 100}, "packet_bytes is 100"),
        ({"indirect_checks": -1}, "indirect_checks is -1"),
        ({"gossip_to_the_dead_s": -1.0}, "gossip_to_the_dead_s is -1.0"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        GossipSettings.lan(**changes)
    with pytest.raises(LimitError):
        GossipSettings.lan(suspicion_mult=0)


def test_an_unknown_preset_names_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match="Use local, lan or wan"):
        GossipSettings.preset("moon")
