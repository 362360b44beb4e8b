"""Workers serve what they registered, with real processes: typos, parked work, mixed modules, a deploy, and a worker that restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node

from tenure.client.client import Client
from tenure.client.job import Job
from tenure.errors import JobFailed, NodeRefusedError
from tenure.jobs import JobState

NOOPS = """
from tenure import workflow

@workflow(version="{version}")
def {name}(ctx, number: int = 0) -> str:
    return "{version}"
"""
ONCE = """
from pathlib import Path
from tenure import workflow

@workflow(max_attempts=1)
def once(ctx, path: str) -> None:
    with Path(path).open("a") as file:
        file.write("x")
    raise RuntimeError("after its effect")
"""
StartWorker = Callable[..., Node]


@pytest.fixture
def worker(datacenter: Datacenter, tmp_path: Path) -> StartWorker:
    """Starts a worker of a module with this text."""

    def start(name: str, text: str, *options: str) -> Node:
        module = tmp_path / f"module_{name}.py"
        module.write_text(text)
        arguments = (str(module), "--engine", datacenter.url, "--managed", "--name", name, "--slots", "2", *options)
        node = Node(tmp_path, f"worker-{name}-{len(datacenter.workers)}", "worker", *arguments)
        datacenter.workers.append(node)
        return node

    return start


def serves(client: Client, name: str, version: str = "") -> bool:
    return any(one.workers and version in ("", one.served.version) for one in client.catalogue(name).workflows)


def noop(name: str, version: str = "1") -> str:
    return NOOPS.format(name=name, version=version)


def finish(jobs: list[Job[str]]) -> float:
    begun = time.monotonic()
    for job in jobs:
        job.wait(180)
    return time.monotonic() - begun


def test_typos_are_refused_and_parked_names_hold_up_nobody(datacenter: Datacenter, worker: StartWorker) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker("a", noop("good"))
    client = datacenter.client
    wait_until(lambda: serves(client, "good"), why=datacenter.said)
    with pytest.raises(NodeRefusedError, match=r"'goood' within 7 days. Did you mean 'good'\?"):
        client.submit("goood")
    with pytest.raises(NodeRefusedError, match="argument 'number' is 'x', and should be an integer"):
        client.submit("good", number="x")
    client.submit_many("typo", [{} for _ in range(300)], park=True)
    finish([client.submit("good", number=number) for number in range(20)])
    assert client.queues().queues[0].parked == 300
    parked = client.jobs(name="typo", limit=1).jobs[0]
    assert (parked.state, parked.waits_for) == (JobState.PENDING, "a worker that serves 'typo' in queue 'default'")
    late = client.submit("late", park=True)
    worker("b", noop("late"))
    assert late.wait(180) == "1"


def test_work_declared_once_is_tried_once_also_when_it_is_submitted_by_name(
    datacenter: Datacenter, worker: StartWorker, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    worker("a", ONCE)
    wait_until(lambda: serves(datacenter.client, "once"), why=datacenter.said)
    job = datacenter.client.submit("once", path=str(tmp_path / "effects"))
    with pytest.raises(JobFailed, match="after its effect"):
        job.wait(180)
    assert (tmp_path / "effects").read_text() == "x"
    assert "set by once 1: retry" in datacenter.client.why(job.id).text


def test_workers_with_different_modules_on_one_queue_get_only_what_they_serve(
    datacenter: Datacenter, worker: StartWorker
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    for name in ("left", "right"):
        worker(name, noop(name))
    client = datacenter.client
    for name in ("left", "right"):
        wait_until(lambda name=name: serves(client, name), why=datacenter.said)  # type: ignore[misc]
    jobs = [client.submit(name, number=number) for number in range(10) for name in ("left", "right")]
    finish(jobs)
    for job, name in zip(jobs, ["left", "right"] * 10, strict=True):
        view = client.job(job.id)
        assert (view.workflows[0].worker, view.workflows[0].attempt) == (name, 1)


def test_a_rolling_deploy_and_a_change_of_leader_lose_refuse_and_misplace_nothing(
    datacenter: Datacenter, worker: StartWorker
) -> None:
    datacenter.manager("m-1")
    datacenter.manager("m-2")
    leader = datacenter.until_led()
    old = worker("v1", noop("deploy", "1"))
    client = datacenter.client
    wait_until(lambda: serves(client, "deploy", "1"), why=datacenter.said)
    jobs = [(client.submit("deploy", version="1"), "1") for _ in range(5)]
    new = worker("v2", noop("deploy", "2"))
    wait_until(lambda: serves(client, "deploy", "2"), why=datacenter.said)
    jobs += [(client.submit("deploy", version=version), version) for version in ("1", "2") * 5]
    old.process.terminate()
    datacenter.managers[leader].kill()
    jobs += [(client.submit("deploy", version=version), version) for version in ("1", "2") * 5]  # version 1 is known
    wait_until(lambda: old.process.poll() is not None, why=datacenter.said)
    jobs += [(client.submit("deploy", version="1"), "1")]
    worker("v1-again", noop("deploy", "1"))
    assert [job.wait(180) for job, _ in jobs] == [version for _, version in jobs]
    new.process.terminate()


def test_restarting_the_only_worker_refuses_nothing(datacenter: Datacenter, worker: StartWorker) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    first = worker("only", noop("steady"))
    client = datacenter.client
    wait_until(lambda: serves(client, "steady"), why=datacenter.said)
    jobs = [client.submit("steady") for _ in range(3)]
    first.process.terminate()
    while first.process.poll() is None:
        jobs.append(client.submit("steady"))
        time.sleep(0.1)
    jobs += [client.submit("steady") for _ in range(3)]
    worker("only", noop("steady"))
    finish(jobs)
