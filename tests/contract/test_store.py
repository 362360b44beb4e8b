"""Bytes under a key, and who may still write them."""

from __future__ import annotations

import pytest
from tests.contract.case import EngineCase

from tenure.engines import Engine
from tenure.engines.contracts import MAX_SCAN_BYTES, MAX_STORE_BYTES, Fence
from tenure.errors import LimitError, StaleFenceError


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


def test_many_values_are_written_and_deleted_in_one_call(case: EngineCase, engine: Engine) -> None:
    store = engine.store("parts")
    store.put_many({"a": b"1", "b": b"", "c\n": b"3"}, fence=Fence(5, 0))
    assert case.again().store("parts").get_many(["c\n", "b", "missing", "a"]) == {"a": b"1", "b": b"", "c\n": b"3"}
    store.put_many({"a": b"2", "b": None, "never there": None}, fence=Fence(6, 0))
    assert store.get_many(["a", "b", "never there"]) == {"a": b"2"}
    assert store.list() == ["a", "c\n"]
    store.put_many({}, fence=Fence(7, 0))
    assert store.get_many([]) == {}


def test_of_many_values_those_with_a_higher_fence_stay_also_if_they_were_deleted(engine: Engine) -> None:
    store = engine.store("parts")
    store.put_many({"new": b"new", "gone": b"new"}, fence=Fence(9, 0))
    store.put_many({"gone": None, "never there": None}, fence=Fence(9, 0))
    store.put_many({"new": b"old", "gone": b"old", "never there": b"old", "other": b"old"}, fence=Fence(8, 0))
    assert store.get_many(["new", "gone", "never there", "other"]) == {"new": b"new", "other": b"old"}
    store.put_many({"new": None}, fence=Fence(8, 0))
    assert store.get("new") == b"new"
    with pytest.raises(StaleFenceError):
        store.put("never there", b"old", fence=Fence(8, 0))
    store.put_many({"gone": b"again", "new": b"newer"}, fence=Fence(9, 0))
    assert store.get_many(["gone", "new"]) == {"gone": b"again", "new": b"newer"}


def test_many_values_with_a_ttl_go_when_their_time_has_come(case: EngineCase, engine: Engine) -> None:
    store = engine.store("parts")
    store.put_many({"a": b"x", "b": b"x"}, fence=Fence(1, 0), ttl=case.s(10))
    store.put_many({"b": b"y"}, fence=Fence(2, 0))
    case.pass_time(10)
    assert store.get_many(["a", "b"]) == {"b": b"y"}
    assert store.scan() == [("b", b"y")]


def test_a_scan_reads_keys_with_their_values_in_pages_both_ways(engine: Engine) -> None:
    store = engine.store("parts")
    keys = ["p/1", "p/10", "p/2", "p/ü", "q/1", "o", "p"]
    store.put_many({key: key.encode() for key in keys}, fence=Fence(1, 0))
    store.put_many({"p/2": None}, fence=Fence(1, 0))
    assert [key for key, _ in store.scan()] == sorted(set(keys) - {"p/2"})
    assert store.scan("p/") == [("p/1", b"p/1"), ("p/10", b"p/10"), ("p/ü", "p/ü".encode())]
    assert store.scan("p/", limit=1) == [("p/1", b"p/1")]
    assert store.scan("p/", limit=1, after="p/1") == [("p/10", b"p/10")]
    assert store.scan("p/", after="p/ü") == []
    assert [key for key, _ in store.scan("p/", reverse=True)] == ["p/ü", "p/10", "p/1"]
    assert [key for key, _ in store.scan("p/", reverse=True, limit=1, after="p/ü")] == ["p/10"]
    assert store.scan("p/", reverse=True, after="p/1") == []
    assert [key for key, _ in store.scan(reverse=True, limit=2)] == ["q/1", "p/ü"]


def test_a_page_of_a_scan_ends_before_it_is_too_large(engine: Engine) -> None:
    store = engine.store("parts")
    for number in range(5):
        store.put_many({f"{number}": bytes(MAX_SCAN_BYTES // 2)}, fence=Fence(1, 0))
    found: list[str] = []
    while page := store.scan(after=found[-1] if found else None):
        assert sum(len(value) for _, value in page) < 2 * MAX_SCAN_BYTES
        found += [key for key, _ in page]
    assert found == ["0", "1", "2", "3", "4"]


def test_more_values_than_one_call_takes_are_refused(engine: Engine) -> None:
    store = engine.store("parts")
    with pytest.raises(LimitError):
        store.put_many({f"{number}": b"" for number in range(1_001)}, fence=Fence(1, 0))
    with pytest.raises(LimitError):
        store.get_many(["k"] * 1_001)


def test_each_of_many_values_is_written_as_by_itself(case: EngineCase, engine: Engine) -> None:
    store = engine.store("parts")
    store.put("fenced", b"old", fence=Fence(3, 0))
    store.put("there", b"old")
    store.put_each({"a": b"1", "empty": b"", "fenced": b"new", "there": b"new"}, ttl=case.s(10))
    store.put_each({"kept": b"2"})
    store.put_each({})
    found = case.again().store("parts").get_many(["a", "empty", "fenced", "there", "kept", "missing"])
    assert found == {"a": b"1", "empty": b"", "fenced": b"new", "there": b"new", "kept": b"2"}
    case.pass_time(10)
    assert store.list() == ["kept"]
    with pytest.raises(StaleFenceError):
        store.put("fenced", b"older", fence=Fence(2, 0))


def test_of_many_values_none_is_written_where_one_cannot_be(engine: Engine) -> None:
    store = engine.store("parts")
    with pytest.raises(LimitError):
        store.put_each({"a": b"x", "large": bytes(MAX_STORE_BYTES + 1)})
    with pytest.raises(LimitError):
        store.put_each({f"{number}": b"" for number in range(1_001)})
    assert store.list() == []
