"""A misspelt name in `tenure dev` and in `embedded()`: it is refused with the name that was meant, and parked ones hold up nobody."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import wait_until

from tenure import embedded, workflow
from tenure.client.client import Client
from tenure.errors import NodeRefusedError
from tenure.jobs import JobState, JobSubmission, WorkflowSpec

APP = """
from tenure import workflow

@workflow
def long(ctx, number: int = 0) -> int:
    return number
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


@workflow
def first(ctx: object) -> int:
    return 1


@workflow
def second(ctx: object) -> int:
    return 2


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "app.py").write_text(APP)
    log = tmp_path / "dev.log"
    command = [sys.executable, "-m", "tenure", "dev", "app.py", "--port", "0", "--slots", "1"]
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output, env=environment)
    try:
        wait_until(lambda: re.search(r"http://[\w.]+:\d+", log.read_text()), log.read_text)
        address = re.findall(r"http://([\w.]+:\d+)", log.read_text())[0]
        with Client([address]) as client:
            wait_until(lambda: any(one.workers for one in client.catalogue("long").workflows), log.read_text)
            yield client
    finally:
        process.terminate()
        try:
            process.wait(180)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_in_dev_a_typo_is_refused_and_parked_ones_do_not_hold_up_the_next_job(dev: Client) -> None:
    with pytest.raises(NodeRefusedError, match=r"Did you mean 'long'\?"):
        dev.submit("lnog")
    for _ in range(5):
        dev.submit("lnog", park=True)
    taken = []
    for number in range(5):
        begun = time.monotonic()
        assert dev.submit("long", number=number).wait(180) == number
        taken.append(time.monotonic() - begun)
    # A worker leaves work that it does not serve for 10 s to others: each of these waited for as long.
    assert min(taken) < 10.0, f"one typo made the next job wait 11.7 s; now {taken}"
    rows = dev.jobs(name="lnog").jobs
    assert {row.waits_for for row in rows} == {"a worker that serves 'lnog' in queue 'default'"}
    assert len(rows) == 5


def test_in_embedded_work_that_comes_after_other_work_goes_where_the_worker_serves(tmp_path: Path) -> None:
    with embedded(tmp_path, workflows=[first, second], slots=1) as here:
        specs = (WorkflowSpec(name="first"), WorkflowSpec(name="second", after=("first",)))
        here.submit_job(JobSubmission(job_id="chain", workflows=specs))
        view = here.wait("chain", 180)
        assert (view.state, [one.result for one in view.workflows]) == (JobState.COMPLETED, [1, 2])
        # Work that comes before the worker's first report is done, and a name that nobody has registered yet is parked.
        wait_until(
            lambda: any(one.workers for one in here.catalogue("second").workflows), lambda: "it never registered"
        )
        with pytest.raises(Exception, match=r"'secnod'.*second"):
            here.submit_job(JobSubmission(job_id="typo", workflows=(WorkflowSpec(name="secnod", after=()),)))
