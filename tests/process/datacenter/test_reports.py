"""What workers tell the leader, and what they are told, with real processes."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.process.datacenter.conftest import Datacenter
from tests.process.stillness import Stillness

from tenure.jobs import JobState

LONG_LEASE = ("--slots", "2", "--lease", "6000")
"""Without reports a cancel would be noticed when the lease is extended, after ten minutes: long after every test has given up."""


def began(log: Path) -> bool:
    return log.exists() and "start" in log.read_text()


@pytest.mark.slow
def test_progress_is_live_and_a_cancel_stops_running_work_at_once(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker = datacenter.worker(*LONG_LEASE)
    client, log = datacenter.client, tmp_path / "log"
    client.submit("beat_for", {"seconds": 600, "log": str(log)}, job_id="long")
    wait_until(lambda: began(log), why=worker.said)
    wait_until(lambda: client.job("long").state is JobState.RUNNING, why=datacenter.said)
    first = client.job("long").workflows[0]
    wait_until(lambda: client.job("long").workflows[0].steps > first.steps, why=datacenter.said)
    later = client.job("long").workflows[0]
    assert first.worker == later.worker != ""
    assert (later.fraction or 0) > (first.fraction or 0)
    assert 0 < client.jobs().jobs[0].progress < 1

    client.cancel("long", "enough")
    # How soon, `bench_answering` measures: < 1 s.
    wait_until(lambda: "stopped 1" in log.read_text(), worker.said)
    wait_until(lambda: "enough" in worker.said(), worker.said)
    assert client.job("long").state is JobState.CANCELLED


@pytest.mark.slow
def test_a_job_whose_work_is_silent_for_longer_than_it_may_is_ended_as_stuck(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker = datacenter.worker(*LONG_LEASE)
    client, stuck_s = datacenter.client, 8.0  # a busy machine may keep a worker from reporting for some seconds
    silent, steady, told = (tmp_path / name for name in ("silent", "steady", "told"))
    with Stillness() as machine:
        client.submit("beat_until", {"told": str(told), "log": str(steady)}, job_id="steady", stuck=stuck_s)
        client.submit("be_silent", {"seconds": 600, "log": str(silent)}, job_id="silent", stuck=stuck_s)
        for log in (silent, steady):
            wait_until(partial(began, log), why=worker.said)
        view = client.wait("silent", PATIENCE_S)
        told.touch()
        bystander = client.wait("steady", PATIENCE_S)
    assert (view.state, view.reason.split(":")[0]) == (JobState.TIMED_OUT, "stuck"), client.why("silent").text
    # Its slot is killed after the grace: it does not beat, so it does not hear the request.
    wait_until(lambda: "killing slot" in worker.said(), why=worker.said)
    # Where the machine stood still, nobody heard anything of the other one, either.
    assert bystander.state is JobState.COMPLETED or machine.excuses(stuck_s / 2), client.why("steady").text


@pytest.mark.slow
def test_an_operators_stuck_threshold_wins_over_a_longer_stall_that_only_the_worker_knows(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1", "--stuck", "1.5")
    datacenter.until_led()
    worker = datacenter.worker(*LONG_LEASE)
    log = tmp_path / "log"
    datacenter.client.submit("be_silent", {"seconds": 600, "log": str(log)}, job_id="quiet")
    wait_until(lambda: began(log), why=worker.said)
    view = datacenter.client.wait("quiet", PATIENCE_S)
    assert (view.state, view.reason.split(":")[0]) == (JobState.TIMED_OUT, "stuck"), datacenter.client.why("quiet").text


@pytest.mark.slow
def test_work_goes_on_while_no_manager_answers_and_the_next_leader_hears_of_it(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker = datacenter.worker(*LONG_LEASE)
    logs = {name: tmp_path / name for name in ("long", "brief")}
    for name, log in logs.items():
        datacenter.client.submit("beat_until", {"told": f"{log}.told", "log": str(log)}, job_id=name)
    wait_until(lambda: all(map(began, logs.values())), why=worker.said)
    datacenter.managers["m-1"].kill()
    Path(f"{logs['brief']}.told").touch()
    wait_until(lambda: "end 1" in logs["brief"].read_text(), why=worker.said)
    wait_until(lambda: "cannot report" in worker.said(), why=worker.said)
    datacenter.manager("m-2")
    datacenter.until_led()
    client = datacenter.new_client(first="m-2")
    assert client.wait("brief", PATIENCE_S).state is JobState.COMPLETED
    before = client.job("long").workflows[0].steps
    wait_until(lambda: client.job("long").workflows[0].steps > before, why=datacenter.said)
    Path(f"{logs['long']}.told").touch()
    view = client.wait("long", PATIENCE_S)
    assert (view.state, view.workflows[0].attempt) == (JobState.COMPLETED, 1)
    assert logs["long"].read_text().split() == ["start", "1", "end", "1"]


@pytest.mark.slow
def test_the_work_of_a_killed_worker_is_done_by_another(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    first = datacenter.worker(*LONG_LEASE)
    log, told = tmp_path / "log", tmp_path / "told"
    client = datacenter.client
    client.submit("beat_until", {"told": str(told), "log": str(log)}, job_id="moved")
    wait_until(lambda: began(log), why=first.said)
    wait_until(lambda: client.job("moved").state is JobState.RUNNING, why=datacenter.said)
    first.signal(signal.SIGKILL)
    second = datacenter.worker(*LONG_LEASE)
    wait_until(lambda: log.read_text().count("start") == 2, why=datacenter.said)
    told.touch()
    view = client.wait("moved", PATIENCE_S)
    assert view.state is JobState.COMPLETED, second.said()
    assert log.read_text().count("start") == 2
    assert log.read_text().count("end") == 1
