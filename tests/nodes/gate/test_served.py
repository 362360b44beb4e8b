"""Gates over real HTTP: events that outlive a leader, metrics, overload, and clients that know several addresses."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.one_datacenter import double
from tests.nodes.gate.served import ServedGate, World

from tenure import AsyncClient, Client
from tenure.health.overload import Bounds, OverloadConfig

DEAD = "127.0.0.1:1"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")) as made:
        yield made


def submission(job_id: str, n: int = 4, **options: Any) -> dict[str, Any]:
    workflows = [{"name": "double", "arguments": {"n": n}}]
    return {"submission": {"job_id": job_id, "workflows": workflows, "target_datacenters": ["a"], **options}}


# Events


def stream(connection: http.client.HTTPConnection, path: str, last: str = "") -> Iterator[tuple[str, Any]]:
    """(cursor, event) of server-sent events, for as long as the gate tells them."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    fields: dict[str, str] = {}
    while line := answer.readline():
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields["id"], json.loads(fields.pop("data"))


def take(events: Iterator[tuple[str, Any]], until: tuple[str, str]) -> list[tuple[str, Any]]:
    found = []
    for cursor, event in events:
        found.append((cursor, event))
        if (event["type"], event.get("job_id", "")) == until:
            return found
    raise AssertionError(f"the stream ended before {until}: {found}")


