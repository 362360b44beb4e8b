"""Steps of the story of `test_served_on_every_engine.py` that go by other ways than the client: the command line, plain HTTP, schedules, workers with a module of their own."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node

from tenure.backoff import Retry
from tenure.client.client import Client
from tenure.errors import JobFailed, NodeRefusedError
from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tenure.jobs.state_records import Schedule

OWN = """
from tenure import workflow

@workflow
def {name}(ctx, number: int = 0) -> str:
    return "{name}"
"""


def tenure(datacenter: Datacenter, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of the command line against the managers of a datacenter."""
    command = [sys.executable, "-m", "tenure", *arguments, "--address", ",".join(datacenter.addresses.values())]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)


def post(datacenter: Datacenter, name: str, body: Any) -> int:
    """Sends a request as any program without our client does, and returns the status. A leader that has just lost its short term sends it on or away: then it asks the next one."""

    def status() -> int:
        host, _, port = datacenter.addresses[datacenter.until_led()].rpartition(":")
        with closing(http.client.HTTPConnection(host, int(port), timeout=180)) as connection:
            connection.request("POST", f"/v1/{name}", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return 0 if answer.status in (307, 503) else answer.status

    return wait_until(status, datacenter.said)


def once_is_once_however_it_is_submitted(datacenter: Datacenter, client: Client, folder: Path) -> None:
    """`once` fails after its effect and sets max_attempts=1, a queue and a stall. Each way to submit by name must keep them."""
    effects = {way: folder / f"effect-of-{way}" for way in ("run", "client", "handle", "http", "schedule")}
    ran = tenure(datacenter, "run", "once", f"path={effects['run']}", "--id", "once-run")
    assert (ran.returncode, "after its effect" in ran.stderr) == (4, True), ran.stderr
    client.submit("once", path=str(effects["client"]), job_id="once-client")
    client.workflow("once").options(job_id="once-handle").submit(path=str(effects["handle"]))
    spec = {"name": "once", "arguments": {"path": str(effects["http"])}}
    assert post(datacenter, "submit", {"submission": {"job_id": "once-http", "workflows": [spec]}}) == 200
    added = tenure(datacenter, "schedule", "add", "nightly", "once", f"path={effects['schedule']}", "--every", "86400")
    assert added.returncode == 0, added.stderr
    client.trigger_schedule("nightly", job_id="once-schedule")
    for way, effect in effects.items():
        view = client.wait(f"once-{way}", 180)
        assert view.state is JobState.FAILED
        assert effect.read_text() == "x", f"{way}: tried again"
        assert view.queue == "fair", way
        story = client.why(view.job_id).text
        assert "set by once 1: retry, stall, queue" in story, f"{way}: {story}"
    with pytest.raises(JobFailed, match="after its effect"):
        client.get("once-client").wait(180)
    client.drop_schedule("nightly")


class BegunSteps(NamedTuple):
    """What one leader accepted, and another one has to go on with."""

    effect: Path
    """Of work that is tried once, and starts after the change."""
    scheduled: Path
    release: Path
    """Ends the work that keeps the other worker busy."""


def begin_under_one_leader(client: Client, folder: Path) -> BegunSteps:
    """An attempt has failed and its retry is due later, while the only other worker is busy; work that is declared once has not started; a schedule has not fired."""
    begun = BegunSteps(folder / "effect-of-later", folder / "effect-of-scheduled", folder / "release-later")
    client.submit("hold", path=str(begun.release), job_id="hold-later")
    wait_until(lambda: client.job("hold-later").workflows[0].state == "running")
    client.submit("once", path=str(begun.effect), job_id="once-later", delay=2.0)
    spec = WorkflowSpec(name="once", arguments={"path": str(begun.scheduled)})
    client.set_schedule(Schedule(name="later", job=JobSubmission(job_id="x", workflows=(spec,)), every_s=86_400))
    client.submit("flaky", path=str(folder / "tried-later"), job_id="flaky-later", retry=Retry(delay=2.0, jitter=0))
    wait_until((folder / "tried-later").exists)
    return begun


def end_under_the_next(client: Client, begun: BegunSteps) -> None:
    client.trigger_schedule("later", job_id="once-scheduled")
    view = client.wait("flaky-later", 180)
    assert (view.state, view.workflows[0].attempt) == (JobState.COMPLETED, 2), client.why("flaky-later").text
    # The other slot was never free, so the worker took it on whose exclude list the leader before had put it.
    assert client.job("hold-later").state is JobState.RUNNING
    begun.release.touch()
    for job_id, effect in (("once-later", begun.effect), ("once-scheduled", begun.scheduled)):
        view = client.wait(job_id, 180)
        assert (view.state, view.queue, effect.read_text()) == (JobState.FAILED, "fair", "x")
        assert "set by once 1: retry, stall, queue" in client.why(job_id).text
    client.drop_schedule("later")


def schedules_of_unknown_names_are_refused_or_parked(datacenter: Datacenter, client: Client) -> None:
    refused = tenure(datacenter, "schedule", "add", "n4", "godo", "--every", "5")
    assert (refused.returncode, "Did you mean 'good'" in refused.stderr) == (1, True), refused.stderr
    parked = tenure(datacenter, "schedule", "add", "n4", "godo", "--every", "86400", "--park")
    assert parked.returncode == 0, parked.stderr
    client.trigger_schedule("n4", job_id="n4-now")
    wait_until(lambda: "serves 'godo'" in client.job("n4-now").workflows[0].waits_for)
    wait_until(lambda: any("godo" in str(trouble) for trouble in client.overview().troubles))
    client.drop_schedule("n4")
    client.cancel("n4-now")


class OwnModule:
    """A worker whose module has one workflow, called as the worker is."""

    def __init__(self, datacenter: Datacenter, folder: Path, name: str) -> None:
        self._datacenter, self._folder, self.name = datacenter, folder, name
        (folder / f"own_{name}.py").write_text(OWN.format(name=name))
        self.node = self.start()

    def start(self) -> Node:
        module, workers = str(self._folder / f"own_{self.name}.py"), self._datacenter.workers
        arguments = (module, "--engine", self._datacenter.url, "--managed", "--name", self.name, "--slots", "1")
        self.node = Node(self._folder, f"{self.name}-{len(workers)}", "worker", *arguments)
        workers.append(self.node)
        return self.node

    def stop(self) -> None:
        self.node.process.terminate()
        wait_until(lambda: self.node.process.poll() is not None, why=self._datacenter.autopsy)

    def serves(self, client: Client) -> bool:
        return any(one.workers for one in client.catalogue(self.name).workflows)


def mixed(client: Client, count: int) -> list[tuple[str, str]]:
    return [(client.submit(name, number=number).id, name) for number in range(count) for name in ("left", "right")]


class WaitsForModule(NamedTuple):
    """Work whose last worker has left."""

    module: OwnModule
    job_id: str

    def is_released(self, client: Client) -> None:
        """Called under another leader than the one that accepted it: it still waits, and goes on when its worker comes."""
        waits_for = client.job(self.job_id).workflows[0].waits_for
        story = f"{waits_for!r}: {client.why(self.job_id).text}\n{client.nodes()}\n{client.catalogue(self.module.name)}"
        assert waits_for == f"a worker that serves {self.module.name!r} in queue 'default'", story
        self.module.start()
        assert client.get(self.job_id).wait(180) == self.module.name
        self.module.stop()


def workers_with_other_modules_get_only_what_they_serve(
    datacenter: Datacenter, client: Client, folder: Path
) -> tuple[Client, WaitsForModule]:
    """Two modules on one queue, while the leader changes. Then one of the two workers leaves. Returns a client that knows the new managers, and the work that waits."""
    left, right = (OwnModule(datacenter, folder, name) for name in ("left", "right"))
    wait_until(lambda: left.serves(client) and right.serves(client), why=datacenter.said)
    jobs = mixed(client, 10)
    client = datacenter.change_leaders()
    jobs += mixed(client, 10)
    for job_id, name in jobs:
        view = client.wait(job_id, 180)
        ran = (view.state, view.workflows[0].worker, view.workflows[0].attempt, view.workflows[0].result)
        assert ran == (JobState.COMPLETED, name, 1, name), client.why(job_id).text
    left.stop()  # nobody serves `left` now: it waits, is known, and holds up nobody
    wait_until(lambda: not left.serves(client), why=datacenter.said)
    waiting, others = client.submit("left"), [client.submit("right") for _ in range(5)]
    assert [job.wait(180) for job in others] == ["right"] * 5
    assert client.job(waiting.id).workflows[0].waits_for == "a worker that serves 'left' in queue 'default'"
    right.stop()
    return client, WaitsForModule(left, waiting.id)


def refused_by_every_door(datacenter: Datacenter, client: Client) -> None:
    """A misspelt name and arguments that do not fit, by each way in."""
    with pytest.raises(NodeRefusedError, match=r"'goood' within 7 days. Did you mean 'good'\?"):
        client.submit("goood")
    with pytest.raises(NodeRefusedError, match="argument 'tenant' is 3, and should be a string"):
        client.submit("good", tenant=3)
    with pytest.raises(NodeRefusedError, match="no worker has registered version '9' of workflow 'good'"):
        client.submit("good", version="9")
    job = JobSubmission(job_id="x", workflows=(WorkflowSpec(name="goood"),))
    with pytest.raises(NodeRefusedError, match="Did you mean 'good'"):
        client.set_schedule(Schedule(name="typo", job=job, every_s=3600))
    ran = tenure(datacenter, "run", "goood")
    assert (ran.returncode, "Did you mean 'good'?" in ran.stderr) == (1, True), ran.stderr
    for spec in ({"name": "goood"}, {"name": "good", "arguments": {"tenant": 3}}):
        assert post(datacenter, "submit", {"submission": {"job_id": "http-typo", "workflows": [spec]}}) == 422
