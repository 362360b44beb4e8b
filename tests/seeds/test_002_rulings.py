"""DESIGN.md's rulings on document 002, and every line of LESSONS.md about jobs: one test each."""

from __future__ import annotations

from typing import Any

import pytest
from tests.jobs.desk import GATE, Both, Desk, GateDesk, submission

from tenure.errors import ConfigurationError
from tenure.health.extension import extension_bound
from tenure.jobs import JobBook, JobSubmission, JobTimeoutReport, Outcome, Rule
from tenure.jobs.attempt_results import RecordResult
from tenure.jobs.deadlines import deadline, stuck_at
from tenure.jobs.decisions import encode_event
from tenure.jobs.endings import CancelJob
from tenure.jobs.extensions import ExtendJob, ExtensionDenied, ExtensionGranted, GrantExtension
from tenure.jobs.gate_exchange import leader_transfer
from tenure.jobs.gate_jobs import GateCancel, GateSubmit, GateTakeLead
from tenure.jobs.gate_reports import HearTransfer
from tenure.jobs.messages import JobStatusQuery
from tenure.jobs.submission import SubmitJob
from tenure.jobs.timeout import CheckJob
from tenure.timers import Timers


def ask(desk: Desk, counter: int, worker: str = "w1", *, since: int = 0, **options: Any) -> float:
    """The seconds that a job was granted when its worker asked."""
    command = ExtendJob(job_id="j", worker=worker, start=f"{worker}#1", counter=counter, since=since, **options)
    return sum(event.seconds for event in desk.do(command).events if isinstance(event, ExtensionGranted))


def near_its_deadline(timeout: float = 600.0, **options: Any) -> Desk:
    desk = Desk()
    desk.submit("j", timeout_seconds=timeout, stuck_threshold=timeout - 1, **options)
    desk.run()
    desk.at = timeout - 9.0
    return desk


def denials(desk: Desk) -> list[str]:
    return [event.reason for event in desk.book.history("j") if isinstance(event, ExtensionDenied)]


# total_extensions_granted: one series for the life of a job (RULINGS, 4)


def test_a_job_that_advances_earns_30_15_7_5_3_75_and_1_875_seconds_and_then_no_more() -> None:
    desk = near_its_deadline()
    for counter, seconds in enumerate((30.0, 15.0, 7.5, 3.75, 1.875), start=1):
        assert ask(desk, counter, since=counter - 1) == seconds
        desk.at += seconds
    assert ask(desk, 9, since=8) == 0.0
    assert denials(desk) == ["Maximum extensions (5) exceeded"]
    tracking = desk.book.job("j").timeout_tracking
    assert tracking.total_extensions_granted == 1.9375 * 30 == extension_bound()
    assert deadline(tracking) == 600.0 + 58.125
    desk.at = 658.2
    assert desk.check().rule is Rule.OVERALL_TIMEOUT


def test_the_cap_is_for_life_over_workers_attempts_and_leaders() -> None:
    desk = near_its_deadline()
    for number in range(40):
        ask(desk, 1, f"w{number}")
        desk.elect(f"m{number}")
        desk.at = desk.due() - 1.0
    assert desk.book.job("j").timeout_tracking.total_extensions_granted == extension_bound()


def test_no_progress_no_grant_also_for_the_first_and_the_denial_is_journaled_once() -> None:
    desk = near_its_deadline()
    assert (ask(desk, 5, since=5), ask(desk, 5, since=5)) == (0.0, 0.0)
    assert denials(desk) == ["No progress since its deadline came near"]
    assert ask(desk, 6, since=5) == 30.0
    desk.at += 30
    assert ask(desk, 6, since=5) == 0.0  # the answer was lost: the same progress earns nothing twice
    assert denials(desk)[1:] == ["No progress since its last extension"]


def test_the_base_is_the_submissions_and_0_switches_it_off() -> None:
    desk = near_its_deadline(7_200.0, grace=600.0)
    desk.at = 7_200.0 - 199.0
    assert [ask(desk, counter, since=counter - 1) for counter in (1,)] == [600.0]
    off = near_its_deadline(grace=0.0)
    assert (ask(off, 3), denials(off)) == (0.0, [])
    early = near_its_deadline()
    early.at = 500.0
    assert (ask(early, 3), denials(early)) == (0.0, [])  # its deadline is not near
    with pytest.raises(ConfigurationError, match="3 x report interval of a worker 3 s <= grace / 3 1 s does not hold"):
        Desk().submit("j", timeout_seconds=60.0, grace=3.0)


