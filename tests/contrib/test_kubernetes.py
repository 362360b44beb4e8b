"""The worker with the least unsaved work is the first that Kubernetes takes away."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.contrib.kubernetes import COST, MOST, ApiServer, deletion_costs
from tenure.control.messages.nodes import WorkerNode
from tenure.errors import NodeUnavailableError


def test_the_cost_of_a_worker_is_what_would_be_lost_with_it() -> None:
    workers = [
        WorkerNode(name="idle"),
        WorkerNode(name="saved", running=2, loss_s=0.2),
        WorkerNode(name="busy", running=1, loss_s=340.0),
        WorkerNode(name="leaves", running=1, loss_s=50.0, drained=True),
        WorkerNode(name="old", running=1, loss_s=1e12),
        WorkerNode(name="far", datacenter="us", loss_s=5.0),
    ]
    costs = deletion_costs(workers)
    assert costs == {"idle": 0, "saved": 2, "busy": 341, "leaves": 0, "old": MOST}
    assert min(costs, key=lambda name: costs[name]) == "idle"


class FakeKubernetes(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, dict(self.headers), body))  # type: ignore[attr-defined]
        status = 404 if self.path.endswith("/gone") else 403 if self.path.endswith("/secret") else 200
        said = b'{"kind": "Status"}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *said: Any) -> None: ...


@pytest.fixture
def api() -> Iterator[tuple[ApiServer, list[Any]]]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeKubernetes) as server:
        server.asked = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        yield ApiServer(connection, "of the pod", "shop"), server.asked  # type: ignore[attr-defined]
        connection.close()
        server.shutdown()


def test_costs_are_written_on_pods_and_a_worker_elsewhere_is_passed_by(api: tuple[ApiServer, list[Any]]) -> None:
    server, asked = api
    assert server.set_cost("worker-1", 7)
    assert not server.set_cost("gone", 7)
    path, headers, body = asked[0]
    assert path == "/api/v1/namespaces/shop/pods/worker-1"
    assert body == {"metadata": {"annotations": {COST: "7"}}}
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert headers["Authorization"] == "Bearer of the pod"
    with pytest.raises(NodeUnavailableError, match="patch on pods"):
        server.set_cost("secret", 7)
