"""What attempts say, hand on and give out, through real slot processes on SQLite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process import flows_app as app

from tenure import JobFailed, embedded
from tenure.local.embedded import Embedded


@pytest.fixture(scope="module")
def datacenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    folder: Path = tmp_path_factory.mktemp("flows")
    with embedded(folder, workflows=[app.says], slots=2) as running:
        yield running


def test_a_slot_process_says_that_a_retry_is_useless_also_by_a_class_that_nobody_else_can_make(
    datacenter: Embedded,
) -> None:
    for what, said in (("permanent", "it raised Permanent"), ("local", "give_up_on of the workflow names LocalError")):
        job = datacenter.submit(app.says, what=what)
        with pytest.raises(JobFailed, match="attempt 1 of 3"):
            job.wait(timeout=60)
        assert said in job.why()


def test_a_slot_process_asks_for_a_rest(datacenter: Embedded) -> None:
    begun = time.monotonic()
    assert datacenter.submit(app.says, what="busy").wait(timeout=60) == 2
    assert time.monotonic() - begun >= 1.5