def test_a_suspect_worker_an_ended_job_and_a_job_without_a_deadline_are_given_no_time() -> None:
    desk = near_its_deadline()
    assert ask(desk, 3, suspect="gossip says that it is dead") == 0.0
    assert denials(desk) == ["Worker is already marked suspect: gossip says that it is dead"]
    desk.do(CancelJob(job_id="j"))
    assert ask(desk, 4) == 0.0
    free = Desk()
    free.submit("j")
    free.run()
    assert ask(free, 4) == 0.0


def test_a_grant_is_no_progress_and_a_workers_own_grant_moves_no_job() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=125.0)
    desk.run()
    desk.at = 116.0
    assert ask(desk, 1) == 30.0
    desk.at = 120.5  # 120 s after its start, which was its last progress
    assert desk.check().rule is Rule.STUCK
    other = near_its_deadline()
    other.do(GrantExtension(worker="w1", seconds=30.0, count=1, total=30.0, bound=58.125, progress=0.5))
    assert other.book.job("j").timeout_tracking.total_extensions_granted == 0.0
    for seconds in (0.0, -1.0, float("nan"), 1e9):
        with pytest.raises(ValueError, match="seconds is"):
            other.do(GrantExtension(worker="w1", seconds=seconds, count=1, total=1.0, bound=58.125, progress=0.5))


def test_a_new_leader_waits_until_a_worker_could_have_asked_it() -> None:
    desk = near_its_deadline()
    desk.at = 605.0  # nobody led from 595 to 605
    desk.elect("m2")
    assert desk.check().outcome is Outcome.NOTHING
    assert ask(desk, 3, since=2) == 30.0
    assert deadline(desk.book.job("j").timeout_tracking) == 630.0
    idle = near_its_deadline()
    idle.at = 605.0
    idle.elect("m2")
    idle.at = 615.1
    assert idle.check().rule is Rule.OVERALL_TIMEOUT
    late = near_its_deadline()
    late.at = 640.0  # not even a grant could save it
    late.elect("m2")
    assert late.check().rule is Rule.OVERALL_TIMEOUT


def test_journals_in_which_a_workers_grants_counted_for_its_jobs_are_read_as_they_were_meant() -> None:
    desk = near_its_deadline()
    granted = ExtensionGranted(at=1.0, worker="w1", seconds=30.0, jobs=("j",), count=1, total=30.0, bound=58.125)
    desk.book.replay([encode_event(granted)])
    assert desk.book.job("j").timeout_tracking.total_extensions_granted == 30.0
    desk.at += 30.0
    assert [ask(desk, 1), ask(desk, 2, since=1)] == [28.125, 0.0]  # what is left of the one series


def test_a_new_leader_grants_no_second_series_because_the_journal_remembers_the_first() -> None:
    desk = Desk()
    desk.submit()
    desk.do(GrantExtension(worker="w1", seconds=30.0, count=3, total=52.5, bound=58.125, progress=0.7))
    desk.elect("m2")
    record = desk.book.state.workers["w1"]
    assert (record.extension_count, record.total_extended, record.last_progress) == (3, 52.5, 0.7)


# stuck while only queued


def test_the_stuck_clock_runs_only_while_something_runs() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=10_000.0)
    desk.at = 5_000.0
    assert stuck_at(desk.book.job("j")) == float("inf")
    assert desk.check().outcome is Outcome.NOTHING
    desk.run()
    assert stuck_at(desk.book.job("j")) == 5_120.0


def test_a_datacenter_in_which_everything_waits_is_not_stuck_for_the_gate() -> None:
    both = Both(timeout=10_000.0)
    for name in both.names:
        both.tell(name)
    for moment in range(0, 900, 100):
        both.at(float(moment))
        for name in both.names:
            both.report(name)
        assert both.check().outcome is Outcome.NOTHING


# fence tokens


def test_a_decision_by_the_gates_own_clock_carries_no_token_and_is_never_stale() -> None:
    both = Both(timeout=600.0).start()
    both.desks["dc-a"].elect("m2")
    both.desks["dc-a"].elect("m3")
    both.at(620.5)  # two report intervals without a report
    assert both.check().rule is Rule.OVERALL_TIMEOUT
    assert both.owed("dc-a").fence_token == 0
    both.settle("dc-a")
    assert both.state("dc-a") == "timed_out"