def test_a_stream_goes_on_at_the_other_gate_after_the_leader_was_lost_without_a_gap_or_a_repetition(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        first = world.leading()
        with world.connection(first) as connection:
            events = stream(connection, "/v1/events?after=0")
            assert world.ask("/v1/submit", submission("one"), gate=first).status == 200
            seen = take(events, ("GateJobEnded", "one"))
            world.do(first.stop())
        second = next(gate for gate in world.gates if gate is not first)
        world.until(lambda: world.ask("/v1/leader", gate=second).body["leads"])
        with world.connection(second) as connection:
            events = stream(connection, "/v1/events?after=0", last=seen[-1][0])
            assert world.ask("/v1/submit", submission("two"), gate=second).status == 200
            seen += take(events, ("GateJobEnded", "two"))
        page = world.ask("/v1/events", {"after": "0", "limit": 1000}, gate=second).body
        assert [(line["cursor"], line["event"]) for line in page["events"]][: len(seen)] == seen
        types = [event["type"] for _, event in seen]
        assert types.count("GateElected") == 2
        assert types.count("GateJobAccepted") == types.count("GateJobEnded") == 2


def test_a_client_follows_its_job_at_a_gate_as_it_would_at_a_manager(world: World) -> None:
    with Client([gate.address for gate in world.gates]) as client:
        job = client.submit(double, n=21, target_datacenters=("a", "b"))
        kinds = [link.kind for link in job.events()]
        assert (kinds[0], kinds[-1]) == ("GateJobAccepted", "GateJobEnded")
        assert kinds.count("DatacenterReported") >= 2
        assert job.wait() == {"a/double": 42, "b/double": 42}
        told = [link.what for link in job.events()]
        assert "to a, b" in told[0]
        assert "the job has ended everywhere: completed" in told[-1]


def test_the_events_of_one_datacenter_are_streamed_through_a_gate(world: World) -> None:
    with world.connection(world.other()) as connection:
        events = stream(connection, "/v1/events?datacenter=b&after=0")
        assert world.ask("/v1/submit", submission("there", target_datacenters=["b"])).status == 200
        types = [event["type"] for _, event in take(events, ("JobEnded", "there"))]
        assert {"LeaderElected", "JobSubmitted", "Dispatched"} <= set(types)
    refused = world.ask("/v1/events?datacenter=mars", headers={"Accept": "text/event-stream"})
    assert (refused.status, "There are: a, b" in refused.body["remedy"]) == (422, True)


# Metrics


def samples(world: World, gate: ServedGate) -> dict[str, float]:
    text = world.ask("/metrics", gate=gate).body.decode()
    found = re.findall(r"^(tenure_\w+(?:\{[^}]*\})?) (\S+)$", text, flags=re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_every_metric_of_a_gate_is_documented_and_every_documented_one_is_there(world: World) -> None:
    with Client([gate.address for gate in world.gates]) as client:
        client.submit(double, n=1, target_datacenters=("a",)).wait()
        unwanted = client.submit("waits", target_datacenters=("b",))
        unwanted.cancel("enough")
        assert client.wait(unwanted.id, 60).ended
    leader = world.leader()
    assert leader is not None
    world.until(lambda: samples(world, leader).get('tenure_gate_jobs_ended_total{state="cancelled"}'))
    shown = samples(world, leader)
    exported = set(
        re.findall(
            r"^# TYPE (tenure_(?:gate|http)_\w+)", world.ask("/metrics", gate=leader).body.decode(), re.MULTILINE
        )
    )
    exported = {name for name in exported if not name.endswith("_created")}
    written = Path(__file__).parents[3].joinpath("docs/metrics.md").read_text()
    listed = re.findall(r"^\| `(tenure_\w+)", written.partition("## Gates")[2].partition("\n## ")[0], re.MULTILINE)
    assert exported == set(listed)
    assert shown["tenure_gate_leads"] == 1
    assert shown['tenure_gate_jobs{state="completed"}'] >= 1
    assert shown['tenure_gate_jobs_ended_total{state="cancelled"}'] >= 1
    assert shown['tenure_gate_decisions_total{state="cancelled"}'] >= 1
    assert shown['tenure_gate_reports_total{datacenter="a",kind="progress"}'] >= 1
    assert shown['tenure_gate_owed{datacenter="b",what="cancel"}'] == 0
    assert shown["tenure_gate_journal_sequence"] > 0
    well = 'tenure_gate_datacenter{class="HEALTHY",datacenter="a",rule="ready"}'
    world.until(lambda: samples(world, leader).get(well) == 1)  # a better class is believed after three assessments
    assert shown['tenure_gate_datacenter_latency_seconds{datacenter="a"}'] > 0
    standby = samples(world, world.other())
    assert (standby["tenure_gate_leads"], 'tenure_gate_jobs{state="running"}' in standby) == (0, False)


# Overload


def shedding(level: int) -> OverloadConfig:
    """A gate for which any memory in use is too much: of this level from the first assessments on."""
    bounds = [0.0 if number < level else 200.0 + number for number in range(3)]
    return OverloadConfig(memory_percent=Bounds(*bounds))


def test_a_gate_that_sheds_answers_503_with_retry_after_and_says_which_field_would_help(tmp_path: Path) -> None:
    with World(tmp_path, gates=1, datacenters=("a",), overload=shedding(2)) as world:
        world.until(lambda: world.ask("/v1/gate").body["overload_state"] == "stressed")
        low = world.ask("/v1/submit", submission("low"))
        assert (low.status, low.headers["Retry-After"]) == (503, "5")
        assert (low.body["kind"], low.body["retryable"], low.body["retry_after_s"]) == ("unavailable", True, 5.0)
        assert "takes jobs of priority 1 and above; this one has 0" in low.body["fact"]
        assert low.body["remedy"] == "Ask again after 5 s, or submit it with priority 1 or above"
        # Higher priority passes; so do cancels, results and what is only looked at; reports come through, for it ends.
        assert world.ask("/v1/submit", submission("high", priority=1)).status == 200
        assert world.ask("/v1/jobs").status == 200
        assert world.ask("/v1/cancel", {"job_id": "unknown"}).status == 200
        shown = samples(world, world.gates[0])
        assert shown['tenure_gate_shed_total{asked="submit",priority="default"}'] == 1
        assert shown['tenure_gate_overload{state="stressed"}'] == 1


def test_an_overloaded_gate_takes_nothing_new_and_still_cancels_and_tells_how_jobs_stand(tmp_path: Path) -> None:
    with World(tmp_path, gates=1, datacenters=("a",), overload=shedding(3)) as world:
        world.until(lambda: world.ask("/v1/gate").body["overload_state"] == "overloaded")
        for path, body in (("/v1/submit", submission("high", priority=9)), ("/v1/jobs", {}), ("/v1/nodes", {})):
            answer = world.ask(path, body)
            assert (answer.status, answer.headers["Retry-After"]) == (503, "10"), path
        assert world.ask("/v1/cancel", {"job_id": "unknown"}).status == 200
        assert world.ask("/v1/job?job_id=nobody").status == 404
        listening = world.ask("/v1/events", headers={"Accept": "text/event-stream"})
        assert (listening.status, listening.headers["Retry-After"]) == (503, "10")
        assert world.ask("/health/live").status == 200


# Clients


def test_a_client_with_a_dead_a_passing_and_a_leading_gate_gets_its_job_through(world: World) -> None:
    leader, other = world.leader(), world.other()
    assert leader is not None
    for addresses in (
        [DEAD, other.address, leader.address],
        [DEAD, other.address],
        [other.address, DEAD, leader.address],
    ):
        with Client(addresses, patience_s=30) as client:
            assert client.submit(double, n=3 + len(addresses), target_datacenters=("a",)).wait(60) == 2 * (
                3 + len(addresses)
            )
            assert not client.leader().leads or leader.address in addresses

    async def awaited() -> int:
        async with AsyncClient([DEAD, other.address, leader.address], patience_s=30) as client:
            return await (await client.submit(double, n=9, target_datacenters=("b",))).wait(60)

    assert world.do(awaited()) == 18


# Health of managers


def test_a_drained_manager_gets_no_new_jobs_and_everybody_is_told_why(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        gate = world.leading()
        drain = {"node": "manager/m", "reason": "new rack", "by": "ops", "datacenter": "a"}
        assert world.ask("/v1/drain", drain, gate=gate).status == 200
        world.until(lambda: world.places()["a"]["rule"] == "closed")
        place = world.places()["a"]
        assert "it accepts no new jobs: drained by ops: new rack" in place["reason"]
        assert [one["verdict"] for one in place["managers"]] == ["drain"]
        for number in range(3):
            order = submission(f"j-{number}", target_datacenters=[])
            # A busy machine may make a gate ask for another try; the same submission again is the same job.
            world.until(
                lambda order=order: world.ask("/v1/submit", order).body.get("outcome") in ("accepted", "already")
            )
            view = world.ask(f"/v1/job?job_id=j-{number}").body
            assert [one["name"] for one in view["datacenters"]] == ["b"]
        shown = world.ask("/metrics", gate=gate).body.decode()
        assert re.search(r'tenure_gate_manager\{datacenter="a",manager="[^"]*",verdict="drain"\} 1', shown)
        # A job that names the datacenter waits there, and runs as soon as the manager accepts jobs again.
        assert world.ask("/v1/submit", submission("named")).status == 200
        assert world.ask("/v1/undrain", {"node": "manager/m", "by": "ops", "datacenter": "a"}).status == 200
        world.until(lambda: world.ask("/v1/job?job_id=named").body.get("state") == "completed")
        world.until(lambda: world.places()["a"]["rule"] != "closed")
