from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gossip.one_node import health

from tenure.errors import ConfigurationError, LimitError
from tenure.gossip.members import (
    HealthBook,
    MemberList,
    PoolMember,
    check_user_tags,
    decode_health_field,
    decode_tags,
    encode_health_field,
    encode_tags,
    health_from_tag,
    health_tag,
)
from tenure.gossip.messages import MemberState
from tenure.health.node_states import HealthPiggyback


def roster(count: int, seed: int = 1) -> MemberList:
    found = MemberList(Random(seed))
    for index in range(count):
        member = PoolMember(f"n{index}", ("10.0.0.1", index + 1), 0.0)
        member.state = MemberState.ALIVE
        found.add(member)
    return found


def anyone(member: PoolMember) -> bool:
    return True


def test_each_round_probes_each_member_once_in_a_new_order() -> None:
    ring = roster(40)
    rounds = [[ring.next_in_ring(anyone, list).name for _ in range(40)] for _ in range(3)]
    assert all(sorted(names) == sorted(rounds[0]) and len(set(names)) == 40 for names in rounds)
    assert rounds[0] != rounds[1] != rounds[2]


def test_a_member_waits_at_most_2n_minus_1_periods_between_probes() -> None:
    ring = roster(30, seed=9)
    seen: dict[str, int] = {}
    for period in range(3000):
        name = ring.next_in_ring(anyone, list).name
        assert period - seen.get(name, period) <= 2 * 30 - 1
        seen[name] = period


def test_where_nobody_is_wanted_nobody_is_probed() -> None:
    assert roster(5).next_in_ring(lambda member: False, list) is None
    assert MemberList(Random(1)).next_in_ring(anyone, list) is None


def test_the_reaped_are_gone_at_the_end_of_a_round() -> None:
    ring = roster(4)
    dead = ring["n2"]
    names = [ring.next_in_ring(anyone, lambda: [dead] if "n2" in ring else []).name for _ in range(7)]
    assert "n2" not in names[4:]
    assert "n2" not in ring
    assert len(ring) == 3


def test_a_few_at_random_are_distinct_and_fair() -> None:
    ring = roster(50)
    count = Counter[str]()
    for _ in range(5000):
        chosen = ring.pick(3, lambda member: member.name != "n7")
        assert len({member.name for member in chosen}) == 3
        count.update(member.name for member in chosen)
    assert count["n7"] == 0
    assert len(count) == 49
    assert max(count.values()) < 1.5 * min(count.values())


def test_in_a_small_pool_everybody_wanted_is_found() -> None:
    ring = roster(4)
    assert {member.name for member in ring.pick(3, lambda member: member.name != "n0")} == {"n1", "n2", "n3"}
    assert ring.pick(3, lambda member: False) == []


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
