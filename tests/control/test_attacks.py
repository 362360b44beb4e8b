"""What somebody tries who means no good, or who is a broken program: a real manager answers, refuses, and goes on for everybody else."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.control.raw_requests import get, limited, raw, status
from tests.nodes.served import Served
from tests.patience import wait_until

from tenure.control.admission import HttpLimits
from tenure.control.transport import HttpServer

JOB = {"job_id": "j-1", "workflows": [{"name": "w"}]}


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with Served() as served:
        served.ask("/v1/submit", {"submission": JOB})
        yield served


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"submission":' * 200 + b"1" + b"}" * 200,
        json.dumps({"submission": JOB | {"labels": {"a": "b"}}}).encode()[:-1],
        b'{"submission": NaN}',
        b'{"submission": {"job_id": "x", "workflows": [], "timeout_seconds": NaN}}',
        b'{"submission": {"job_id": "x", "workflows": [{"name": "w"}], "timeout_seconds": 1e999}}',
        b'{"submission": {"job_id": "x", "workflows": [{"name": "w"}], "priority": ' + b"9" * 5_000 + b"}}",
        b'{"submission": {"job_id": "\\ud800", "workflows": [{"name": "w"}]}}',
        b'{"submission": {"job_id": "a\\u0000b", "workflows": [{"name": "w"}]}}',
        b'{"submission": {"job_id": "", "workflows": [{"name": "w"}]}}',
        b'{"submission": {"job_id": "x", "workflows": [{"name": "../../etc"}]}}',
        b"\xff\xfe\x00",
        b"null",
        b'"submit"',
        gzip.compress(b"{}", mtime=0),
        b'{"type": "cancel", "job_id": "j-1"}',
    ],
    ids=map(str, range(16)),
)
def test_a_body_that_is_no_submission_is_refused_and_changes_nothing(node: Served, body: bytes) -> None:
    before = node.ask("/v1/jobs").body["known"]
    answer = node.ask("/v1/submit", body)
    assert (answer.status, answer.body["type"]) == (400, "problem"), answer.body
    assert node.ask("/v1/jobs").body["known"] == before


def test_arguments_that_are_deep_are_refused_before_they_reach_the_journal(node: Served) -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    job = {"job_id": "deep", "workflows": [{"name": "w", "arguments": {"a": deep}}]}
    assert node.ask("/v1/submit", {"submission": job}).status == 400
    assert node.ask("/v1/submit_many", {"submissions": [job]}).status == 400


@pytest.mark.parametrize(
    ("path", "most"), [("/v1/submit", 8 << 20), ("/v1/submit_many", 8 << 20), ("/v1/jobs", 1 << 20)]
)
def test_a_body_that_is_too_large_is_refused_unread(node: Served, path: str, most: int) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {most + 1}\r\n\r\n"
    answer = raw(node.port, head.encode())
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"Connection: close" in answer
    chunked = head.replace(f"Content-Length: {most + 1}", "Transfer-Encoding: chunked").encode()
    answer = raw(node.port, chunked, then=b"%x\r\n" % (most + 10) + b" " * (most + 10) + b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n{}  ",
        b"POST /v1/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\n{}  ",
        b"POST /v1/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/cancel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/cancel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n folded: yes\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHo\x00st: x\r\n\r\n",
        b"GET /v1/jobs?name=\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/jobs HTTP/9.9\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/jobs?" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n" + b"".join(b"H%d: 1\r\n" % n for n in range(500)) + b"\r\n",
    ],
    ids=map(str, range(15)),
)
def test_a_head_that_two_readers_could_read_in_two_ways_is_refused(
    node: Served, head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = raw(node.port, head)
    assert not answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1 ") <= 1, "what was hidden in the body was answered as a request of its own"
    assert node.ask("/health/live").status == 200
    assert not caplog.records, "strangers do not write to our log"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../metrics",
        "/v1/%2e%2e/etc/passwd",
        "//v1/jobs",
        "/v1/jobs/../../x",
        "/v1/submit/",
        "/v1/",
        "/v1",
        "/v1/__class__",
        "/v1/%00",
        "/v1/jobs%0d%0aX:%20y",
        "/etc/passwd",
    ],
)
def test_a_path_is_a_name_of_the_table_or_nothing(node: Served, path: str) -> None:
    answer = node.ask(path)
    assert answer.status in (404, 405), (path, answer.status)
    assert "X" not in answer.headers


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/", "a/../../b", "%2e%2e", "w\x00", "w/1", "😀"])
def test_a_log_and_evidence_are_reached_by_names_of_known_jobs_only(node: Served, name: str) -> None:
    for path in ("/v1/logs", "/v1/evidence"):
        assert node.ask(path, {"job_id": "j-1", "workflow": name}).status in (400, 422)
        assert node.ask(path, {"job_id": name}).status in (400, 404)
        assert node.ask(path, {"job_id": f"j-1/w/1/../{name}"}).status in (400, 404)


@pytest.mark.parametrize("name", ["../x", "", " ", "a b", "x" * 200, ".hidden", "a\x00", "tenure results"])
def test_a_mailbox_of_dead_letters_has_the_name_of_a_mailbox(node: Served, name: str) -> None:
    for operation in ("replay", "discard", "dead_letter"):
        assert node.ask(f"/v1/{operation}", {"mailbox": name, "id": "1"}).status == 400


def test_a_page_of_another_site_can_neither_post_nor_read(node: Served) -> None:
    cancel = json.dumps({"job_id": "j-1"}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert node.ask("/v1/cancel", cancel, headers={"Content-Type": kind}).status == 415
    assert node.ask("/v1/cancel", cancel, headers={"Origin": "http://evil.example"}).status == 403
    answer = node.ask("/v1/jobs", headers={"Origin": "http://evil.example"})
    assert answer.status == 403
    assert not any(name.lower().startswith("access-control") for name in answer.headers)
    assert node.ask("/v1/jobs", method="OPTIONS", headers={"Origin": "http://evil.example"}).status == 403
    assert node.ask("/v1/jobs", headers={"Host": "evil.example"}).status == 403


def test_odd_bytes_in_headers_and_queries_are_no_servers_error(node: Served) -> None:
    for line in (b"Authorization: Bearer \xff\xfe", b"X-Request-Id: \xff", b"Last-Event-ID: \xff\xff", b"Accept: \xff"):
        answer = raw(
            node.port, b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + line + b"\r\n\r\n"
        )
        assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 4")), answer[:200]
    for query in (b"name=%ff%fe", b"%ff=1", b"name=%00", b"label=%ED%A0%80"):
        answer = raw(node.port, b"GET /v1/jobs?" + query + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 4")), (query, answer[:200])
    for query in (b"job_id=%ED%A0%80", b"job_id=%00", b"job_id=" + b"x" * 3_000):
        for name in (b"job", b"why", b"logs", b"result"):
            answer = raw(
                node.port, b"GET /v1/" + name + b"?" + query + b" HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n"
            )
            assert answer.startswith(b"HTTP/1.1 4"), (query, answer[:200])


# Slow and many: a server of its own, with short limits.


def test_a_body_that_drips_is_given_up_and_its_connection_closed() -> None:
    with limited(body_s=0.3) as (_, port):
        head = b"POST /v1/job HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
            sock.sendall(head.replace(b"Host: x", b"Host: localhost"))
            answer = sock.recv(65_536)
            assert status(answer) == 408
            while sock.recv(65_536):
                pass


def test_a_head_that_drips_and_a_connection_that_says_nothing_are_closed() -> None:
    with limited(idle_s=0.4, head_s=0.4) as (_, port):
        silent = socket.create_connection(("127.0.0.1", port), timeout=30)
        drip = socket.create_connection(("127.0.0.1", port), timeout=30)
        drip.sendall(b"GET /v1/leader HTTP/1.1\r\nHost: localhost\r\n")
        closed = [False]

        def dripping() -> None:
            try:
                for number in range(600):
                    drip.sendall(b"X-%d: y\r\n" % number)
                    time.sleep(0.05)
            except OSError:
                closed[0] = True

        thread = threading.Thread(target=dripping)
        thread.start()
        assert silent.recv(10) == b""
        wait_until(lambda: closed[0])
        thread.join()
        wait_until(lambda: get(port) == 200)  # a request that waits for a core for 0.4 s is given up, too
        silent.close()
        drip.close()


def test_too_many_connections_close_the_idle_ones_and_new_ones_are_served() -> None:
    with limited(connections=20) as (_, port):
        crowd = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(100)]
        wait_until(lambda: get(port) == 200)
        assert get(port) == 200
        for sock in crowd:
            sock.close()


def test_too_many_requests_are_told_when_to_come_back() -> None:
    with limited(requests_per_s=1.0, burst=10.0) as (_, port):
        answers = [
            raw(port, b"GET /v1/leader HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") for _ in range(30)
        ]
        refused = [answer for answer in answers if status(answer) == 429]
        assert status(answers[0]) == 200
        assert refused
        assert all(b"Retry-After: 1" in answer and b'"retryable":true' in answer for answer in refused)


def test_too_many_who_wait_do_not_keep_others_from_being_answered() -> None:
    release = threading.Event()
    with limited(waiting_each=5, release=release) as (server, port):
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(get(port, "/v1/job?job_id=j&wait_s=1"))) for _ in range(15)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.admission.waiting.inside == 5 and answers.count(429) == 10)
        assert get(port) == 200
        release.set()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [200] * 5 + [429] * 10
        assert server.admission.waiting.inside == 0


def test_one_who_hangs_up_while_waiting_makes_room() -> None:
    with limited() as (server, port):
        sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        sock.sendall(b"GET /v1/job?job_id=j&wait_s=30 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: server.admission.waiting.inside == 1)
        sock.close()
        wait_until(lambda: server.admission.waiting.inside == 0)


def test_a_large_answer_that_nobody_reads_is_given_up() -> None:
    import asyncio

    from tenure.control.messages.wire import Problem, ProblemKind

    async def handler(sender: str, request: Any) -> Any:
        return Problem(kind=ProblemKind.INVALID, fact="x" * 20_000_000)

    async def main() -> None:
        server = HttpServer(handler, limits=HttpLimits(send_s=0.3))
        port = await server.start()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.sendall(b"GET /v1/leader HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.to_thread(wait_until, lambda: len(server.connections))
            await asyncio.to_thread(wait_until, lambda: not len(server.connections))
        await server.stop()

    asyncio.run(main())
