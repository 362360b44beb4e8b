"""Workers get what they serve, on every engine, with real processes: one story that plays each line of what people met (issue 17).

Two managers are there from the start, and the leader is killed in the middle of each. Keys and unique jobs are in `test_keys_on_every_engine.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.datacenter import catalogue_steps as steps
from tests.process.datacenter.conftest import Datacenter, Node

from tenure.backoff import Retry
from tenure.client.client import Client
from tenure.client.job import Job
from tenure.jobs import JobState

PARKED = 1_000
MODULE = """
import time
from pathlib import Path
from tenure import workflow

@workflow
def good(ctx, tenant: str = "") -> str:
    return tenant

@workflow(version="{version}")
def deploy(ctx) -> str:
    return "{version}"

@workflow(max_attempts=1, queue="fair", stall=77)
def once(ctx, path: str) -> None:
    with Path(path).open("a") as file:
        file.write("x")
    raise RuntimeError("after its effect")

@workflow
def flaky(ctx, path: str) -> float:
    if not Path(path).exists():
        Path(path).write_text(str(time.monotonic()))
        raise RuntimeError("the first time")
    return time.monotonic() - float(Path(path).read_text())

@workflow
def hold(ctx, path: str) -> None:
    for _ in ctx.polling(0.05, 500, "the file"):
        if Path(path).exists():
            return
