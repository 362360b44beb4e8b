"""Pause, resume, retime and move: what the leader and the gate decide, and what `why` says of it."""

from __future__ import annotations

import math

import pytest
from tests.jobs.desk import Both, Desk, spec

from tenure.backoff import Retry
from tenure.errors import UnknownJobError
from tenure.jobs.alarms import PAUSED_LONG_S, AlarmKind, forgotten_pauses
from tenure.jobs.attempts import RecordDispatched, RecordWithdrawn
from tenure.jobs.book import JobBook
from tenure.jobs.deadlines import NEVER, deadline
from tenure.jobs.decisions import Outcome
from tenure.jobs.gate_decisions import GateSteer
from tenure.jobs.messages import JobOrder
from tenure.jobs.outbox import standing, to_dispatch, to_take_back
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.steering import MoveJob, PauseJob, ResumeJob, RetimeJob
from tenure.jobs.why import why, why_everywhere
from tenure.jobs.workers import EvictWorker

BY = {"by": "ada", "job_id": "j"}


def running(**options: object) -> Desk:
    desk = Desk()
    desk.submit("j", spec(retry=Retry(max_attempts=2, jitter=0.0)), **options)  # type: ignore[arg-type]
    desk.run()
    return desk


def pause(desk: Desk, reason: str = "wait") -> None:
    assert desk.do(PauseJob(**BY, reason=reason)).outcome is Outcome.ACCEPTED


def resume(desk: Desk) -> None:
    assert desk.do(ResumeJob(**BY, reason="go on")).outcome is Outcome.ACCEPTED


def made_way(desk: Desk, **options: object) -> None:
    """The worker settles the attempt that it was asked to end."""
    desk.fail(worker="w1", retryable=False, asked=True, error="cancelled: by request", **options)  # type: ignore[arg-type]


class TestPause:
    def test_what_runs_is_asked_to_end_is_not_charged_and_waits_for_the_resume(self) -> None:
        desk = running()
        pause(desk)
        told = standing(desk.book, "j", "w", 1, 1, "w1")
        assert (told.wanted, told.reason) == (False, "ada paused it: wait")
        made_way(desk, mark=7)
        workflow = desk.book.job("j").workflows["w"]
        assert (workflow.state, workflow.attempt, workflow.spent) == (WorkflowState.PENDING, 2, 0)
        desk.at += 1_000
        assert to_dispatch(desk.book, desk.at) == []
        resume(desk)
        (order,) = to_dispatch(desk.book, desk.at)
        assert (order.attempt, order.tries, order.excluded) == (2, 2, ())

    def test_no_clock_runs_and_the_deadline_moves_by_the_pause(self) -> None:
        desk = running(timeout_seconds=100.0)
        desk.at = 40.0
        pause(desk)
        assert desk.due() == math.nextafter(NEVER, NEVER)
        desk.at = 1_040.0
        assert not desk.check().events
        resume(desk)
        assert deadline(desk.book.job("j").timeout_tracking) == 1_100.0
        desk.at = 1_101.0
        desk.check()
        assert desk.state() is JobState.TIMED_OUT
        assert "16 min 40 s of it paused" in str(why(desk.book, "j"))

    def test_a_result_that_comes_first_counts(self) -> None:
        desk = running()
        pause(desk)
        desk.result(worker="w1", delivery=1, result=3)
        assert desk.state() is JobState.COMPLETED
        assert not desk.book.paused

    def test_an_attempt_that_was_asked_to_end_ends_so_although_the_job_was_resumed_meanwhile(self) -> None:
        desk = running()
        pause(desk)
        resume(desk)
        assert not standing(desk.book, "j", "w", 1, 1, "w1").wanted
        made_way(desk)
        assert [one.attempt for one in to_dispatch(desk.book, desk.at)] == [2]

    def test_a_message_in_the_engine_is_taken_back_and_one_that_starts_nevertheless_is_asked_to_end(self) -> None:
        desk = Desk()
        desk.submit("j")
        desk.submit("k")
        for job_id in ("j", "k"):
            desk.do(RecordDispatched(job_id=job_id, workflow="w", attempt=1))
        pause(desk)
        assert to_take_back(desk.book) == [("j", "w")]
        desk.do(RecordWithdrawn(job_id="j", workflow="w", attempt=1))
        assert to_take_back(desk.book) == []
        assert to_dispatch(desk.book, desk.at) == []
        desk.do(PauseJob(by="ada", job_id="k", reason="wait"))
        desk.advance(1, "k")
        assert not standing(desk.book, "k", "w", 1, 1, "w1").wanted

    def test_an_attempt_whose_worker_died_meanwhile_waits_too(self) -> None:
        desk = running()
        pause(desk)
        desk.do(EvictWorker(by="m1", worker="w1", reason="silent"))
        assert to_dispatch(desk.book, desk.at + 100) == []
        resume(desk)
        assert len(to_dispatch(desk.book, desk.at + 100)) == 1

    def test_a_new_leader_and_a_snapshot_keep_it(self) -> None:
        desk = running()
        pause(desk)
        made_way(desk)
        desk.elect("m2")
        desk.book = JobBook.restore(desk.book.snapshot(), desk.settings)
        assert list(desk.book.paused) == ["j"]
        assert to_dispatch(desk.book, desk.at + 100) == []

    def test_paused_twice_and_resumed_twice_change_nothing(self) -> None:
        desk = running()
        assert desk.do(ResumeJob(**BY, reason="x")).outcome is Outcome.ALREADY
        pause(desk)
        assert desk.do(PauseJob(**BY, reason="x")).outcome is Outcome.ALREADY

    def test_an_ended_job_is_refused_and_an_unknown_one_raises(self) -> None:
        desk = running()
        desk.result(worker="w1", delivery=1)
        for command in (PauseJob(**BY), ResumeJob(**BY), RetimeJob(**BY, add_s=1.0), MoveJob(**BY)):
            refused = desk.do(command)
            assert (refused.outcome, refused.reason) == (Outcome.REFUSED, "it has ended: completed")
        with pytest.raises(UnknownJobError):
            desk.do(PauseJob(by="ada", job_id="other"))

    def test_a_pause_that_lasts_a_day_is_an_alarm(self) -> None:
        desk = running()
        pause(desk, "the licence server is down")
        assert forgotten_pauses(desk.book, desk.at + PAUSED_LONG_S) == []
        (alarm,) = forgotten_pauses(desk.book, desk.at + PAUSED_LONG_S + 1)
        assert alarm.kind is AlarmKind.PAUSED
        assert alarm.reason == "1 paused for more than 24 h; the first: j, by ada: the licence server is down"


