"""A deadline that is earned past, and retries that are earned, with real processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.process.datacenter.conftest import Datacenter, wait_until

from tenure.control.messages.nodes import ListNodes
from tenure.jobs import JobState

GRACE_S = 9.0
TIMEOUT_S = 6.0


@pytest.mark.slow
def test_a_job_that_only_beats_ends_after_its_timeout_and_all_that_it_can_earn(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    datacenter.worker("--slots", "1")
    client = datacenter.client
    wait_until(lambda: client.ask(ListNodes()).workers, 60, datacenter.said)
    client.submit(
        "beat_for", {"seconds": 300, "log": str(tmp_path / "log")}, job_id="long", timeout=TIMEOUT_S, grace=GRACE_S
    )
    begun = time.monotonic()
    view = client.wait("long", 60)
    took = time.monotonic() - begun
    text = client.why("long").text
    assert view.state is JobState.TIMED_OUT, text
    assert text.count("the job was granted") == 5, text
    assert took == pytest.approx(TIMEOUT_S + 1.9375 * GRACE_S, abs=2.0)


@pytest.mark.slow
def test_work_that_is_killed_more_often_than_max_attempts_completes_when_it_saves_something_each_time(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    log = tmp_path / "log"
    client = datacenter.client
    client.submit("save_and_wait", {"rounds": 5, "log": str(log)}, job_id="killed")
    for number in range(1, 6):
        worker = datacenter.worker("--slots", "1", "--lease", "2")
        wait_until(lambda: log.exists() and f"saved {number}" in log.read_text(), 60, datacenter.said)  # noqa: B023
        worker.kill()
    datacenter.worker("--slots", "1", "--lease", "2")
    view = client.wait("killed", 60)
    assert view.state is JobState.COMPLETED, client.why("killed").text
    assert "it had saved new work, so none of 3 tries is used" in client.why("killed").text
