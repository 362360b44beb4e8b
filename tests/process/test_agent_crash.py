"""Agents in real processes: one that hangs, one that is killed, and the one that goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agent.unanswering_server import UnansweringServer
from tests.patience import PATIENCE_S, wait_until
from tests.process.agent_app import ask, ask_async

from tenure import JobFailed, embedded
from tenure.engines import Engine

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("agent_worker.py")


def start(folder: Path, mode: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(folder), mode], env=environment, stdout=subprocess.DEVNULL
    )


@pytest.mark.slow
@pytest.mark.parametrize("killed", [True, False])
def test_an_agent_whose_process_hangs_or_is_killed_is_finished_by_another_from_its_session(
    tmp_path: Path, killed: bool
) -> None:
    with Engine.open(f"sqlite:///{tmp_path}/work.db") as engine:
        replies = engine.mailbox("replies")
        engine.mailbox("requests").send({"request": {"text": "go"}, "request_id": "r1"}, reply_to="replies")
        first = start(tmp_path, "hang")
        second = None
        try:
            wait_until(lambda: (tmp_path / "hung").exists() or first.poll() is not None, "the agent hangs")
            assert first.poll() is None
            if killed:
                first.send_signal(signal.SIGKILL)
                first.wait()
            second = start(tmp_path, "work")
            (reply,) = replies.receive(1, 60, PATIENCE_S)
            assert (reply.body["output"], reply.body["tool_calls"]) == ("done by work", 5)
            assert second.wait(180) == 0
        finally:
            for process in (first, second):
                if process is not None:
                    process.kill()
                    process.wait()
    log = (tmp_path / "log").read_text().splitlines()
    assert log == ["hang 0", "hang 1", "hang 2", "work 2", "work 3", "work 4"]


@pytest.mark.slow
@pytest.mark.parametrize(("workflow", "way"), [(ask, "half-open"), (ask_async, "comments")], ids=["sync", "async"])
def test_a_cancel_reaches_an_agent_in_a_slot_whose_model_only_keeps_its_connection_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workflow: Any, way: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    # A grace of a minute: within it nothing is killed, so whatever ends the call ended it from inside the slot.
    with (
        UnansweringServer(way) as server,
        embedded(tmp_path / "jobs", [workflow], slots=1, mode="processes", grace_s=60) as datacenter,
    ):
        job = datacenter.submit(workflow, url=server.url, folder=str(tmp_path))
        assert server.asked.wait(180)
        job.cancel("enough")
        with pytest.raises(JobFailed, match="enough"):
            job.wait(180)
        assert server.hung_up.wait(180)
        # The agent hangs up first and writes then: its slot may have to wait for a core in between.
        ended = tmp_path / "ended"
        wait_until(lambda: ended.exists() and "ancelled" in ended.read_text(), "the agent did not say how it ended")
