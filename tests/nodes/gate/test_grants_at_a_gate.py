"""Time left, as a gate tells it: by one clock, whatever the clocks of the datacenters show."""

from __future__ import annotations

from tenure.control.messages.grants import Grant, GrantKind, shifted
from tenure.control.messages.jobs import JobView, WorkflowView
from tenure.jobs.states import JobState, WorkflowState
from tenure.nodes.gate.reading import in_our_time


def view(now: float) -> JobView:
    grants = (Grant(kind=GrantKind.STALL, until=now + 30.0, span_s=60.0),)
    workflow = WorkflowView(
        name="w", function="w", state=WorkflowState.RUNNING, attempt=1, max_attempts=3, grants=grants
    )
    return JobView(
        job_id="j",
        name="",
        state=JobState.RUNNING,
        reason="",
        submitted_at=now,
        started_at=now,
        ended_at=0.0,
        deadline=now + 600.0,
        now=now,
        workflows=(workflow,),
        grants=(Grant(kind=GrantKind.DEADLINE, until=now + 600.0),),
    )


def test_what_is_left_by_a_clock_that_is_an_hour_ahead_is_as_much_by_ours() -> None:
    ours = in_our_time(view(now=4_600.0), 1_000.0)
    assert ours.now == 1_000.0
    assert [grant.until for grant in ours.grants] == [1_600.0]
    assert [grant.until for grant in ours.workflows[0].grants] == [1_030.0]
    assert ours.workflows[0].grants[0].span_s == 60.0


def test_a_shift_moves_the_end_and_nothing_else() -> None:
    grant = Grant(kind=GrantKind.LEASE, until=10.0, span_s=5.0, note="n")
    assert shifted((grant,), -4.0) == (Grant(kind=GrantKind.LEASE, until=6.0, span_s=5.0, note="n"),)