def test_after_two_transfers_a_genuine_global_timeout_is_not_refused_for_ever() -> None:
    both = Both("dc-a", "dc-b").start().at(121.0)
    for _ in range(2):
        both.desks["dc-a"].elect("next")
    both.desks["dc-b"].check()
    both.report("dc-b")
    both.check()
    rounds = 0
    while both.owed("dc-a") is not None:
        both.settle("dc-a")
        rounds += 1
        assert rounds <= 2
    assert both.state("dc-a") == "timed_out"


def test_the_gates_counter_and_the_managers_tokens_are_never_compared() -> None:
    both = Both().start().at(121.0)
    both.desks["dc-a"].check()
    both.report("dc-a")
    both.check()
    assert both.info.timeout_fence_token == 1
    both.desks["dc-a"].elect("m2")
    both.desks["dc-a"].elect("m3")
    both.hear(both.tell("dc-a"))
    assert both.owed("dc-a").fence_token == 3


# after a correction


def test_a_decision_is_final_whatever_a_correction_says() -> None:
    both = Both("A", "B", "C").start().at(121.0)
    both.desks["A"].check()
    both.report("A")
    both.check()
    both.settle("B")
    both.settle("C")
    both.desks["A"].elect("m2")
    both.settle("A")  # A answers "stale"
    assert (both.state("A"), both.info.decided) == ("running", "timed_out")
    both.settle("A")  # and gets the same decision with the new token
    assert both.info.dc_status == {"A": "timed_out", "B": "timed_out", "C": "timed_out"}


def test_a_stale_decision_that_comes_again_and_again_is_journaled_once() -> None:
    both = Both().start().at(121.0)
    both.desks["dc-a"].check()
    both.report("dc-a")
    both.check()
    both.desks["dc-a"].elect("m2")
    message = both.owed("dc-a")
    for _ in range(5):
        assert not both.tell("dc-a", message).accepted
    assert both.desks["dc-a"].kinds().count("GlobalDecisionRefused") == 1


# timed out, reported, then a leader transfer


def test_a_new_leader_reports_again_and_the_fallback_counts_from_the_first_report() -> None:
    desk = Desk()
    desk.submit("j", gate_addr=GATE)
    desk.run()
    desk.at = 121.0
    desk.check()
    desk.at = 200.0
    desk.elect("m2")
    assert desk.due() == 0.0
    again = desk.check()
    assert (again.rule, again.events[0].token) == (Rule.REPORT_AGAIN, 2)
    report = desk.report()
    assert isinstance(report, JobTimeoutReport)
    assert report.fence_token == 2
    desk.at = 421.5
    assert desk.check().rule is Rule.FALLBACK


def test_the_fallback_does_not_fire_on_a_completed_job() -> None:
    desk = Desk()
    desk.submit("j", gate_addr=GATE)
    desk.run()
    desk.at = 121.0
    desk.check()
    desk.result()
    desk.at = 1_000.0
    assert desk.check().outcome is Outcome.ALREADY
    assert desk.state() == "completed"


# any datacenter timed out


def test_a_stale_report_does_not_count() -> None:
    both = Both().start().at(121.0)
    desk = both.desks["dc-a"]
    desk.check()
    late = desk.report()
    desk.elect("m2")
    desk.at = 122.0
    desk.advance(1)
    # The new leader is heard before the old report arrives.
    both.gate.do(HearTransfer(transfer=leader_transfer(desk.book.job("j"), desk.identity, 2, "m1")))
    refused = both.hear(late)
    assert (refused.outcome, refused.rule) == (Outcome.REFUSED, Rule.STALE_TOKEN)
    assert both.check().outcome is Outcome.NOTHING


def test_a_timeout_report_of_a_datacenter_that_is_terminal_does_not_count() -> None:
    both = Both().start().at(121.0)
    desk = both.desks["dc-a"]
    desk.check()
    late = desk.report()
    desk.result()
    both.report("dc-a")
    assert both.hear(late).rule is Rule.JOB_ENDED
    assert both.check().outcome is Outcome.NOTHING


def test_all_timed_out_is_a_global_timeout_too() -> None:
    both = Both().start().at(121.0)
    for desk in both.desks.values():
        desk.check()
    both.at(500.0)
    for name, desk in both.desks.items():
        desk.check()
        both.report(name)
    assert (both.info.state, both.info.globally_timed_out) == ("timed_out", True)


