"""Document 002 (AD-34), parts 1 to 4 and 6: topology, tracking state, strategies, state diagrams, messages."""

from __future__ import annotations

import inspect
from abc import ABC

import msgspec
import pytest
from tests.jobs.desk import GATE, Desk, spec, submission

from tenure.errors import ConfigurationError, UnknownJobError
from tenure.jobs import (
    GateCoordinatedTimeout,
    JobGlobalTimeout,
    JobLeaderTransfer,
    JobProgressReport,
    JobSettings,
    JobTimeoutReport,
    LocalAuthorityTimeout,
    TimeoutStrategy,
    TimeoutTrackingState,
)
from tenure.jobs.model import GateJobTrackingInfo
from tenure.jobs.states import JobState, StrategyType, TimeoutReason
from tenure.jobs.timeout import strategy_for
from tenure.nodes.term_leader import TEND_AT_LEAST_S

# Part 1: auto-detection.


def test_a_submission_with_a_gate_is_gate_coordinated_and_one_without_is_local() -> None:
    desk = Desk()
    assert type(strategy_for(submission(gate_addr=GATE), desk)) is GateCoordinatedTimeout
    assert type(strategy_for(submission(), desk)) is LocalAuthorityTimeout
    desk.submit("a", gate_addr=GATE)
    desk.submit("b")
    assert desk.book.job("a").timeout_tracking.strategy_type == "gate_coordinated"
    assert desk.book.job("b").timeout_tracking.strategy_type == "local_authority"


# Part 2: the tracking state.


def test_the_tracking_state_has_the_documents_fields_and_defaults() -> None:
    fields = {field.name: field for field in msgspec.structs.fields(TimeoutTrackingState)}
    document = {
        "strategy_type": None,
        "gate_addr": None,
        "started_at": None,
        "last_progress_at": None,
        "last_report_at": 0.0,
        "timeout_seconds": None,
        "stuck_threshold": 120.0,
        "locally_timed_out": False,
        "globally_timed_out": False,
        "timeout_reason": "",
        "timeout_fence_token": 0,
    }
    assert list(fields)[: len(document)] == list(document)
    for name, default in document.items():
        assert fields[name].required == (default is None)
        if default is not None:
            assert fields[name].default == default
    assert "total_extensions_granted" in fields  # named in part 8, missing in part 2


def test_the_tracking_state_is_part_of_the_job_and_survives_the_leader() -> None:
    desk = Desk(at=100.0)
    desk.submit("j", timeout_seconds=300.0, gate_addr=GATE)
    before = desk.book.job("j").timeout_tracking
    assert (before.started_at, before.gate_addr, before.timeout_seconds) == (100.0, GATE, 300.0)
    desk.at = 150.0
    desk.elect("m2")
    after = desk.book.job("j").timeout_tracking
    assert (after.started_at, after.timeout_seconds) == (100.0, 300.0)


# Part 2: the strategy's interface.


def test_the_strategy_is_abstract_with_the_documents_five_coroutines_and_signatures() -> None:
    assert issubclass(TimeoutStrategy, ABC)
    with pytest.raises(TypeError):
        TimeoutStrategy(Desk())  # type: ignore[abstract]
    expected = {
        "start_tracking": ["self", "job_id", "timeout_seconds", "gate_addr"],
        "resume_tracking": ["self", "job_id"],
        "report_progress": ["self", "job_id", "progress_type"],
        "check_timeout": ["self", "job_id"],
        "handle_global_timeout": ["self", "job_id", "reason", "fence_token"],
    }
    for name, parameters in expected.items():
        method = getattr(TimeoutStrategy, name)
        assert inspect.iscoroutinefunction(method)
        positional = [
            each.name for each in inspect.signature(method).parameters.values() if each.kind != each.KEYWORD_ONLY
        ]
        assert positional == parameters


@pytest.mark.asyncio
async def test_start_tracking_takes_the_job_as_it_was_submitted_and_arms_its_timer() -> None:
    desk = Desk(at=10.0)
    desk.submit("j", timeout_seconds=300.0)
    strategy = LocalAuthorityTimeout(desk)
    await strategy.start_tracking("j", 300.0)
    assert 310.0 < desk.timers.next_due() < 310.001
    with pytest.raises(ConfigurationError, match=r"was submitted with 300 s and gate None, not 60 s"):
        await strategy.start_tracking("j", 60.0)
    with pytest.raises(ConfigurationError, match="is under local_authority, not gate_coordinated"):
        await GateCoordinatedTimeout(desk).start_tracking("j", 300.0)
    with pytest.raises(UnknownJobError, match="there is no job 'nobody'"):
        await strategy.resume_tracking("nobody")


