from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.memory import kept_bytes

from tenure.health.expiry import ExpiryHeap

KEYS = st.sampled_from([f"k{index}" for index in range(40)])


class AgainstADictionary(RuleBasedStateMachine):
    """The heap gives what a scan over all due times would give, in the order of their times."""

    def __init__(self) -> None:
        super().__init__()
        self.heap, self.due, self.now = ExpiryHeap(), dict[str, float](), 0.0

    @rule(key=KEYS, after=st.floats(0.125, 50))
    def set(self, key: str, after: float) -> None:
        self.due[key] = self.now + after
        self.heap.set(key, self.now + after)

    @rule(key=KEYS)
    def discard(self, key: str) -> None:
        self.due.pop(key, None)
        self.heap.discard(key)

    @rule(step=st.floats(0, 30))
    def advance(self, step: float) -> None:
        self.now += step
        expected = sorted((at, key) for key, at in self.due.items() if at <= self.now)
        assert self.heap.pop_due(self.now) == [key for _, key in expected]
        for _, key in expected:
            del self.due[key]

    @invariant()
    def nothing_is_due_before_the_next_time_it_names(self) -> None:
        next_due = self.heap.next_due()
        assert len(self.heap) == len(self.due)
        assert all(next_due is not None and next_due <= at for at in self.due.values())


TestAgainstADictionary = AgainstADictionary.TestCase
TestAgainstADictionary.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_moving_a_key_to_later_times_does_not_fill_the_heap() -> None:
    def moved() -> ExpiryHeap:
        heap = ExpiryHeap()
        for now in range(10_000):
            heap.set("k", now + 30.0)
            assert heap.pop_due(now) == []
        return heap

    assert kept_bytes(moved) < 5_000


def test_many_due_at_once_come_in_order() -> None:
    heap = ExpiryHeap()
    for index in range(1_000):
        heap.set(f"k{index}", float(1_000 - index))
    assert heap.pop_due(900.0) == [f"k{index}" for index in range(999, 99, -1)]
    assert len(heap) == 100
