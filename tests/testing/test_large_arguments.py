"""Arguments beyond the journal's limit travel by the store, without the user's doing: by clients, from workflows, in schedules, encrypted, and again in a retry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure import JobFailed, workflow
from tenure.attempt_data import ARGUMENTS_STORE
from tenure.codec import Codec
from tenure.errors import LimitError, NodeRefusedError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import KEEP_ARCHIVE_S
from tenure.jobs.state_records import Schedule
from tenure.testing import TestDatacenter

BIG = "x" * 1_500_000
broken: list[bool] = []


@workflow(max_attempts=1)
def measures(ctx: Any, text: str, tenant: str = "") -> int:
    if broken:
        raise ValueError("broken")
    return len(text)


@workflow(max_attempts=1)
def asks_a_child(ctx: Any, size: int) -> int:
    return int(ctx.wait_job(ctx.submit(measures, text="y" * size)))


@pytest.fixture(autouse=True)
def _whole() -> None:
    broken.clear()


def stored(tenure_dc: TestDatacenter) -> list[str]:
    return [key for key, _ in tenure_dc.engine.store(ARGUMENTS_STORE).scan()]


def test_a_workflow_gets_large_arguments_and_the_journal_has_a_mark_for_them(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(measures, text=BIG, tenant="a", job_id="big")
    assert job.wait() == len(BIG)
    [view] = job.status().workflows
    assert view.arguments["tenant"] == "a"
    assert view.arguments["text"]["tenure.stored"]["bytes"] == len(BIG) + 2
    entries = tenure_dc.engine.journal("jobs").read(0)
    assert max(len(one) for entry in entries for one in entry.events) < 10_000


def test_the_same_submission_is_one_job_and_other_large_arguments_under_its_id_are_refused(
    tenure_dc: TestDatacenter,
) -> None:
    for _ in range(2):
        assert tenure_dc.submit(measures, text=BIG, job_id="big").wait() == len(BIG)
    [kept] = stored(tenure_dc)
    with pytest.raises(NodeRefusedError, match="big"):
        tenure_dc.submit(measures, text="z" * 1_500_000, job_id="big")
    assert stored(tenure_dc) == [kept]


def test_arguments_that_do_not_fit_are_refused_before_anything_is_stored(tenure_dc: TestDatacenter) -> None:
    assert tenure_dc.submit(measures, text="x").wait() == 1  # so the catalogue is known
    for name, given, error in (
        ("measures", {"text": 7, "tenant": BIG}, "do not fit"),
        ("measured", {"text": BIG}, "no worker has registered"),
    ):
        with pytest.raises(NodeRefusedError, match=error):
            tenure_dc.submit_job(JobSubmission(job_id="j", workflows=(WorkflowSpec(name=name, arguments=given),)))
    forged = WorkflowSpec(name="measures", arguments_at="other/measures/abc")
    with pytest.raises(NodeRefusedError, match="only a leader does that"):
        tenure_dc.submit_job(JobSubmission(job_id="j", workflows=(forged,)))
    assert stored(tenure_dc) == []


def test_arguments_beyond_the_stores_limit_are_a_clear_error_of_the_client(tenure_dc: TestDatacenter) -> None:
    with pytest.raises(LimitError, match="at most 7,340,032 bytes for one job"):
        tenure_dc.submit(measures, text="x" * 7_400_000)


def test_a_workflow_submits_a_child_with_large_arguments(tenure_dc: TestDatacenter) -> None:
    assert tenure_dc.submit(asks_a_child, size=900_000).wait() == 900_000


def test_a_retry_has_the_large_arguments_of_the_job_that_it_repeats(tenure_dc: TestDatacenter) -> None:
    broken.append(True)
    job = tenure_dc.submit(measures, text=BIG, job_id="big")
    with pytest.raises(JobFailed):
        job.wait()
    broken.clear()
    assert job.retry().wait() == len(BIG)
    assert sorted(key.partition("/")[0] for key in stored(tenure_dc)) == ["big", "big~2"]


def test_arguments_that_are_gone_fail_the_job_for_good_and_say_so(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(measures, text=BIG, delay=60.0)
    [key] = stored(tenure_dc)
    tenure_dc.engine.store(ARGUMENTS_STORE).delete(key)
    with pytest.raises(JobFailed, match="the store has its large arguments no more"):
        job.wait()


def test_they_go_with_the_record_of_their_job(tenure_dc: TestDatacenter) -> None:
    tenure_dc.submit(measures, text=BIG).wait()
    assert stored(tenure_dc)
    tenure_dc.advance(hours=2)  # the job is archived
    assert stored(tenure_dc)
    tenure_dc.clock.advance(KEEP_ARCHIVE_S)  # nobody does anything meanwhile: the engine itself lets them go
    assert stored(tenure_dc) == []


def test_each_run_of_a_schedule_reads_the_schedules_large_arguments(tenure_dc: TestDatacenter) -> None:
    tenure_dc.serve(measures)
    template = JobSubmission(job_id="t", workflows=(WorkflowSpec(name="measures", arguments={"text": BIG}),))
    tenure_dc.set_schedule(Schedule(name="nightly", cron="0 3 * * *", job=template))
    [listed] = tenure_dc.schedules().schedules
    assert listed.schedule.job.workflows[0].arguments_at
    tenure_dc.set_schedule(msgspec.structs.replace(listed.schedule, cron="0 4 * * *"))  # as it was listed
    for run in ("first", "second"):
        assert tenure_dc.get(tenure_dc.trigger_schedule("nightly", job_id=run)).wait() == len(BIG)
    assert [key.startswith("//schedule/nightly/measures/") for key in stored(tenure_dc)] == [True]
    tenure_dc.drop_schedule("nightly")
    assert stored(tenure_dc)  # a run of it may still wait


@pytest.mark.parametrize("job_id", ["//schedule/nightly", "nightly~undo"])
def test_a_submission_that_is_refused_for_its_id_deletes_no_arguments_of_a_schedule(
    tenure_dc: TestDatacenter, job_id: str
) -> None:
    """What a refused submission stored is deleted. Under this id, with the same contents, that was what the schedule reads."""
    tenure_dc.serve(measures)
    template = JobSubmission(job_id="t", workflows=(WorkflowSpec(name="measures", arguments={"text": BIG}),))
    tenure_dc.set_schedule(Schedule(name="nightly", cron="0 3 * * *", job=template))
    [key] = stored(tenure_dc)
    with pytest.raises(NodeRefusedError, match="which is kept for"):
        tenure_dc.submit_job(msgspec.structs.replace(template, job_id=job_id))
    assert stored(tenure_dc) == [key]


def test_encrypted_large_arguments_are_decrypted_by_the_worker_only() -> None:
    with TestDatacenter([measures], codec=Turned()) as datacenter:
        job = datacenter.submit(measures, text=BIG, tenant="secret tenant", job_id="big")
        assert job.wait() == len(BIG)
        [key] = stored(datacenter)
        kept = datacenter.engine.store(ARGUMENTS_STORE).get(key) or b""
        assert b"secret" not in kept
        assert b"xxxx" not in kept


class Turned(Codec):
    """A codec that nobody should use: it turns the bits around."""

    def encode(self, data: bytes, about: str) -> bytes:
        return bytes(255 - one for one in data)

    def decode(self, data: bytes, about: str) -> bytes:
        return self.encode(data, about)
