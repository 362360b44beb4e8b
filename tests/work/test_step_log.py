"""The rules about the steps of one workflow: what is recorded, what repeats, and what order counts."""

from __future__ import annotations

import pytest

from tenure.errors import LimitError, StepConflictError
from tenure.jobs.attempt_rest import is_new_mark, joined_marks
from tenure.work.delivery import mark_of
from tenure.work.step_log import MOST_STEP_BYTES, STEP, StepId, StepLog, StepRecord, encode_record


def named(name: str, key: str = "") -> StepId:
    return StepId(STEP, name, key)


def record(name: str, *, alone: bool = True, key: str = "", result: bytes = b"1") -> bytes:
    return encode_record(StepRecord(STEP, name, key, alone, result))


def test_a_recorded_step_is_found_and_another_is_to_be_run() -> None:
    log = StepLog([record("a", result=b"7")])
    found = log.begin(named("a"))
    assert found is not None
    assert found.result == b"7"
    assert log.begin(named("b")) is None


def test_a_record_that_was_appended_twice_counts_once_and_the_first_stays() -> None:
    log = StepLog([record("a", result=b"1"), record("a", result=b"2")])
    assert log.count == 1
    found = log.begin(named("a"))
    assert found is not None
    assert found.result == b"1"


@pytest.mark.parametrize("before", [[], [record("charge")]])
def test_a_name_that_repeats_needs_a_key_and_the_error_names_both_calls(before: list[bytes]) -> None:
    log = StepLog(before)
    log.begin(named("charge"))
    log.finished(record("charge"))
    log.begin(named("mail"))
    with pytest.raises(StepConflictError, match=r"'charge' was call 1 .* again as call 3"):
        log.begin(named("charge"))
    assert log.begin(named("charge", "order-2")) is None


def test_an_order_that_changed_is_an_error_that_names_both() -> None:
    log = StepLog([record("a"), record("b"), record("c")])
    log.begin(named("b"))
    with pytest.raises(StepConflictError, match=r"'a' comes after step 'b'"):
        log.begin(named("a"))


def test_steps_may_be_added_and_left_out_between_recorded_ones() -> None:
    log = StepLog([record("a"), record("b"), record("c")])
    assert log.begin(named("a"))
    assert log.begin(named("new")) is None
    assert log.begin(named("c"))


def test_steps_that_ran_at_once_have_no_order() -> None:
    log = StepLog([])
    log.begin(named("a"))
    log.begin(named("b"))
    first = log.recorded(named("b"), b"1")
    log.finished(first)
    second = log.recorded(named("a"), b"1")
    log.finished(second)
    log.begin(named("c"))
    third = log.recorded(named("c"), b"1")
    again = StepLog([first, second, third])
    for name in ("a", "b", "c"):
        assert again.begin(named(name))
    other = StepLog([first, second, third])
    for name in ("b", "a", "c"):
        assert other.begin(named(name))


def test_names_and_sizes_are_bounded() -> None:
    log = StepLog([])
    for wrong in (named(""), named("x" * 201), named("a", "k" * 201)):
        with pytest.raises(LimitError):
            log.begin(wrong)
    log.begin(named("a"))
    with pytest.raises(LimitError, match=r"4,194,304 bytes for all steps"):
        log.recorded(named("a"), b"x" * MOST_STEP_BYTES)


def test_a_mark_is_new_for_another_checkpoint_and_for_more_steps() -> None:
    saved, other = mark_of(b"1"), mark_of(b"2")
    assert is_new_mark(saved, 0)
    assert is_new_mark(other, saved)
    assert not is_new_mark(saved, saved)
    assert is_new_mark(mark_of(None, 1), saved)
    assert is_new_mark(mark_of(b"1", 2), mark_of(b"1", 1))
    assert not is_new_mark(mark_of(b"1", 1), mark_of(b"1", 1))
    # An attempt that never read its steps knows nothing of them.
    assert not is_new_mark(saved, mark_of(b"1", 5))
    assert not is_new_mark(None, saved)
    assert joined_marks(other, mark_of(b"1", 5)) == mark_of(b"2", 5)
    assert joined_marks(None, saved) == saved
