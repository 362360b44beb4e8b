"""Which keys of a mailbox are packed, and that packing changes no answer (`test_mailbox_state` plays whole mailboxes against SQLite)."""

from __future__ import annotations

from collections import deque

import pytest

from tenure.engines.contracts import KEY_MEMORY_S
from tenure.engines.ended_keys import EndedKeys
from tenure.engines.mailbox_keys import MailboxKeys
from tenure.engines.mailbox_records import KeyRecord


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> MailboxKeys:
    monkeypatch.setattr(MailboxKeys, "most_unpacked", 2)
    return MailboxKeys()


def ended(keys: MailboxKeys, name: str, now: float, key: KeyRecord | None = None) -> None:
    key = key or KeyRecord(0, live="message")
    keys.hold(name, key)
    keys.end(name, key, now)


def test_the_newest_ends_stay_records_and_those_before_them_are_packed(keys: MailboxKeys) -> None:
    for number in range(5):
        ended(keys, f"k{number}", float(number), KeyRecord(number))
    assert list(keys.records) == ["k3", "k4"]
    assert len(keys.packed) == 3
    found = [keys.find(f"k{number}", 5.0) for number in range(5)]
    assert [key.generation if key else None for key in found] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "key",
    [KeyRecord(0, checkpoint=b""), KeyRecord(0, steps=[b"s"]), KeyRecord(-1, revoked=True), KeyRecord(2**32)],
    ids=["checkpoint", "steps", "revoked", "large generation"],
)
def test_a_key_that_left_more_than_its_generation_stays_a_record_for_its_day(keys: MailboxKeys, key: KeyRecord) -> None:
    ended(keys, "rich", 1.0, key)
    for number in range(4):
        ended(keys, f"k{number}", 2.0)
    assert keys.find("rich", 3.0) is key
    assert keys.find("rich", 1.0 + KEY_MEMORY_S) is None
    assert "rich" not in keys.records


def test_a_packed_key_that_lives_again_is_a_record_and_its_old_end_does_not_end_it(keys: MailboxKeys) -> None:
    for number in range(4):
        ended(keys, f"k{number}", float(number))
    again = keys.find("k0", 10.0)
    assert again is not None
    again.generation, again.live = 1, "another"
    keys.hold("k0", again)
    late = 3 * KEY_MEMORY_S
    assert keys.find("k0", late) is again
    keys.end("k0", again, late)
    for number in range(4):
        ended(keys, f"n{number}", late)
    packed_again = keys.find("k0", late + 1.0)
    assert packed_again is not None
    assert packed_again.generation == 1
    assert "k0" not in keys.records


def test_a_key_that_was_only_looked_at_stays_packed(keys: MailboxKeys) -> None:
    for number in range(4):
        ended(keys, f"k{number}", 0.0)
    assert keys.find("k0", 1.0) is not None
    assert "k0" not in keys.records


def test_a_mailbox_that_nobody_uses_lets_go_of_its_keys(keys: MailboxKeys) -> None:
    for number in range(6):
        ended(keys, f"k{number}", 0.0)
    ended(keys, "rich", 0.0, KeyRecord(0, checkpoint=b"c"))
    keys.sweep(KEY_MEMORY_S)
    assert not keys.records
    assert not len(keys.packed)
    assert not keys.ended
    assert not keys.marked


def test_a_snapshot_of_the_time_before_keys_were_packed_is_packed_when_it_is_read(keys: MailboxKeys) -> None:
    records = {f"k{number}": KeyRecord(number, ended_at=float(number)) for number in range(10)}
    ends = [(float(number), f"k{number}") for number in range(10)]
    read = MailboxKeys.restored(records, ends, deque(), EndedKeys())
    assert len(read.records) == 2
    found = [read.find(f"k{number}", 10.0) for number in range(10)]
    assert [key.generation if key else None for key in found] == list(range(10))
