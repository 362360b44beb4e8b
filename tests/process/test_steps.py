"""Steps in real slot processes, which ask their supervisor: a killed slot runs none of its finished steps again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.process import steps_app as app

from tenure import JobFailed, embedded


@pytest.mark.parametrize("kind", ["is_killed", "is_killed_async"])
def test_a_slot_that_is_killed_after_a_step_does_not_run_it_again(tmp_path: Path, kind: str) -> None:
    lines = tmp_path / "lines"
    with embedded(tmp_path / "dc", workflows=[app.is_killed, app.is_killed_async], slots=1) as datacenter:
        job = datacenter.submit(getattr(app, kind), path=str(lines))
        assert job.wait(timeout=180) == [3, 5]
    assert lines.read_text().split() == ["one", "twice"]


def test_compensations_of_a_killed_slot_run_and_go_on_when_their_slot_is_killed_too(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    with embedded(tmp_path / "dc", workflows=[app.is_undone], slots=1) as datacenter:
        job = datacenter.submit(app.is_undone, path=str(lines), job_id="gone")
        with pytest.raises(JobFailed):
            job.wait(timeout=180)
        # The leader submits the job that undoes it after it has cleaned up behind the failed one.
        end = time.monotonic() + 180
        while "gone~undo" not in datacenter.why("gone").text:
            assert time.monotonic() < end, datacenter.why("gone").text
            time.sleep(0.05)
        assert datacenter.get("gone~undo").wait(timeout=180) is None
    # The one that killed its slot runs again: it was not recorded. Those that were recorded do not.
    assert lines.read_text().split() == ["third", "second", "second", "first"]
