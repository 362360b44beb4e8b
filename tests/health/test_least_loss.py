"""When attempts leave a worker that must go: the rule, case by case."""

from __future__ import annotations

from tenure.health.least_loss import JUST_SAVED_S, MarkWatch


def watched(*marks: float, key: str = "a", began: float = 0.0) -> MarkWatch[str]:
    """An attempt that began, and saved at each of these times."""
    found: MarkWatch[str] = MarkWatch()
    found.look(key, 0, began)
    for number, at in enumerate(marks, 1):
        found.look(key, number, at)
    return found


def test_the_loss_is_the_work_since_the_last_mark_or_since_the_start() -> None:
    assert watched().loss_s("a", 40.0) == 40.0
    assert watched(30.0).loss_s("a", 40.0) == 10.0
    assert watched().loss_s("unknown", 40.0) == 0.0


def test_one_that_has_just_saved_goes_at_once() -> None:
    assert watched(30.0, 60.0).leaving(["a"], 60.0 + JUST_SAVED_S, until=200.0) == ["a"]


def test_one_whose_next_mark_comes_in_time_waits_for_it() -> None:
    marks = watched(30.0, 60.0)
    assert not marks.leaving(["a"], 70.0, until=100.0)
    marks.look("a", 3, 91.0)
    assert marks.leaving(["a"], 92.0, until=100.0) == ["a"]


def test_one_whose_next_mark_comes_too_late_goes_now() -> None:
    assert watched(30.0, 60.0).leaving(["a"], 70.0, until=80.0) == ["a"]


def test_one_that_never_saved_may_complete_and_goes_at_the_end() -> None:
    assert not watched().leaving(["a"], 70.0, until=80.0)
    assert watched().leaving(["a"], 80.0, until=80.0) == ["a"]


def test_at_the_end_all_go_and_the_least_loss_first() -> None:
    marks = watched(10.0, key="much")
    marks.look("little", 0, 0.0)
    marks.look("little", 1, 70.0)
    assert marks.leaving(["much", "little", "unseen"], 100.0, until=100.0) == ["unseen", "little", "much"]


def test_what_is_not_kept_is_forgotten() -> None:
    marks = watched(10.0)
    marks.keep(["b"])
    assert marks.saved("a") is None
