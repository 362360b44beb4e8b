"""The outbox between gates and managers: `jobs.gate_outbox.Outbox`, with the time passed in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.backoff import delay_after
from tenure.jobs.gate_outbox import FAILED_PAUSE_S, Outbox


def outbox() -> Outbox[str, str]:
    return Outbox(lambda debt, sent: delay_after(sent, first_s=1.0, most_s=8.0))


def sent_at(box: Outbox[str, str], until: float, key: str = "a") -> list[float]:
    moments = []
    while (now := box.next_due()) < until:
        moments += [now for found, _ in box.due(now, {}) if found == key]
    return moments


def test_a_debt_is_due_at_once_and_again_after_growing_pauses_until_it_is_settled() -> None:
    box = outbox()
    box.owe("a", "cancel", 10.0)
    assert sent_at(box, 40.0) == [10.0, 11.0, 13.0, 17.0, 25.0, 33.0]
    box.settle("a")
    assert box.due(1_000.0, {}) == []
    assert box.owed("a") is None


def test_the_same_debt_again_keeps_its_pause_and_another_one_is_due_at_once() -> None:
    box = outbox()
    box.owe("a", "submission", 0.0)
    assert box.due(0.0, {}) == [("a", "submission")]
    box.owe("a", "submission", 0.5)
    assert box.due(0.5, {}) == []
    box.owe("a", "cancel", 0.6)
    assert box.due(0.6, {}) == [("a", "cancel")]
    assert box.next_due() == 1.6  # the pauses began anew


def test_a_debt_that_may_wait_is_never_put_off_by_a_changed_one() -> None:
    box = outbox()
    box.owe("a", "progress", 0.0, within_s=10.0)
    box.owe("a", "more progress", 4.0, within_s=10.0)
    assert box.next_due() == 10.0


def test_who_is_back_gets_everything_at_once() -> None:
    box = outbox()
    for key in ("a", "b"):
        box.owe(key, "cancel", 0.0)
    sent_at(box, 20.0)
    box.hurry(["a"], 20.0)
    assert box.due(20.0, {}) == [("a", "cancel")]
    assert box.next_due() == 21.0


def test_a_debt_whose_pause_cannot_be_computed_is_sent_and_holds_up_no_other() -> None:
    def pause_s(debt: str, sent: int) -> float:
        return 1.0 / (debt != "poison")

    box: Outbox[str, str] = Outbox(pause_s)
    for key, debt in (("a", "poison"), ("b", "cancel")):
        box.owe(key, debt, 0.0)
    failed: dict[str, Exception] = {}
    assert box.due(0.0, failed) == [("a", "poison"), ("b", "cancel")]
    assert list(failed) == ["a"]
    box.settle("b")
    assert box.next_due() == FAILED_PAUSE_S


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["owe", "settle", "hurry", "wait"])), max_size=40))
def test_whatever_happens_each_debt_that_is_not_settled_is_sent_within_the_longest_pause(
    story: list[tuple[str, str]],
) -> None:
    box, now, owed = outbox(), 0.0, set[str]()
    for key, step in story:
        now += 1.0
        if step == "owe":
            box.owe(key, f"since {now}", now)
            owed.add(key)
        elif step == "settle":
            box.settle(key)
            owed.discard(key)
        elif step == "hurry":
            box.hurry([one for one in box if one == key], now)
        else:
            box.due(now, {})
    sent = {key for moment in (now, now + 8.0) for key, _ in box.due(moment, {})}
    assert sent == owed == set(box)