"""


class Fleet:
    """Workers of the module above, on the datacenter of a test."""

    def __init__(self, datacenter: Datacenter, folder: Path) -> None:
        self._datacenter, self._folder = datacenter, folder

    def start(self, name: str, version: str = "1", *options: str) -> Node:
        module = self._folder / f"module_v{version}.py"
        module.write_text(MODULE.format(version=version))
        queues = ("--queue", "default", "--queue", "fair")
        arguments = (str(module), "--engine", self._datacenter.url, "--managed", "--name", name, *queues, *options)
        node = Node(self._folder, f"{name}-{len(self._datacenter.workers)}", "worker", *arguments)
        self._datacenter.workers.append(node)
        return node

    def replace(self, old: Node, name: str, version: str) -> Node:
        """Stops a worker as a deploy does, and starts the next one."""
        old.process.terminate()
        wait_until(lambda: old.process.poll() is not None, why=self._datacenter.autopsy)
        return self.start(name, version)


class SteadySubmissions:
    """Submits a job every few milliseconds, and keeps what came of each."""

    def __init__(self, client: Client, target: str) -> None:
        self._client, self._target = client, target
        self.versions = [""]
        self.jobs: list[tuple[Job[Any], str]] = []
        self.refused: list[Exception] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()

        def submit() -> None:
            while not stop.wait(0.02):
                version = self.versions[len(self.jobs) % len(self.versions)]
                try:
                    self.jobs.append((self._client.submit(self._target, version=version), version))
                except Exception as error:  # judged by the test
                    self.refused.append(error)

        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(180)


def serves(client: Client, name: str, version: str) -> bool:
    return any(one.workers and one.served.version == version for one in client.catalogue(name).workflows)


def parked_names_hold_up_nobody(datacenter: Datacenter, client: Client) -> None:
    client.submit_many("typo", [{} for _ in range(PARKED)], park=True)
    good = client.submit_many("good", [{"tenant": str(number)} for number in range(50)])
    client = datacenter.change_leaders()
    good += client.submit_many("good", [{"tenant": str(number)} for number in range(50)])
    assert [client.get(job.id).wait(180) for job in good] == [str(number) for number in range(50)] * 2

    def waiting() -> tuple[int, int]:
        (queue,) = (one for one in client.queues().queues if one.name == "default")
        return queue.parked, queue.queued

    # None of them is in the engine. A retry of another story may be there for a moment.
    wait_until(lambda: waiting() == (PARKED, 0), lambda: str(waiting()))
    story = client.why(client.jobs(name="typo", limit=1).jobs[0].job_id)
    assert "Dispatched" not in {link.kind for link in story.why.links}


def an_excluded_worker_that_is_idle_takes_the_retry(client: Client, fleet: Fleet, folder: Path) -> None:
    """The only other slot is busy for as long as the test wants, so the retry can only end on the worker that failed. `test_claims.py` shows by a clock that it waits 2 s for another."""
    busy = client.submit("hold", path=str(folder / "release"))
    wait_until(lambda: client.job(busy.id).workflows[0].state == "running")
    client.submit("flaky", path=str(folder / "tried"), retry=Retry(delay=0.1)).wait(180)
    assert client.job(busy.id).state is JobState.RUNNING, "an idle worker stood beside it"
    (folder / "release").touch()
    busy.wait(180)


def a_rolling_deploy(datacenter: Datacenter, client: Client, fleet: Fleet, workers: list[Node]) -> Node:
    """Replaces the workers one by one under load. Then restarts the only one that is left, under load too. Returns it."""
    with datacenter.new_client() as own:
        load = SteadySubmissions(own, "deploy")
        load.versions = ["1"]
        with load.running():
            first = fleet.replace(workers[0], "v2-a", "2")
            wait_until(lambda: serves(client, "deploy", "2"), why=datacenter.said)
            load.versions = ["1", "2"]
            client = datacenter.change_leaders()
            second = fleet.replace(workers[1], "v2-b", "2")
            time.sleep(0.5)
            second.process.terminate()
            wait_until(lambda: second.process.poll() is not None, why=datacenter.autopsy)
            first = fleet.replace(first, "v2-a", "2")  # the only worker there is
            time.sleep(0.5)
    assert not load.refused
    late = fleet.start("v1-late", "1")  # version 1 waited for it
    assert len(load.jobs) > 20
    assert {version for _, version in load.jobs} == {"1", "2"}
    for job, version in load.jobs:
        assert client.get(job.id).wait(180) == version, client.why(job.id).text
    late.process.terminate()
    wait_until(lambda: late.process.poll() is not None, why=datacenter.autopsy)
    return first


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_workers_get_what_they_serve(on_every_engine: Datacenter, tmp_path: Path) -> None:
    datacenter = on_every_engine
    fleet = Fleet(datacenter, tmp_path)
    datacenter.manager("m-1")
    datacenter.manager("m-2")
    datacenter.until_led()
    client = datacenter.client
    # Nobody has registered, so these go to the mailbox of the old form, as all work of the first release did. Names that nobody will have come first.
    typos = client.submit_many("typo", [{} for _ in range(5)])
    early = client.submit_many("good", [{"tenant": str(number)} for number in range(20)])
    wait_until(lambda: client.queues().queues[0].queued == 25)
    client = datacenter.change_leaders()
    workers = [fleet.start(name, "1", "--slots", "1") for name in ("v1-a", "v1-b")]
    assert [client.get(job.id).wait(180) for job in early] == [str(number) for number in range(20)]
    for job in typos:
        wait_until(lambda job=job: "serves 'typo'" in client.job(job.id).workflows[0].waits_for)  # type: ignore[misc]
        client.cancel(job.id)
    wait_until(lambda: serves(client, "deploy", "1"), why=datacenter.said)
    steps.refused_by_every_door(datacenter, client)
    steps.once_is_once_however_it_is_submitted(datacenter, client, tmp_path)
    steps.schedules_of_unknown_names_are_refused_or_parked(datacenter, client)
    an_excluded_worker_that_is_idle_takes_the_retry(client, fleet, tmp_path)
    begun = steps.begin_under_one_leader(client, tmp_path)
    parked_names_hold_up_nobody(datacenter, datacenter.new_client())
    steps.end_under_the_next(datacenter.new_client(), begun)
    client, waiting = steps.workers_with_other_modules_get_only_what_they_serve(
        datacenter, datacenter.new_client(), tmp_path
    )
    steps.refused_by_every_door(datacenter, client)  # by the third leader: the catalogue is still known
    a_rolling_deploy(datacenter, datacenter.new_client(), fleet, workers)
    waiting.is_released(datacenter.new_client())