class TestMove:
    def test_the_attempt_ends_on_its_worker_and_goes_on_elsewhere_uncharged(self) -> None:
        desk = running()
        desk.do(MoveJob(**BY, reason="w1 is needed"))
        assert standing(desk.book, "j", "w", 1, 1, "w1").reason == "ada moves it to another worker: w1 is needed"
        made_way(desk, mark=7)
        (order,) = to_dispatch(desk.book, desk.at)
        assert (order.attempt, order.tries, order.excluded) == (2, 2, ("w1",))
        assert "goes on elsewhere from its last checkpoint" in str(why(desk.book, "j"))

    def test_a_delivery_of_another_worker_is_where_it_should_be(self) -> None:
        desk = running()
        desk.do(MoveJob(**BY, reason="away"))
        desk.advance(1, worker="w2", delivery=2)
        assert standing(desk.book, "j", "w", 1, 2, "w2").wanted
        assert desk.book.job("j").workflows["w"].stop is None

    def test_an_error_of_its_own_is_charged_as_ever(self) -> None:
        desk = running()
        desk.do(MoveJob(**BY, reason="away"))
        desk.fail(worker="w1", error="exception: ValueError")
        assert desk.book.job("j").workflows["w"].spent == 1

    def test_an_attempt_that_makes_way_for_urgent_work_may_come_back_to_its_worker(self) -> None:
        desk = running()
        desk.do(MoveJob(**BY, reason="'u' of job 'now' has waited", for_work="now/u"))
        words = "ada gives its slot to urgent work: 'u' of job 'now' has waited"
        assert standing(desk.book, "j", "w", 1, 1, "w1").reason == words
        made_way(desk, mark=7)
        (order,) = to_dispatch(desk.book, desk.at)
        assert (order.attempt, order.tries, order.excluded) == (2, 2, ())
        story = str(why(desk.book, "j"))
        assert "ada preempts 'w', attempt 1, away from w1" in story
        assert "urgent work got its slot. It is not charged; attempt 2 goes on from its last checkpoint" in story

    def test_what_does_not_run_cannot_move(self) -> None:
        desk = Desk()
        desk.submit("j")
        assert desk.do(MoveJob(**BY)).reason == "nothing of it runs now, so there is nothing to move"
        assert "no workflow 'x'" in desk.do(MoveJob(**BY, workflow="x")).reason

    def test_moved_a_hundred_times_it_is_still_not_at_its_bound_of_restarts(self) -> None:
        desk = running()
        for attempt in range(1, 121):
            desk.do(MoveJob(**BY, reason="away"))
            desk.fail(attempt=attempt, worker="w1", asked=True, retryable=False)
            desk.run(attempt=attempt + 1)
        assert desk.state() is JobState.RUNNING


class TestRetime:
    def test_more_time_another_deadline_and_none(self) -> None:
        desk = running(timeout_seconds=100.0)
        desk.do(RetimeJob(**BY, add_s=50.0, reason="slow disk"))
        assert deadline(desk.book.job("j").timeout_tracking) == 150.0
        desk.do(RetimeJob(**BY, timeout_seconds=400.0, reason="longer"))
        assert deadline(desk.book.job("j").timeout_tracking) == 400.0
        desk.do(RetimeJob(**BY, timeout_seconds=None, reason="as long as it advances"))
        assert deadline(desk.book.job("j").timeout_tracking) == NEVER
        assert desk.do(RetimeJob(**BY, add_s=1.0)).reason == "it has no deadline that could be extended"
        story = str(why(desk.book, "j"))
        assert "ada gave the job 2 min 30 s (before: 100 s), counted from its start: slow disk" in story
        assert "gave the job no deadline (before: 6 min 40 s)" in story

    def test_a_deadline_in_the_past_is_refused(self) -> None:
        desk = running(timeout_seconds=100.0)
        desk.at = 50.0
        refused = desk.do(RetimeJob(**BY, timeout_seconds=20.0))
        assert refused.reason == "that deadline would have passed 30 s ago; to end it, cancel it"


