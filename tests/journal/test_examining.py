"""What an examination says of damage that a checksum alone does not mend: what is kept, what is lost, and when nothing may be touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest
from tests.changed import changed
from tests.journal.journals import NAMES, append, copied, state_of

from tenure.cli.journal import KINDS, keep_copies
from tenure.engines import MemoryEngine
from tenure.engines.contracts import Entry
from tenure.nodes.journal_checksum import checked_state, corrections, found_events, opened
from tenure.nodes.journal_repair import examine, mend

KIND = KINDS["manager"]
SUBMIT = b'{"type":"JobSubmitted","at":1.0,"job_id":"%s","submission":{"job_id":"%s","workflows":[{"name":"w"}]},"digest":"d"}'
SENT = b'{"type":"Dispatched","at":2.0,"job_id":"%s","workflow":"w","attempt":1}'
ELECTED = b'{"type":"LeaderElected","at":1.0,"epoch":1,"leader":"m"}'


class Book:
    """A small journal in memory, whose entries a test may change."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.journal = self.engine.journal("jobs")
        self.log = self.journal.log
        self.add(ELECTED)
        self.add(SUBMIT % (b"a", b"a"), SUBMIT % (b"b", b"b"), SUBMIT % (b"c", b"c"))
        self.add(SENT % b"a", SENT % b"b")

    def add(self, *events: bytes) -> None:
        append(self.journal, self.journal.head().seq, 1, events)

    def change(self, seq: int, **changes: object) -> Entry:
        place = seq - self.log.first
        self.log.entries[place] = changed(self.log.entries[place], **changes)
        found: Entry = self.log.entries[place]
        return found


def test_a_whole_journal_has_no_damage() -> None:
    book = Book()
    found = examine(book.journal, KIND)
    assert (found.damages, found.entries, found.unchecked, found.seq) == ((), 3, 0, 3)


def test_only_the_damaged_event_of_an_entry_is_lost_and_what_follows_from_it() -> None:
    book = Book()
    events = (SUBMIT % (b"a", b"a"), b'{"type":"JobSubmi\xff\xfe\xfd', SUBMIT % (b"c", b"c"))
    book.change(2, events=events)
    found = examine(book.journal, KIND)
    assert [(one.seq, len(one.lost)) for one in found.damages] == [(2, 1), (3, 1)]
    assert "Dispatched of b" in found.damages[1].lost[0]
    mend(book.journal, found)
    kept = KIND.restored(opened(book.journal.latest_snapshot()).state)
    assert set(kept.jobs) == {"a", "c"}
    assert kept.jobs["a"].workflows["w"].state == "queued"
    assert examine(book.journal, KIND).damages == ()


def test_an_event_that_fails_half_way_leaves_nothing_behind() -> None:
    """It is folded on a state that is thrown away with it."""
    book = Book()
    whole = state_of(book.journal, "manager")
    book.add(
        b'{"type":"AttemptFailed","at":3.0,"job_id":"a","workflow":"w","attempt":1,"cause":"error","next_attempt":1,"worker":"w1","exclude":true}'
    )
    found = examine(book.journal, KIND)
    assert [(one.seq, len(one.lost)) for one in found.damages] == [(4, 1)]
    assert found.state == checked_state(whole, 4)


def test_missing_entries_are_named_also_at_the_end() -> None:
    book = Book()
    book.add(b'{"type":"ScheduleRemoved","at":3.0,"schedule":"x"}')
    del book.log.entries[3]
    del book.log.entries[1]
    found = examine(book.journal, KIND)
    assert [(one.seq, one.why) for one in found.damages if one.entry is None] == [
        (2, "it is missing"),
        (4, "it is missing"),
    ]
    assert found.seq == 4


def test_what_a_newer_release_wrote_is_left_alone() -> None:
    book = Book()
    book.add(b'{"type":"ColumnsAdded","at":3.0,"format":2}')
    found = examine(book.journal, KIND)
    assert found.newer
    assert found.state is None
    book = Book()
    book.journal.snapshot(msgspec.msgpack.encode({"version": 2}), 3, epoch=1)
    found = examine(book.journal, KIND)
    assert found.newer
    assert found.state is None


def test_a_lost_snapshot_is_made_again_while_all_entries_are_there() -> None:
    book = Book()
    whole = state_of(book.journal, "manager")
    book.journal.snapshot(b"\x81\xff nothing", 2, epoch=1)
    found = examine(book.journal, KIND)
    assert [(one.part, one.seq, one.lost) for one in found.damages] == [("snapshot", 2, ())]
    assert found.state == checked_state(whole, 3)


def test_a_lost_snapshot_without_its_entries_is_given_up_only_when_told_so() -> None:
    book = Book()
    book.journal.snapshot(b"\x81\xff nothing", 2, epoch=1)
    book.journal.truncate(2)
    assert examine(book.journal, KIND).state is None
    found = examine(book.journal, KIND, without_snapshot=True)
    assert found.state is not None
    assert "everything that was decided up to 2" in found.damages[0].lost[0]
    mend(book.journal, found)
    assert examine(book.journal, KIND).damages == ()


def test_events_are_found_in_bytes_that_are_no_list_of_events() -> None:
    inner = b'{"type":"A","text":"a } \\" { \\\\","in":{"type":"B"}}'
    assert found_events(b"\x93\xc4" + inner + b"\x00garbage" + b'{"type":"C"}' + b'{"type":"cut') == (
        inner,
        b'{"type":"C"}',
    )


def test_one_wrong_byte_is_always_among_the_corrections() -> None:
    import zlib

    data = bytes(range(256)) * 3
    for place in range(0, len(data), 7):
        wrong = data[:place] + bytes([data[place] ^ 0x5A]) + data[place + 1 :]
        assert data in [one.applied(wrong) for one in corrections(wrong, zlib.crc32(data))]


@pytest.mark.parametrize("which", ["manager", "gate"])
def test_the_journal_of_the_first_release_has_no_damage(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    engine = MemoryEngine()
    copied(request, tmp_path, which, engine)
    assert examine(engine.journal(NAMES[which]), KINDS[which]).damages == ()


def test_copies_of_what_was_damaged_are_for_this_user_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = keep_copies(str(tmp_path / "copies.jsonl"), "jobs", [])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
