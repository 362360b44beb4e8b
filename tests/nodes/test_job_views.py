"""Views of jobs: the times of a datacenter whose clock is off are told by the clock of its gate."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.control.messages.jobs import JobView, WhyReply, WorkflowView
from tenure.control.messages.wire import Grant, GrantKind, shifted
from tenure.jobs.model import GateJobTrackingInfo, JobSubmission, WorkflowSpec
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.why_answer import AttemptRun, Why
from tenure.nodes.job_views import WorkflowCounts, gate_row, in_our_time, runs_in_our_time


def said(now: float) -> JobView:
    """By a datacenter whose clock shows `now`, ten seconds after the job began and five before it may end."""
    work = WorkflowView(
        name="w", function="w", state=WorkflowState.RUNNING, attempt=1, max_attempts=1, started_at=now - 10
    )
    times = {"submitted_at": now - 10, "started_at": now - 10, "ended_at": 0.0, "deadline": now + 5, "now": now}
    return JobView(job_id="j", name="", state=JobState.RUNNING, reason="", workflows=(work,), **times)


def test_what_a_clock_that_is_an_hour_ahead_or_behind_said_is_told_in_our_time() -> None:
    for ahead in (3_600.0, -3_600.0):
        view = in_our_time(said(1_000_000 + ahead), 1_000_000)
        assert (view.submitted_at, view.deadline, view.now) == (999_990, 1_000_005, 1_000_000)
        assert (view.workflows[0].started_at, view.workflows[0].ended_at, view.ended_at) == (999_990, 0.0, 0.0)


def test_the_runs_of_a_datacenter_are_told_in_our_time_and_by_its_name() -> None:
    run = AttemptRun(workflow="w", attempt=1, worker="w1", started_at=4_590.0, ended_at=4_595.0)
    story = Why(
        job_id="j",
        state="completed",
        summary="",
        submitted_at=4_590.0,
        links=(),
        runs=(run, replace(run, ended_at=None)),
    )
    first, second = runs_in_our_time(WhyReply(why=story, text="", now=4_600.0), 1_000.0, "eu/")
    assert (first.workflow, first.worker, first.started_at, first.ended_at) == ("eu/w", "eu/w1", 990.0, 995.0)
    assert second.ended_at is None
    for unshifted in (4_600.4, 0.0):  # as good as the same time, and a manager that does not tell its own
        (same, _) = runs_in_our_time(WhyReply(why=story, text="", now=unshifted), 4_600.0, "")
        assert (same.worker, same.started_at) == ("w1", 4_590.0)


def test_the_row_of_a_gate_counts_what_completed_also_before_it_started_anew() -> None:
    submission = JobSubmission(job_id="j", workflows=(WorkflowSpec(name="w"),))
    known = {"job_id": "j", "submitted_at": 1.0, "timeout_seconds": None, "submission": submission}

    def row(state: JobState, counts: WorkflowCounts, *ends: JobState) -> tuple[int, int, float]:
        names = ["a", "b"][: len(ends)]
        stood = dict(zip(names, ends, strict=True))
        info = GateJobTrackingInfo(**known, target_datacenters=names, dc_status=stood, state=state)
        shown = gate_row(info, counts, 0.0)
        return shown.completed, shown.total, shown.progress

    nothing = WorkflowCounts()
    assert row(JobState.COMPLETED, nothing, JobState.COMPLETED, JobState.COMPLETED) == (2, 2, 1.0)
    assert row(JobState.FAILED, nothing, JobState.FAILED, JobState.COMPLETED) == (0, 2, 0.5)
    assert row(JobState.TIMED_OUT, nothing, JobState.TIMED_OUT) == (0, 1, 0.0)
    tolerated = WorkflowCounts(total=1, failed=1, attempts=3)
    assert row(JobState.COMPLETED, tolerated, JobState.COMPLETED) == (0, 1, 1.0)


def test_what_took_a_moment_on_its_way_is_left_as_it_is() -> None:
    view = said(1_000_000)
    assert in_our_time(view, 1_000_000.4) is view


def granted(now: float) -> JobView:
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
    ours = in_our_time(granted(now=4_600.0), 1_000.0)
    assert ours.now == 1_000.0
    assert [grant.until for grant in ours.grants] == [1_600.0]
    assert [grant.until for grant in ours.workflows[0].grants] == [1_030.0]
    assert ours.workflows[0].grants[0].span_s == 60.0


def test_a_shift_moves_the_end_and_nothing_else() -> None:
    grant = Grant(kind=GrantKind.LEASE, until=10.0, span_s=5.0, note="n")
    assert shifted((grant,), -4.0) == (Grant(kind=GrantKind.LEASE, until=6.0, span_s=5.0, note="n"),)
