"""What the code that submitted a job learns of its failure: the traceback, the last words, and the next step."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import workflow
from tenure.errors import JobFailed
from tenure.testing import TestDatacenter


def innermost(value: str) -> int:
    return int(value)


@workflow(max_attempts=1)
def parse(ctx: Any, value: str) -> int:
    ctx.log.info("parsing")
    ctx.beat(note="the first line")
    return innermost(value)


def test_a_failed_job_brings_its_traceback_log_note_and_beats(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(parse, value="seven", job_id="j", max_attempts=1)
    with pytest.raises(JobFailed) as failed:
        job.wait()
    said = str(failed.value)
    assert "Your code raised ValueError" in said
    assert "in innermost" in said
    assert "return int(value)" in said
    assert "attempt.py" not in said
    assert "tenure retry j" in said
    (one,) = failed.value.evidence
    assert (one.workflow, one.attempt, one.cause, one.note) == ("parse", 1, "exception", "the first line")
    assert one.place.endswith(", in innermost")
    assert one.traceback.rstrip().endswith("frames of Tenure are not shown)")
    assert one.beats[-1][1] >= 1
    assert any("parsing" in line for line in one.log)


def test_evidence_of_an_attempt_is_asked_for_alone(tenure_dc: TestDatacenter) -> None:
    tenure_dc.submit(parse, value="seven", job_id="j", max_attempts=1)
    tenure_dc.advance(seconds=5)
    found = tenure_dc.evidence("j").evidence
    assert found is not None
    assert found.cause == "exception"
    assert "in innermost" in found.traceback
