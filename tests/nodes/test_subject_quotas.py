"""Quotas of tokens: how many jobs and bytes may be under way, and how fast; at a manager and at a gate, over real ports."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.nodes.gate.served import LoneGate
from tests.nodes.served import Answer, Served
from tests.patience import wait_until


def written(folder: Path, **quotas: dict[str, Any]) -> str:
    entries = [
        {"name": name, "role": "client", "sha256": hashlib.sha256(name.encode()).hexdigest(), **quota}
        for name, quota in {"node": {"role": "node"}, **quotas}.items()
    ]
    path = folder / "tokens.json"
    path.write_text(json.dumps({"tokens": entries}))
    return str(path)


def submission(job_id: str, size: int = 0) -> dict[str, Any]:
    workflow = {"name": "w", "arguments": {"x": "a" * size}}
    return {"job_id": job_id, "workflows": [workflow], "target_datacenters": ["a"]}


def submit(node: Served, token: str, job_id: str, size: int = 0) -> Answer:
    return node.ask("/v1/submit", {"submission": submission(job_id, size)}, token=token)


@pytest.mark.parametrize("at_gate", [False, True], ids=["manager", "gate"])
def test_a_token_has_as_many_jobs_and_bytes_under_way_as_its_quota_says(tmp_path: Path, at_gate: bool) -> None:
    file = written(tmp_path, few={"max_jobs": 2}, small={"max_bytes": 3_000}, free={})
    url = f"sqlite:///{tmp_path}/t.db"
    with Served(engine_url=url, tokens_file=file, token="node", datacenter="a") as manager:
        if at_gate:
            with LoneGate({"a": [manager.host]}, tokens_file=file, token="node") as gate:
                check_quotas(gate)
        else:
            check_quotas(manager)
    if not at_gate:
        with Served(engine_url=url, tokens_file=file, token="node", datacenter="a") as manager:
            assert submit(manager, "few", "after-a-restart").status == 429  # its jobs are in the book


def check_quotas(node: Served) -> None:
    assert [submit(node, "few", f"f-{number}").status for number in (1, 2)] == [200, 200]
    refused = submit(node, "few", "f-3")
    assert (refused.status, refused.body["kind"], refused.body["retryable"]) == (429, "too_many", True)
    assert "2 jobs" in refused.body["fact"]
    assert submit(node, "few", "f-1").status == 200  # asked again: it is known
    assert submit(node, "free", "o-1").status == 200  # nobody else waits for it
    many = {"submissions": [submission(one) for one in ("f-2", "f-3")]}
    answers = node.ask("/v1/submit_many", many, token="few").body["jobs"]
    assert [(one["job_id"], one["problem"]) for one in answers] == [("f-2", None), ("f-3", "too_many")]
    assert node.ask("/v1/cancel", {"job_id": "f-1"}, token="few").status == 200
    wait_until(lambda: node.ask("/v1/job?job_id=f-1", token="few").body["state"] == "cancelled")
    assert submit(node, "few", "f-3").status == 200
    assert submit(node, "few", "f-4").status == 429
    assert submit(node, "small", "s-1", 1_500).status == 200
    assert submit(node, "small", "s-2", 1_500).status == 429
    assert submit(node, "small", "s-3", 10).status == 200


def test_a_token_submits_as_fast_as_its_quota_says(tmp_path: Path) -> None:
    file = written(tmp_path, slow={"jobs_per_s": 0.2})
    with Served(tokens_file=file, token="node") as node:
        assert [submit(node, "slow", f"j-{number}").status for number in range(3)] == [200, 200, 429]
        refused = submit(node, "slow", "j-3")
        assert 0 < refused.body["retry_after_s"] <= 5
        assert "0.2 jobs a second" in refused.body["fact"]


def test_what_a_bound_token_submits_has_its_labels_and_streams_show_its_jobs_only(tmp_path: Path) -> None:
    file = written(tmp_path, ann={"labels": {"team": "a"}}, bob={"labels": {"team": "b"}})
    with Served(tokens_file=file, token="node") as node:
        for name in ("ann", "bob"):
            assert submit(node, name, f"{name}-1").status == 200
        assert node.ask("/v1/job?job_id=ann-1", token="ann").body["labels"] == {"team": "a"}
        forged = submission("x") | {"labels": {"team": "b"}}
        assert node.ask("/v1/submit", {"submission": forged}, token="ann").status == 403
        connection = node.connection()
        head = {"Authorization": "Bearer ann", "Accept": "application/x-ndjson"}
        connection.request("GET", "/v1/events?after=0", headers=head)
        stream = connection.getresponse()
        submit(node, "bob", "bob-2")
        submit(node, "ann", "ann-2")
        seen: list[str] = []
        while "ann-2" not in "".join(seen):
            seen.append(stream.readline().decode())
        connection.close()
        assert "ann-1" in "".join(seen)
        assert "bob" not in "".join(seen)
        assert node.ask("/metrics", token="ann").status == 404
        assert node.ask("/metrics", token="node").status == 200


def test_a_request_for_a_namespace_is_refused_and_not_done_in_the_wrong_one(tmp_path: Path) -> None:
    with Served() as node:
        asked = {"submission": submission("j")}
        assert node.ask("/v1/submit", asked, headers={"X-Tenure-Namespace": "a"}).status == 422
        assert node.ask("/v1/job?job_id=j").status == 404
        reserved = node.ask("/v1/submit", {"submission": submission("//a/j")})
        assert (reserved.status, reserved.body["kind"]) == (422, "impossible")
        assert "//" in reserved.body["fact"]
