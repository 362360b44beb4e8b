"""What once ended a manager for good is refused at its door, over HTTP, and the manager goes on: the table of the issue, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.nodes.served import JSON, Answer, Served

LONG = "x" * 700_000


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with Served() as served:
        yield served


def submission(**fields: Any) -> dict[str, Any]:
    return {"job_id": "j-1", "workflows": [{"name": "w"}], **fields}


def schedule(**job: Any) -> dict[str, Any]:
    return {"name": "nightly", "every_s": 3600, "job": submission(**job)}


def refused(node: Served, path: str, body: Any, field: str) -> Answer:
    answer = node.ask(path, body)
    assert answer.status == 400, answer.body
    assert answer.body["fact"].startswith(f"{field} is "), answer.body["fact"]
    assert "must be" in answer.body["fact"]
    assert len(json.dumps(answer.body)) < 2_000, "an error does not repeat what was too long"
    return answer


QUEUES = ["my queue", "ä", "q" * 200, "q\n", "-q", ".q"]


@pytest.mark.parametrize("queue", QUEUES)
def test_a_queue_that_no_mailbox_can_be_called_after(node: Served, queue: str) -> None:
    refused(node, "/v1/submit", {"submission": submission(queue=queue)}, "submission.queue")
    refused(node, "/v1/set_schedule", {"schedule": schedule(queue=queue)}, "schedule.job.queue")
    for path in ("/v1/set_queue", "/v1/pause", "/v1/resume"):
        refused(node, path, {"queue": queue}, "queue")


def test_of_many_submissions_only_the_one_that_is_out_of_bounds_is_refused(node: Served) -> None:
    many = [submission(job_id="many-1"), submission(job_id="many-2", queue="my queue"), submission(job_id="many-3")]
    answer = node.ask("/v1/submit_many", {"submissions": many})
    assert [(one["outcome"], one["problem"]) for one in answer.body["jobs"]] == [
        ("accepted", None),
        ("refused", "invalid"),
        ("accepted", None),
    ]
    assert answer.body["jobs"][1]["reason"].startswith("submission.queue is 'my queue', and must be 0 to 115 letters")


@pytest.mark.parametrize(
    ("host", "port"),
    [("\u202e", 1), ("ä.example", 1), ("a..b", 1), ("a" * 64 + ".example", 1), ("", 1), ("host", 0), ("host", 65_536)],
)
def test_a_gate_that_nobody_can_connect_to(node: Served, host: str, port: int) -> None:
    place = "[1]" if host == "host" else "[0]"
    refused(node, "/v1/submit", {"submission": submission(gate_addr=[host, port])}, f"submission.gate_addr{place}")
    refused(
        node, "/v1/submit", {"submission": submission(gate_addrs=[[host, port]])}, f"submission.gate_addrs[0]{place}"
    )


@pytest.mark.parametrize("rate", [5e-324, 0, -1, 1e7, 1e-12])
def test_a_rate_whose_inverse_is_no_time(node: Served, rate: float) -> None:
    refused(node, "/v1/set_queue", {"queue": "default", "rate": rate}, "rate")


@pytest.mark.parametrize("field", ["job_id", "reason", "by"])
def test_a_cancel_that_no_journal_takes(node: Served, field: str) -> None:
    answer = refused(node, "/v1/cancel", {"job_id": "j-1", field: LONG}, field)
    assert "(700,000 characters)" in answer.body["fact"]


def test_a_report_of_a_worker_with_such_a_name(node: Served) -> None:
    refused(node, "/v1/report", {"worker": LONG}, "worker")
    refused(node, "/v1/report", {"worker": "w", "incarnation": LONG}, "incarnation")
    refused(node, "/v1/report", {"worker": "w", "lanes": ["my queue.p0"]}, "lanes[0]")
    attempt = {"job_id": "j", "workflow": "w", "attempt": 1, "delivery": 1, "steps": 1, "note": LONG}
    refused(node, "/v1/report", {"worker": "w", "attempts": [attempt]}, "attempts[0].note")


@pytest.mark.parametrize("field", ["name", "function"])
def test_a_workflow_of_nine_thousand_characters(node: Served, field: str) -> None:
    workflow = {"name": "w", field: "f" * 9_000}
    refused(node, "/v1/submit", {"submission": submission(workflows=[workflow])}, f"submission.workflows[0].{field}")


def test_an_integer_that_no_snapshot_holds_is_refused_as_what_no_schema_can_say(node: Served) -> None:
    answer = node.ask("/v1/submit", {"submission": submission(workflows=[{"name": "w", "arguments": {"n": 2**70}}])})
    assert (answer.status, answer.body["kind"]) == (422, "impossible")


def test_what_a_gate_passes_on_goes_through_the_same_door(node: Served) -> None:
    inner = {"name": "cancel", "body": {"job_id": LONG}, "by": "gate"}
    answer = node.ask("/v1/forward", inner)
    assert (answer.status, answer.body["fact"][:20]) == (400, f"job_id is '{'x' * 9}")


def test_one_word_of_a_gate_that_is_out_of_bounds_is_answered_for_good_and_the_others_are_heard(node: Served) -> None:
    words = [
        {"type": "JobGlobalCancel", "job_id": "x" * 300, "reason": "", "cancelled_at": 1.0},
        {"type": "JobStatusQuery", "job_id": "nobody"},
    ]
    answer = node.ask(
        "/v1/tell_datacenter",
        {"datacenter": "local", "words": words, "submissions": [submission(job_id="g-1", queue="ä")]},
    )
    assert answer.status == 200, answer.body
    said = {one["job_id"][:10]: one for one in answer.body["corrections"]}
    assert set(said) == {"x" * 10, "nobody", "g-1"}
    assert (said["g-1"]["status"], said["g-1"]["reason"][:31]) == ("failed", "refused: submission.queue is 'ä")


def test_a_whole_number_may_be_written_as_json_has_it_and_arguments_stay_as_they_are(node: Served) -> None:
    body = b'{"submission": {"job_id": "whole", "priority": 2.0, "workflows": [{"name": "w", "arguments": {"x": 3.0}, "retry": {"max_attempts": 2.0}}]}}'
    connection = node.connection()
    connection.request("POST", "/v1/submit", body, JSON)
    assert connection.getresponse().status == 200
    connection.close()
    job = node.ask("/v1/job?job_id=whole").body
    assert [one["max_attempts"] for one in job["workflows"]] == [2]


def test_a_request_without_fields_needs_no_body(node: Served) -> None:
    connection = node.connection()
    connection.request("POST", "/v1/leader")
    assert connection.getresponse().status == 200
    connection.close()


def test_after_all_of_this_the_manager_leads_and_takes_jobs(node: Served) -> None:
    assert node.ask("/health/ready").status == 200
    assert node.ask("/v1/submit", {"submission": submission(job_id="honest")}).status == 200
    assert node.ask("/v1/leader").body["epoch"] == 1
