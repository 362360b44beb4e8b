"""One writer at a time, fenced by epoch and by expected sequence; nothing written twice, nothing lost."""

from __future__ import annotations

import time

import pytest
from tests.contract.case import Background, EngineCase

from tenure.clock import ManualClock
from tenure.engines import Engine
from tenure.engines.contracts import Journal
from tenure.errors import LimitError, SequenceConflictError, StaleEpochError, StaleSnapshotError, Truncated


def fill(journal: Journal, count: int, epoch: int = 1) -> None:
    start = journal.head().seq
    for seq in range(start, start + count):
        journal.append([f"e{seq + 1}".encode()], epoch=epoch, expect=seq, append_id=f"a{seq + 1}")


def test_an_empty_journal_ends_at_zero(engine: Engine) -> None:
    journal = engine.journal("log")
    assert journal.head() == (0, 0)
    assert journal.read() == []
    assert journal.latest_snapshot() is None
    assert journal.find("a", after=0) is None


def test_an_append_is_one_entry_with_all_its_events(case: EngineCase, engine: Engine) -> None:
    journal = engine.journal("log")
    before = engine.now()
    assert journal.append([b"one", b"", b"\x00\xff"], epoch=3, expect=0, append_id="a") == 1
    assert journal.append([b"four"], epoch=3, expect=1, append_id="b") == 2
    first, second = case.again().journal("log").read()
    assert (first.seq, first.epoch, first.append_id, first.events) == (1, 3, "a", (b"one", b"", b"\x00\xff"))
    assert (second.seq, second.events) == (2, (b"four",))
    assert before - 0.001 <= first.at <= second.at <= engine.now() + 0.001
    assert journal.head() == (2, 3)


def test_an_append_that_does_not_follow_the_last_is_refused(case: EngineCase, engine: Engine) -> None:
    journal = engine.journal("log")
    fill(journal, 2)
    for expect in (0, 1, 3, 99):
        with pytest.raises(SequenceConflictError) as refused:
            case.again().journal("log").append([b"x"], epoch=1, expect=expect, append_id="x")
        assert (refused.value.expect, refused.value.last) == (expect, 2)
    assert [entry.append_id for entry in journal.read()] == ["a1", "a2"]


def test_a_deposed_leader_cannot_append_once_the_next_one_has(engine: Engine) -> None:
    journal = engine.journal("log")
    fill(journal, 1, epoch=4)
    journal.append([b"elected"], epoch=7, expect=1, append_id="new")
    for epoch in (4, 6):
        with pytest.raises(StaleEpochError) as refused:
            journal.append([b"x"], epoch=epoch, expect=2, append_id="old")
        assert (refused.value.epoch, refused.value.current) == (epoch, 7)
    assert journal.head() == (2, 7)
    assert journal.append([b"y"], epoch=7, expect=2, append_id="next") == 3


def test_a_lost_answer_is_found_by_its_id_and_a_retry_is_not_appended_twice(engine: Engine) -> None:
    """Interleaving 8: the append committed, and its answer was lost."""
    journal = engine.journal("log")
    fill(journal, 3)
    journal.append([b"x"], epoch=1, expect=3, append_id="lost")
    with pytest.raises(SequenceConflictError):
        journal.append([b"x"], epoch=1, expect=3, append_id="lost")
    assert journal.find("lost", after=3) == 4
    assert journal.find("never", after=3) is None
    fill(journal, 2)
    assert journal.find("lost", after=3) == 4
    assert [entry.append_id for entry in journal.read()].count("lost") == 1


def test_reading_goes_on_after_a_sequence_in_pages(engine: Engine) -> None:
    journal = engine.journal("log")
    fill(journal, 25)
    assert [entry.seq for entry in journal.read(20)] == [21, 22, 23, 24, 25]
    assert [entry.seq for entry in journal.read(5, limit=3)] == [6, 7, 8]
    assert journal.read(25) == []
    assert journal.read(99) == []


def test_journals_do_not_mix(engine: Engine) -> None:
    fill(engine.journal("a"), 2)
    fill(engine.journal("a/b"), 1, epoch=5)
    assert (engine.journal("a").head(), engine.journal("a/b").head(), engine.journal("b").head()) == (
        (2, 1),
        (1, 5),
        (0, 0),
    )


def test_a_snapshot_is_kept_with_its_sequence_and_epoch(case: EngineCase, engine: Engine) -> None:
    journal = engine.journal("log")
    fill(journal, 5, epoch=2)
    journal.snapshot(b"state\x00", 3, epoch=2)
    assert case.again().journal("log").latest_snapshot() == (3, 2, b"state\x00")
    journal.snapshot(b"more", 5, epoch=2)
    journal.snapshot(b"more", 5, epoch=2)  # a retry, its answer was lost
    assert journal.latest_snapshot() == (5, 2, b"more")
    assert len(journal.read()) == 5  # a snapshot removes nothing


