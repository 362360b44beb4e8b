from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.timers import Timers
from tests.memory import kept_bytes


def test_keys_come_up_when_due_earliest_first_and_once() -> None:
    timers: Timers[str] = Timers()
    for key, due in (("late", 30.0), ("early", 10.0), ("middle", 20.0)):
        timers.set(key, due)
    assert timers.next_due() == 10.0
    assert timers.pop_due(20.0) == ["early", "middle"]
    assert timers.pop_due(20.0) == []
    assert timers.next_due() == 30.0


def test_equal_times_come_up_in_the_order_in_which_they_were_set() -> None:
    timers: Timers[str] = Timers()
    for key in "cab":
        timers.set(key, 1.0)
    assert timers.pop_due(1.0) == ["c", "a", "b"]


def test_a_later_time_replaces_an_earlier_one_and_the_other_way_round() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10.0)
    timers.set("a", 30.0)
    assert timers.pop_due(20.0) == []
    timers.set("a", 5.0)
    assert timers.next_due() == 5.0
    assert timers.pop_due(5.0) == ["a"]


def test_a_cancelled_key_and_one_set_to_infinity_never_come_up() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 1.0)
    timers.set("b", 1.0)
    timers.cancel("a")
    timers.set("b", math.inf)
    assert (timers.pop_due(1e9), timers.next_due(), len(timers)) == ([], math.inf, 0)


def test_a_limit_leaves_the_rest_for_the_next_call() -> None:
    timers: Timers[int] = Timers()
    for key in range(5):
        timers.set(key, float(key))
    assert timers.pop_due(9.0, limit=2) == [0, 1]
    assert timers.pop_due(9.0) == [2, 3, 4]


def test_many_that_are_due_at_once_come_in_their_order_and_leave_the_others() -> None:
    timers: Timers[int] = Timers()
    plain = {number: float(1_000 - number) for number in range(1_000)}
    plain |= {number: 2_000.0 + number for number in range(0, 100, 2)}  # moved, to a time that is not due
    plain |= {number: 850.5 - number / 1_000 for number in range(900, 1_000)}  # moved, to a time that is due
    for number in range(1_000):
        timers.set(number, float(1_000 - number))
        timers.set(number, plain[number])
    for now in (900.0, 3_000.0):
        due = sorted((number for number, at in plain.items() if at <= now), key=plain.__getitem__)
        assert timers.pop_due(now) == due
        plain = {number: at for number, at in plain.items() if at > now}
        assert (len(timers), timers.next_due()) == (len(plain), min(plain.values(), default=math.inf))


def test_moving_one_key_a_million_times_does_not_grow_the_heap() -> None:
    def moved() -> Timers[str]:
        timers: Timers[str] = Timers()
        for round_ in range(20_000):
            timers.set("a", float(20_000 - round_))
        return timers

    assert kept_bytes(moved) < 30_000


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
        ),
        max_size=60,
    )
)
def test_it_agrees_with_a_scan_of_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    plain: dict[int, float] = {}
    for what, key, when in steps:
        if what == "set":
            timers.set(key, float(when))
            plain[key] = float(when)
        elif what == "cancel":
            timers.cancel(key)
            plain.pop(key, None)
        else:
            due = sorted(key for key, at in plain.items() if at <= when)
            popped = timers.pop_due(float(when))
            assert sorted(popped) == due
            assert [plain[key] for key in popped] == sorted(plain[key] for key in popped)
            for key in due:
                del plain[key]
        assert len(timers) == len(plain)
        assert timers.next_due() == min(plain.values(), default=math.inf)


def test_a_key_is_kept_when_setting_it_makes_the_heap_shed_what_was_left_behind() -> None:
    timers: Timers[int] = Timers()
    for number in range(1_000):
        timers.set(number, float(number))
        assert timers.pop_due(number - 1.0) == []
        timers.cancel(number)  # each leaves an entry behind, so that the heap is built anew now and then
        timers.set(-1, 5_000.0 - number)
        assert timers.next_due() == 5_000.0 - number
    assert timers.pop_due(5_000.0) == [-1]


def test_a_key_that_could_not_be_set_is_set_by_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: Timers[str] = Timers()
    timers.set("early", 1.0)

    def fails(heap: object, entry: object) -> None:
        raise OverflowError

    with monkeypatch.context() as struck:
        struck.setattr("tenure.timers.heapq.heappush", fails)
        for key in ("early", "new"):
            with pytest.raises(OverflowError):
                timers.set(key, 0.5)
    assert (timers.due("early"), timers.due("new")) == (1.0, float("inf"))
    timers.set("new", 0.5)
    assert timers.pop_due(1.0) == ["new", "early"]
