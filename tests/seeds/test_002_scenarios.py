"""Document 002 (AD-34), parts 7 and 8: the fault tolerance scenarios line by line, and extensions."""

from __future__ import annotations

import msgspec
import pytest
from tests.jobs.desk import GATE, Both, Desk, GateDesk

from tenure.jobs import GateCoordinatedTimeout, JobGlobalTimeout, LocalAuthorityTimeout, Outcome, Rule
from tenure.jobs.deadlines import deadline
from tenure.jobs.extensions import ExtendJob
from tenure.jobs.gate_jobs import GateTakeLead
from tenure.jobs.timeout import strategy_for


@pytest.mark.asyncio
async def test_scenario_1_manager_leader_failure() -> None:
    desk = Desk(at=100.0)
    desk.submit("j", timeout_seconds=300.0)  # T0: Leader-A tracking job timeout (started_at = 100.0)
    tracking = desk.book.job("j").timeout_tracking
    assert (tracking.started_at, tracking.timeout_fence_token) == (100.0, 1)
    desk.at = 200.0  # T1: Leader-A fails
    desk.elect("leader-b")  # T2, T3: Leader-B elected, has the job by folding the journal
    strategy = strategy_for(desk.book.job("j").job.submission, desk)
    await strategy.resume_tracking("j")  # T4
    tracking = desk.book.job("j").timeout_tracking
    assert tracking.timeout_fence_token == 2  # increments fence_token (1 -> 2)
    assert tracking.started_at == 100.0  # preserved
    desk.at = desk.timers.next_due()  # T5: Leader-B continues timeout checking
    assert desk.at == pytest.approx(400.0)
    assert (await strategy.check_timeout("j")).is_timed_out


def test_scenario_2_gate_failure_reports_are_kept_and_its_successor_decides() -> None:
    both = Both("DC-A", "DC-B", "DC-C").start()  # T0
    journal = list(both.gate.journal)  # T1: gate fails
    both.at(121.0)
    for name in both.names:  # T2: managers go on; the report is in their journals
        both.desks[name].check()
    both.gate = GateDesk(lead=False, at=130.0)  # T3: gate replaced
    both.gate.tracker.replay(journal)
    both.gate.journal = journal
    both.gate.elect("g2")
    both.at(130.0)
    both.report("DC-B")  # T4: managers resend pending timeout reports
    assert both.info.target_datacenters == ["DC-A", "DC-B", "DC-C"]  # T5
    assert both.check().outcome is Outcome.ACCEPTED  # T6
    for name in both.names:
        both.settle(name)
    assert both.info.state == "timed_out"


def test_scenario_2_a_successor_without_the_journal_rebuilds_from_reports() -> None:
    both = Both("DC-A", "DC-B", "DC-C").start().at(300.0)
    for name in both.names:
        both.desks[name].check()
    both.gate = GateDesk(at=300.0)
    both.report("DC-A")
    info = both.info
    assert info.target_datacenters == ["DC-A", "DC-B", "DC-C"]
    assert (info.timeout_seconds, info.submitted_at) == (600.0, 0.0)
    assert both.check().rule is Rule.ANY_DATACENTER
    for name in both.names:
        while both.owed(name) is not None:
            both.settle(name)
    assert [both.state(name) for name in both.names] == ["timed_out"] * 3
    assert info.state == "timed_out"


def test_scenario_2_fallback_each_datacenter_ends_the_job_by_itself() -> None:
    both = Both("DC-A", "DC-B").start().at(121.0)
    for desk in both.desks.values():
        desk.check()
    both.at(421.0)
    assert [desk.check().outcome for desk in both.desks.values()] == [Outcome.ALREADY] * 2
    both.at(421.5)
    for name, desk in both.desks.items():
        assert desk.check().rule is Rule.FALLBACK
        assert both.state(name) == "timed_out"
    both.report("DC-A")  # the gate is back: it hears of it, and need not decide against anybody
    both.report("DC-B")
    assert (both.info.state, both.info.globally_timed_out) == ("timed_out", True)


def test_scenario_3_a_stale_global_timeout_is_rejected_and_corrected() -> None:
    both = Both().start().at(121.0)
    desk = both.desks["dc-a"]
    desk.check()
    both.report("dc-a")  # T0: Leader-A (fence_token=1) reports timeout to gate
    desk.elect("leader-b")  # T1, T2: Leader-B takes over (fence_token=2)
    both.check()
    message = both.owed("dc-a")
    assert isinstance(message, JobGlobalTimeout)
    assert message.fence_token == 1  # T3: stale
    correction = both.tell("dc-a", message)  # T4: validates 1 < 2, rejects, sends status correction
    assert (correction.accepted, correction.fence_token, correction.status) == (False, 2, "running")
    assert correction.reason == "it echoes token 1, and the leader's is 2"
    assert both.state("dc-a") == "running"
    both.hear(correction)  # result: gate updates state
    assert both.owed("dc-a").fence_token == 2
    both.settle("dc-a")  # the same decision, with the new token
    assert both.state("dc-a") == "timed_out"


def earn(desk: Desk, counter: int) -> None:
    assert desk.do(ExtendJob(job_id="j", worker="w1", start="w1#1", counter=counter)).outcome is Outcome.ACCEPTED


