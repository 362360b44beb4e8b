"""A crash may leave any prefix of the log: whatever prefix it is, the file opens and shows one of the states that were."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.engines import Outgoing
from tenure.engines.contracts import Fence
from tenure.engines.sqlite import SqliteEngine, open_sqlite

WAL_HEADER = 32
FRAME_HEADER = 24
TABLES = ("message", "message_key", "dead_letter", "journal", "journal_entry", "journal_snapshot", "election", "stored")


def contents(path: Path) -> dict[str, list[Any]]:
    """Everything in the file, read by SQLite alone."""
    connection = sqlite3.connect(path)
    try:
        return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}
    finally:
        connection.close()


def copy_of(path: Path, folder: Path, wal: bytes) -> Path:
    """The database file with this log, as a crash leaves it: no shared memory file."""
    folder.mkdir()
    shutil.copy(path, folder / "t.db")
    (folder / "t.db-wal").write_bytes(wal)
    return folder / "t.db"


def work_through(engine: SqliteEngine, clock: ManualClock) -> None:
    """One of everything that is a transaction; each leaves a state of its own."""
    mailbox = engine.mailbox("work", max_delivery_count=2)
    mailbox.send("plain")
    mailbox.send_many([Outgoing(n, key=f"k{n}") for n in range(3)])
    mailbox.send("big" * 3_000, reply_to="replies")  # spills over several pages: a transaction of many frames
    clock.advance(1)
    plain, first, second, third, big = mailbox.receive(5, 60)
    plain.acknowledge()
    first.extend_visibility(120, checkpoint=b"half")
    mailbox.send("newer", key="k0", generation=2)
    second.nack()
    third.release()
    big.settle("done")
    mailbox.revoke("k2")
    mailbox.receive(2, 60)[1].dead_letter("no use")
    mailbox.dead_letters.replay(mailbox.dead_letters.list()[0].id)
    journal = engine.journal("log")
    for seq in range(4):
        journal.append([b"e" * 700] * 3, epoch=1, expect=seq, append_id=str(seq))
    journal.snapshot(b"fold" * 900, 3, epoch=1)
    journal.truncate(2)
    term = engine.election("chief").campaign("a", 10)
    assert term is not None
    engine.election("chief").renew(term)
    store = engine.store("results")
    store.put("r", b"value" * 2_000, fence=Fence(1, 1))
    store.delete("r")
    mailbox.purge()


def frames(wal: bytes) -> list[tuple[int, bool]]:
    """Where each frame ends, and whether it commits."""
    page = int.from_bytes(wal[8:12], "big")
    found = []
    for begin in range(WAL_HEADER, len(wal) - FRAME_HEADER - page + 1, FRAME_HEADER + page):
        commits = int.from_bytes(wal[begin + 4 : begin + 8], "big") != 0
        found.append((begin + FRAME_HEADER + page, commits))
    return found


@pytest.fixture
def crashed(path: Path, clock: ManualClock) -> tuple[Path, bytes]:
    """A database file whose work is all in its log, and that log."""
    open_sqlite(f"sqlite:///{path}", clock).close()  # the tables are in the file itself
    with open_sqlite(f"sqlite:///{path}", clock) as engine:
        work_through(engine, clock)
        frozen = path.parent / "frozen.db"
        shutil.copy(path, frozen)
        return frozen, Path(f"{path}-wal").read_bytes()


def states_at_each_commit(database: Path, wal: bytes, folder: Path) -> list[dict[str, list[Any]]]:
    states = [contents(copy_of(database, folder / "state-0", b""))]
    for end, commits in frames(wal):
        if commits:
            states.append(contents(copy_of(database, folder / f"state-{len(states)}", wal[:end])))
    return states


def test_a_log_cut_at_every_frame_opens_with_all_that_was_committed_before_the_cut(
    crashed: tuple[Path, bytes], tmp_path: Path, clock: ManualClock
) -> None:
    database, wal = crashed
    states = states_at_each_commit(database, wal, tmp_path)
    assert len(states) > 20
    assert len({repr(state) for state in states}) == len(states)  # so a wrong one cannot pass for the right one
    committed = 0
    ends = [(0, False), (WAL_HEADER, False), *frames(wal)]
    assert any(not commits for _, commits in ends[2:])  # there are cuts inside of transactions
    for number, (end, commits) in enumerate(ends):
        committed += commits
        # At the frame's end, and torn inside of the next one.
        for torn in (0, 1_000):
            path = copy_of(database, tmp_path / f"cut-{number}-{torn}", wal[: end + torn])
            with open_sqlite(f"sqlite:///{path}", clock) as engine:
                assert contents(path) == states[committed], (number, torn)
                engine.mailbox("work").send("after")
                assert engine.mailbox("work").approximate_count() == 1 + len(
                    [row for row in states[committed]["message"] if row[1] == "work"]
                )
            check = sqlite3.connect(path)
            assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            check.close()
            shutil.rmtree(path.parent)


def test_a_flipped_bit_in_the_log_ends_it_there(
    crashed: tuple[Path, bytes], tmp_path: Path, clock: ManualClock
) -> None:
    database, wal = crashed
    states = states_at_each_commit(database, wal, tmp_path)
    committed, begin = 0, WAL_HEADER
    for number, (end, commits) in enumerate(frames(wal)):
        damaged = bytearray(wal)
        damaged[begin + FRAME_HEADER + 2_000] ^= 0x10
        path = copy_of(database, tmp_path / f"flip-{number}", bytes(damaged))
        with open_sqlite(f"sqlite:///{path}", clock):
            assert contents(path) == states[committed], number
        committed, begin = committed + commits, end
        shutil.rmtree(path.parent)
