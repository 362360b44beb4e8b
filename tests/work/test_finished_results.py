"""Results that flow: from workflow to workflow, and from an ended job to the one that repeats it; in manual time, with real nodes."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tenure import Codec, JobFailed, Retry, workflow
from tenure.control.messages.jobs import RetryJob
from tenure.errors import NoResultError, UnknownJobError
from tenure.jobs import JobSubmission, WorkflowSpec
from tenure.jobs.states import OnFailure
from tenure.testing import TestDatacenter

SOON = Retry(max_attempts=2, delay=1, jitter=0)
STATE: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    STATE.clear()
    STATE.update(broken=True, ran=[])


@workflow
def fetch(ctx: Any, size: int = 3) -> list[str]:
    STATE["ran"].append("fetch")
    return ["x" * 1_000] * size


@workflow(retry=SOON)
def count(ctx: Any) -> int:
    if STATE["broken"]:
        raise ValueError("broken")
    return len(ctx.results[fetch])


@workflow(retry=SOON)
async def look(ctx: Any, name: str = "rows") -> Any:
    STATE["sees"] = sorted(ctx.results)
    return ctx.results[name]


@workflow(retry=SOON)
def fails(ctx: Any) -> None:
    raise ValueError("no rows")


def datacenter(**options: Any) -> TestDatacenter:
    return TestDatacenter([fetch, count, look, fails], **options)


def flow(*specs: WorkflowSpec, job_id: str = "flow", **options: Any) -> JobSubmission:
    return JobSubmission(job_id=job_id, workflows=specs, park=True, **options)


ROWS = WorkflowSpec(name="rows", function="fetch")


def run(dc: TestDatacenter, submission: JobSubmission) -> Any:
    return dc.get(dc.submit_job(submission).job_id).wait()


@pytest.mark.parametrize("size", [3, 100], ids=["in the message", "in the store"])
def test_a_workflow_finds_the_results_of_those_that_it_comes_after_and_of_no_others(size: int) -> None:
    with datacenter() as dc:
        rows = WorkflowSpec(name="rows", function="fetch", arguments={"size": size})
        other = WorkflowSpec(name="other", function="fetch")
        found = run(dc, flow(rows, other, WorkflowSpec(name="look", after=("rows",))))
    assert found["look"] == ["x" * 1_000] * size
    assert STATE["sees"] == ["rows"]


def test_many_results_that_are_small_each_do_not_burst_the_message() -> None:
    with datacenter() as dc:
        rows = [WorkflowSpec(name=f"rows{n}", function="fetch", arguments={"size": 15}) for n in range(40)]
        names = tuple(one.name for one in rows)
        found = run(dc, flow(*rows, WorkflowSpec(name="look", arguments={"name": "rows39"}, after=names)))
    assert len(found["look"]) == 15
    assert len(STATE["sees"]) == 40


@pytest.mark.parametrize("crash", ["worker", "manager"])
def test_a_later_attempt_finds_them_too_on_another_worker_and_under_another_leader(crash: str) -> None:
    with datacenter() as dc:
        dc.submit_job(flow(ROWS, WorkflowSpec(name="count", after=("rows",), retry=Retry(max_attempts=9, delay=300))))
        dc.advance(seconds=30)
        dc.crash_worker() if crash == "worker" else dc.crash_manager()
        STATE["broken"] = False
        dc.advance(minutes=11)
        assert dc.get("flow").wait() == {"rows": ["x" * 1_000] * 3, "count": 3}
        assert STATE["ran"] == ["fetch"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("bad", "there is no result of 'bad': failed: .*no rows"), ("fetch", "does not come after it.*named: bad, rows")],
)
def test_a_result_that_is_not_there_is_an_error_that_says_why(name: str, said: str) -> None:
    bad = WorkflowSpec(name="bad", function="fails", on_failure=OnFailure.CONTINUE)
    after = WorkflowSpec(name="look", arguments={"name": name}, after=("rows", "bad"))
    with datacenter() as dc, pytest.raises(JobFailed, match=said):
        run(dc, flow(ROWS, bad, after))
    assert STATE["sees"] == ["rows"]


def test_the_error_is_a_key_error_so_that_get_has_a_default() -> None:
    assert issubclass(NoResultError, KeyError)
    assert str(NoResultError("a", "it failed", remedy="Look")) == "there is no result of 'a': it failed. Look"


class Sealed(Codec):
    def encode(self, data: bytes, about: str) -> bytes:
        return base64.b64encode(about.encode()) + b"." + data[::-1]

    def decode(self, data: bytes, about: str) -> bytes:
        told, _, rest = data.partition(b".")
        assert told == base64.b64encode(about.encode()), f"{about} is not {base64.b64decode(told)!r}"
        return rest[::-1]


@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize("codec", [None, Sealed()])
def test_a_retry_takes_over_what_completed_also_of_a_retry_and_also_sealed(codec: Codec | None, size: int) -> None:
    with datacenter(codec=codec) as dc:
        rows = WorkflowSpec(name="rows", function="fetch", arguments={"size": size})
        job = dc.get(dc.submit_job(flow(rows, WorkflowSpec(name="count", after=("rows",)))).job_id)
        for _ in range(2):
            with pytest.raises(JobFailed):
                job.wait()
            job = job.retry()
        with pytest.raises(JobFailed):
            job.wait()
        STATE["broken"] = False
        job = job.retry()
        assert job.wait() == {"rows": ["x" * 1_000] * size, "count": size}
        assert STATE["ran"] == ["fetch"]
        assert (job.id, job.status().workflows[0].taken_from, job.attempts) == ("flow~4", "flow", 1)
        assert "rows not run again: the results are those of flow~3" in job.why()
        assert dc.result(job.id, workflow="rows").result == ["x" * 1_000] * size


def test_a_retry_of_the_whole_job_and_one_of_a_completed_job_run_everything() -> None:
    with datacenter() as dc:
        job = dc.get(dc.submit_job(flow(ROWS, WorkflowSpec(name="count", after=("rows",)))).job_id)
        with pytest.raises(JobFailed):
            job.wait()
        STATE["broken"] = False
        whole = job.retry(whole=True)
        assert whole.wait()["count"] == 3
        assert whole.retry().wait()["count"] == 3
        assert STATE["ran"] == ["fetch"] * 3


def test_a_job_that_left_memory_long_ago_is_still_where_its_retry_begins() -> None:
    with datacenter() as dc:
        rows = WorkflowSpec(name="rows", function="fetch", arguments={"size": 100})
        job = dc.get(dc.submit_job(flow(rows, WorkflowSpec(name="count", after=("rows",)))).job_id)
        with pytest.raises(JobFailed):
            job.wait()
        STATE["broken"] = False
        dc.advance(minutes=62)
        assert "flow" in dc.manager.ledger.book.state.archive
        assert job.retry().wait()["count"] == 100
        assert STATE["ran"] == ["fetch"]
        for key in dc.engine.store("results").list("flow/"):
            dc.engine.store("results").delete(key)  # as its time to live does: everything runs again
        assert dc.get(dc.ask(RetryJob(job_id="flow", new_job_id="once more")).job_id).wait()["count"] == 100
        assert STATE["ran"] == ["fetch"] * 2


def test_results_of_an_unknown_job_are_none_and_everything_runs() -> None:
    STATE["broken"] = False
    with datacenter() as dc:
        assert run(dc, flow(ROWS, WorkflowSpec(name="count", after=("rows",)), retry_of="gone"))["count"] == 3
        with pytest.raises(UnknownJobError):
            dc.get("gone").state  # noqa: B018


def test_a_workflow_that_completed_without_one_that_runs_again_runs_again_too() -> None:
    rows = WorkflowSpec(name="rows", function="fetch")
    bad = WorkflowSpec(name="count", after=("rows",), on_failure=OnFailure.CONTINUE)
    after = WorkflowSpec(name="look", after=("rows", "count"))
    with datacenter() as dc:
        job = dc.get(dc.submit_job(flow(rows, bad, after)).job_id)
        assert (job.wait()["count"], STATE["sees"]) == (None, ["rows"])
        STATE["broken"] = False
        again = job.retry()
        assert (again.wait()["count"], STATE["sees"]) == (3, ["count", "rows"])
        assert [one.name for one in again.status().workflows if one.taken_from] == ["rows"]
