"""Document 002 (AD-34), part 5: the gate's tracking, its three conditions and its broadcast."""

from __future__ import annotations

import pytest
from tests.jobs.desk import GATE, Both, GateDesk, submission

from tenure.errors import ConfigurationError, SubmissionConflictError
from tenure.jobs import GateJobTracker, GateSettings, JobGlobalTimeout, JobSubmission, Outcome, Rule
from tenure.jobs.gate_exchange import leader_transfer
from tenure.jobs.gate_jobs import GateArchive, GateCancel, GateForgetOld, GateSubmit
from tenure.jobs.gate_outbox import GateOutbox, owed
from tenure.jobs.gate_reports import HearTransfer
from tenure.jobs.messages import JobGlobalCancel


def test_a_new_job_is_running_in_every_datacenter() -> None:
    info = Both("A", "B", "C").info
    assert info.dc_status == {"A": "running", "B": "running", "C": "running"}
    assert (info.globally_timed_out, info.timeout_reason, info.timeout_fence_token) == (False, "", 0)


def test_the_gate_checks_every_15_seconds_and_calls_180_seconds_of_silence_stuck() -> None:
    settings = GateSettings()
    assert (settings.check_interval, settings.stuck_threshold) == (15.0, 180.0)


def test_a_report_updates_progress_status_and_address_by_the_gates_own_clock() -> None:
    both = Both().start().at(100.0)
    both.desks["dc-a"].at = 5_000.0  # whatever that manager's clock says
    both.desks["dc-a"].progress.touch("j", 5_000.0)
    both.report("dc-a")
    assert both.info.dc_last_progress["dc-a"] == 100.0
    assert both.info.dc_manager_addrs["dc-a"] == ("10.0.0.1", 7001)


def test_condition_1_the_global_timeout_is_exceeded() -> None:
    both = Both(timeout=600.0).start()
    both.at(600.0)
    for name in both.names:
        both.gate.tracker.heard_progress("j", name, 600.0)
    assert both.check().outcome is Outcome.NOTHING
    both.at(600.5)
    for name in both.names:
        both.gate.tracker.heard[("j", name)] = 600.4
    decision = both.check()
    assert decision.rule is Rule.OVERALL_TIMEOUT
    assert (both.info.globally_timed_out, both.info.timeout_fence_token) == (True, 1)
    assert both.info.timeout_reason.startswith("global timeout: ")


def test_condition_2_any_datacenter_reported_a_timeout() -> None:
    both = Both().start().at(121.0)
    both.desks["dc-b"].check()
    both.report("dc-b")
    assert both.gate.tracker.next_due("j") == 0.0  # the check is due at once
    assert both.check().rule is Rule.ANY_DATACENTER
    assert both.info.timeout_reason == "datacenter dc-b timed out"


def test_condition_3_all_datacenters_are_stuck() -> None:
    both = Both().start()
    both.at(100.0)
    both.desks["dc-b"].progress.touch("j", 100.0)
    both.report("dc-b")
    both.at(200.0)
    assert both.check().outcome is Outcome.NOTHING  # dc-b advanced a short while ago
    both.at(280.5)
    assert both.check().rule is Rule.ALL_STUCK


def test_a_declared_timeout_is_broadcast_to_all_datacenters_and_cancels_there() -> None:
    both = Both("A", "B", "C").start().at(601.0)
    both.check()
    for name in both.names:
        message = both.owed(name)
        assert isinstance(message, JobGlobalTimeout)
        assert (message.timed_out_at, message.gate_epoch) == (601.0, 1)
        both.settle(name)
        assert both.state(name) == "timed_out"
        assert both.owed(name) is None
    assert both.info.state == "timed_out"


def test_the_check_is_idempotent() -> None:
    both = Both().start().at(601.0)
    both.check()
    both.at(5_000.0)
    assert both.check().outcome is Outcome.ALREADY
    assert both.info.timeout_fence_token == 1


def test_a_decision_is_sent_again_with_backoff_until_the_datacenter_is_terminal() -> None:
    both = Both().start().at(601.0)
    both.check()
    resends = GateOutbox(both.gate.settings)
    resends.refresh(both.gate.tracker, "j", 601.0)
    moments, now = [], 601.0
    while now < 720.0:
        moments += [now - 601.0 for item in resends.due(now, {}) if item.datacenter == "dc-a"]
        now = resends.next_due()
    assert moments == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0]
    both.settle("dc-a")
    resends.refresh(both.gate.tracker, "j", 720.0)
    assert {item.datacenter for item in resends.due(10_000.0, {})} == {"dc-b"}


def test_a_submission_is_sent_until_the_datacenter_has_said_anything() -> None:
    both = Both()
    opening = both.owed("dc-b")
    assert isinstance(opening, JobSubmission)
    assert (opening.gate_epoch, opening.target_datacenters, opening.gate_addr) == (1, ("dc-a", "dc-b"), GATE)
    both.start()
    assert both.owed("dc-b") is None


