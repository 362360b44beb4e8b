"""A real manager over HTTP: every operation by POST and, where it reads, by GET; probes, metrics, ids, and what is remembered of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.nodes.served import Served
from tests.patience import wait_until

from tenure.control.messages.operations import OPERATIONS
from tenure.control.port_security import Front
from tenure.control.tokens import TokenBook
from tenure.control.transport import HttpServer
from tenure.logs import log_to

JOB = {"job_id": "j-1", "workflows": [{"name": "w", "function": "encode"}]}


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with Served() as served:
        served.ask("/v1/submit", {"submission": JOB})
        yield served


# What to ask of a manager that knows the job `j-1`, and how each is answered.
ASKED: dict[str, tuple[dict[str, Any], int, str]] = {
    "submit": ({"submission": JOB}, 200, "done"),
    "cancel": ({"job_id": "another"}, 200, "done"),
    "job": ({"job_id": "j-1"}, 200, "job_view"),
    "jobs": ({"limit": 5, "name": "j-"}, 200, "job_list"),
    "why": ({"job_id": "j-1"}, 200, "why_reply"),
    "leader": ({}, 200, "leader_view"),
    "events": ({"after": "0", "kind": ["JobSubmitted"]}, 200, "event_page"),
    "submit_many": ({"submissions": [JOB]}, 200, "many_submitted"),
    "result": ({"job_id": "j-1"}, 200, "result_view"),
    "retry": ({"job_id": "j-1"}, 409, "problem"),
    "logs": ({"job_id": "j-1"}, 200, "log_page"),
    "evidence": ({"job_id": "j-1"}, 200, "evidence_view"),
    "queues": ({}, 200, "queue_list"),
    "pause": ({"queue": "q"}, 200, "done"),
    "resume": ({"queue": "q"}, 200, "done"),
    "set_queue": ({"queue": "q", "max_running": 3}, 200, "done"),
    "overview": ({}, 200, "overview_view"),
    "nodes": ({"attempts": True}, 200, "node_list"),
    "drain": ({"node": "w-1"}, 200, "done"),
    "undrain": ({"node": "w-1"}, 200, "done"),
    "dead_letters": ({}, 200, "dead_letter_list"),
    "dead_letter": ({"mailbox": "work", "id": "x"}, 404, "problem"),
    "replay": ({"mailbox": "work", "id": "x"}, 200, "letter_done"),
    "discard": ({"mailbox": "work", "id": "x"}, 200, "letter_done"),
    "schedules": ({}, 200, "schedule_list"),
    "set_schedule": ({"schedule": {}}, 400, "problem"),
    "drop_schedule": ({"name": "nobody"}, 200, "done"),
    "trigger_schedule": ({"name": "nobody", "job_id": "t"}, 404, "problem"),
    "report": ({"worker": "w-1"}, 200, "directive"),
    "datacenter": ({}, 200, "datacenter_view"),
}


@pytest.mark.parametrize("name", list(ASKED))
def test_every_operation_is_answered_over_http(node: Served, name: str) -> None:
    body, status, kind = ASKED[name]
    answer = node.ask(f"/v1/{name}", body)
    assert (answer.status, answer.body["type"]) == (status, kind), answer.body
    operation = next(one for one in OPERATIONS if one.name == name)
    if not operation.reads:
        by_get = node.ask(f"/v1/{name}")
        assert (by_get.status, by_get.headers["Allow"]) == (405, "POST")
        return
    query = urlencode({key: ",".join(value) if isinstance(value, list) else value for key, value in body.items()})
    by_get = node.ask(f"/v1/{name}?{query}", headers={"Accept": "application/json"})
    assert (by_get.status, by_get.body["type"]) == (status, kind)
    head = node.ask(f"/v1/{name}?{query}", method="HEAD", headers={"Accept": "application/json"})
    assert (head.status, head.body) == (status, b"")


def test_a_typo_in_a_query_is_an_error_and_in_a_body_it_is_not(node: Served) -> None:
    assert node.ask("/v1/jobs?stat=running").status == 400
    assert node.ask("/v1/jobs", {"stat": "running"}).status == 200
    for query in ("state=nonsense", "limit=many", "limit=1.5", "since=later", "limit=0", "until=nan"):
        answer = node.ask(f"/v1/jobs?{query}")
        assert answer.status == 400, query


def test_the_id_of_a_request_comes_back_and_stands_in_problems_and_in_the_log(node: Served) -> None:
    answer = node.ask("/v1/job?job_id=nobody", headers={"X-Request-Id": "trace-7"})
    assert (answer.headers["X-Request-Id"], answer.body["request_id"]) == ("trace-7", "trace-7")
    made = node.ask("/v1/leader")
    assert len(made.headers["X-Request-Id"]) == 16
    for odd in ("a b", "x" * 65, "\x7f", "{}"):
        assert node.ask("/v1/leader", headers={"X-Request-Id": odd}).headers["X-Request-Id"] != odd
    node.ask("/v1/cancel", {"job_id": "z", "by": "ann"}, headers={"X-Request-Id": "trace-8"})
    line = node.audited("cancel", request="trace-8")
    assert (line["by"], line["about"], line["outcome"]) == ("ann", "z", "accepted")


def test_probes_and_metrics_are_on_the_same_port(node: Served) -> None:
    for path in ("/health/live", "/livez", "/health/live/", "/health/live?x=1"):
        assert node.ask(path).body == {"alive": True}
    for path in ("/health/ready", "/readyz"):
        answer = node.ask(path)
        assert (answer.status, answer.body["ready"], answer.body["reasons"]) == (200, True, {})
    assert node.ask("/health/live", method="HEAD").status == 200
    assert node.ask("/health/live", b"", method="POST").status == 405
    node.ask("/v1/leader")
    text = node.ask("/metrics").body.decode()
    assert "tenure_manager_leads 1.0" in text
    assert 'tenure_http_requests_total{operation="leader",status="200"}' in text
    assert "tenure_jobs_submitted_total" in text


def test_probes_and_the_page_need_no_token_and_everything_else_does() -> None:
    with Served(token="secret") as node:
        for path in ("/health/live", "/health/ready", "/livez", "/readyz", "/"):
            assert node.ask(path).status == 200, path
        for path in ("/v1/me", "/metrics", "/v1/openapi.json", "/v1/nothing", "/nothing"):
            assert node.ask(path).status == 401, path


def test_the_document_is_served(node: Served) -> None:
    answer = node.ask("/v1/openapi.json")
    assert (answer.status, answer.body["openapi"]) == (200, "3.1.0")
    assert set(answer.body["paths"]) >= {f"/v1/{operation.name}" for operation in OPERATIONS}


def test_a_stream_of_events_comes_from_a_real_journal(node: Served) -> None:
    connection = node.connection()
    connection.request("GET", "/v1/events?after=0&kind=JobSubmitted")
    answer = connection.getresponse()
    seen = b""
    while b"event: JobSubmitted" not in seen:
        seen += answer.read1(65_536)
    node.ask("/v1/submit", {"submission": JOB | {"job_id": "j-2"}})
    while b'"j-2"' not in seen:
        seen += answer.read1(65_536)
    connection.close()


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def tokens(folder: Path, **roles: str) -> str:
    path = folder / "tokens.toml"
    path.write_text(
        "".join(
            f'[[tokens]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{digest(name)}"\n' for name, role in roles.items()
        )
    )
    return str(path)


def test_roles_are_kept_and_names_cannot_be_forged(tmp_path: Path) -> None:
    file = tokens(tmp_path, carl="client", wendy="worker", olga="operator", nick="node")
    with Served(tokens_file=file, token="node-speaks-with-this") as node:
        for wrong in ("", "nobody", digest("carl"), "node-speaks-with-this"):
            assert node.ask("/v1/leader", token=wrong).status == 401
        for operation in OPERATIONS:
            body = ASKED.get(operation.name, ({}, 0, ""))[0]
            for name, roles in (
                ("carl", "client"),
                ("wendy", "worker"),
                ("olga", "operator client"),
                ("nick", "node client worker"),
            ):
                answer = node.ask(f"/v1/{operation.name}", body, token=name)
                allowed = operation.role.value in roles.split()
                assert (answer.status != 403) is allowed, (operation.name, name, answer)
        node.ask("/v1/submit", {"submission": JOB | {"job_id": "mine", "submitted_by": "root"}}, token="carl")
        node.ask("/v1/cancel", {"job_id": "mine", "by": "olga"}, token="carl")
        view = node.ask("/v1/job?job_id=mine", token="carl").body
        assert view["submitted_by"] == "carl: root"
        events = node.ask("/v1/events", {"after": "0", "job_id": "mine", "kind": ["JobEnded"]}, token="carl").body[
            "events"
        ]
        assert [line["event"]["by"] for line in events] == ["carl: olga"]
        node.audited("cancel", about="mine")
        wrote = [line for line in node.audit if line.get("about") == "mine"]
        assert [(line["operation"], line["by"]) for line in wrote] == [("submit", "carl"), ("cancel", "carl")]
        assert any(line["audit"] == "refused" and line["status"] == "401" for line in node.audit)
        assert node.ask("/health/ready").status == 200
        assert node.ask("/metrics").status == 401
        assert node.ask("/metrics", token="carl").status == 200


def test_a_file_that_became_unusable_leaves_the_tokens_from_before(tmp_path: Path) -> None:
    said: list[str] = []
    file = tokens(tmp_path, carl="client")
    front = Front(tokens_file=file)

    async def main() -> None:
        server = HttpServer(None, tokens=front.book())  # type: ignore[arg-type]

        def install(book: TokenBook) -> None:
            server.admission.tokens = book

        with front.reloading(server, install, log_to(said.append)):
            tokens(tmp_path, olga="operator")
            os.kill(os.getpid(), signal.SIGHUP)
            await wait(lambda: said)
            assert server.admission.tokens.identify("olga") is not None
            assert server.admission.tokens.identify("carl") is None
            Path(file).write_text("nonsense")
            os.kill(os.getpid(), signal.SIGHUP)
            await wait(lambda: len(said) == 2)
            assert server.admission.tokens.identify("olga") is not None

    async def wait(true: Any) -> None:
        for _ in range(6_000):
            if true():
                return
            await asyncio.sleep(0.01)
        pytest.fail("the signal did nothing")

    asyncio.run(main())
    assert [text.split()[0] for text in said] == ["read", "tokens"]


def test_who_waits_longer_than_allowed_or_too_often_is_told_so(node: Served) -> None:
    assert node.ask("/v1/job?job_id=j-1&wait_s=31").status == 400
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(node.ask("/v1/job?job_id=j-1&wait_s=0.2").status))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [200] * 20


def test_the_log_names_the_request_and_json_cannot_be_broken_out_of(node: Served) -> None:
    node.ask(
        "/v1/cancel",
        {"job_id": 'x"}{"audit":"forged"}', "reason": 'y\\n{"audit":"forged"}'},
        headers={"X-Request-Id": "inject"},
    )
    wait_until(lambda: any(line["request"] == "inject" for line in node.audit))
    assert not any(text.startswith('{"audit":"forged"') for text in node.said)
    assert json.dumps(node.audit)
