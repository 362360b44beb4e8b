"""How long the engine's store keeps results: while their job lives, and after it was archived."""

from __future__ import annotations

import asyncio

from tests.jobs.desk import Desk, spec

from tenure.clock import ManualClock
from tenure.engines.aio import calls_for
from tenure.engines.memory import MemoryEngine
from tenure.jobs.outbox import keep_archive
from tenure.nodes.stored_values import StoredValues

DAY_S = 86_400.0


def test_a_result_of_a_live_job_is_kept_for_months_and_that_of_an_archived_one_for_a_week() -> None:
    clock = ManualClock()
    engine = MemoryEngine(clock)
    values, store = StoredValues(engine, calls_for(engine)), engine.store("results")
    desk = Desk()
    desk.submit("j", spec("a"), spec("b", after=("a",)))
    asyncio.run(values.keep_result("j/a/1", b"[1]"))
    desk.run(workflow="a")
    desk.result(workflow="a", result_key="j/a/1")
    clock.advance(300 * DAY_S)
    assert store.get("j/a/1") == b"[1]"
    record = asyncio.run(values.archived(desk.book.job("j"), desk.at, 7 * DAY_S))
    assert record.workflows["a"].result_key == "j/a/1"
    clock.advance(6 * DAY_S)
    assert store.get("j/a/1") == b"[1]"
    clock.advance(2 * DAY_S)
    assert store.get("j/a/1") is None


def test_a_large_result_of_a_child_outlives_its_archiving_while_its_parent_lives() -> None:
    clock = ManualClock()
    engine = MemoryEngine(clock)
    values, store = StoredValues(engine, calls_for(engine)), engine.store("results")
    desk = Desk()
    desk.submit("parent")
    for name, labels in (("child", {"tenure.parent": "parent"}), ("alone", {"tenure.parent": "nobody"})):
        desk.submit(name, labels=labels)
        desk.run(name)
        store.put(f"{name}/w/1", b"[1]", ttl=366 * DAY_S)
        desk.result(name, result_key=f"{name}/w/1")
        info = desk.book.job(name)
        asyncio.run(values.archived(info, desk.at, keep_archive(desk.book, info)))
    clock.advance(60 * DAY_S)
    assert (store.get("child/w/1"), store.get("alone/w/1")) == (b"[1]", None)
