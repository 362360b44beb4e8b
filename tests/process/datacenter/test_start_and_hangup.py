"""Nodes that start before their engine wait for it, and nodes whose terminal is gone end in good order."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node

from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tools.servers import Postgres, Valkey

WAITS = "cannot open its engine yet, and goes on trying"


def started(datacenter: Datacenter, name: str, *arguments: str) -> Node:
    """A node that need not listen yet. It is ended with the datacenter."""
    node = Node(datacenter.folder, name, *arguments, "--engine", datacenter.url)
    datacenter.workers.append(node)
    return node


@pytest.mark.parametrize("server", [Postgres, Valkey])
def test_manager_gate_and_worker_wait_for_an_engine_that_is_away_and_say_so_once(
    server: type[Any], own_server: Callable[[Any], Any], datacenter: Datacenter, tmp_path: Path
) -> None:
    away = own_server(server())
    datacenter.url, log = away.url, tmp_path / "log"
    away.kill()
    try:
        app = str(Path(__file__).parent / "app.py")
        manager = started(datacenter, "m-1", "manager", "--name", "m-1", "--port", "0", "--term", "2")
        gate = started(datacenter, "g-1", "gate", "--name", "g-1", "--port", "0", "--datacenter", "dc=127.0.0.1:1")
        worker = started(datacenter, "w-1", "worker", app, "--managed", "--slots", "1")
        nodes = [manager, gate, worker]
        for node in nodes:
            wait_until(lambda node=node: WAITS in node.said(), why=node.said)  # type: ignore[misc]
        told = started(datacenter, "m-2", "manager", "--name", "m-2", "--port", "0")
        wait_until(lambda: WAITS in told.said(), why=told.said)
        told.signal(signal.SIGTERM)  # a wait ends when it is told to
        wait_until(lambda: told.process.poll() is not None, why=told.autopsy)
        assert told.process.returncode == 0, told.said()
        away.restart()
        for node in nodes:
            wait_until(lambda node=node: "its engine answers now" in node.said(), why=node.autopsy)  # type: ignore[misc]
            assert node.said().count(WAITS) == 1, node.said()
        wait_until(lambda: "listens on" in manager.said(), why=manager.autopsy)
        found = re.search(r"listens on ([^\s\"]+)", manager.said())
        assert found is not None
        datacenter.addresses["m-1"] = found[1]
        with datacenter.new_client() as client:
            spec = WorkflowSpec(name="only", function="step", arguments={"n": 1, "log": str(log)})
            client.submit_job(JobSubmission(job_id="first", workflows=(spec,)))
            assert client.wait("first", 180).state is JobState.COMPLETED
    finally:
        datacenter.close()  # before its server goes


def test_the_end_of_the_terminal_drains_a_worker_and_stops_a_manager(datacenter: Datacenter, tmp_path: Path) -> None:
    told, log = tmp_path / "told", tmp_path / "log"
    manager, worker = datacenter.manager("m-1"), datacenter.worker("--slots", "1")
    datacenter.until_led()
    spec = WorkflowSpec(name="only", function="beat_until", arguments={"told": str(told), "log": str(log)})
    datacenter.client.submit_job(JobSubmission(job_id="running", workflows=(spec,)))
    wait_until(lambda: log.exists(), why=datacenter.said)
    worker.signal(signal.SIGHUP)
    wait_until(lambda: "draining: nothing more is claimed" in worker.said(), why=worker.autopsy)
    told.touch()
    assert datacenter.client.wait("running", 180).state is JobState.COMPLETED
    wait_until(lambda: worker.process.poll() is not None, why=worker.autopsy)
    assert worker.process.returncode == 0, worker.said()
    assert log.read_text().split() == ["start", "1", "end", "1"]
    manager.signal(signal.SIGHUP)
    wait_until(lambda: manager.process.poll() is not None, why=manager.autopsy)
    assert manager.process.returncode == 0, manager.said()
    assert "stopped" in manager.said()
