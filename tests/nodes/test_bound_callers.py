"""A caller that is bound to labels shares its queue with others, and finds, counts, hears, ends and learns nothing of their jobs, whatever it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.nodes.gate.served import LoneGate
from tests.nodes.served import Answer, Served
from tests.nodes.test_subject_quotas import written
from tests.patience import wait_until

ANN, BOB = "ann", "bob"


def job(job_id: str, **more: Any) -> dict[str, Any]:
    workflow = {"name": "w", "arguments": {"patient": f"patient of {job_id}"}}
    return {"job_id": job_id, "workflows": [workflow], "queue": "shared", "target_datacenters": ["a"], **more}


def submit(node: Served, token: str, job_id: str, **more: Any) -> Answer:
    return node.ask("/v1/submit", {"submission": job(job_id, **more)}, token=token)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Served]:
    file = written(tmp_path, ann={"labels": {"team": ANN}}, bob={"labels": {"team": BOB}})
    with Served(tokens_file=file, token="node", datacenter="a") as node:
        yield node


@pytest.fixture(params=["manager", "gate"])
def node(request: pytest.FixtureRequest, manager: Served, tmp_path: Path) -> Iterator[Served]:
    """Each kind of node, with a job of each team."""
    if request.param == "manager":
        begin(manager)
        yield manager
        return
    with LoneGate({"a": [manager.host]}, tokens_file=str(tmp_path / "tokens.json"), token="node") as gate:
        begin(gate)
        yield gate


def begin(node: Served) -> None:
    for team in (ANN, BOB):
        assert submit(node, team, f"{team}-1", name=f"{team}s job", idempotency_key=f"{team}-key").status == 200
        wait_until(lambda team=team: node.ask(f"/v1/job?job_id={team}-1", token=team).status == 200)  # type: ignore[misc]


FILTERS: list[dict[str, Any]] = [
    {},
    {"name": "bob"},
    {"label": "team=bob"},
    {"label": "team"},
    {"arg": "patient=patient of bob-1"},
    {"function": "w", "args": True},
    {"queue": "shared"},
    {"state": "pending"},
    {"since": 1.0},
    {"after": "9e12:zzz"},
]


def test_no_filter_count_or_page_shows_jobs_of_others(node: Served) -> None:
    for chosen in FILTERS:
        for placed in ({}, {"datacenter": "a"}):
            found = node.ask("/v1/jobs", {**chosen, **placed}, token=ANN).body
            assert {one["job_id"] for one in found["jobs"]} <= {"ann-1"}, chosen
            assert found["known"] == len(found["jobs"]), chosen
            assert "bob" not in json.dumps(found), chosen


def test_events_show_nothing_of_others_whatever_they_are_asked_for(node: Served) -> None:
    for placed in ({}, {"datacenter": "a"}):
        for chosen in ({}, {"job_id": "bob-1"}, {"queue": "shared"}, {"kind": ["JobSubmitted"]}, {"progress": True}):
            found = node.ask("/v1/events", {"after": "0", **chosen, **placed}, token=ANN)
            assert found.status == 200, found
            assert "bob" not in json.dumps(found.body), chosen
    # A cursor from the future means that events were lost: the state that comes instead is the caller's, too.
    lost = node.ask("/v1/events", {"after": "99999"}, token=ANN).body
    assert lost["gap"]["state"]["known"] == 1
    assert "bob" not in json.dumps(lost)


JOB = "job why result logs evidence cancel retry signal_job pause_job resume_job retime_job move_job"


def test_a_job_of_others_is_answered_with_the_words_for_one_that_does_not_exist(node: Served) -> None:
    for operation in JOB.split():
        more = {"name": "n", "signal_id": "s"} if operation == "signal_job" else {"reason": "r"}
        for placed in ({}, {"datacenter": "a"}):
            asked = [
                node.ask(f"/v1/{operation}", {"job_id": one, **more, **placed}, token=ANN) for one in ("bob-1", "bob-9")
            ]
            told = [json.dumps({**one.body, "request_id": ""}).replace("bob-9", "bob-1") for one in asked]
            assert (asked[0].status, told[0]) == (404, told[1]), operation
    assert node.ask("/v1/job", {"job_id": "bob-1"}, token=BOB).body["ended_at"] == 0


def test_a_job_of_others_is_no_job_to_take_results_from(node: Served) -> None:
    assert submit(node, ANN, "ann-2", retry_of="bob-1").status == 404
    assert submit(node, ANN, "ann-3", retry_of="ann-1").status != 404


def test_the_refusal_of_a_key_that_others_use_does_not_name_their_job(node: Served) -> None:
    for one in (submit(node, ANN, "ann-2", idempotency_key="bob-key"), submit(node, ANN, "bob-1")):
        assert one.status == 409
        assert "belongs to another job" in one.body["fact"]
    many = {"submissions": [job("ann-3", idempotency_key="bob-key"), job("ann-4")]}
    answered = node.ask("/v1/submit_many", many, token=ANN).body["jobs"]
    assert [one["outcome"] for one in answered] == ["refused", "accepted"]
    assert "bob-1" not in json.dumps(answered)
    assert "job 'ann-1'" in submit(node, ANN, "ann-5", idempotency_key="ann-key").body["fact"]


def test_counts_of_a_queue_that_is_shared_are_not_for_who_sees_a_part_of_it(node: Served) -> None:
    for operation in ("queues", "overview", "nodes", "workflows", "tokens", "dead_letters"):
        assert node.ask(f"/v1/{operation}", {}, token=ANN).status == 403
    assert "queues" not in node.ask("/v1/me", token=ANN).body["may"]
    assert node.ask("/metrics", token=ANN).status == 404


@pytest.mark.parametrize("then", ["keep", "reject", "replace"])
@pytest.mark.parametrize("key", ["", "same"])
def test_an_equal_job_of_others_is_neither_found_nor_replaced(manager: Served, then: str, key: str) -> None:
    unique = {"key": key, "for_s": 3_600, "on_duplicate": then}
    call = [{"name": "w", "arguments": {"x": 1}}]
    assert submit(manager, BOB, "bob-1", workflows=call, unique=unique).body["outcome"] == "accepted"
    for job_id, said in {"ann-1": {}, "ann-2": {"among": {"team": BOB}}}.items():
        found = submit(manager, ANN, job_id, workflows=call, unique=unique, **said)
        assert found.status == 200 or "ann-1" in found.body["fact"]  # the second is equal to its own first
        assert "bob" not in json.dumps(found.body)
    assert manager.ask("/v1/job", {"job_id": "bob-1"}, token=BOB).body["state"] == "pending"
    again = submit(manager, BOB, "bob-2", workflows=call, unique=unique)  # among its own it is unique
    assert {"keep": "bob-1", "reject": "job 'bob-1' is equal", "replace": "bob-2"}[then] in json.dumps(again.body)


def test_a_schedule_of_others_is_neither_replaced_nor_seen(manager: Served) -> None:
    schedule = {"name": "nightly", "job": job("x"), "every_s": 86_400}
    assert manager.ask("/v1/set_schedule", {"schedule": schedule}, token=BOB).status == 200
    taken = manager.ask("/v1/set_schedule", {"schedule": schedule}, token=ANN)
    assert (taken.status, "taken" in taken.body["fact"]) == (422, True)
    for operation in ("drop_schedule", "trigger_schedule"):
        assert manager.ask(f"/v1/{operation}", {"name": "nightly", "job_id": "n/1"}, token=ANN).status == 404
    assert manager.ask("/v1/schedules", {}, token=ANN).body["schedules"] == []


def test_a_job_that_nobody_knows_keeps_no_other_of_the_same_request_from_its_answer(node: Served) -> None:
    """A gate raised for the first that it did not know, and a bound caller that waited for many jobs heard of none."""
    many = [job("ann-2"), job("ann-3", retry_of="gone")]
    answers = node.ask("/v1/submit_many", {"submissions": many}, token=ANN)
    assert [(one["job_id"], one["problem"]) for one in answers.body["jobs"]] == [("ann-2", None), ("ann-3", "unknown")]
    assert node.ask("/v1/cancel", {"job_id": "ann-2"}, token=ANN).status == 200
    asked = {"job_ids": ["gone", "ann-2", "bob-1"], "wait_s": 5.0}
    wait_until(lambda: node.ask("/v1/ended", asked, token=ANN).body.get("jobs"))
