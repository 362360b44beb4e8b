"""Document 002, part 7, with real processes: leaders and gates that die, links that are cut, slow, lossy or deaf in one direction.

In network namespaces with a wire that really loses packets, where this machine gives them; elsewhere the nodes talk through relays that can be
cut, and what needs a real network is skipped, loudly. One factor scales every duration of the document.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.process.gates.namespaces import NamespaceCluster, why_not

from tenure.demo.cluster import Cluster, Tempo
from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tenure.nodes.messages.client import JobView

FACTOR = 0.04
FALLBACK_S = 300 * FACTOR
APP = str(Path(__file__).parent / "app.py")
MISSING = why_not()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two datacenters, the first with a standby, and two gates."""
    folder = tmp_path_factory.mktemp("world")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    kind = Cluster if MISSING else NamespaceCluster
    tempo = Tempo(FACTOR, gate_stuck_s=6_000)
    try:
        with kind(folder, APP, datacenters=("a", "b"), gates=2, managers=2, slots=3, tempo=tempo) as world:
            yield world
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture
def client(world: Cluster) -> Iterator[Any]:
    with world.client() as client:
        yield client


def submission(job_id: str, function: str, timeout_s: float, **arguments: Any) -> JobSubmission:
    spec = WorkflowSpec(name=function, arguments=arguments)
    return JobSubmission(
        job_id=job_id,
        workflows=(spec,),
        timeout_seconds=timeout_s,
        stuck_threshold=timeout_s * 0.99,
        target_datacenters=("a", "b"),
    )