def test_a_datacenter_that_fell_back_ends_the_job_in_the_others() -> None:
    both = Both(timeout=10_000.0).start().at(121.0)
    both.desks["dc-a"].check()
    both.at(500.0)
    both.desks["dc-a"].check()
    both.desks["dc-b"].progress.touch("j", 500.0)
    both.report("dc-b")
    both.report("dc-a")
    assert both.check().rule is Rule.ANY_DATACENTER
    both.settle("dc-b")
    assert both.state("dc-b") == "timed_out"


# has_recent_progress=False


def test_a_report_without_progress_does_not_reset_the_stuck_clock() -> None:
    both = Both(timeout=10_000.0).start()
    for moment in range(20, 181, 20):
        both.at(float(moment))
        for name in both.names:
            report = both.desks[name].report()
            if isinstance(report, JobTimeoutReport):
                continue
            assert not report.has_recent_progress
            both.hear(report)
    both.at(180.5)
    assert both.check().rule is Rule.ALL_STUCK


# completed while the timeout is declared


def test_terminal_wins_the_manager_answers_with_the_final_status_and_the_gate_keeps_it() -> None:
    both = Both().start().at(601.0)
    both.desks["dc-a"].result()
    both.check()
    answer = both.tell("dc-a")
    assert (answer.accepted, answer.status) == (False, "completed")
    both.hear(answer)
    both.settle("dc-b")
    assert both.info.dc_status == {"dc-a": "completed", "dc-b": "timed_out"}
    assert both.info.state == "timed_out"


# pending reports are durable; a datacenter that comes back


def test_a_datacenter_that_was_away_learns_of_the_timeout_when_it_comes_back() -> None:
    both = Both().start().at(601.0)
    both.check()
    both.settle("dc-b")
    journal = list(both.gate.journal)
    both.gate = GateDesk(lead=False, at=9_000.0)
    both.gate.tracker.replay(journal)
    both.gate.elect("g2")
    both.at(9_000.0)
    message = both.owed("dc-a")
    assert message.gate_epoch == 2
    both.settle("dc-a")
    assert both.info.state == "timed_out"


def test_a_decision_that_reaches_a_datacenter_before_its_submission_is_a_tombstone() -> None:
    both = Both()
    opening = both.owed("dc-b")
    both.at(601.0)
    both.check()
    answer = both.tell("dc-b")
    assert (answer.accepted, answer.status) == (True, "timed_out")
    both.hear(answer)
    both.tell("dc-b", opening)  # late
    assert both.state("dc-b") == "timed_out"
    assert both.desks["dc-b"].kinds().count("JobEnded") == 1


# gates that lost their journal


def test_a_gate_that_lost_its_counter_is_told_the_highest_epoch_and_decides_nothing_below_it() -> None:
    both = Both().start()
    both.gate.do(GateTakeLead(epoch=7, gate="g7"))
    both.report("dc-a")
    lost = GateDesk(at=10.0)
    both.gate = lost
    refused = both.hear(both.desks["dc-a"].report())
    assert (refused.outcome, refused.rule, refused.campaign_above) == (Outcome.REFUSED, Rule.STALE_GATE, 7)
    lost.elect("g1", epoch=8)
    assert both.report("dc-a").rule is Rule.REBUILT


def test_a_gate_that_lost_its_journal_learns_its_own_cancel_back() -> None:
    both = Both().start()
    both.gate.do(GateCancel(by="ada", job_id="j", reason="enough"))
    both.settle("dc-b")
    both.report("dc-b")
    both.gate = GateDesk(at=20.0)
    both.gate.elect("g2", epoch=2)
    both.at(20.0)
    both.report("dc-a")  # dc-a runs on: it was never told
    assert both.info.decided is None
    both.hear(both.tell("dc-b"))  # the new gate asks dc-b
    assert (both.info.decided, both.info.decided_reason) == ("cancelled", "enough")
    both.settle("dc-a")
    assert both.info.state == "cancelled"


def test_an_old_report_does_not_stop_a_gate_without_a_journal_from_asking() -> None:
    both = Both().start()
    old = both.desks["dc-b"].report()
    both.desks["dc-b"].result()
    both.report("dc-b")
    both.gate = GateDesk(at=20.0)
    both.gate.elect("g2", epoch=2)
    both.report("dc-a")
    both.hear(old)
    assert isinstance(both.owed("dc-b"), JobStatusQuery)
    both.settle("dc-b")
    assert both.info.dc_status["dc-b"] == "completed"


