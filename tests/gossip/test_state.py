from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.gossip.settings import retransmit_limit
from tenure.gossip.state import MAX_UNNAMED, BroadcastQueue, SkewEstimates


def test_a_newer_rumour_about_a_node_replaces_the_older() -> None:
    queue = BroadcastQueue(4)
    queue.put("a", b"a is suspect")
    queue.put("b", b"b is dead...")
    queue.put("a", b"a is alive..")
    assert sorted(queue.take(1000, 5)) == [b"a is alive..", b"b is dead..."]
    assert len(queue) == 2


def test_each_is_passed_on_as_often_as_the_limit_says_and_then_forgotten() -> None:
    queue = BroadcastQueue(4)
    queue.put("a", b"a" * 20)
    taken = 0
    while queue.take(1000, 20):
        taken += 1
    assert taken == retransmit_limit(4, 20) == 8
    assert len(queue) == 0
    assert not queue.waits("a")


def test_the_least_told_goes_first_and_among_those_the_largest() -> None:
    queue = BroadcastQueue(4)
    queue.put("old", b"o" * 30)
    queue.take(1000, 5)
    queue.put("small", b"s" * 20)
    queue.put("large", b"l" * 40)
    assert queue.take(1000, 5) == [b"l" * 40, b"s" * 20, b"o" * 30]


def test_what_does_not_fit_waits_and_something_smaller_goes_instead() -> None:
    queue = BroadcastQueue(4)
    queue.put("large", b"l" * 90)
    queue.put("small", b"s" * 30)
    assert queue.take(50, 5) == [b"s" * 30]
    assert queue.take(100, 5) == [b"l" * 90]


def test_messages_that_nothing_replaces_are_bounded() -> None:
    queue = BroadcastQueue(4)
    for number in range(MAX_UNNAMED + 50):
        queue.put_unnamed(b"%08d" % number)
    assert len(queue) == MAX_UNNAMED
    assert queue.dropped == 50
    assert b"00000000" not in queue.take(1_000_000, 5)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(8, 60)), max_size=60), st.integers(10, 300))
def test_it_never_gives_more_than_fits_nor_loses_count(puts: list[tuple[str, int]], room: int) -> None:
    queue = BroadcastQueue(2)
    for name, size in puts:
        queue.put(name, name.encode() * size)
        taken = queue.take(room, 10)
        assert sum(len(body) + 2 for body in taken) <= room
        assert len(queue) == sum(queue.waits(name) for name in "abcdef")
    for _ in range(200):
        queue.take(1000, 10)
    assert len(queue) == 0
    assert queue.take(1000, 10) == []


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
