"""The file does not grow for ever: finished rows go, keys are forgotten after a day, free pages are given back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.sqlite.conftest import Opener

from tenure.clock import ManualClock
from tenure.engines import Outgoing
from tenure.engines.contracts import KEY_MEMORY_S, Fence
from tenure.engines.sqlite import SqliteEngine
from tenure.errors import KeyRefusedError, StaleFenceError


def rows(engine: SqliteEngine, table: str) -> int:
    return int(engine.database.reader.read(f"SELECT count(*) FROM {table}")[0][0])


def test_a_day_of_churn_leaves_a_small_file(opened: Opener, path: Path, clock: ManualClock) -> None:
    engine = opened("?synchronous=normal")
    mailbox = engine.mailbox("work")
    sizes = []
    for hour in range(72):
        mailbox.send_many([Outgoing("x" * 400, key=f"{hour}/{n}") for n in range(200)])
        assert mailbox.acknowledge_many(mailbox.receive(200)) == []
        clock.advance(3_600)
        sizes.append(path.stat().st_size)
    assert rows(engine, "message") == 0
    assert rows(engine, "message_key") <= 26 * 200
    assert max(sizes[48:]) <= 1.2 * max(sizes[24:36])  # as large as a day's keys, and no larger the day after
    assert Path(f"{path}-wal").stat().st_size < 17 << 20


def test_room_that_a_peak_took_is_given_back(opened: Opener, path: Path, clock: ManualClock) -> None:
    engine = opened("?synchronous=normal")
    mailbox = engine.mailbox("work")
    for _ in range(5):
        mailbox.send_many([Outgoing("x" * 2_000) for _ in range(1_000)])
    with engine.database.writer as tx:
        peak = tx.execute("PRAGMA page_count").fetchone()[0]
    assert peak > 2_000
    mailbox.purge()
    for _ in range(10):
        clock.advance(61)
        mailbox.acknowledge_many(mailbox.receive(10))
        mailbox.send("x")
    with engine.database.writer as tx:
        assert tx.execute("PRAGMA page_count").fetchone()[0] < 150
    engine.close()
    assert path.stat().st_size < 150 * 4096


def test_a_key_is_refused_for_a_day_after_its_message_ended_and_then_forgotten(
    engine: SqliteEngine, clock: ManualClock
) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="done")
    mailbox.receive()[0].acknowledge()
    mailbox.send("x", key="lives")
    mailbox.revoke("gone")
    clock.advance(KEY_MEMORY_S - 1)
    engine.upkeep.run()
    for key in ("done", "lives", "gone"):
        with pytest.raises(KeyRefusedError):
            mailbox.send("again", key=key)
    clock.advance(1)
    engine.upkeep.run()
    assert rows(engine, "message_key") == 1
    for key in ("done", "gone"):
        mailbox.send("again", key=key)
    with pytest.raises(KeyRefusedError):
        mailbox.send("again", key="lives")


def test_a_key_is_forgotten_in_time_even_where_nobody_cleans_up(
    engine: SqliteEngine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="done", generation=5)
    mailbox.receive()[0].acknowledge()
    mailbox.revoke("gone")
    monkeypatch.setattr(engine.upkeep, "run", lambda: None)
    clock.advance(KEY_MEMORY_S)
    mailbox.send("again", key="done", generation=1)
    mailbox.send("again", key="gone")
    with pytest.raises(KeyRefusedError):
        mailbox.send("again", key="gone")


def test_values_that_ran_out_go_and_their_fences_stay_a_day_longer(engine: SqliteEngine, clock: ManualClock) -> None:
    store = engine.store("results")
    store.put("plain", b"v" * 100_000, ttl=10)
    store.put("fenced", b"v" * 100_000, ttl=10, fence=Fence(3, 1))
    store.put("kept", b"v")
    clock.advance(10)
    assert store.list() == ["kept"]
    engine.upkeep.run()
    assert rows(engine, "stored") == 2
    with pytest.raises(StaleFenceError):
        store.put("fenced", b"late", fence=Fence(2, 9))
    clock.advance(KEY_MEMORY_S)
    engine.upkeep.run()
    assert rows(engine, "stored") == 1
    store.put("fenced", b"new", fence=Fence(1, 1))


def test_upkeep_happens_by_itself_about_once_a_minute(engine: SqliteEngine, clock: ManualClock) -> None:
    mailbox, store = engine.mailbox("work"), engine.store("results")
    store.put("k", b"v", ttl=1)
    clock.advance(59)
    mailbox.send("x")
    assert rows(engine, "stored") == 1
    clock.advance(2)
    mailbox.send("x")
    assert rows(engine, "stored") == 0


def test_extending_a_large_message_does_not_write_it_again(engine: SqliteEngine, path: Path) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x" * 400_000)
    (message,) = mailbox.receive(1, 60)
    message.extend_visibility(100)
    wal = Path(f"{path}-wal")
    engine.database.writer.read("PRAGMA wal_checkpoint(TRUNCATE)")
    for _ in range(10):
        message.extend_visibility(200)
    assert wal.stat().st_size < 10 * 5 * 4_200
