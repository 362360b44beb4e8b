"""What attempts were silent for becomes a proposed stall threshold, which is compared with the set one. The fold learns; nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.jobs.desk import Desk, spec

from tenure.attempt_data import AttemptSilence
from tenure.backoff import Retry
from tenure.jobs import JobBook, learned_gaps
from tenure.jobs.attempts import Dispatched
from tenure.jobs.catalogue import RegisterWorkflows, offer_digest
from tenure.jobs.learned_gaps import (
    BEYOND_LONGEST,
    FEWEST,
    FLOOR_S,
    MEMORY,
    GapRecord,
    bucket_of,
    learned_for,
    propose,
    teach,
    threshold,
    weight,
)
from tenure.jobs.outbox import to_dispatch
from tenure.jobs.states import AttemptCause
from tenure.nodes.manager.operator_views import threshold_list
from tenure.served_workflow import ServedWorkflow

WORKFLOW = spec(version="2", retry=Retry(max_attempts=3, delay=1.0, jitter=0.0))
SET_S = 300.0


def silent(longest_s: float, last_s: float = 0.1, **rest: Any) -> AttemptSilence:
    return AttemptSilence(longest_s, last_s, rest.pop("allowed_s", SET_S), "2", **rest)


def ran(desk: Desk, name: str, silence: AttemptSilence, workflow: Any = WORKFLOW) -> None:
    desk.submit(name, workflow)
    desk.run(name, worker="w1")
    desk.at += 1.0
    desk.result(name, worker="w1", silence=silence)


def learned(desk: Desk) -> GapRecord:
    return desk.book.state.gaps.workflows["w@2"]


def taught(attempts: int = FEWEST, longest_s: float = 4.0) -> Desk:
    desk = Desk(at=100.0)
    for number in range(attempts):
        ran(desk, f"j{number}", silent(longest_s * (1 + number % 10 / 10)))
    return desk


def test_nothing_is_proposed_before_the_record_is_long_enough() -> None:
    desk = taught(FEWEST - 1)
    assert threshold(learned(desk)) == (None, f"its record is too short: {FEWEST - 1} of {FEWEST} attempts")
    ran(desk, "last", silent(4.0))
    found = threshold(learned(desk))
    assert found.seconds is not None
    assert BEYOND_LONGEST * 7.6 < found.seconds < 60


def test_no_proposal_is_below_the_floor() -> None:
    record = GapRecord()
    for _ in range(FEWEST):
        teach(record, 0.01)
    assert threshold(record).seconds == FLOOR_S


def test_the_silence_in_which_an_attempt_returned_counts_too() -> None:
    desk = taught()
    ran(desk, "late", silent(1.0, last_s=200.0))
    assert learned(desk).last_wrong is not None
    assert max(learned(desk).buckets) == bucket_of(200.0)


def test_an_attempt_that_went_on_after_the_proposal_is_told_as_wrong_and_raises_it() -> None:
    desk = taught()
    before = learned(desk).proposed_s
    ran(desk, "slow", silent(51.0))
    [line] = threshold_list(desk.book, "", desk.at).thresholds
    assert line.last_wrong is not None
    assert line.last_wrong.text == f"would have ended it at {before:g} s; it went on at 51 s: wrong"
    assert (line.wrong, line.last_wrong.job_id) == (1, "slow")
    assert learned(desk).proposed_s >= BEYOND_LONGEST * 51


def test_a_record_that_was_wrong_twice_lets_the_set_threshold_hold_until_it_is_forgotten() -> None:
    desk = taught()
    for name in ("slow", "slower"):
        ran(desk, name, silent(1.2 * learned(desk).proposed_s))
    assert threshold(learned(desk)).seconds is None
    assert "wrong 2 times" in threshold(learned(desk)).why
    for number in range(MEMORY):
        ran(desk, f"more{number}", silent(4.0))
    assert threshold(learned(desk)).seconds is not None


def test_a_hang_that_the_set_threshold_ends_is_compared_and_teaches_nothing() -> None:
    desk = taught()
    seen, proposed = learned(desk).seen, learned(desk).proposed_s
    desk.submit("hung", WORKFLOW)
    desk.run("hung", worker="w1")
    desk.at += 400.0
    desk.fail("hung", cause=AttemptCause.STALL, worker="w1", silence=silent(5.0, last_s=305.0))
    record = learned(desk)
    assert (record.seen, record.found, record.wrong_ever) == (seen, 1, 0)
    assert record.sooner_s == pytest.approx(SET_S - proposed)


def test_work_that_spins_is_no_hang_that_a_shorter_threshold_would_find() -> None:
    desk = taught()
    desk.submit("spins", WORKFLOW)
    desk.run("spins", worker="w1")
    desk.fail("spins", cause=AttemptCause.STALL, worker="w1", silence=silent(5.0, last_s=0.5))
    assert learned(desk).found == 0


def test_an_attempt_that_was_cut_short_teaches_nothing() -> None:
    desk = taught(10)
    desk.submit("crashed", WORKFLOW)
    desk.run("crashed", worker="w1")
    desk.fail("crashed", cause=AttemptCause.CRASH, worker="w1", silence=silent(90.0))
    assert learned(desk).seen == 10


def test_after_a_stall_the_set_threshold_holds_for_the_rest_of_the_job_and_shows_whether_it_was_wrong() -> None:
    desk = served(taught())
    proposed = learned(desk).proposed_s
    desk.submit("slow", WORKFLOW)
    [first] = [one for one in to_dispatch(desk.book, desk.at) if one.job_id == "slow"]
    assert first.learned is not None
    assert first.learned.seconds == proposed
    desk.run("slow", worker="w1")
    desk.fail(
        "slow", cause=AttemptCause.STALL, worker="w1", silence=silent(1.0, proposed, allowed_s=proposed, learned=True)
    )
    assert learned(desk).found == 1, "it counts as a hang that was found sooner, so far"
    desk.at += 5.0
    [again] = [one for one in to_dispatch(desk.book, desk.at) if one.job_id == "slow"]
    assert again.learned == (None, "an earlier attempt of it was ended for its silence")
    desk.run("slow", attempt=2, worker="w1")
    desk.result("slow", attempt=2, worker="w1", silence=silent(2 * proposed))
    assert learned(desk).wrong_ever == 1
    assert learned(desk).proposed_s > proposed


def served(desk: Desk) -> Desk:
    found = (ServedWorkflow(name="w", version="2", learn=True),)
    lanes = ("default.p0",)
    offer = offer_digest(lanes, found)
    desk.do(RegisterWorkflows(worker="w1", incarnation="i1", offer=offer, lanes=lanes, workflows=found))
    return desk


def test_a_version_without_a_record_keeps_the_set_threshold_for_work_that_any_version_may_do() -> None:
    desk = taught()
    gaps = desk.book.state.gaps
    assert learned_for(gaps, "w", ["2"]).seconds is not None
    assert learned_for(gaps, "w", ["2", "3"]).seconds is None
    assert learned_for(gaps, "w", []).seconds is None


def test_why_says_which_threshold_held() -> None:
    event = Dispatched(
        at=1.0, job_id="j", workflow="w", attempt=1, learned_s=42.0, threshold="learned from 812 attempts"
    )
    assert event.threshold_words == ". It may be silent for 42 s: learned from 812 attempts"
    held = Dispatched(at=1.0, job_id="j", workflow="w", attempt=1, threshold="its record is too short")
    assert held.threshold_words == ". The set stall threshold holds: its record is too short"
    assert not Dispatched(at=1.0, job_id="j", workflow="w", attempt=1).threshold_words


def test_a_line_says_which_threshold_holds_and_why() -> None:
    desk = taught()
    [line] = threshold_list(desk.book, "w", desk.at).thresholds
    assert (line.learns, line.holds_s) == (False, SET_S)
    assert 'stall="learn"' in line.why
    [line] = threshold_list(served(desk).book, "w", desk.at).thresholds
    assert (line.learns, line.holds_s) == (True, learned(desk).proposed_s)
    assert line.why.startswith(f"learned from {FEWEST} attempts")
    assert threshold_list(desk.book, "other", desk.at).thresholds == ()


def test_old_attempts_are_forgotten_so_a_workflow_that_became_faster_gets_a_shorter_threshold() -> None:
    record = GapRecord()
    for number in range(400):
        teach(record, 20.0 + number % 7)
    slow = record.proposed_s
    for number in range(4 * MEMORY):
        teach(record, 2.0 + number % 7 / 10)
    assert record.proposed_s < slow / 2
    assert weight(record) <= MEMORY


def test_two_records_of_one_workflow_add_up() -> None:
    one, other, both = GapRecord(), GapRecord(), GapRecord()
    for number in range(280):
        seconds = 1.0 + number % 23
        teach(one if number % 2 else other, seconds)
        teach(both, seconds)
    keys = one.buckets.keys() | other.buckets.keys()
    summed = {key: one.buckets.get(key, 0.0) + other.buckets.get(key, 0.0) for key in keys}
    assert summed == both.buckets
    assert propose(summed) == propose(both.buckets)


def test_memory_is_bounded_and_the_size_of_the_state_never_too_low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_gaps, "MOST_WORKFLOWS", 3)
    desk = Desk(at=100.0)
    for number in range(150):
        name = f"w{number % 4}"
        desk.submit(f"j{number}", spec(name))
        desk.run(f"j{number}", name, worker="w1")
        desk.at += 5.0
        desk.result(f"j{number}", name, worker="w1", silence=silent(1.1**number))
        assert desk.book.size.total >= len(JobBook.restore(desk.book.snapshot()).snapshot())
    assert len(desk.book.state.gaps.workflows) == 3


def test_a_snapshot_and_a_journal_know_the_same() -> None:
    desk = taught(250)
    again = JobBook()
    again.replay(desk.journal)
    restored = JobBook.restore(desk.book.snapshot())
    assert again.state.gaps == restored.state.gaps == desk.book.state.gaps
