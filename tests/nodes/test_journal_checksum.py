"""A damaged byte is found wherever it is, what the first release wrote is accepted, and what is written now it reads."""

from __future__ import annotations

import msgspec
import pytest

from tenure.engines.contracts import Entry, Snapshot
from tenure.jobs.book import BookState, JobBook
from tenure.jobs.gate_tracker import GateJobTracker, GateState
from tenure.nodes.journal_checksum import checked_id, checked_state, entry_damage, is_checked, opened, parse_id
from tenure.randomness import new_id

EVENTS = (b'{"type":"JobCleaned","at":1.5,"job_id":"a"}', b"", b'{"type":"Forgotten","at":2.0,"until":1.0}')


def entry(**changes: object) -> Entry:
    given = {"seq": 7, "epoch": 3, "at": 5.0, "events": EVENTS}
    append_id = checked_id("ab" * 16, 7, 3, EVENTS)
    return Entry(**{"append_id": append_id, **given, **changes})  # type: ignore[arg-type]


def flipped(data: bytes, place: int, by: int = 0x01) -> bytes:
    return data[:place] + bytes([data[place] ^ by]) + data[place + 1 :]


def test_an_entry_that_is_whole_is_checked_and_accepted() -> None:
    assert is_checked(entry())
    assert entry_damage(entry()) == ""


@pytest.mark.parametrize("by", [0x01, 0x20, 0xFF])
def test_any_byte_of_any_event_that_changed_is_found(by: int) -> None:
    for number, event in enumerate(EVENTS):
        for place in range(len(event)):
            events = (*EVENTS[:number], flipped(event, place, by), *EVENTS[number + 1 :])
            assert "checksum" in entry_damage(entry(events=events))


def test_any_character_of_the_id_that_changed_is_found() -> None:
    whole = entry().append_id
    for place in range(len(whole)):
        for other in "0f.x ":
            if whole[place] != other:
                assert entry_damage(entry(append_id=whole[:place] + other + whole[place + 1 :]))


@pytest.mark.parametrize(
    "changes", [{"seq": 8}, {"epoch": 4}, {"events": EVENTS[:2]}, {"events": (EVENTS[0] + EVENTS[2],)}]
)
def test_an_entry_in_another_place_or_cut_differently_is_found(changes: dict[str, object]) -> None:
    assert entry_damage(entry(**changes))


def test_an_entry_of_the_first_release_is_accepted_unchecked() -> None:
    old = entry(append_id=new_id())
    assert entry_damage(old) == ""
    assert not is_checked(old)


def test_what_an_engine_could_not_take_apart_is_damaged() -> None:
    assert entry_damage(entry(events=(), damage="it is missing")) == "it is missing"


def test_an_id_longer_than_one_of_the_first_release_has_lost_its_checksum() -> None:
    assert parse_id("ab" * 16 + "x0123abcd") is None


@pytest.mark.parametrize("fields", [3, 14, 15, 16, 300])
def test_a_checksum_on_a_snapshot_comes_off_without_a_trace(fields: int) -> None:
    state = msgspec.msgpack.encode({"version": 1} | {f"f{n}": n for n in range(fields - 1)})
    sealed = checked_state(state, 12)
    found = opened(Snapshot(12, 1, sealed))
    assert (found.state, found.damage, found.checked) == (state, "", True)
    assert msgspec.msgpack.decode(sealed).keys() - msgspec.msgpack.decode(state).keys() == {"checksum"}


def test_any_byte_of_a_snapshot_that_changed_is_found() -> None:
    sealed = checked_state(JobBook().snapshot(), 12)
    for place in range(len(sealed)):
        assert opened(Snapshot(12, 1, flipped(sealed, place))).damage, place
    assert opened(Snapshot(13, 1, sealed)).damage


def test_the_first_release_reads_a_snapshot_with_a_checksum() -> None:
    """Its decoders are these: they skip a field that they do not know."""
    for state, book in ((BookState, JobBook()), (GateState, GateJobTracker())):
        decoder = msgspec.msgpack.Decoder(state)
        assert decoder.decode(checked_state(book.snapshot(), 3)) == decoder.decode(book.snapshot())


def test_a_snapshot_of_the_first_release_is_accepted_unchecked() -> None:
    for book in (JobBook(), GateJobTracker()):
        found = opened(Snapshot(3, 1, book.snapshot()))
        assert (found.state, found.damage, found.checked) == (book.snapshot(), "", False)
