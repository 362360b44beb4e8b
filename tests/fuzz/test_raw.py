"""What does not come through an operation: bytes on the port that are no HTTP, and garbage in the engine's mailboxes and stores."""

from __future__ import annotations

import http.client
import json
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from random import Random
from typing import Any

import pytest

from tenure.engines import Engine
from tenure.engines.contracts import Engine as AnyEngine
from tenure.errors import TenureError
from tenure.jobs import JobSubmission, WorkflowSpec
from tests.fuzz.grammar import HOSTILE, HOSTILE_TEXTS, SEED, Grammar
from tests.fuzz.site import HONEST_QUEUE, FuzzedSite, Honest
from tests.soak import SOAK, sized

HEADS = sized("hostile HTTP heads", short=1_000, long=20_000)
BODIES = sized("hostile HTTP bodies", short=300, long=3_000)
GOOD_HEAD = (
    b"POST /v1/leader HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)


def bad_head(random: Random) -> bytes:
    """A request that something is wrong with: cut, scarred, too long, contradictory, or no HTTP at all."""
    place = random.randrange(len(GOOD_HEAD))
    noise = bytes(random.randrange(256) for _ in range(random.choice((1, 8, 300))))
    return random.choice(
        (
            noise,
            GOOD_HEAD[:place],
            GOOD_HEAD[:place] + noise + GOOD_HEAD[place:],
            GOOD_HEAD.replace(
                b"Content-Length: 2", b"Content-Length: " + random.choice((b"-1", b"1e9", b"999999999", b"x"))
            ),
            GOOD_HEAD.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked") + noise,
            GOOD_HEAD.replace(b"Content-Length: 2", b"Content-Length: 2\r\nContent-Length: 3"),
            GOOD_HEAD.replace(b"/v1/leader", b"/" + b"a" * random.choice((10_000, 100_000))),
            GOOD_HEAD.replace(b"Host:", b"X: " + b"y" * 20_000 + b"\r\nHost:"),
            GOOD_HEAD.replace(b"POST", random.choice((b"GET", b"PUT", b"CONNECT", b"\x00", b"OPTIONS"))),
            GOOD_HEAD.replace(b"HTTP/1.1", random.choice((b"HTTP/0.9", b"HTTP/9.9", b"HTTQ/1.1", b""))),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
        )
    )


@pytest.mark.slow
@pytest.mark.timeout(900 if not SOAK else 3_600)
def test_bytes_that_are_no_request_harm_nobody(site: FuzzedSite) -> None:
    random = Random(SEED)
    host, _, port = site.addresses["m-1"].rpartition(":")
    with Honest(site.client, "honest") as honest:
        for _ in range(HEADS):
            with suppress(OSError), socket.create_connection((host, int(port)), 5) as connection:
                connection.settimeout(0.02)
                connection.sendall(bad_head(random))
                with suppress(TimeoutError):
                    answer = connection.recv(4_096)
                    assert not answer.startswith(b"HTTP/1.1 500"), f"seed {SEED}: {answer!r}"
    site.check_unharmed()
    honest.check_all_completed()


def result_like(grammar: Grammar) -> Any:
    """The body of a result: of a job that there is, in part of another shape."""
    random = grammar.random
    tree: dict[str, Any] = {
        "job_id": random.choice(grammar.names.jobs),
        "workflow_id": random.choice(("a", "echo", "nothing")),
        "workflow": "echo",
        "attempt": random.choice((1, 2, -1, 2**53)),
        "fence": random.choice(([1, 1], [2**40, 0], [], [-1, -1])),
        "worker": random.choice(grammar.names.workers),
        "result": random.choice((1, {"a": [1.5]}, 2**70, "x" * 20_000)),
        "beats": random.choice((0, -1, 2**63)),
        "seconds": random.choice((0.1, 1e308, -1.0)),
    }
    for _ in range(random.randrange(3)):
        tree[random.choice(list(tree))] = random.choice(HOSTILE)
    return tree if random.random() < 0.8 else random.choice(HOSTILE)


def item_like(grammar: Grammar) -> Any:
    """The body of a piece of work that no leader has sent."""
    random = grammar.random
    tree: dict[str, Any] = {
        "workflow": random.choice(("echo", "nothing", *HOSTILE_TEXTS)),
        "args": random.choice(({}, {"value": 1}, {"other": 1}, [])),
        "job_id": random.choice((*grammar.names.jobs, "", "nobody/knows")),
        "workflow_id": random.choice(("a", "", "x" * 9_000)),
        "attempt": random.choice((1, 0, -5, 2**40)),
        "stall_s": random.choice((None, 1.0, 0.0, -1.0, 1e308)),
        "excluded": random.choice(([], ["w"] * 500, "w")),
        "managed": random.random() < 0.8,
    }
    for _ in range(random.randrange(3)):
        tree[random.choice(list(tree))] = random.choice(HOSTILE)
    return tree if random.random() < 0.8 else random.choice(HOSTILE)


def put_garbage(engine: AnyEngine, name: str, make: Callable[[Grammar], Any], grammar: Grammar) -> int:
    """Into this mailbox, as whoever can reach the engine could; how many it took."""
    mailbox = engine.mailbox(name, Any, Any)  # type: ignore[type-var]
    sent = 0
    for _ in range(BODIES):
        with suppress(TenureError, ValueError, UnicodeError):
            mailbox.send(make(grammar))
            sent += 1
    return sent


@pytest.mark.slow
@pytest.mark.timeout(900 if not SOAK else 7_200)
def test_garbage_in_mailboxes_and_stores_harms_nobody(site: FuzzedSite) -> None:
    grammar = Grammar(Random(SEED))
    for number in range(10):
        spec = WorkflowSpec(name="a", function="echo", arguments={"value": number})
        site.client.submit_job(JobSubmission(job_id=f"fuzz-{number}", workflows=(spec,)))
        grammar.names.learn(f"fuzz-{number}")
    with Engine.open(site.url) as engine, Honest(site.client, "honest") as honest:
        assert put_garbage(engine, "tenure.results", result_like, grammar) > BODIES / 2
        for lane in ("default.p0", f"{HONEST_QUEUE}.p0"):
            assert put_garbage(engine, lane, item_like, grammar) > BODIES / 2
        for store in ("jobs", "results", "logs", "evidence"):
            for job_id in ("fuzz-1", "fuzz-1/a/1", "unknown"):
                engine.store(store).put(job_id, random_bytes(grammar.random))
        scar_bodies(site, grammar.random)
    for job_id in ("unknown", "fuzz-1"):
        for name in ("job", "why", "logs", "evidence", "result"):
            status = ask(site, name, {"job_id": job_id})
            assert status != 500, f"seed {SEED}: {name} of {job_id!r} got {status}"
    honest.check_all_completed(site.said()[-2_000:])
    site.check_unharmed()
    site.restart()
    again = Honest(site.client, "again")
    for _ in range(5):
        again.submit()
    again.check_all_completed(site.said()[-2_000:])
    site.check_unharmed()


def random_bytes(random: Random) -> bytes:
    return bytes(random.randrange(256) for _ in range(random.choice((0, 1, 200))))


def scar_bodies(site: FuzzedSite, random: Random) -> None:
    """Bytes in bodies that wait which are no JSON. Through no contract: as a damaged disk. Those of honest jobs are spared: a damaged one fails."""
    with closing(sqlite3.connect(site.folder / "t.db", timeout=120, isolation_level=None)) as database:
        garbage = "instr(body, CAST('honest-' AS BLOB)) = 0"
        rows = database.execute(f"SELECT id FROM message WHERE {garbage} ORDER BY id DESC LIMIT 30").fetchall()
        for (row,) in rows:
            database.execute(f"UPDATE message SET body = ? WHERE id = ? AND {garbage}", (random_bytes(random), row))


def ask(site: FuzzedSite, name: str, tree: Any) -> int:
    host, _, port = next(iter(site.addresses.values())).rpartition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=120)) as connection:
        connection.request("POST", f"/v1/{name}", json.dumps(tree), {"Content-Type": "application/json"})
        return connection.getresponse().status