# Part 3: local authority.


@pytest.mark.asyncio
async def test_check_1_overall_timeout_marks_the_job_timed_out() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=300.0)
    strategy = LocalAuthorityTimeout(desk)
    desk.at = 300.0
    assert await strategy.check_timeout("j") == (False, "")  # elapsed > timeout_seconds is strict
    desk.at = 300.5
    is_timed_out, reason = await strategy.check_timeout("j")
    assert is_timed_out
    assert reason.startswith("timeout: ")
    assert desk.state() == "timed_out"


@pytest.mark.asyncio
async def test_check_2_stuck_detection_after_120_seconds_without_progress() -> None:
    desk = Desk()
    desk.submit("j")
    desk.run()
    strategy = LocalAuthorityTimeout(desk)
    desk.at = 100.0
    await strategy.report_progress("j", "step")
    desk.at = 220.0
    assert not (await strategy.check_timeout("j")).is_timed_out
    desk.at = 220.5
    assert (await strategy.check_timeout("j")).reason.startswith("stuck: ")
    assert desk.state() == "timed_out"


@pytest.mark.asyncio
async def test_progress_that_goes_on_keeps_the_job_alive_until_its_overall_timeout() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=1_000.0)
    desk.run()
    strategy = LocalAuthorityTimeout(desk)
    for second in range(0, 1_000, 100):
        desk.at = float(second)
        await strategy.report_progress("j", "step")
        assert not (await strategy.check_timeout("j")).is_timed_out
    desk.at = 1_001.0
    await strategy.report_progress("j", "step")
    assert (await strategy.check_timeout("j")).is_timed_out


@pytest.mark.asyncio
async def test_the_check_is_idempotent() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=10.0)
    desk.at = 11.0
    strategy = LocalAuthorityTimeout(desk)
    first = await strategy.check_timeout("j")
    desk.at = 500.0
    assert await strategy.check_timeout("j") == first
    assert desk.kinds().count("JobEnded") == 1


@pytest.mark.asyncio
async def test_a_local_job_takes_no_orders_from_a_gate() -> None:
    desk = Desk()
    desk.submit("j")
    assert not await LocalAuthorityTimeout(desk).handle_global_timeout("j", "timeout", 99)
    assert desk.state() == "pending"


@pytest.mark.asyncio
async def test_a_job_that_is_stopped_is_cancelled_and_an_ended_one_keeps_its_end() -> None:
    desk = Desk()
    desk.submit("j")
    strategy = LocalAuthorityTimeout(desk)
    await strategy.start_tracking("j", None)
    await strategy.stop_tracking("j", "enough")
    assert (desk.state(), desk.book.job("j").reason, len(desk.timers)) == ("cancelled", "enough", 0)
    await strategy.stop_tracking("j", "again")
    assert desk.book.job("j").reason == "enough"


# Part 4: gate coordinated, the manager's side.


@pytest.mark.asyncio
async def test_the_cadences_and_the_fallback_are_the_documents() -> None:
    settings = JobSettings()
    assert (settings.report_interval, settings.fallback_after) == (10.0, 300.0)
    assert TEND_AT_LEAST_S <= 30.0  # the document's check: deadlines fire from a heap, and the leader looks more often


@pytest.mark.asyncio
async def test_a_local_timeout_is_reported_and_the_job_waits_for_the_gate() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=300.0, gate_addr=GATE)
    desk.run()
    assert isinstance(desk.report(), JobProgressReport)
    desk.at = 301.0
    strategy = GateCoordinatedTimeout(desk)
    assert (await strategy.check_timeout("j")) == (True, "timeout")
    tracking = desk.book.job("j").timeout_tracking
    assert (tracking.locally_timed_out, tracking.globally_timed_out, tracking.timeout_reason) == (
        True,
        False,
        "timeout",
    )
    assert desk.state() == "running"
    report = desk.report()
    assert isinstance(report, JobTimeoutReport)
    assert (report.reason, report.elapsed_seconds, report.fence_token) == ("timeout", 301.0, 1)
    await strategy.check_timeout("j")
    assert desk.kinds().count("LocalTimeoutReported") == 1


