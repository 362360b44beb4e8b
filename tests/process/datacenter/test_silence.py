"""A datacenter whose NATS server falls silent: its nodes go on by themselves when it answers again, and nothing grows meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter
from tests.soak import sized

from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tenure.work.slots.processes import read_stat
from tools.servers import FaultProxy, Nats

JOBS = 24
SILENT_S = sized("seconds of a silent NATS server under a datacenter", short=5.0, long=18.0)
TIMEOUT_S = sized("seconds of patience of its nodes", short=1.0, long=5.0)
BACK_S = 90.0
"""From the first answer of the server to the end of all jobs: a lease, a term and the work, on a busy machine. On a quiet one it is 6."""
GROWTH_BYTES = 64 * 2**20
BUSY = 0.25
"""Of a core: a loop that spins uses all of it."""


def job(number: int, log: Path) -> JobSubmission:
    spec = WorkflowSpec(name="s", function="step", arguments={"n": number, "log": str(log), "seconds": 0.2})
    return JobSubmission(job_id=f"job-{number}", workflows=(spec,), timeout_seconds=600)


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ran(log: Path) -> int:
    return len(set(log.read_text().split())) if log.exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kind", ["frozen", "half-open"])
def test_every_job_ends_after_the_server_was_silent(
    kind: str, own_server: Callable[[Any], Any], datacenter: Datacenter, tmp_path: Path
) -> None:
    server: Nats = own_server(Nats())
    log = tmp_path / "log"
    with FaultProxy(server.host, server.port) as proxy:
        datacenter.url = f"{server.url_of(port=proxy.port)}?timeout={TIMEOUT_S}"
        datacenter.manager("m-1")
        datacenter.until_led()
        datacenter.manager("m-2")
        for _ in range(2):
            datacenter.worker("--slots", "2", "--lease", "5")
        for number in range(JOBS):
            datacenter.client.submit_job(job(number, log))
        wait_until(lambda: ran(log) > 2, why=datacenter.autopsy)
        pids = [node.process.pid for node in [*datacenter.managers.values(), *datacenter.workers]]
        before, used = [resident(pid) for pid in pids], [used_s(pid) for pid in pids]
        # A half-open connection only: new ones work. Frozen: nothing does.
        server.pause() if kind == "frozen" else proxy.abandon()
        begun = monotonic()
        try:
            sleep(SILENT_S)
            assert all(
                used_s(pid) - spent < BUSY * (monotonic() - begun) + 1 for pid, spent in zip(pids, used, strict=True)
            )
        finally:
            server.resume() if kind == "frozen" else proxy.heal()
        thawed = monotonic()
        for number in range(JOBS):
            view = datacenter.client.wait(f"job-{number}", 180)
            assert view.state is JobState.COMPLETED, datacenter.client.why(view.job_id).text
        assert monotonic() - thawed < BACK_S
        assert all(read_stat(pid) is not None for pid in pids), datacenter.autopsy()
        assert all(resident(pid) - was < GROWTH_BYTES for pid, was in zip(pids, before, strict=True))
        for node in datacenter.managers.values():
            # Its begin is said and its end, by whichever part noticed it first: the connection, or the follower of the log.
            assert "the connection was lost" in node.said() or "following tenure_log: " in node.said(), node.said()
            assert "connected again" in node.said() or "following tenure_log again" in node.said(), node.said()
            assert node.said().count("following tenure_log: ") <= 1, node.said()
            assert "never retrieved" not in node.said(), node.said()
        datacenter.close()
