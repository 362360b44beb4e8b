"""The commands that ask a datacenter, asked of gates: of all datacenters with a column that says which, or of one that is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from tests.nodes.gate.served import World

from tenure.cli.root import tenure

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def run(world: World) -> Run:
    def invoke(*arguments: str, code: int = 0) -> Result:
        addresses = ",".join(gate.address for gate in world.gates)
        environment = {"TENURE_ADDRESS": addresses, "TENURE_ENGINE": "", "TERM": "dumb"}
        result = CliRunner().invoke(tenure, arguments, env=environment)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return invoke


def test_jobs_are_run_watched_and_explained(run: Run) -> None:
    assert json.loads(run("run", "double", "n=4", "--datacenter", "a").stdout) == 8
    job = run("submit", "double", "n=5", "--datacenter", "a", "--datacenter", "b").stdout.strip()
    followed = run("watch", job).stdout
    assert "submitted to a, b: double(n=5)" in followed
    assert "the job has ended everywhere: completed" in followed
    lines = [json.loads(line) for line in run("watch", job, "--json").stdout.splitlines()]
    assert (lines[0]["event"]["type"], lines[-1]["event"]["type"]) == ("GateJobAccepted", "GateJobEnded")
    assert "In b: Nothing ended it early" in run("why", job).stdout
    assert job in run("ps", "--datacenter", "b").stdout
    assert "JobEnded" in run("watch", job, "--datacenter", "b", "--json").stdout


def test_why_of_a_job_that_failed_in_its_datacenter_begins_with_the_answer_of_that_datacenter(run: Run) -> None:
    run("run", "double", "n=3", "--id", "failed-in-a", "--max-attempts", "1", "--datacenter", "a", code=4)
    told = run("why", "failed-in-a").stdout.splitlines()
    assert told[0].startswith("In a: Your code raised ValueError: three, at ")
    assert told[1] == "Next: Mend it, then run it again: tenure retry failed-in-a."


def test_lists_have_a_column_for_the_datacenter_and_an_option_for_one(run: Run, world: World) -> None:
    world.until(lambda: len(json.loads(run("nodes", "--json").stdout)["workers"]) == 2)
    everywhere = run("nodes").stdout
    assert all(word in everywhere for word in ("datacenter", "gate", "g-1", "leads", "worker"))
    found = json.loads(run("nodes", "--json").stdout)
    assert {worker["datacenter"] for worker in found["workers"]} == {"a", "b"}
    one = run("nodes", "--datacenter", "a").stdout
    assert ("datacenter" in one, "worker" in one) == (False, True)
    run("submit", "double", "n=1", "--datacenter", "a", "--datacenter", "b", "--wait")
    assert {queue["datacenter"] for queue in json.loads(run("queue", "--json").stdout)} == {"a", "b"}
    assert "datacenter" in run("queue").stdout
    assert json.loads(run("dlq", "list", "--json").stdout)["count"] == 0
    assert "datacenter" in run("nodes", "--help").stdout


def test_changes_name_their_datacenter_and_otherwise_say_which_there_are(run: Run) -> None:
    refused = run("queue", "video", "--pause", code=1)
    assert "--datacenter a" in refused.output
    assert "There are: a, b" in refused.output
    run("queue", "video", "--pause", "--datacenter", "b")
    paused = {one["datacenter"]: one["paused"] for one in json.loads(run("queue", "video", "--json").stdout)}
    assert paused == {"b": True}
    run("queue", "video", "--resume", "--datacenter", "b")
    run("drain", "w", "--datacenter", "b", "--reason", "new kernel")
    drained = {one["datacenter"]: one["drained"] for one in json.loads(run("nodes", "--json").stdout)["workers"]}
    assert drained["b"] is True
    run("drain", "w", "--datacenter", "b", "--undo")
    assert "does not know the datacenter 'mars'" in run("nodes", "--datacenter", "mars", code=1).output


def test_schedules_live_in_a_datacenter(run: Run) -> None:
    run("schedule", "add", "poll", "double", "n=1", "--every", "86400", "--datacenter", "a")
    assert "datacenter" in run("schedule", "list").stdout
    run("schedule", "pause", "poll")  # it is in one only
    (listed,) = json.loads(run("schedule", "list", "--json").stdout)["schedules"]
    assert (listed["datacenter"], listed["schedule"]["paused"]) == ("a", True)
    run("schedule", "add", "poll", "double", "n=1", "--every", "86400", "--datacenter", "b")
    assert "--datacenter a or b" in run("schedule", "pause", "poll", "--undo", code=2).output
    job = run("schedule", "trigger", "poll", "--datacenter", "b").stdout.strip()
    assert json.loads(run("result", job, "--wait", "--datacenter", "b").stdout) == 2
    for name in ("a", "b"):
        run("schedule", "remove", "poll", "--datacenter", name)