@pytest.mark.asyncio
async def test_gate_says_timeout() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=300.0, gate_addr=GATE)
    desk.run()
    desk.at = 301.0
    strategy = GateCoordinatedTimeout(desk)
    await strategy.check_timeout("j")
    assert await strategy.handle_global_timeout("j", "timeout", 1)
    tracking = desk.book.job("j").timeout_tracking
    assert (desk.state(), tracking.globally_timed_out) == ("timed_out", True)
    assert not await strategy.handle_global_timeout("j", "timeout", 1)  # once is enough


@pytest.mark.asyncio
async def test_five_minutes_without_an_answer_is_a_local_fallback() -> None:
    desk = Desk()
    desk.submit("j", timeout_seconds=300.0, gate_addr=GATE)
    desk.at = 301.0
    strategy = GateCoordinatedTimeout(desk)
    await strategy.check_timeout("j")
    desk.at = 601.0
    await strategy.check_timeout("j")
    assert desk.state() == "pending"
    desk.at = 601.5
    is_timed_out, reason = await strategy.check_timeout("j")
    assert is_timed_out
    assert "the gate has not answered for 300 s" in reason
    tracking = desk.book.job("j").timeout_tracking
    assert (desk.state(), tracking.globally_timed_out) == ("timed_out", False)


@pytest.mark.asyncio
async def test_a_stale_decision_is_rejected_and_an_equal_or_tokenless_one_accepted() -> None:
    for token, accepted in ((1, False), (2, True), (0, True)):
        desk = Desk()
        desk.submit("j", gate_addr=GATE)
        desk.elect("m2")
        assert await GateCoordinatedTimeout(desk).handle_global_timeout("j", "timeout", token) is accepted


# Part 6: the messages.


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (
            JobProgressReport,
            "job_id datacenter manager_id manager_host manager_port workflows_total workflows_completed "
            "workflows_failed has_recent_progress timestamp fence_token",
        ),
        (
            JobTimeoutReport,
            "job_id datacenter manager_id manager_host manager_port reason elapsed_seconds fence_token",
        ),
        (JobGlobalTimeout, "job_id reason timed_out_at fence_token"),
        (
            GateJobTrackingInfo,
            "job_id submitted_at timeout_seconds target_datacenters dc_status dc_last_progress dc_manager_addrs "
            "globally_timed_out timeout_reason timeout_fence_token",
        ),
    ],
)
def test_messages_begin_with_the_documents_fields(message: type[msgspec.Struct], names: str) -> None:
    wanted = names.split()
    assert [field.name for field in msgspec.structs.fields(message)][: len(wanted)] == wanted
    required = [field.name for field in msgspec.structs.fields(message) if field.required]
    assert set(required) <= set(wanted)


def test_reasons_statuses_and_kinds_are_the_documents_strings() -> None:
    assert set(TimeoutReason) == {"timeout", "stuck"}
    assert set(StrategyType) == {"local_authority", "gate_coordinated"}
    assert {"running", "completed", "timed_out"} <= set(JobState)


def test_a_leader_transfer_is_a_message_too() -> None:
    names = {field.name for field in msgspec.structs.fields(JobLeaderTransfer)}
    assert {"job_id", "datacenter", "new_manager_id", "fence_token"} <= names


def test_messages_survive_the_wire() -> None:
    desk = Desk()
    desk.submit("j", spec("a"), spec("b"), gate_addr=GATE, target_datacenters=("dc-a", "dc-b"))
    desk.run("j", "a")
    desk.result("j", "a")
    report = desk.report()
    assert (report.workflows_total, report.workflows_completed, report.workflows_failed) == (2, 1, 0)
    assert (report.datacenter, report.manager_host, report.manager_port) == ("dc-a", "10.0.0.1", 7001)
    assert msgspec.json.decode(msgspec.json.encode(report), type=JobProgressReport) == report


def test_has_recent_progress_means_the_last_ten_seconds() -> None:
    desk = Desk()
    desk.submit("j", gate_addr=GATE)
    desk.run()
    desk.at = 10.0
    assert desk.report().has_recent_progress
    desk.at = 10.5
    assert not desk.report().has_recent_progress
    desk.advance(1)
    assert desk.report().has_recent_progress
