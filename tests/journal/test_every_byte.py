"""One entry of each kind, damaged at each of its bytes in the table of a real database: found, named, and got back whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from tests.changed import changed
from tests.journal.journals import NAMES, copied, one_of_each_kind, state_of

from tenure.cli.journal import KINDS
from tenure.engines import Engine
from tenure.engines.contracts import Entry, Journal
from tenure.jobs.topics import GateEvent, ManagerEvent
from tenure.nodes.journal_checksum import entry_damage, opened, salvage, salvage_state
from tenure.nodes.journal_repair import examine, mend

UNIONS: dict[str, Any] = {"manager": ManagerEvent, "gate": GateEvent}


class Bench(NamedTuple):
    which: str
    journal: Journal
    table: sqlite3.Connection
    entries: list[Entry]

    def column(self, seq: int, name: str) -> Any:
        return self.table.execute(
            f"SELECT {name} FROM journal_entry WHERE seq = ? AND journal = {self._id}", (seq,)
        ).fetchone()[0]

    def put(self, seq: int, name: str, value: Any) -> None:
        self.table.execute(f"UPDATE journal_entry SET {name} = ? WHERE seq = ? AND journal = {self._id}", (value, seq))

    @property
    def _id(self) -> int:
        return int(self.table.execute("SELECT id FROM journal WHERE name = ?", (NAMES[self.which],)).fetchone()[0])

    def read(self, seq: int) -> Entry:
        (entry,) = self.journal.read(seq - 1, limit=1)
        return entry


@pytest.fixture(params=["manager", "gate"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "damaged.db"
    with Engine.open(f"sqlite:///{path}") as engine:
        entries = copied(request, tmp_path, request.param, engine)
        table = sqlite3.connect(path, isolation_level=None)
        table.execute("PRAGMA synchronous = OFF")
        yield Bench(request.param, engine.journal(NAMES[request.param]), table, entries)
        table.close()


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each byte changed by one bit and by all of them, in turn."""
    for place in range(len(data)):
        by = 0xFF if place % 2 else 1 << (place // 2 % 8)
        yield place, data[:place] + bytes([data[place] ^ by]) + data[place + 1 :]


def test_every_byte_of_one_entry_of_each_kind(bench: Bench) -> None:
    chosen = one_of_each_kind(bench.entries)
    assert set(chosen) == {kind.__name__ for kind in get_args(UNIONS[bench.which])}
    readable, damaged = KINDS[bench.which].readable, 0
    for kind, whole in chosen.items():
        stored = bench.column(whole.seq, "events")
        for place, data in flips(stored):
            bench.put(whole.seq, "events", data)
            entry = bench.read(whole.seq)
            assert entry_damage(entry), f"byte {place} of a {kind} was changed, and nobody noticed"
            found = salvage(entry, (), readable)
            assert found.whole, f"byte {place} of a {kind}: {found.how}"
            assert found.events == whole.events, f"byte {place} of a {kind}: {found.how}"
            damaged += 1
        bench.put(whole.seq, "events", stored)
    assert damaged > 1_000


def test_every_character_of_an_id_and_a_wrong_epoch(bench: Bench) -> None:
    whole, readable = bench.entries[3], KINDS[bench.which].readable
    for place in range(len(whole.append_id)):
        other = "0" if whole.append_id[place] != "0" else "1"
        bench.put(whole.seq, "append_id", whole.append_id[:place] + other + whole.append_id[place + 1 :])
        entry = bench.read(whole.seq)
        assert entry_damage(entry)
        assert salvage(entry, (), readable)[::2] == (whole.events, True)
    bench.put(whole.seq, "append_id", whole.append_id)
    bench.put(whole.seq, "epoch", 4_711)
    entry = bench.read(whole.seq)
    assert entry_damage(entry)
    assert salvage(entry, (whole.epoch,), readable)[::2] == (whole.events, True)


def test_a_damaged_entry_is_named_and_mended_and_nothing_is_lost(bench: Bench) -> None:
    """The whole way, for one byte of each kind of entry."""
    kind = KINDS[bench.which]
    for number, whole in enumerate(dict.fromkeys(one_of_each_kind(bench.entries).values())):
        stored = bench.column(whole.seq, "events")
        place = (number * 37) % len(stored)
        bench.put(whole.seq, "events", stored[:place] + bytes([stored[place] ^ 0x04]) + stored[place + 1 :])
        found = examine(bench.journal, kind)
        assert [(one.part, one.seq, one.lost) for one in found.damages] == [("entry", whole.seq, ())]
        bench.put(whole.seq, "events", stored)
        assert found.state is not None
        assert opened_state(found.state, found.seq) == state_of(bench.journal, bench.which)
    bench.put(whole.seq, "events", stored[:-1])
    mend(bench.journal, examine(bench.journal, kind))
    assert examine(bench.journal, kind).damages == ()
    assert bench.journal.read(bench.journal.head().seq) == []


def opened_state(state: bytes, seq: int) -> bytes:
    from tenure.engines.contracts import Snapshot

    found = opened(Snapshot(seq, 1, state))
    assert found.checked
    assert not found.damage
    return found.state


def test_every_byte_of_a_snapshot(bench: Bench) -> None:
    kind, snapshot = KINDS[bench.which], bench.journal.latest_snapshot()
    assert snapshot is not None
    whole = opened(snapshot).state
    step = 1 if len(snapshot.state) < 2_000 else 41  # a correction is found in one pass, and each is one
    for place, data in flips(snapshot.state):
        if place < 40 or place % step == 0:
            damaged = changed(snapshot, state=data)
            assert opened(damaged).damage, place
            found = salvage_state(damaged, kind.restorable)
            assert found is not None, place
            assert (found.state, found.whole) == (whole, True), place
