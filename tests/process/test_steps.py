"""Steps in real slot processes, which ask their supervisor: a killed slot runs none of its finished steps again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.process import steps_app as app

from tenure import embedded


@pytest.mark.parametrize("kind", ["is_killed", "is_killed_async"])
def test_a_slot_that_is_killed_after_a_step_does_not_run_it_again(tmp_path: Path, kind: str) -> None:
    lines = tmp_path / "lines"
    with embedded(tmp_path / "dc", workflows=[app.is_killed, app.is_killed_async], slots=1) as datacenter:
        job = datacenter.submit(getattr(app, kind), path=str(lines))
        assert job.wait(timeout=60) == [3, 5]
    assert lines.read_text().split() == ["one", "twice"]
