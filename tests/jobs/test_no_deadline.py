"""A job without a deadline: two weeks under a leader of each day, through a gate and without one; it ends when it stands still."""

from __future__ import annotations

import pytest
from tests.jobs.desk import Both, Desk

from tenure.jobs.decisions import Outcome, Rule
from tenure.jobs.settings import STUCK_THRESHOLD_S

DAY_S, EVERY_S, DAYS = 86_400.0, 100.0, 14


def test_it_advances_for_two_weeks_and_completes() -> None:
    desk = Desk()
    desk.submit("j")
    desk.run()
    for step in range(1, int(DAYS * DAY_S / EVERY_S) + 1):
        desk.at += EVERY_S
        assert desk.check().outcome is Outcome.NOTHING
        desk.advance(step)
        if desk.at % DAY_S == 0:
            desk.elect(f"m{step}")
    assert desk.at == DAYS * DAY_S
    desk.result()
    assert desk.state() == "completed"
    assert len(desk.book.job("j").history) <= desk.settings.history_limit


def test_it_is_found_when_it_stands_still_after_two_weeks() -> None:
    desk = Desk()
    desk.submit("j")
    desk.run()
    desk.at = DAYS * DAY_S
    desk.advance(1)
    assert desk.due() == pytest.approx(desk.at + STUCK_THRESHOLD_S)
    desk.at += STUCK_THRESHOLD_S
    assert desk.check().outcome is Outcome.NOTHING
    desk.at += 0.1
    assert desk.check().rule is Rule.STUCK
    assert desk.state() == "timed_out"


def test_a_gate_never_declares_its_deadline() -> None:
    both = Both("dc-a", timeout=None).start()  # type: ignore[arg-type]
    desk = both.desks["dc-a"]
    for step in range(1, int(DAYS * DAY_S / EVERY_S) + 1):
        both.at(step * EVERY_S)
        desk.advance(step)
        both.gate.tracker.heard_progress("j", "dc-a", both.gate.at)
        assert both.check().outcome is Outcome.NOTHING
    assert both.gate.tracker.deadline(both.info) == float("inf")
