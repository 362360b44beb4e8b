"""Retries that are earned, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter
from tests.soak import sized

from tenure.jobs import JobState

ROUNDS = sized("kills of a worker with saved work between them", short=5, long=50)


@pytest.mark.slow
def test_work_that_is_killed_more_often_than_max_attempts_completes_when_it_saves_something_each_time(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    log = tmp_path / "log"
    client = datacenter.client
    client.submit("save_and_wait", {"rounds": ROUNDS, "log": str(log)}, job_id="killed")
    for number in range(1, ROUNDS + 1):
        worker = datacenter.worker("--slots", "1", "--lease", "2")
        wait_until(lambda: log.exists() and f"saved {number}\n" in log.read_text(), datacenter.said)  # noqa: B023
        worker.kill()
    datacenter.worker("--slots", "1", "--lease", "2")
    view = client.wait("killed", 180)
    assert view.state is JobState.COMPLETED, client.why("killed").text
    assert "it had saved new work, so none of 3 tries is used" in client.why("killed").text
