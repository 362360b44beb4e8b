"""What workers tell the leader, and what they are told, with real processes."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.process.datacenter.conftest import Datacenter, wait_until

from tenure.jobs import JobState

LONG_LEASE = ("--slots", "2", "--lease", "60")
"""Without reports a cancel would be noticed after a third of it."""


def began(log: Path) -> bool:
    return log.exists() and "start" in log.read_text()


@pytest.mark.slow
def test_progress_is_live_and_a_cancel_stops_running_work_at_once(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker = datacenter.worker(*LONG_LEASE)
    client, log = datacenter.client, tmp_path / "log"
    client.submit("beat_for", {"seconds": 60, "log": str(log)}, job_id="long")
    wait_until(lambda: began(log), 30, worker.said)
    wait_until(lambda: client.job("long").state is JobState.RUNNING, 5, datacenter.said)
    first = client.job("long").workflows[0]
    wait_until(lambda: client.job("long").workflows[0].steps > first.steps, 5, datacenter.said)
    later = client.job("long").workflows[0]
    assert first.worker == later.worker != ""
    assert (later.fraction or 0) > (first.fraction or 0)
    assert 0 < client.jobs().jobs[0].progress < 1

    client.cancel("long", "enough")
    took = wait_until(lambda: "stopped 1" in log.read_text(), 10, worker.said)
    assert took < 1, f"the work was stopped after {took:.2f} s"
    assert "enough" in worker.said()
    assert client.job("long").state is JobState.CANCELLED


@pytest.mark.slow
def test_a_job_whose_work_is_silent_for_longer_than_it_may_is_ended_as_stuck(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker = datacenter.worker(*LONG_LEASE)
    client = datacenter.client
    log, steady = tmp_path / "silent", tmp_path / "steady"
    client.submit("beat_for", {"seconds": 6, "log": str(steady)}, job_id="steady", stuck=2.5)
    client.submit("be_silent", {"seconds": 60, "log": str(log)}, job_id="silent", stuck=2.5)
    wait_until(lambda: began(log), 30, worker.said)
    view = client.wait("silent", 15)
    assert (view.state, view.reason.split(":")[0]) == (JobState.TIMED_OUT, "stuck"), client.why("silent").text
    # Its slot is killed after the grace: it does not beat, so it does not hear the request.
    wait_until(lambda: "killing slot" in worker.said(), 10, worker.said)
    assert client.wait("steady", 30).state is JobState.COMPLETED


@pytest.mark.slow
def test_a_silence_that_the_workflow_may_have_is_not_taken_for_stuck(datacenter: Datacenter, tmp_path: Path) -> None:
    """Only the worker knows the workflow's stall; the threshold that was derived without it must not stand in its way."""
    datacenter.manager("m-1", "--stuck", "1.5")
    datacenter.until_led()
    worker = datacenter.worker(*LONG_LEASE)
    log = tmp_path / "log"
    datacenter.client.submit("be_silent", {"seconds": 4, "log": str(log)}, job_id="quiet")
    wait_until(lambda: began(log), 30, worker.said)
    assert datacenter.client.wait("quiet", 30).state is JobState.COMPLETED, datacenter.client.why("quiet").text


@pytest.mark.slow
def test_work_goes_on_while_no_manager_answers_and_the_next_leader_hears_of_it(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker = datacenter.worker(*LONG_LEASE)
    log, brief = tmp_path / "log", tmp_path / "brief"
    datacenter.client.submit("beat_for", {"seconds": 12, "log": str(log)}, job_id="long")
    datacenter.client.submit("beat_for", {"seconds": 2, "log": str(brief)}, job_id="brief")
    wait_until(lambda: began(log) and began(brief), 30, worker.said)
    datacenter.managers["m-1"].kill()
    wait_until(lambda: "end 1" in brief.read_text(), 10, worker.said)
    time.sleep(1)
    datacenter.manager("m-2")
    datacenter.until_led()
    client = datacenter.new_client(first="m-2")
    assert client.wait("brief", 10).state is JobState.COMPLETED
    before = client.job("long").workflows[0].steps
    wait_until(lambda: client.job("long").workflows[0].steps > before, 5, datacenter.said)
    view = client.wait("long", 30)
    assert (view.state, view.workflows[0].attempt) == (JobState.COMPLETED, 1)
    assert log.read_text().split() == ["start", "1", "end", "1"]


@pytest.mark.slow
def test_the_work_of_a_killed_worker_is_done_by_another(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    first = datacenter.worker("--slots", "2", "--lease", "3")
    log = tmp_path / "log"
    client = datacenter.client
    client.submit("beat_for", {"seconds": 3, "log": str(log)}, job_id="moved")
    wait_until(lambda: began(log), 30, first.said)
    wait_until(lambda: client.job("moved").state is JobState.RUNNING, 5, datacenter.said)
    first.signal(signal.SIGKILL)
    second = datacenter.worker("--slots", "2", "--lease", "3")
    view = client.wait("moved", 40)
    assert view.state is JobState.COMPLETED, second.said()
    assert log.read_text().count("start") == 2
    assert log.read_text().count("end") == 1