def test_a_job_that_a_lost_gate_never_delivered_does_not_run_later() -> None:
    both = Both()
    opening = both.owed("dc-b")
    both.tell("dc-a")
    both.gate = GateDesk(at=20.0)
    both.gate.elect("g2", epoch=2)
    both.report("dc-a")
    both.settle("dc-b")
    assert both.info.dc_status["dc-b"] == "cancelled"
    both.tell("dc-b", opening)
    assert both.state("dc-b") == "cancelled"


# clocks and cadences


def test_a_managers_clock_far_behind_changes_nothing_at_the_gate() -> None:
    both = Both(timeout=10_000.0).start()
    for desk in both.desks.values():
        desk.at = -1_000.0
    both.gate.at = 30.0
    for name in both.names:
        both.report(name)
    assert both.check().outcome is Outcome.NOTHING


def test_a_gates_stuck_clocks_restart_when_it_takes_over() -> None:
    both = Both(timeout=10_000.0).start().at(1_000.0)
    both.gate.elect("g2")
    assert both.check().outcome is Outcome.NOTHING
    both.at(1_180.5)
    assert both.check().rule is Rule.ALL_STUCK


def test_silence_proves_nothing_while_the_gate_takes_its_own_link_for_broken() -> None:
    both = Both(timeout=10_000.0).start().at(500.0)
    assert both.check(link_suspect=True).outcome is Outcome.NOTHING
    assert both.check().rule is Rule.ALL_STUCK


# the rules of a leader


def test_after_a_takeover_deadlines_go_on_and_stuck_clocks_restart() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=1_000.0)
    desk.run()
    desk.at = 400.0
    desk.elect("m2")
    info = desk.book.job("j")
    assert (deadline(info.timeout_tracking), stuck_at(info)) == (1_000.0, 520.0)
    assert desk.check().outcome is Outcome.NOTHING


def test_a_result_enqueued_before_the_deadline_wins_over_the_deadline() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=100.0)
    desk.run()
    desk.at = 400.0  # managers were down for five minutes
    desk.elect("m2")
    early = desk.do(CheckJob(job_id="j", drained_until=90.0))
    assert (early.outcome, early.reason) == (Outcome.NOTHING, "results from before the deadline may still be waiting")
    desk.do(RecordResult(job_id="j", workflow="w", attempt=1, enqueued_at=99.0))
    desk.do(CheckJob(job_id="j", drained_until=400.0))
    assert desk.state() == "completed"


def test_a_late_result_for_a_timed_out_job_is_refused_and_the_end_stays() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=100.0)
    desk.run()
    desk.at = 101.0
    desk.check()
    assert desk.result().rule is Rule.JOB_ENDED
    assert desk.state() == "timed_out"


def test_no_deadline_comes_from_a_wall_clock() -> None:
    """A new leader's clock an hour ahead: times are the engine's, so nothing here could read another."""
    desk = Desk(at=100.0)
    desk.submit("j", timeout_seconds=300.0)
    desk.elect("m2")
    assert deadline(desk.book.job("j").timeout_tracking) == 400.0


def test_none_of_none_is_not_completed() -> None:
    desk = Desk()
    with pytest.raises(ValueError, match="workflows is 0 items"):
        desk.do(SubmitJob(submission=JobSubmission(job_id="j", workflows=())))


def test_state_sync_leaves_nothing_of_the_timeout_state_out() -> None:
    both = Both(timeout=130.0).start().at(121.0)
    desk = both.desks["dc-a"]
    ask(desk, 1)
    desk.at = 300.0
    desk.check()
    restored = JobBook.restore(desk.book.snapshot(), desk.settings)
    assert restored.job("j").timeout_tracking == desk.book.job("j").timeout_tracking
    assert restored.job("j").timeout_tracking.first_reported_at == 300.0


def test_timers_fire_at_their_time_and_not_where_a_wheel_has_its_slots() -> None:
    timers: Timers[str] = Timers()
    timers.set("short", 1.9)
    timers.set("long", 30.0)
    assert timers.pop_due(1.8) == []
    assert timers.pop_due(1.9) == ["short"]
    assert timers.pop_due(29.9) == []
    assert timers.pop_due(30.0) == ["long"]


def test_a_delayed_job_has_its_whole_time_at_the_gate_too() -> None:
    gate = GateDesk()
    asked = submission("j", timeout_seconds=600.0, delay=1_000.0, gate_addr=GATE)
    gate.do(GateSubmit(submission=asked, target_datacenters=("dc-a",)))
    assert gate.tracker.deadline(gate.tracker.job("j")) == 1_600.0