def test_a_stale_snapshot_never_replaces_a_newer_one(engine: Engine) -> None:
    """Interleaving 8, second half."""
    journal = engine.journal("log")
    fill(journal, 5, epoch=2)
    journal.snapshot(b"new", 4, epoch=2)
    with pytest.raises(StaleSnapshotError) as refused:
        journal.snapshot(b"old", 3, epoch=2)
    assert (refused.value.seq, refused.value.current) == (3, 4)
    with pytest.raises(StaleEpochError):
        journal.snapshot(b"deposed", 5, epoch=1)
    assert journal.latest_snapshot() == (4, 2, b"new")


def test_a_snapshot_of_what_was_not_written_is_refused(engine: Engine) -> None:
    journal = engine.journal("log")
    fill(journal, 2)
    with pytest.raises(LimitError, match="seq is 3"):
        journal.snapshot(b"x", 3, epoch=1)
    assert journal.latest_snapshot() is None


def test_a_large_snapshot_comes_back_whole(engine: Engine) -> None:
    journal = engine.journal("log")
    fill(journal, 1)
    state = bytes(range(256)) * 8_192  # 2 MiB: larger than one message of most servers
    journal.snapshot(state, 1, epoch=1)
    found = journal.latest_snapshot()
    assert found is not None
    assert found.state == state


def test_truncating_removes_up_to_the_snapshot_and_sequences_go_on(case: EngineCase, engine: Engine) -> None:
    journal = engine.journal("log")
    fill(journal, 6)
    journal.truncate(3)  # there is no snapshot: nothing may be removed
    assert len(journal.read()) == 6
    journal.snapshot(b"four", 4, epoch=1)
    journal.truncate(6)
    with pytest.raises(Truncated) as gone:
        journal.read(0)
    assert (gone.value.after, gone.value.first) == (0, 5)
    with pytest.raises(Truncated):
        case.again().journal("log").read(3)
    with pytest.raises(Truncated):
        journal.follow(3, 0)
    assert [entry.seq for entry in journal.read(4)] == [5, 6]
    assert journal.head() == (6, 1)
    journal.truncate(2)  # again, and further back: nothing happens
    journal.snapshot(b"six", 6, epoch=1)
    journal.truncate(6)
    assert journal.read(6) == []
    assert journal.head() == (6, 1)
    assert journal.append([b"x"], epoch=1, expect=6, append_id="seven") == 7
    assert [entry.seq for entry in journal.read(6)] == [7]
    with pytest.raises(StaleEpochError):
        journal.append([b"x"], epoch=0, expect=7, append_id="old")


def test_a_follower_is_woken_by_an_append(case: EngineCase, live: Engine) -> None:
    journal = live.journal("log")
    followers = [Background(lambda: live.journal("log").follow(0, 60)) for _ in range(2)]
    time.sleep(0.1)
    case.live().journal("log").append([b"x"], epoch=1, expect=0, append_id="a")
    for follower in followers:
        assert [entry.append_id for entry in follower.result(15)] == ["a"]
    assert [entry.seq for entry in journal.follow(0, 60)] == [1]  # what is there is given at once


def test_a_follower_returns_empty_when_nothing_came(live: Engine) -> None:
    begun = time.monotonic()
    assert live.journal("log").follow(0, 0.3) == []
    assert time.monotonic() - begun >= 0.29
    assert live.journal("log").follow(0, 0) == []


@pytest.mark.exact
@pytest.mark.threads
def test_time_that_passes_ends_a_follow(case: EngineCase, engine: Engine) -> None:
    assert isinstance(case.clock, ManualClock)
    waiting = Background(lambda: engine.journal("log").follow(0, 20))
    case.clock.until_waiting(1)
    case.pass_time(20)
    assert waiting.result() == []


def test_wake_ends_a_follow_or_keeps_the_next_one_from_waiting(live: Engine) -> None:
    journal = live.journal("log")
    waiting = Background(lambda: journal.follow(0, 60))
    time.sleep(0.1)
    journal.wake()
    assert waiting.result(45) == []
    journal.wake()
    begun = time.monotonic()
    assert journal.follow(0, 60) == []
    assert time.monotonic() - begun < 45


def test_of_many_who_append_at_once_one_wins_each_sequence(case: EngineCase, live: Engine) -> None:
    engines = [live, case.live()]

    def append_ten(number: int) -> list[int]:
        journal = engines[number % 2].journal("log")
        mine: list[int] = []
        while len(mine) < 10:
            head = journal.head()
            try:
                append_id = f"{number}-{len(mine)}"
                mine.append(journal.append([append_id.encode()], epoch=1, expect=head.seq, append_id=append_id))
            except SequenceConflictError:
                continue
        return mine

    writers = [Background(lambda n=number: append_ten(n)) for number in range(4)]
    got = sorted(seq for writer in writers for seq in writer.result(60))
    assert got == list(range(1, 41))
    entries = live.journal("log").read()
    assert [entry.seq for entry in entries] == got
    assert len({entry.append_id for entry in entries}) == 40
