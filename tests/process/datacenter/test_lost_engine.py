"""An engine that lost what it had acknowledged: every node says so and ends, nothing is settled, and nodes that are started anew go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node

from tenure.errors import TenureError
from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tools.servers import Valkey

ENDS = "ALARM: this"


def job(name: str, told: Path, log: Path) -> JobSubmission:
    spec = WorkflowSpec(name="only", function="beat_until", arguments={"told": str(told), "log": str(log)})
    return JobSubmission(job_id=name, workflows=(spec,))


def begins(log: Path) -> int:
    return log.read_text().count("start") if log.exists() else 0


def assert_ended_with(node: Node, *words: str) -> None:
    wait_until(lambda: node.process.poll() is not None, why=node.autopsy)
    assert node.process.returncode == 1, node.said()
    [alarm] = [line for line in node.said().splitlines() if ENDS in line]
    for word in words:
        assert word in alarm, node.said()


def refused(datacenter: Datacenter, submission: JobSubmission) -> bool:
    try:  # with little patience: nobody will ever answer
        datacenter.new_client(patience_s=3).submit_job(submission)
    except TenureError:
        return True
    return False


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_deleted_or_replaced_file_ends_every_node_and_those_started_anew_are_alone(
    how: str, datacenter: Datacenter, tmp_path: Path
) -> None:
    told, log, file = tmp_path / "told", tmp_path / "log", tmp_path / "t.db"
    nodes = [datacenter.manager("m-1"), datacenter.manager("m-2"), datacenter.worker("--slots", "1", "--lease", "6")]
    datacenter.until_led()
    datacenter.client.submit_job(job("lost", told, log))
    wait_until(lambda: begins(log) == 1, why=datacenter.said)
    for path in tmp_path.glob("t.db*"):
        if path.is_file():
            path.unlink()
    if how == "replaced":
        file.touch(0o600)
    wait_until(lambda: refused(datacenter, job("into-the-void", told, log)), why=datacenter.said)
    for node in nodes:
        assert_ended_with(node, str(file), "deleted" if how == "deleted" else "replaced", "put the file back")

    datacenter.managers.clear(), datacenter.addresses.clear()
    datacenter.manager("m-3")
    datacenter.worker("--slots", "1", "--lease", "6")
    told.touch()
    with datacenter.new_client() as client:
        client.submit_job(job("new", told, log))
        assert client.wait("new", 180).state is JobState.COMPLETED
    assert "leads with epoch 1" in datacenter.managers["m-3"].said()


def test_after_redis_lost_writes_every_node_ends_and_those_started_anew_do_each_job_once_more_at_most(
    own_server: Callable[[Any], Any], datacenter: Datacenter, tmp_path: Path
) -> None:
    server = own_server(Valkey({"appendonly": "no", "save": ""}))
    datacenter.url = server.url
    told, kept, lost = tmp_path / "told", tmp_path / "kept", tmp_path / "lost"
    try:
        nodes = [datacenter.manager("m-1"), datacenter.worker("--slots", "2", "--lease", "6")]
        datacenter.until_led()
        datacenter.client.submit_job(job("kept", told, kept))
        wait_until(lambda: begins(kept) == 1, why=datacenter.said)
        assert "OK" in server.command("SAVE")
        datacenter.client.submit_job(job("lost", told, lost))
        wait_until(lambda: begins(lost) == 1, why=datacenter.said)
        server.kill()
        server.restart()  # from the dump, which knows nothing of the second job
        for node in nodes:
            assert_ended_with(node, "lost", "started anew go on with what is there")

        datacenter.managers.clear(), datacenter.addresses.clear()
        datacenter.manager("m-2")
        datacenter.worker("--slots", "2", "--lease", "6")
        told.touch()
        with datacenter.new_client() as client:
            assert client.wait("kept", 180).state is JobState.COMPLETED
        assert begins(kept) == 2, datacenter.said()
        assert begins(lost) == 1, datacenter.said()
    finally:
        datacenter.close()  # before its server goes
