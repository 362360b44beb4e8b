"""Somebody acts on a job while it runs: it is paused, resumed, given time and moved, in real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter

from tenure.client.client import Client
from tenure.errors import NodeRefusedError
from tenure.jobs import JobState


def tenure(client_address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenure", *arguments, "--address", client_address]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


def begun(log: Path) -> list[int]:
    """Where each attempt began to count."""
    return [int(line.rsplit(" ", 1)[1]) for line in log.read_text().splitlines()] if log.exists() else []


def attempts_that_saved(log: Path) -> int:
    """The number of processes that saved a number: each attempt here runs in a process of its own."""
    saved = Path(f"{log}.saved")
    return len({line.split()[0] for line in saved.read_text().splitlines()}) if saved.exists() else 0


def state_of(client: Client) -> tuple[str, str]:
    one = client.job("count").workflows[0]
    return one.state.value, one.worker


@pytest.mark.slow
def test_a_running_job_is_moved_paused_resumed_and_given_time_and_goes_on_from_its_checkpoint(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    client, address = datacenter.client, datacenter.addresses["m-1"]
    log, told = tmp_path / "log", tmp_path / "told"
    datacenter.worker("--slots", "1", "--name", "w-1")
    wait_until(lambda: len(client.nodes().workers) == 1, why=datacenter.said)
    client.submit("count_until", {"told": str(told), "log": str(log)}, job_id="count", timeout=600)
    wait_until(lambda: state_of(client) == ("running", "w-1") and attempts_that_saved(log) == 1, why=datacenter.said)
    with pytest.raises(NodeRefusedError, match="no other worker that takes work serves it"):
        client.move("count", "w-1 is needed")

    datacenter.worker("--slots", "1", "--name", "w-2")
    wait_until(lambda: len(client.nodes().workers) == 2, why=datacenter.said)
    wait_until(lambda: tenure(address, "move", "count", "-r", "w-1 is needed").returncode == 0, why=datacenter.said)
    wait_until(lambda: state_of(client) == ("running", "w-2") and attempts_that_saved(log) == 2, why=datacenter.said)

    done = tenure(address, "pause", "count", "--reason", "the licence server is down")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: state_of(client)[0] == "pending", why=datacenter.said)
    view = client.job("count")
    assert view.pause is not None
    assert view.pause.reason == "the licence server is down"
    assert view.deadline is None
    assert "paused it: the licence server is down" in client.why("count").why.answer

    assert tenure(address, "resume", "count", "-r", "it is back").returncode == 0
    wait_until(lambda: state_of(client)[0] == "running" and len(begun(log)) == 3, why=datacenter.said)
    assert tenure(address, "extend", "count", "1h", "-r", "slow disk").returncode == 0
    deadline = client.job("count").deadline
    assert deadline is not None
    assert deadline > client.job("count").now + 3_600
    told.touch()
    view = client.wait("count", 180)
    starts, text = begun(log), client.why("count").text
    assert view.state is JobState.COMPLETED, text
    assert len(starts) == 3, text
    assert 0 == starts[0] < starts[1] < starts[2] < view.workflows[0].result
    for words in (
        "moves 'count_until', attempt 1, away from w-1",
        "paused the job",
        "let the job go on",
        "gave the job",
    ):
        assert words in text
    refused = tenure(address, "pause", "count", "-r", "too late")
    assert (refused.returncode, "it has ended: completed" in refused.stderr) == (1, True)
    said = datacenter.managers["m-1"].said
    wait_until(lambda: all(name in said() for name in ("pause_job", "resume_job", "retime_job", "move_job")), said)


@pytest.mark.slow
def test_urgent_work_gets_the_only_slot_and_what_ran_there_goes_on_from_what_it_saved(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    client = datacenter.client
    log, told = tmp_path / "log", tmp_path / "told"
    client.set_queue("default", preempt_after=0.2)
    datacenter.worker("--slots", "1", "--priority", "0", "--priority", "9")
    wait_until(lambda: len(client.nodes().workers) == 1, why=datacenter.said)
    client.submit("count_until", {"told": str(told), "log": str(log)}, job_id="count")
    wait_until(lambda: attempts_that_saved(log) == 1, why=datacenter.said)
    client.submit("step", {"n": 1, "log": str(tmp_path / "urgent")}, job_id="now", priority=9)
    assert client.wait("now", 180).state is JobState.COMPLETED, client.why("now").text
    assert not client.job("count").ended

    wait_until(lambda: len(begun(log)) == 2, why=datacenter.said)
    told.touch()
    view, text, starts = client.wait("count", 180), client.why("count").text, begun(log)
    # It has one attempt: had the first been charged, it would have failed.
    assert view.state is JobState.COMPLETED, text
    assert 0 == starts[0] < starts[1] <= view.workflows[0].result
    assert "leader preempts 'count_until', attempt 1" in text
    assert "urgent work got its slot" in text