def until(world: Cluster, true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            logs = "\n".join(f"--- {node.name}\n{node.log.read_text()[-1500:]}" for node in world.nodes())
            pytest.fail(f"within {seconds:g} s it did not happen that {what}\n{logs}")
        time.sleep(0.1)


def states(view: JobView) -> dict[str, JobState]:
    return {place.name: place.state for place in view.datacenters}


def ended(world: Cluster, client: Any, job_id: str) -> JobView:
    """The job once it has ended everywhere."""
    until(world, lambda: client.job(job_id).ended, f"{job_id} ends everywhere", 90)
    return client.job(job_id)


def runs_everywhere(world: Cluster, client: Any, job_id: str) -> None:
    def running() -> bool:
        return sum(one.started_at > 0 for one in client.job(job_id).workflows) == 2

    until(world, running, f"{job_id} runs in both datacenters")


@pytest.mark.slow
def test_a_leader_and_then_a_gate_die_and_the_deadline_stays_where_it_was(world: Cluster, client: Any) -> None:
    """Scenarios 1 and 2: tracking goes on with the successors, from the same start."""
    client.submit_job(submission("survivor", "endless", 16.0))
    runs_everywhere(world, client, "survivor")
    deadline = client.job("survivor").deadline
    leader = world.leading_manager("a")
    world.managers["a"][leader].kill()
    until(world, lambda: world.leading_manager("a") not in (-1, leader), "the standby leads")
    gate = world.leading_gate()
    world.gates[gate].kill()
    until(world, lambda: world.leading_gate() not in (-1, gate), "the other gate leads")
    assert client.job("survivor").deadline == deadline

    view = ended(world, client, "survivor")
    assert view.state is JobState.TIMED_OUT
    assert states(view) == {"a": JobState.TIMED_OUT, "b": JobState.TIMED_OUT}
    told = client.why("survivor").text
    assert "a has a new leader, token 2" in told
    # Once, by the gate that took over, and not before its time.
    assert told.count("the gate decided for every datacenter") == 1
    decided = [link for link in client.why("survivor").why.links if link.kind == "GlobalDecisionMade"]
    assert decided[0].after >= 12.0
    world.managers["a"][leader] = world.manager("a", leader)
    world.gates[gate] = world.gate(gate)


@pytest.mark.slow
def test_reports_wait_for_gates_that_are_all_gone_and_for_a_leader_that_dies_meanwhile(
    world: Cluster, client: Any
) -> None:
    """Scenario 2 with scenario 1 in it: nobody is left who heard, and what was owed is said when somebody comes."""
    client.submit_job(submission("orphan", "endless", 4.0))
    client.submit_job(submission("done", "render", 60.0, frames=20))
    runs_everywhere(world, client, "orphan")
    for gate in world.gates:
        gate.kill()
    leader = world.leading_manager("b")
    world.managers["b"][leader].kill()
    with world.client_in("b") as there:
        until(world, lambda: "reported to the gate with token" in there.why("orphan").text, "b reports in vain")
        assert there.job("orphan").state is JobState.RUNNING
    world.gates = [world.gate(number) for number in range(2)]
    view = ended(world, client, "orphan")
    assert states(view) == {"a": JobState.TIMED_OUT, "b": JobState.TIMED_OUT}
    assert client.why("orphan").text.count("the gate decided for every datacenter: timed_out") == 1
    # What completed while no gate was there was kept as well, with its results.
    done = ended(world, client, "done")
    assert states(done) == {"a": JobState.COMPLETED, "b": JobState.COMPLETED}
    assert [one.result for one in done.workflows] == [20, 20]
    world.managers["b"][leader] = world.manager("b", leader)


@pytest.mark.slow
def test_a_link_that_is_cut_past_the_fallback_and_a_datacenter_that_comes_back(world: Cluster, client: Any) -> None:
    """The gate decides for those it reaches; beyond the cut, each job ends by the fallback, or as soon as the gate is heard again."""
    client.submit_job(submission("fallen", "endless", 3.0))
    client.submit_job(submission("absent", "endless", 15.0))
    runs_everywhere(world, client, "absent")
    world.cut("b")
    with world.client_in("b") as there:
        until(world, lambda: there.job("fallen").ended, "b falls back", FALLBACK_S + 60)
        told = there.why("fallen").text
        assert f"the gate has not answered for {FALLBACK_S:.0f} s" in told
        assert not there.job("absent").ended
        until(world, lambda: states(client.job("absent"))["a"] is JobState.TIMED_OUT, "the gate has decided")
        seen = client.job("absent")
        assert states(seen) == {"a": JobState.TIMED_OUT, "b": JobState.RUNNING}
        assert [place.answers for place in seen.datacenters] == [True, False]
        world.mend("b")
        until(world, lambda: there.job("absent").ended, "b hears of the decision made in its absence")
        assert "the gate declared a global timeout" in there.why("absent").text
    for job_id in ("fallen", "absent"):
        view = ended(world, client, job_id)
        assert states(view) == {"a": JobState.TIMED_OUT, "b": JobState.TIMED_OUT}


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"needs a real network: {MISSING}")
def test_a_slow_and_lossy_link_and_one_that_is_deaf_in_one_direction(world: NamespaceCluster, client: Any) -> None:
    """300 ms and 5 % loss cost time and nothing else; a cancel beyond a one-way cut arrives when it is mended."""
    world.tell_wire("weather", "b", delay_s=0.15, loss=0.05)
    client.submit_job(submission("far", "render", 60.0, frames=20))
    view = ended(world, client, "far")
    assert states(view) == {"a": JobState.COMPLETED, "b": JobState.COMPLETED}
    client.submit_job(submission("unwanted", "endless", 60.0))
    runs_everywhere(world, client, "unwanted")
    client.cancel("unwanted", "enough", by="the test")
    assert states(ended(world, client, "unwanted")) == {"a": JobState.CANCELLED, "b": JobState.CANCELLED}
    world.tell_wire("heal", "b")

    client.submit_job(submission("deaf", "endless", 60.0))
    runs_everywhere(world, client, "deaf")
    world.tell_wire("mute", "a")  # what a sends arrives nowhere: no report, no answer, no acknowledgement
    client.cancel("deaf", "enough", by="the test")
    until(world, lambda: states(client.job("deaf"))["b"] is JobState.CANCELLED, "b obeys at once")
    assert states(client.job("deaf"))["a"] is JobState.RUNNING
    world.tell_wire("heal", "a")
    assert states(ended(world, client, "deaf")) == {"a": JobState.CANCELLED, "b": JobState.CANCELLED}
