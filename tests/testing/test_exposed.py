"""Values that a workflow shows on its job while it runs, waits, and when it has ended."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import JobFailed, workflow
from tenure.testing import TestDatacenter


@workflow(max_attempts=1)
def shows(ctx: Any) -> str:
    ctx.expose("status", "asks the bank")
    ctx.expose("left", {"rows": 3})
    ctx.wait_event("answered")
    ctx.expose("left", None)
    ctx.expose("status", "counts")
    for _ in ctx.polling(5, 60, "the count"):
        pass
    return "done"


def test_exposed_values_are_on_the_job_while_it_waits_runs_and_has_ended(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(shows)
    tenure_dc.advance(seconds=30)
    [view] = job.status().workflows
    assert (view.state, view.exposed) == ("suspended", {"status": "asks the bank", "left": {"rows": 3}})
    assert 'shows shows status="asks the bank", left={"rows":3}' in job.why()
    job.signal("answered")
    tenure_dc.advance(seconds=30)
    [view] = job.status().workflows
    assert (view.state, view.exposed) == ("running", {"status": "counts"})
    job.wait()
    tenure_dc.crash_manager()
    tenure_dc.advance(minutes=1)
    assert job.status().workflows[0].exposed == {"status": "counts"}


@workflow(max_attempts=1)
def shows_too_much(ctx: Any) -> None:
    ctx.expose("status", "x" * 3_000)


@workflow(max_attempts=1)
def shows_an_object(ctx: Any) -> None:
    ctx.expose("status", "before")
    ctx.expose("thing", object())


def test_what_is_too_large_or_no_json_is_a_clear_error(tenure_dc: TestDatacenter) -> None:
    with pytest.raises(JobFailed, match="at most 2,048 bytes in all"):
        tenure_dc.submit(shows_too_much).wait()
    job = tenure_dc.submit(shows_an_object)
    with pytest.raises(JobFailed, match="the exposed 'thing', of type object, cannot be written as JSON"):
        job.wait()
    assert job.status().workflows[0].exposed == {"status": "before"}
