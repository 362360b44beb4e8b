"""A provider that is down for most that wait for it, in real processes (issue 26, decision 0366)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node

APP = Path(__file__).parent / "outage_app.py"
AGENTS = 12


class FakeProvider(ThreadingHTTPServer):
    """Answers 200 while it is up, with the word that it is enough once it was down, and 503 while it is down."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.up = True
        self.refused = 0


class _Answers(BaseHTTPRequestHandler):
    server: FakeProvider

    def do_GET(self) -> None:
        self.server.refused += not self.server.up
        body = b"enough" if self.server.up and self.server.refused else b""
        self.send_response(200 if self.server.up else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.slow
def test_twelve_agents_outlast_an_outage_of_their_provider_and_none_is_charged(datacenter: Datacenter) -> None:
    datacenter.manager("m1", "--term", "20")  # no election meanwhile, however busy the machine is
    for number in (1, 2):
        options = ("--engine", datacenter.url, "--managed", "--slots", "6", "--name", f"w{number}")
        datacenter.workers.append(Node(datacenter.folder, f"w{number}", "worker", str(APP), *options))
    with provider() as fake:
        url = f"http://127.0.0.1:{fake.server_port}/"
        jobs = [datacenter.client.submit("agent", {"url": url}, timeout=300.0) for _ in range(AGENTS)]
        wait_until(lambda: all(job.state == "running" for job in jobs), why=datacenter.said)
        fake.up = False
        wait_until(lambda: any("is down" in job.why() for job in jobs), why=datacenter.said)
        # The canaries are refused and change nothing.
        wait_until(lambda: any("probing" in one.text for one in troubles(datacenter)), why=datacenter.said)
        assert all(job.state == "running" for job in jobs)
        fake.up = True
        results = [job.wait(180) for job in jobs]
        assert len(results) == AGENTS
        assert [job.attempts for job in jobs] == [1] * AGENTS
        assert fake.refused  # at least by those who were asked before the others were told to wait
        told = "\n".join(job.why() for job in jobs)
        assert "No clock of this job runs, and nothing is charged" in told


def troubles(datacenter: Datacenter) -> tuple:
    from tenure.control.messages.nodes import AskOverview, Overview

    reply = datacenter.client.ask(AskOverview())
    assert isinstance(reply, Overview)
    return reply.troubles
