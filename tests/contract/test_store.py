"""Bytes under a key, and who may still write them."""

from __future__ import annotations

import pytest
from tests.contract.case import EngineCase

from tenure.engines import Engine, Fence
from tenure.errors import StaleFenceError


def test_what_was_put_can_be_got_by_everybody(case: EngineCase, engine: Engine) -> None:
    store = engine.store("results")
    assert store.get("k") is None
    store.put("k", b"one\x00")
    assert case.again().store("results").get("k") == b"one\x00"
    store.put("k", b"two")
    store.put("empty", b"")
    assert (store.get("k"), store.get("empty")) == (b"two", b"")


def test_what_was_deleted_is_gone(engine: Engine) -> None:
    store = engine.store("results")
    store.put("k", b"v")
    assert store.delete("k")
    assert not store.delete("k")
    assert store.get("k") is None
    assert store.list() == []


def test_a_lower_fence_is_refused_and_an_equal_or_higher_one_writes(case: EngineCase, engine: Engine) -> None:
    store = engine.store("results")
    store.put("k", b"1", fence=Fence(1, 2))
    store.put("k", b"2", fence=Fence(1, 2))
    store.put("k", b"3", fence=Fence(2, 1))
    for fence in (Fence(1, 2), Fence(1, 99), Fence(2, 0)):
        with pytest.raises(StaleFenceError) as refused:
            case.again().store("results").put("k", b"stale", fence=fence)
        assert (refused.value.key, refused.value.current) == ("k", (2, 1))
    assert store.get("k") == b"3"


def test_a_fence_outlives_its_value(case: EngineCase, engine: Engine) -> None:
    store = engine.store("results")
    store.put("deleted", b"new", fence=Fence(2, 1))
    store.delete("deleted")
    store.put("ran out", b"new", fence=Fence(2, 1), ttl=case.s(5))
    store.put("unfenced since", b"new", fence=Fence(2, 1))
    store.put("unfenced since", b"anybody's")
    case.pass_time(5)
    for key in ("deleted", "ran out", "unfenced since"):
        with pytest.raises(StaleFenceError):
            store.put(key, b"old", fence=Fence(1, 1))
        store.put(key, b"newer", fence=Fence(3, 1))
        assert store.get(key) == b"newer"


def test_fences_of_different_keys_are_independent(engine: Engine) -> None:
    store = engine.store("results")
    store.put("a", b"x", fence=Fence(9, 9))
    store.put("b", b"x", fence=Fence(0, 1))
    engine.store("logs").put("a", b"x", fence=Fence(0, 1))
    assert store.list() == ["a", "b"]


def test_a_value_with_a_ttl_goes_when_its_time_has_come(case: EngineCase, engine: Engine) -> None:
    store = engine.store("results")
    store.put("short", b"x", ttl=case.s(10))
    store.put("long", b"x", ttl=3_600)
    store.put("kept", b"x", ttl=case.s(10))
    store.put("kept", b"y")  # written again without: it stays
    store.put("prolonged", b"x", ttl=case.s(5))
    store.put("prolonged", b"x", ttl=3_600)
    assert store.get("short") == b"x"
    case.pass_time(10)
    assert store.get("short") is None
    assert store.list() == ["kept", "long", "prolonged"]
    assert not store.delete("short")


def test_keys_are_listed_sorted_by_prefix_and_in_pages(engine: Engine) -> None:
    store = engine.store("results")
    keys = ["job/1/a", "job/1/b", "job/10/a", "job/2", "job/2/x", "other", "ü", "job%", "job_", "Job"]
    for key in keys:
        store.put(key, b"v")
    assert store.list() == sorted(keys)
    assert store.list("job/1/") == ["job/1/a", "job/1/b"]
    assert store.list("job/") == ["job/1/a", "job/1/b", "job/10/a", "job/2", "job/2/x"]
    assert store.list("job%") == ["job%"]
    assert store.list("job_") == ["job_"]
    assert store.list("nothing") == []
    assert store.list("job/", limit=2) == ["job/1/a", "job/1/b"]
    assert store.list("job/", limit=2, after="job/1/b") == ["job/10/a", "job/2"]
    assert store.list("job/", after="job/2/x") == []
    store.delete("job/2")
    assert store.list("job/", after="job/10/a") == ["job/2/x"]


def test_stores_do_not_mix(engine: Engine) -> None:
    engine.store("a").put("k", b"a")
    engine.store("a/b").put("k", b"ab")
    assert (engine.store("a").get("k"), engine.store("a/b").get("k"), engine.store("b").get("k")) == (b"a", b"ab", None)
