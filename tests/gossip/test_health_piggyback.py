"""Health on pings, acks and tags; tags and Serf's intents; the estimate of skew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gossip.one_node import health

from tenure.errors import ConfigurationError, LimitError
from tenure.gossip.encodings import pack
from tenure.gossip.health_piggyback import (
    HealthBook,
    check_user_tags,
    decode_health_field,
    decode_tags,
    encode_health_field,
    encode_tags,
    health_from_tag,
    health_tag,
)
from tenure.gossip.serf import Intent, SerfClock, decode_intent
from tenure.gossip.state import SkewEstimates
from tenure.health.piggyback import HealthPiggyback


def test_health_comes_back_from_a_ride_and_from_a_tag() -> None:
    assert decode_health_field(encode_health_field(1_700_000_000, health())) == (1_700_000_000, health())
    assert health_from_tag(health_tag(health())) == health()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_health_are_none(data: bytes) -> None:
    ride = decode_health_field(data)
    assert ride is None or isinstance(ride[1], HealthPiggyback)


@given(st.text(max_size=60))
def test_text_that_is_no_health_is_none(text: str) -> None:
    found = health_from_tag(text)
    assert found is None or isinstance(found, HealthPiggyback)


def test_the_newest_wins_by_incarnation_and_then_by_sequence() -> None:
    book = HealthBook()
    assert book.offer("a", 10, health(sequence=5, capacity=5))
    assert not book.offer("a", 10, health(sequence=4, capacity=4))
    assert not book.offer("a", 10, health(sequence=5, capacity=9))
    assert not book.offer("a", 9, health(sequence=99, capacity=9))
    assert book.of("a").capacity == 5
    assert book.offer("a", 11, health(sequence=1, capacity=1))  # a new life starts its sequence anew
    assert book.of("a").capacity == 1


def test_the_same_health_again_is_no_news() -> None:
    book = HealthBook()
    assert book.offer("a", 10, health(sequence=1))
    assert not book.offer("a", 10, health(sequence=2))
    assert book.offer("a", 10, health(sequence=3, capacity=7))


def test_only_another_kind_of_health_is_worth_telling_everybody() -> None:
    book = HealthBook()
    assert not book.tag_is_stale
    book.set_own(health())
    assert book.tag_is_stale
    book.tagged = book.own
    book.set_own(health(capacity=7, throughput=1))
    assert not book.tag_is_stale
    for change in ({"accepting_work": False}, {"capacity": 0}, {"overload_state": "stressed"}):
        book.set_own(health(**change))
        assert book.tag_is_stale
    assert book.own.sequence == 5


def test_tags_are_serfs() -> None:
    meta = encode_tags({"role": "web", "dc": "one"})
    assert meta == b"\xff\x82\xa4role\xa3web\xa2dc\xa3one"
    assert decode_tags(meta) == {"role": "web", "dc": "one"}
    assert decode_tags(b"plain text") == {"role": "plain text"}
    assert decode_tags(b"") == {}


@given(st.binary(max_size=80))
def test_any_metadata_gives_tags_or_none(meta: bytes) -> None:
    assert isinstance(decode_tags(meta), dict)
    assert isinstance(decode_tags(b"\xff" + meta), dict)


def test_tags_have_a_limit_and_two_names_of_ours() -> None:
    with pytest.raises(LimitError, match="at most 512 bytes"):
        encode_tags({"big": "x" * 600})
    with pytest.raises(ConfigurationError, match="Tenure's own"):
        check_user_tags({"start": "now"})
    with pytest.raises(ConfigurationError, match="are text"):
        check_user_tags({"count": 3})  # type: ignore[dict-item]


def test_intents_carry_a_time_that_only_grows() -> None:
    clock = SerfClock()
    first, second = decode_intent(clock.leave("a")), decode_intent(clock.stay("a"))
    assert first == Intent("a", 2, True)
    assert second == Intent("a", 3, False)
    clock.witness(40)
    assert decode_intent(clock.leave("a")).time == 42
    clock.witness(2**64 - 1)  # a forged time must not leave us without room
    assert decode_intent(clock.leave("a")).time == 43


def test_the_time_is_learnt_from_serfs_state() -> None:
    clock = SerfClock()
    clock.witness_state(b"\x02" + pack({"LTime": 17, "StatusLTimes": {"a": 30, "b": 90}}), "a")
    assert clock.time == 31
    for nonsense in (b"", b"\x02", b"\x02\x93", b"\x09\x80", b"\x02" + pack({"LTime": "x"})):
        clock.witness_state(nonsense, "a")
    assert clock.time == 31


def test_serfs_other_messages_are_skipped() -> None:
    assert decode_intent(b"") is None
    assert decode_intent(b"\x03\x80") is None


def test_skew_is_the_distance_to_the_middle_of_the_round_trip() -> None:
    skew = SkewEstimates()
    assert skew.of("a") is None
    assert skew.ours() is None
    skew.sample("a", sent=100.0, received=100.4, theirs=107.2)
    assert skew.of("a").offset_s == pytest.approx(7.0)
    assert skew.of("a").error_s == pytest.approx(0.2)


def test_the_shortest_round_trip_is_believed_and_old_samples_go() -> None:
    skew = SkewEstimates()
    skew.sample("a", sent=0.0, received=0.01, theirs=5.005)
    skew.sample("a", sent=0.0, received=2.0, theirs=6.9)
    assert skew.of("a").offset_s == pytest.approx(5.0)
    for _ in range(8):  # the clock was set: eight probes later nothing of the old is left
        skew.sample("a", sent=0.0, received=0.02, theirs=0.01)
    assert skew.of("a").offset_s == pytest.approx(0.0)
    skew.sample("a", sent=10.0, received=9.0, theirs=99.0)  # our own clock went back meanwhile
    assert skew.of("a").offset_s == pytest.approx(0.0)


def test_our_own_skew_is_against_the_middle_of_the_pool() -> None:
    skew = SkewEstimates()
    for node, offset in (("a", -3.0), ("b", -3.1), ("c", 100.0)):
        skew.sample(node, sent=0.0, received=0.0, theirs=offset)
    assert skew.ours() == pytest.approx(3.0)