def test_part_8_a_job_is_not_killed_while_granted_time_is_left() -> None:
    """The document's grants (15, 7.5, 3.75 s), asked for where they count: near the job's deadline, and not half a job before it."""
    desk = Desk()
    desk.submit("j", timeout_seconds=300.0, grace=15.0)
    desk.run()
    for counter, moment in ((1, 296.0), (2, 311.0), (3, 319.0)):
        desk.at = moment
        desk.advance(counter)
        earn(desk, counter)
    tracking = desk.book.job("j").timeout_tracking
    assert tracking.total_extensions_granted == 26.25
    assert deadline(tracking) == 0.0 + 300.0 + 26.25  # started_at + timeout_seconds + total_extensions_granted
    desk.at = 326.2  # T300: the job timeout would have fired
    assert desk.check().outcome is Outcome.NOTHING
    desk.at = 326.5
    assert desk.check().rule is Rule.OVERALL_TIMEOUT


def test_part_8_the_progress_that_earns_an_extension_is_progress_of_the_job_and_the_grant_itself_is_none() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=125.0)
    desk.run()
    desk.at = 118.0
    desk.advance(1)
    desk.at = 120.0
    earn(desk, 1)
    desk.at = 154.0
    assert desk.check().outcome is Outcome.NOTHING
    desk.at = 155.5
    assert desk.check().rule is Rule.OVERALL_TIMEOUT


@pytest.mark.asyncio
async def test_part_8_an_extension_moves_the_timer_of_the_strategy() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=100.0)
    strategy = LocalAuthorityTimeout(desk)
    await strategy.start_tracking("j", 100.0)
    desk.at = 95.0
    earn(desk, 1)
    await strategy.resume_tracking("j")
    assert desk.timers.next_due() == pytest.approx(130.0)


def test_extensions_count_at_the_gate_too_and_it_waits_for_the_report_of_the_last_moment() -> None:
    both = Both(timeout=600.0).start()
    for name in both.names:
        both.gate.tracker.heard_progress("j", name, 590.0)
    both.at(595.0)
    earn(both.desks["dc-a"], 1)
    both.at(601.0)  # the report of the grant is on its way
    assert both.check().outcome is Outcome.NOTHING
    both.report("dc-a")
    assert both.gate.tracker.deadline(both.info) == 630.0
    assert both.check().outcome is Outcome.NOTHING
    both.at(631.0)  # every datacenter has reported since: nothing more was granted
    for name in both.names:
        both.gate.tracker.heard[("j", name)] = 630.5
    assert both.check().rule is Rule.OVERALL_TIMEOUT


def test_a_gate_without_reports_declares_the_deadline_after_two_report_intervals() -> None:
    both = Both(timeout=100.0).start()
    both.at(119.9)
    assert both.check().outcome is Outcome.NOTHING
    assert both.gate.tracker.next_due("j") == pytest.approx(120.0)
    both.at(120.1)
    assert both.check().rule is Rule.OVERALL_TIMEOUT
    # A gate that took over after the deadline waits for as long.
    both = Both(timeout=100.0).start()
    both.gate.at = 110.0
    both.gate.elect("g2")
    assert both.gate.tracker.next_due("j") == pytest.approx(130.0)


def test_a_report_of_a_new_leader_that_still_waits_for_its_workers_does_not_close_the_deadline() -> None:
    """Its workers had nobody to ask. The report that it sends when it takes over is younger than the deadline, and tells nothing of it."""
    both = Both("dc-a", timeout=100.0).start()
    desk, tracker = both.desks["dc-a"], both.gate.tracker
    both.at(101.0)
    desk.elect("m2")

    def report() -> None:
        message = desk.report()
        both.report("dc-a")
        tracker.heard_report(message, both.gate.at)

    both.at(102.0)
    report()
    assert both.check().outcome is Outcome.NOTHING
    earn(desk, 1)
    report()
    assert tracker.deadline(both.info) == 130.0
    # Where nothing is asked for, its own timeout says so.
    both.at(131.0)
    desk.check()
    assert both.hear(desk.report()).outcome is Outcome.ACCEPTED
    assert both.check().rule is Rule.OVERALL_TIMEOUT


def test_a_gate_counts_no_more_than_one_job_can_earn_whatever_a_datacenter_reports() -> None:
    both = Both(timeout=600.0).start()
    report = both.desks["dc-a"].report()
    both.hear(msgspec.structs.replace(report, total_extensions_granted=500.0))
    assert both.gate.tracker.deadline(both.info) == 658.125


@pytest.mark.asyncio
async def test_a_gate_that_was_replaced_is_refused_by_its_epoch() -> None:
    desk = Desk()
    desk.submit("j", gate_addr=GATE, gate_epoch=5)
    strategy = GateCoordinatedTimeout(desk)
    assert not await strategy.handle_global_timeout("j", "timeout", 0, gate_epoch=4)
    assert desk.state() == "pending"
    assert await strategy.handle_global_timeout("j", "timeout", 0, gate_epoch=6)


def test_a_gate_takes_over_only_with_a_higher_epoch() -> None:
    gate = GateDesk()
    with pytest.raises(Exception, match="append with epoch 1 refused"):
        gate.do(GateTakeLead(epoch=1, gate="g0"))
