"""Ended keys in 28 bytes each: they answer as a dictionary would, and a snapshot of them goes on where they were."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.engines import ended_keys
from tenure.engines.contracts import KEY_MEMORY_S
from tenure.engines.ended_keys import SHELF, EndedKeys

NAMES = [f"job-{number}/w" for number in range(12)]
calls = st.lists(
    st.tuples(
        st.sampled_from(("put", "put", "put", "sweep", "restore")),
        st.sampled_from(NAMES),
        st.integers(0, 5),
        st.sampled_from((0.0, 1.0, KEY_MEMORY_S / 3, KEY_MEMORY_S)),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(calls)
def test_they_answer_as_a_dictionary_of_generations_would(plan: list[tuple[str, str, int, float]]) -> None:
    keys, model, now = EndedKeys(), dict[str, tuple[int, float]](), 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ended_keys, "SHELF", 3)
        patch.setattr(ended_keys, "_SWEPT_EVERY", 2)
        for call, name, generation, span in plan:
            now += span
            if call == "put":
                keys.put(name, generation, now, now)
                model[name] = (generation, now)
            elif call == "sweep":
                keys.sweep(now)
            else:
                keys = EndedKeys(*keys.keep())
            for each in NAMES:
                known, ended_at = model.get(each, (None, 0.0))
                assert keys.generation(each, now) == (known if ended_at + KEY_MEMORY_S > now else None)


def test_a_key_is_forgotten_at_the_moment_at_which_its_day_is_over() -> None:
    keys = EndedKeys()
    keys.put("job", 7, 1_000.1, 1_000.1)
    assert keys.generation("job", 1_000.1 + KEY_MEMORY_S - 0.001) == 7
    assert keys.generation("job", 1_000.1 + KEY_MEMORY_S) is None


def test_a_later_end_of_a_key_counts_and_the_key_takes_one_entry() -> None:
    keys = EndedKeys()
    keys.put("job", 1, 10.0, 10.0)
    keys.put("job", 2, KEY_MEMORY_S, KEY_MEMORY_S)
    assert len(keys) == 1
    assert keys.generation("job", KEY_MEMORY_S + 10.0) == 2


def test_old_entries_leave_while_new_ones_come_and_shelves_keep_their_length() -> None:
    """As in a mailbox that is busy for days: what it holds is the last day and a little."""
    keys, a_day = EndedKeys(), 20_000
    names = [f"{number}" for number in range(3 * a_day)]
    for number, name in enumerate(names):
        now = number * KEY_MEMORY_S / a_day
        keys.put(name, 0, now, now)
        assert len(keys) <= 1.15 * a_day
    assert a_day - 1 <= sum(keys.generation(name, now) is not None for name in names) <= a_day
    shelves, _, _ = keys.keep()
    assert all(0 < len(shelf) <= 28 * SHELF for shelf in shelves)
    assert sum(map(len, shelves)) == 28 * len(keys)


def test_two_that_were_told_the_same_have_the_same_snapshot_also_where_one_was_restored_on_the_way() -> None:
    chance = random.Random(3)
    steady, restored = EndedKeys(), EndedKeys()
    for number in range(30_000):
        name, now = str(chance.randrange(20_000)), number * KEY_MEMORY_S / 15_000
        for keys in (steady, restored):
            keys.put(name, number, now, now)
        if number % 5_000 == 0:
            restored = EndedKeys(*restored.keep())
    assert steady.keep() == restored.keep()


@pytest.mark.parametrize("damage", [b"", bytes(27), bytes([9] * 8) + bytes(48)], ids=["empty", "cut", "order"])
def test_bytes_that_are_no_shelf_are_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match="shelf of keys"):
        EndedKeys([damage])


def test_names_that_are_no_unicode_have_entries_too() -> None:
    keys = EndedKeys()
    keys.put("\udcff", 1, 0.0, 0.0)
    assert keys.generation("\udcff", 1.0) == 1


def test_digests_with_an_equal_half_stay_on_one_shelf_however_full_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who makes such names must not have their ends forgotten."""
    monkeypatch.setattr(ended_keys, "SHELF", 3)
    monkeypatch.setattr(ended_keys, "_digest", lambda name: (int(name) // 10, int(name) % 10))
    keys, names = EndedKeys(), [str(number) for number in (*range(50, 60), *range(10, 20), *range(30, 33), 99)]
    for number, name in enumerate(names):
        keys.put(name, number, 0.0, 0.0)
    assert [keys.generation(name, 1.0) for name in names] == list(range(len(names)))
    assert keys.generation("34", 1.0) is None
