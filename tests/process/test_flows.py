"""What attempts say, hand on and give out, through real slot processes on SQLite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process import flows_app as app

from tenure import JobFailed, embedded
from tenure.jobs import JobSubmission, WorkflowSpec
from tenure.local.embedded import Embedded

SERVED = [app.says, app.fetch, app.report, app.large, app.measure, app.sizes]


@pytest.fixture(scope="module")
def datacenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    folder: Path = tmp_path_factory.mktemp("flows")
    with embedded(folder, workflows=SERVED, slots=2) as running:
        yield running


def test_a_slot_process_says_that_a_retry_is_useless_also_by_a_class_that_nobody_else_can_make(
    datacenter: Embedded,
) -> None:
    for what, said in (("permanent", "it raised Permanent"), ("local", "give_up_on of the workflow names LocalError")):
        job = datacenter.submit(app.says, what=what)
        with pytest.raises(JobFailed, match="attempt 1 of 3"):
            job.wait(timeout=180)
        assert said in job.why()


def test_a_slot_process_asks_for_a_rest(datacenter: Embedded) -> None:
    begun = time.monotonic()
    assert datacenter.submit(app.says, what="busy").wait(timeout=180) == 2
    assert time.monotonic() - begun >= 1.5


def flow(job_id: str, rows: int, broken: Path) -> JobSubmission:
    return JobSubmission(
        job_id=job_id,
        workflows=(
            WorkflowSpec(name="rows", function="fetch", arguments={"rows": rows}),
            WorkflowSpec(name="report", arguments={"broken": str(broken)}, after=("rows",)),
        ),
    )


@pytest.mark.parametrize("rows", [10, 20_000], ids=["small", "in the store"])
def test_a_result_flows_to_the_next_workflow_and_a_retry_begins_where_the_job_broke(
    datacenter: Embedded, tmp_path: Path, rows: int
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    job = datacenter.get(datacenter.submit_job(flow(f"flow-{rows}", rows, broken)).job_id)
    with pytest.raises(JobFailed, match="raised ValueError: broken"):
        job.wait(timeout=180)
    broken.unlink()
    again = job.retry()
    assert again.wait(timeout=180) == {"rows": list(range(rows)), "report": sum(range(rows))}
    fetched = next(one for one in again.status().workflows if one.name == "rows")
    assert (fetched.taken_from, fetched.worker) == (job.id, "")
    assert f"rows not run again: the results are those of {job.id}" in again.why()


def test_a_result_far_beyond_the_message_limit_is_returned_and_handed_on_and_one_beyond_the_stores_is_a_clear_error(
    datacenter: Embedded,
) -> None:
    six = WorkflowSpec(name="large", arguments={"size": 6 << 20})
    more = [WorkflowSpec(name=f"large{n}", function="large", arguments={"size": 5 << 20}) for n in range(2)]
    specs = (six, *more, WorkflowSpec(name="measure", after=("large",)))
    done = datacenter.get(datacenter.submit_job(JobSubmission(job_id="large", workflows=specs)).job_id)
    found = done.wait(timeout=180)
    assert {name: one if name == "measure" else len(one) for name, one in found.items()} == {
        "large": 6 << 20,
        "large0": 5 << 20,
        "large1": 5 << 20,
        "measure": 6 << 20,
    }
    with pytest.raises(JobFailed, match="result of large is 8,388,610 bytes, and must be at most 7,340,032 bytes"):
        datacenter.submit(app.large, size=8 << 20).wait(timeout=180)


def test_arguments_far_beyond_the_message_limit_reach_a_slot_process_and_its_children(datacenter: Embedded) -> None:
    size = 3 << 20
    assert datacenter.submit(app.sizes, text="x" * size, children=1).wait(timeout=180) == [size, size + 1]