def test_completed_everywhere_is_completed() -> None:
    both = Both().start()
    for name in both.names:
        both.desks[name].result()
        assert both.report(name).ack is not None
        assert both.desks[name].report() is None  # the gate knows
    assert (both.info.state, both.info.reason) == ("completed", "dc-a completed, dc-b completed")
    assert owed(both.gate.tracker, both.info) == []


def test_a_failure_in_one_datacenter_shows_at_the_gate() -> None:
    both = Both().start()
    both.desks["dc-a"].fail(retryable=False)
    both.desks["dc-b"].result()
    both.report("dc-a")
    both.report("dc-b")
    assert both.info.state == "failed"


def test_a_users_cancel_reaches_every_datacenter_without_a_token() -> None:
    both = Both().start()
    both.desks["dc-a"].elect("m2")  # tokens do not matter to a user's word
    both.gate.do(GateCancel(by="ada", job_id="j", reason="enough"))
    message = both.owed("dc-a")
    assert isinstance(message, JobGlobalCancel)
    assert message.reason == "enough"
    for name in both.names:
        both.settle(name)
        assert both.state(name) == "cancelled"
    assert both.info.state == "cancelled"
    assert both.gate.do(GateCancel(job_id="j")).outcome is Outcome.ALREADY


def test_a_leader_transfer_brings_token_and_address() -> None:
    both = Both().start()
    desk = both.desks["dc-a"]
    desk.elect("m2")
    message = leader_transfer(desk.book.job("j"), desk.identity, desk.book.epoch, "m1")
    assert both.gate.do(HearTransfer(transfer=message)).outcome is Outcome.ACCEPTED
    assert both.info.dc_fence_tokens == {"dc-a": 2, "dc-b": 1}
    assert both.gate.do(HearTransfer(transfer=message)).outcome is Outcome.ALREADY


def test_gate_submissions_are_idempotent_and_checked() -> None:
    gate = GateDesk()
    asked = submission("j", gate_addr=GATE, idempotency_key="k")
    command = GateSubmit(submission=asked, target_datacenters=("dc-a",))
    assert gate.do(command).outcome is Outcome.ACCEPTED
    assert gate.do(command).outcome is Outcome.ALREADY
    other = submission("j2", gate_addr=GATE, idempotency_key="k")
    assert gate.do(GateSubmit(submission=other, target_datacenters=("dc-a",))).job_id == "j"
    with pytest.raises(SubmissionConflictError):
        gate.do(GateSubmit(submission=submission("j", gate_addr=GATE, priority=9), target_datacenters=("dc-a",)))
    with pytest.raises(ConfigurationError, match="needs at least one datacenter"):
        gate.do(GateSubmit(submission=submission("k", gate_addr=GATE), target_datacenters=()))
    with pytest.raises(ConfigurationError, match="has no gate_addr"):
        gate.do(GateSubmit(submission=submission("k"), target_datacenters=("dc-a",)))


def test_a_gates_cancel_that_overtakes_its_submission_is_a_tombstone() -> None:
    gate = GateDesk()
    gate.do(GateCancel(by="ada", job_id="j", reason="too late"))
    gate.do(GateSubmit(submission=submission("j", gate_addr=GATE), target_datacenters=("dc-a",)))
    info = gate.tracker.job("j")
    assert info.decided == "cancelled"
    assert isinstance(owed(gate.tracker, info)[0].message, JobGlobalCancel)


def test_ended_jobs_are_archived_known_and_one_day_forgotten() -> None:
    both = Both("dc-a").start()
    both.desks["dc-a"].result()
    both.report("dc-a")
    gate = both.gate
    assert gate.do(GateArchive(job_id="j")).outcome is Outcome.NOTHING
    gate.at = 4_000.0
    assert gate.do(GateArchive(job_id="j")).outcome is Outcome.ACCEPTED
    asked = submission("j", timeout_seconds=600.0, gate_addr=GATE)
    assert gate.do(GateSubmit(submission=asked, target_datacenters=("dc-a",))).outcome is Outcome.ALREADY
    assert gate.do(GateCancel(job_id="j")).reason == "it had ended before: completed"
    gate.at += gate.settings.id_memory + 1
    assert gate.do(GateForgetOld()).outcome is Outcome.ACCEPTED
    assert not gate.tracker.state.archive


def test_replay_and_snapshot_give_the_same_state_byte_for_byte() -> None:
    both = Both().start().at(601.0)
    both.check()
    both.settle("dc-a")
    gate = both.gate
    for cut in range(len(gate.journal) + 1):
        half = GateJobTracker(gate.settings)
        half.replay(gate.journal[:cut])
        resumed = GateJobTracker.restore(half.snapshot(), gate.settings)
        resumed.replay(gate.journal[cut:])
        assert resumed.snapshot() == gate.tracker.snapshot()
