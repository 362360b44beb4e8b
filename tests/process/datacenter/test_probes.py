"""What an orchestrator and Prometheus see of real nodes."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.process.datacenter.conftest import Datacenter


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=180) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_managers_and_workers_answer_probes_and_count_what_they_do(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1", "--log-format", "json")
    datacenter.until_led()
    worker = datacenter.worker("--slots", "1", "--health-port", "0", "--log-format", "json")
    wait_until(lambda: "probes on" in worker.said(), datacenter.said)
    port = re.search(r"probes on \('127.0.0.1', (\d+)\)", worker.said())
    assert port is not None
    probes, manager = f"127.0.0.1:{port[1]}", datacenter.addresses["m-1"]
    wait_until(lambda: get(probes, "/health/ready")[0] == 200, datacenter.said)
    assert get(manager, "/health/live")[0] == get(probes, "/health/live")[0] == 200
    status, body = get(manager, "/health/ready")
    assert (status, json.loads(body)["alarms"]) == (200, [])
    client = datacenter.client
    client.wait(client.submit("step", {"n": 1, "log": str(tmp_path / "log")}).id, PATIENCE_S)
    for line in ("tenure_manager_leads 1.0", "tenure_jobs_submitted_total 1.0", 'ended_total{state="completed"} 1.0'):
        wait_until(lambda line=line: line in get(manager, "/metrics")[1], lambda: get(manager, "/metrics")[1])
    wait_until(lambda: "tenure_worker_completed_total 1.0" in get(probes, "/metrics")[1], datacenter.said)
    wait_until(lambda: 'tenure_worker_verdict{verdict="route"} 1.0' in get(probes, "/metrics")[1], datacenter.said)
    for node in (datacenter.managers["m-1"], worker):
        lines = [json.loads(line) for line in node.said().splitlines()]
        assert {line["kind"] for line in lines} == {"manager" if node is not worker else "worker"}
