"""Leaders that die, stop and come back, with real processes and signals."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.process.datacenter.conftest import Datacenter
from tests.soak import sized

from tenure.jobs import JobState, JobSubmission, Outcome, WorkflowSpec

JOBS = sized("jobs while leaders are killed", short=15, long=50)
EACH = 20
"""Workflows of each job."""


def job(number: int, log: Path) -> JobSubmission:
    specs = (
        WorkflowSpec(name=f"s{n}", function="step", arguments={"n": number * EACH + n, "log": str(log)})
        for n in range(EACH)
    )
    return JobSubmission(job_id=f"job-{number}", workflows=tuple(specs), timeout_seconds=600)


@pytest.mark.slow
def test_a_leader_killed_in_the_middle_of_hundreds_of_workflows_loses_and_doubles_none(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    first = datacenter.until_led()
    datacenter.manager("m-2")
    datacenter.worker("--slots", "2")
    log = tmp_path / "log"
    client = datacenter.client
    for number in range(JOBS):
        assert client.submit_job(job(number, log)).outcome is Outcome.ACCEPTED
    deadlines = {row.job_id: client.job(row.job_id).deadline for row in client.jobs().jobs}
    wait_until(lambda: log.exists() and len(log.read_text().split()) > 40, why=datacenter.said)

    datacenter.managers[first].kill()
    answer = client.submit_job(job(JOBS, log))  # how soon, `bench_datacenter` measures
    # On a busy machine the second leader may lose its first term, too: then the client's repeated request is answered.
    assert answer.outcome in (Outcome.ACCEPTED, Outcome.ALREADY)
    assert answer.epoch > 1

    for number in range(JOBS + 1):
        view = client.wait(f"job-{number}", PATIENCE_S)
        assert view.state is JobState.COMPLETED, client.why(view.job_id).text
        assert [one.result for one in view.workflows] == [2 * (number * EACH + n) for n in range(EACH)]
        links = client.why(view.job_id).why.links
        assert sum(link.kind == "WorkflowCompleted" for link in links) == EACH
        assert view.deadline == deadlines.get(view.job_id, view.deadline)
    # The worker lived through it: each workflow ran once, too.
    assert sorted(map(int, log.read_text().split())) == list(range((JOBS + 1) * EACH))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_leader_killed_together_with_a_worker_that_is_killed_or_stopped_costs_no_result(
    datacenter: Datacenter, tmp_path: Path, number: signal.Signals
) -> None:
    datacenter.manager("m-1")
    first = datacenter.until_led()
    datacenter.manager("m-2")
    doomed = datacenter.worker("--slots", "2", "--lease", "3")
    datacenter.worker("--slots", "2", "--lease", "3")
    client, log = datacenter.client, tmp_path / "log"
    for n in range(40):
        client.submit("step", {"n": n, "log": str(log), "seconds": 0.2}, job_id=f"j-{n}")
    wait_until(lambda: log.exists() and len(log.read_text().split()) > 5, why=datacenter.said)
    datacenter.managers[first].kill()
    if number is signal.SIGSTOP:
        datacenter.stop_between_transactions(doomed)
    else:
        doomed.kill()
    for n in range(40):
        view = client.wait(f"j-{n}", PATIENCE_S)
        assert (view.state, view.workflows[0].result) == (JobState.COMPLETED, 2 * n), client.why(view.job_id).text
        links = client.why(view.job_id).why.links
        assert sum(link.kind == "WorkflowCompleted" for link in links) == 1
    assert set(map(int, log.read_text().split())) == set(range(40))


@pytest.mark.slow
def test_a_leader_stopped_for_longer_than_its_term_writes_nothing_more_when_it_goes_on(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    old = datacenter.until_led()
    datacenter.manager("m-2")
    client = datacenter.new_client()
    client.submit("step", {"n": 1, "log": str(tmp_path / "log")}, job_id="before")
    node, address = datacenter.managers[old], datacenter.addresses[old]
    datacenter.stop_between_transactions(node)
    # A write that reaches the stopped leader: the kernel takes it, the process reads it when it goes on.
    late = json.dumps({"job_id": "before", "reason": "too late"}).encode()
    head = f"POST /v1/cancel HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(late)}\r\n"
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as line:
        line.sendall(head.encode() + b"Connection: close\r\n\r\n" + late)
        new = next(name for name in datacenter.managers if name != old)
        wait_until(lambda: f"manager {new}: leads" in datacenter.managers[new].said(), why=datacenter.said)
        others = datacenter.new_client(first=new)
        epoch = others.submit_job(job(1, tmp_path / "log")).epoch
        node.signal(signal.SIGCONT)
        answer = b""
        while chunk := line.recv(65_536):
            answer += chunk
    # Refused, with the way to the one that leads, or with the word that nobody does as far as it knows.
    status = int(answer.split()[1])
    assert status in (307, 503), answer
    if status == 307:
        assert datacenter.addresses[new].encode() in answer
    assert others.job("before").state is JobState.PENDING
    wait_until(lambda: "answered in time" in node.said() or "no longer safe" in node.said(), why=datacenter.said)
    epochs = datacenter.epochs()
    assert epochs == sorted(epochs)
    assert epochs[-1] >= epoch > epochs[0]
    # It follows again, and knows what happened while it was away.
    direct = datacenter.new_client(first=old)
    wait_until(lambda: len(direct.jobs().jobs) == 2, why=datacenter.said)


@pytest.mark.slow
def test_a_submission_that_is_retried_through_a_failover_is_one_job(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1")
    first = datacenter.until_led()
    datacenter.manager("m-2")
    datacenter.worker("--slots", "2")
    log = tmp_path / "log"
    submission = JobSubmission(
        job_id="once", workflows=(WorkflowSpec(name="step", arguments={"n": 7, "log": str(log)}),)
    )
    outcomes: list[Outcome] = []
    stop = threading.Event()

    def insist() -> None:
        with datacenter.new_client(patience_s=PATIENCE_S) as client:
            while not stop.is_set():
                outcomes.append(client.submit_job(submission).outcome)
                time.sleep(0.01)

    threads = [threading.Thread(target=insist) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(outcomes) > 20, why=datacenter.said)
    datacenter.managers[first].kill()
    datacenter.manager("m-3")
    wait_until(lambda: datacenter.leader() not in ("", first), why=datacenter.said)
    before = len(outcomes)
    wait_until(lambda: len(outcomes) > before + 20, why=datacenter.said)
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert outcomes.count(Outcome.ACCEPTED) <= 1  # its answer may have died with the leader
    assert set(outcomes) <= {Outcome.ACCEPTED, Outcome.ALREADY}
    assert datacenter.client.wait("once", PATIENCE_S).state is JobState.COMPLETED
    assert datacenter.client.jobs().known == 1
    assert log.read_text().split() == ["7"]


@pytest.mark.slow
def test_a_leader_that_is_told_to_stop_resigns_and_the_next_need_not_wait_for_its_term(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1", "--term", "3600")
    assert datacenter.until_led() == "m-1"
    second = datacenter.manager("m-2")
    datacenter.managers["m-1"].signal(signal.SIGTERM)
    assert datacenter.managers["m-1"].process.wait(PATIENCE_S) == 0
    wait_until(lambda: "leads with" in second.said(), why=datacenter.said)
    client = datacenter.client
    assert client.submit("step", {"n": 1, "log": str(tmp_path / "log")})


@pytest.mark.slow
def test_the_commands_submit_show_explain_and_cancel(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker = datacenter.worker("--slots", "2")
    where = ("--managers", ",".join(datacenter.addresses.values()))

    def tenure(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tenure", *arguments, *where], capture_output=True, text=True, timeout=180
        )

    log = tmp_path / "log"
    done = tenure("submit", "step", "n=21", f"log={log}", "--wait")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "42"), done.stderr + worker.said()
    large = json.loads(tenure("submit", "large", "size=100000", "--wait", "--json").stdout)
    assert large["workflows"][0]["result"] == "x" * 100_000
    failed = tenure("submit", "raises", "--id", "wrong", "--wait")
    assert failed.returncode == 4
    assert "this workflow is wrong" in failed.stderr

    running = tenure("submit", "beat_for", "seconds=600", f"log={log}.beat", "--id", "long").stdout.strip()
    assert running == "long"
    wait_until(lambda: Path(f"{log}.beat").exists(), why=worker.said)
    cancelled = tenure("cancel", "long", "--reason", "enough")
    assert cancelled.returncode == 0
    wait_until(lambda: "stopped 1" in Path(f"{log}.beat").read_text(), why=worker.said)
    rows = {row["job_id"]: row for row in json.loads(tenure("ps", "--json").stdout)["jobs"]}
    assert (rows["long"]["state"], rows["wrong"]["state"]) == ("cancelled", "failed")
    assert "long" in tenure("ps").stdout
    assert "enough" in tenure("why", "long").stdout
    assert "raises" in tenure("ps", "wrong").stdout

    unknown = tenure("why", "nobody")
    assert (unknown.returncode, unknown.stderr.count("there is no job 'nobody'")) == (1, 1)
    conflict = tenure("submit", "step", "n=1", f"log={log}", "--id", "long")
    assert conflict.returncode == 1
    assert "other contents" in conflict.stderr


def test_nobody_at_the_address_is_said_with_exit_code_3() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused at once
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, "-m", "tenure", "ps", "--managers", address, "--patience", "0.1"],
            capture_output=True,
            text=True,
            timeout=180,
        )
    assert ended.returncode == 3
    assert address in ended.stderr


def test_a_public_address_without_a_token_is_refused(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tenure", "manager", "--engine", f"sqlite:///{tmp_path}/t.db", "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 1
    assert "TENURE_TOKEN" in ended.stderr
