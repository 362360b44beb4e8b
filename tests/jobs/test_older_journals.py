"""A journal of an earlier release is read whatever it holds: bounds are for the door, and decoding does not enforce them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.jobs.desk import submission

from tenure.bound_checks import check
from tenure.errors import OutOfBoundsError
from tenure.jobs import JobBook
from tenure.jobs.decisions import encode_event
from tenure.jobs.queues import QueueChanged, note_dispatch, opens_at, room

OLD: dict[str, dict[str, Any]] = {
    "a queue that no mailbox can be called after": {"queue": "my queue"},
    "a function of 9,000 characters": {"workflows": [{"name": "w", "function": "f" * 9_000}]},
    "a workflow's name with a space": {"workflows": [{"name": "step 1"}]},
    "a gate that nobody can connect to": {"gate_addr": ["\u202e", 1]},
    "labels of any length": {"labels": {"k" * 1_000: "v" * 10_000}},
    "a timeout of a century": {"timeout_seconds": 3e9},
}


def encoded(changes: dict[str, Any]) -> bytes:
    plain = msgspec.to_builtins(submission("old"))
    event = {"type": "JobSubmitted", "at": 1.0, "job_id": "old", "digest": "d", "submission": {**plain, **changes}}
    return msgspec.json.encode(event)


@pytest.mark.parametrize("changes", OLD.values(), ids=OLD)
def test_an_entry_that_the_door_would_refuse_is_folded_snapshotted_and_restored(changes: dict[str, Any]) -> None:
    book = JobBook()
    book.replay([encoded(changes)])
    again = JobBook.restore(book.snapshot())
    held = again.jobs["old"].job.submission
    with pytest.raises(OutOfBoundsError):
        check(held)


def test_a_rate_that_an_earlier_release_journaled_does_not_end_the_arithmetic() -> None:
    book = JobBook()
    changed = QueueChanged(at=1.0, queue="default", rate=5e-324, burst=2)
    book.replay([encode_event(changed)])
    record = book.state.queues["default"]
    for _ in range(3):
        note_dispatch(record, 2.0)
    assert room(record, 0, 2.0) == 0
    assert 2.0 < opens_at(record, 2.0) < 1e11
