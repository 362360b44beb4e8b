from __future__ import annotations

from collections import Counter
from random import Random

from tenure.gossip.members import MemberList, PoolMember
from tenure.gossip.messages import MemberState


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