class TestWhy:
    def test_of_a_paused_job_it_says_who_and_what_to_do(self) -> None:
        desk = running()
        pause(desk, "the licence server is down")
        told = why(desk.book, "j")
        assert told.answer == "Nothing has ended it: ada paused it: the licence server is down"
        assert told.next_step == "To let it go on: tenure resume j --reason WHY"
        assert told.summary.startswith("paused (running)")

    def test_of_a_moved_job_it_says_that_the_attempt_made_way(self) -> None:
        desk = running()
        desk.do(MoveJob(**BY, reason="away"))
        made_way(desk)
        desk.run(attempt=2, worker="w2")
        assert why(desk.book, "j").answer.endswith("The attempt before it made way: it was moved to another worker")


class TestAtAGate:
    def test_a_datacenter_refuses_to_steer_what_is_the_gates(self) -> None:
        both = Both().start()
        refused = both.desks["dc-a"].do(PauseJob(**BY, reason="x"))
        assert refused.reason == "its time is decided at its gate: ask gate.example:7000"

    def test_a_pause_stops_the_gates_clock_and_reaches_every_datacenter_once(self) -> None:
        both = Both(timeout=100.0).start().at(40.0)
        both.gate.do(GateSteer(**BY, paused=True, reason="wait"))
        assert both.gate.tracker.next_due("j") == math.nextafter(NEVER, NEVER)
        for name in both.names:
            assert isinstance(both.owed(name), JobOrder)
            both.settle(name)
            assert both.owed(name) is None
            assert both.desks[name].book.paused
        both.at(1_040.0)
        assert not both.check().events
        both.gate.do(GateSteer(**BY, paused=False, reason="go on"))
        for name in both.names:
            both.settle(name)
            assert not both.desks[name].book.paused
        assert both.gate.tracker.deadline(both.info) == 1_100.0
        assert deadline(both.desks["dc-a"].book.job("j").timeout_tracking) == 1_100.0
        told = str(why_everywhere(both.gate.tracker, "j"))
        assert "ada paused the job everywhere: wait (order 1)" in told

    def test_an_order_that_was_lost_is_made_good_by_the_next(self) -> None:
        both = Both().start()
        both.gate.do(GateSteer(**BY, paused=True, reason="wait"))
        both.gate.do(GateSteer(**BY, paused=False, reason="go on"))
        both.settle("dc-a")
        assert both.owed("dc-a") is None
        assert both.desks["dc-a"].book.job("j").timeout_tracking.steered == 2

    def test_a_timeout_that_was_reported_before_an_extension_was_heard_does_not_count(self) -> None:
        both = Both(timeout=100.0).start().at(101.0)
        both.desks["dc-a"].check()
        late = both.desks["dc-a"].report()
        both.at(99.0)
        both.gate.do(GateSteer(**BY, add_s=100.0, reason="slow"))
        both.at(102.0)
        assert both.hear(late).outcome is Outcome.REFUSED
        both.settle("dc-a")
        both.report("dc-a")
        assert both.info.decided is None
        assert not both.desks["dc-a"].book.job("j").timeout_tracking.locally_timed_out
        both.at(201.0).desks["dc-a"].check()
        both.report("dc-a")
        assert both.check().events

    def test_an_order_of_a_replaced_gate_is_refused(self) -> None:
        both = Both().start()
        both.gate.do(GateSteer(**BY, paused=True, reason="wait"))
        stale = both.owed("dc-a")
        both.gate.elect("g2")
        both.settle("dc-a")
        both.gate.do(GateSteer(**BY, paused=False, reason="go on"))
        both.settle("dc-a")
        reply = both.tell("dc-a", stale)
        assert not reply.accepted
        assert not both.desks["dc-a"].book.paused

    def test_a_gate_that_lost_its_journal_learns_the_pause_back_and_tells_the_others(self) -> None:
        both = Both().start()
        both.gate.do(GateSteer(**BY, paused=True, reason="wait"))
        both.settle("dc-a")
        lost = Both()
        lost.desks, lost.gate.tracker.state.jobs["j"] = both.desks, lost.info
        del lost.gate.tracker.state.jobs["j"]
        lost.gate.elect("g9", epoch=9)
        lost.hear(both.desks["dc-a"].report())
        assert lost.info.pause is not None
        assert lost.info.steered == 1

    def test_a_job_that_is_ending_is_refused(self) -> None:
        both = Both(timeout=10.0).start().at(200.0)
        both.check()
        assert both.gate.do(GateSteer(**BY, paused=True)).reason == "it is ending: timed_out"
