from __future__ import annotations

import pytest
from tests.memory import kept_bytes

from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.engines.contracts import KEY_MEMORY_S, Fence
from tenure.errors import StaleFenceError


def test_a_fence_is_forgotten_a_day_after_its_value_went() -> None:
    clock = ManualClock()
    engine = MemoryEngine(clock)
    store = engine.store("results")
    store.put("deleted", b"x", fence=Fence(5, 1))
    store.put("ran out", b"x", fence=Fence(5, 1), ttl=60)
    store.put("kept", b"x", fence=Fence(5, 1))
    store.delete("deleted")
    clock.advance(60)
    assert store.get("ran out") is None
    clock.advance(KEY_MEMORY_S - 61)
    for key in ("deleted", "ran out", "kept"):
        with pytest.raises(StaleFenceError):
            store.put(key, b"y", fence=Fence(1, 1))
    clock.advance(61)
    store.put("deleted", b"y", fence=Fence(1, 1))
    store.put("ran out", b"y", fence=Fence(1, 1))
    with pytest.raises(StaleFenceError):
        store.put("kept", b"y", fence=Fence(1, 1))


def test_many_writes_with_a_ttl_leave_nothing_behind() -> None:
    clock = ManualClock()
    store = MemoryEngine(clock).store("logs")

    def fill() -> None:
        for number in range(3_000):
            store.put(f"k{number}", b"x", ttl=10)
            clock.advance(1)
        assert len(store.list()) == 9

    assert kept_bytes(fill) < 50_000


def test_a_key_that_is_written_again_and_again_leaves_nothing_behind() -> None:
    store = MemoryEngine(ManualClock()).store("logs")

    def fill() -> None:
        for _ in range(3_000):
            store.put("log", b"x", ttl=86_400)

    assert kept_bytes(fill) < 50_000
    assert store.get("log") == b"x"
