"""Exclude lists at the worker: left to others while there are any, and never stranded."""

from __future__ import annotations

from collections.abc import Callable

from tests.memory import kept_bytes

from tenure.work.envelope import WorkItem
from tenure.work.slots.claim_filter import MOST_PAUSE_S, STRANGER_PATIENCE_S, ClaimFilter


def item(*excluded: str, attempt: int = 2) -> WorkItem:
    return WorkItem(workflow="w", job_id="j", workflow_id="w", attempt=attempt, excluded=excluded)


def test_a_name_that_no_worker_can_have_is_not_left_to_others() -> None:
    claim_filter = ClaimFilter("w", knows=lambda *named: False)
    assert claim_filter.declines(WorkItem(workflow="nobody"), 3, 0.0)
    assert not claim_filter.declines(WorkItem(workflow="w" * 9_000), 3, 0.0)


def test_a_worker_leaves_work_that_excludes_it_to_others() -> None:
    claim_filter = ClaimFilter("w-1")
    assert claim_filter.declines(item("w-1", "w-3"), peers=1, now=0)
    assert not claim_filter.declines(item("w-3"), peers=1, now=0)
    assert not claim_filter.declines(item(), peers=1, now=0)


def test_a_worker_that_is_alone_takes_it() -> None:
    assert not ClaimFilter("w-1").declines(item("w-1"), peers=0, now=0)


def test_work_of_a_version_that_is_not_here_is_left_to_those_who_have_it() -> None:
    def knows(workflow: str, version: str | None) -> bool:
        return (workflow, version) == ("encode", "2")

    old = WorkItem(workflow="encode", version="1", job_id="j", workflow_id="w", attempt=1)
    new = WorkItem(workflow="encode", version="2", job_id="k", workflow_id="w", attempt=1)
    claim_filter = ClaimFilter("w-1", knows=knows, unknown_patience_s=300)
    assert claim_filter.declines(old, peers=1, now=0)
    assert not claim_filter.declines(new, peers=1, now=0)
    assert claim_filter.declines(old, peers=1, now=299)
    # Then it is a clear failure, and nobody waits for ever; alone, it is one at once.
    assert not claim_filter.declines(old, peers=1, now=300)
    assert not claim_filter.declines(old, peers=0, now=1)


def test_a_worker_that_has_just_started_waits_to_hear_whether_there_are_others() -> None:
    claim_filter = ClaimFilter("w-1", knows=lambda workflow, version: False)
    assert claim_filter.declines(item(), peers=None, now=0)
    assert not claim_filter.declines(item(), peers=0, now=1)
    assert not claim_filter.declines(item(), peers=None, now=STRANGER_PATIENCE_S)
    # What it knows it takes: an exclude list counts only where others are known.
    assert not ClaimFilter("w-1").declines(item("w-1"), peers=None, now=0)


def test_nobody_declines_the_same_attempt_for_ever() -> None:
    claim_filter = ClaimFilter("w-1", patience_s=30)
    assert claim_filter.declines(item("w-1"), 5, 100.0)
    assert claim_filter.declines(item("w-1"), 5, 129.9)
    assert not claim_filter.declines(item("w-1"), 5, 130.0)
    assert claim_filter.declines(item("w-1", attempt=3), 5, 130.0)  # another attempt is another matter


def test_what_is_given_back_again_and_again_is_left_alone_for_longer() -> None:
    claim_filter = ClaimFilter("w-1")
    pauses = []
    for n in range(6):
        assert claim_filter.declines(item("w-1"), 5, n)
        pauses.append(claim_filter.pause_s)
    assert pauses == sorted(pauses)
    assert pauses[-1] == MOST_PAUSE_S
    assert not claim_filter.declines(item(), 5, 10)
    assert claim_filter.pause_s < pauses[0]


def test_what_it_remembers_is_bounded() -> None:
    def after(declined: int) -> Callable[[], ClaimFilter]:
        def fill() -> ClaimFilter:
            claim_filter = ClaimFilter("w-1")
            for n in range(declined):
                claim_filter.declines(item("w-1", attempt=n), 1, 0)
            return claim_filter

        return fill

    assert kept_bytes(after(5_000)) < 1.5 * kept_bytes(after(1_000))
