from __future__ import annotations

import pytest

from tenure.agent import Budget, BudgetTracker, Deadline, Prices, Usage
from tenure.clock import ManualClock
from tenure.errors import LimitError


def test_a_budget_that_is_reached_says_which_limit_and_how_much() -> None:
    tracker = BudgetTracker(Budget(max_total_tokens=100, max_output_tokens=1_000))
    tracker.charge(Usage(50, 49))
    assert tracker.exhausted() is None
    tracker.charge(Usage(0, 1))
    assert tracker.exhausted() == "tokens 100 of 100"


def test_money_is_counted_with_the_price_of_cached_input() -> None:
    tracker = BudgetTracker(Budget(max_cost=0.01), Prices(input=2, output=10, cached=0.2))
    tracker.charge(Usage(input_tokens=1_000, output_tokens=100, cached_tokens=500))
    assert tracker.spent.cost == pytest.approx((500 * 2 + 500 * 0.2 + 100 * 10) / 1e6)
    assert tracker.exhausted() is None
    tracker.charge(Usage(output_tokens=1_000))
    assert tracker.exhausted() == "cost 0.0121 of 0.01"


def test_a_limit_on_money_without_prices_is_refused_rather_than_ignored() -> None:
    with pytest.raises(LimitError, match="prices"):
        BudgetTracker(Budget(max_cost=1))


def test_tool_calls_have_a_limit_of_their_own() -> None:
    tracker = BudgetTracker(Budget(max_tool_calls=1))
    assert tracker.refuses_tool_call() is None
    tracker.count_tool_call()
    assert tracker.refuses_tool_call() == "tool calls 1 of 1"
    assert tracker.exhausted() is None  # the model may still answer


def test_a_negative_budget_names_its_field() -> None:
    with pytest.raises(LimitError, match=r"Budget.max_tool_calls is -1"):
        Budget(max_tool_calls=-1)


def test_a_running_deadline_is_not_moved_by_a_stepped_wall_clock() -> None:
    clock = ManualClock()
    countdown = Deadline.after(60, clock).countdown(clock)
    clock.step_wall(3_600)
    assert countdown.remaining_s == 60
    clock.advance(60)
    assert countdown.over


def test_the_earlier_of_two_deadlines_wins() -> None:
    assert Deadline(5).earlier(Deadline(3)) == Deadline(3)
    assert Deadline(5).earlier(None) == Deadline(5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_deadline_is_a_finite_time(value: float) -> None:
    with pytest.raises(LimitError):
        Deadline(value)
