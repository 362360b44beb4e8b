"""One trace for each submission: client, leader, attempt and workflow, in memory; and nothing at all where nobody collects."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tenure import JobFailed, tracing, workflow
from tenure.jobs.unique_jobs import digest
from tenure.testing import TestDatacenter
from tenure.work.job_submission import submission_for, traced

otel = pytest.importorskip("opentelemetry.sdk.trace", reason="needs tenure[otel]")
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_provider", provider)
    yield exporter
    provider.shutdown()


@workflow(max_attempts=2)
async def fetch(ctx: Any, page: int) -> int:
    with tracing.span("a query of the user's", {}):
        await asyncio.sleep(1)
    ctx.log.info("fetched")
    if ctx.attempt == 1 and page == 13:
        raise ValueError("unlucky")
    return page


@workflow(max_attempts=1)
def parent(ctx: Any) -> int:
    found: int = ctx.submit(fetch, page=3).wait()
    return found


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_client_leader_attempt_and_workflow_are_one_trace(
    spans: InMemorySpanExporter, tenure_dc: TestDatacenter
) -> None:
    job = tenure_dc.submit(fetch, page=13, job_id="j")
    assert job.wait() == 13
    found = by_name(spans)
    assert {"submit fetch", "job j", "attempt 1 of fetch", "attempt 2 of fetch", "workflow fetch"} <= set(found)
    assert len({span.context.trace_id for span in found.values()}) == 1
    submit = found["submit fetch"].context.span_id
    for name in ("job j", "attempt 1 of fetch", "attempt 2 of fetch"):
        assert found[name].parent is not None
        assert found[name].parent.span_id == submit
    inner = found["a query of the user's"].parent
    assert inner is not None
    assert inner.span_id == found["workflow fetch"].context.span_id
    first, whole = found["attempt 1 of fetch"], found["job j"]
    assert (first.status.is_ok, first.attributes["tenure.attempt"]) == (False, 1)  # type: ignore[index]
    assert "unlucky" in str(first.status.description)
    assert "raise ValueError" in str(first.events[0].attributes["exception.stacktrace"])  # type: ignore[index]
    assert (whole.attributes["tenure.state"], whole.attributes["tenure.attempts"]) == ("completed", 2)  # type: ignore[index]
    assert whole.end_time - whole.start_time >= 2e9  # type: ignore[operator]


def test_a_childs_trace_is_its_parents_and_a_failure_is_an_error(
    spans: InMemorySpanExporter, tenure_dc: TestDatacenter
) -> None:
    tenure_dc.submit(parent).wait()
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 1
    assert "attempt 1 of fetch" in by_name(spans)
    spans.clear()
    with pytest.raises(JobFailed):
        tenure_dc.submit(fetch, page=13, max_attempts=1, job_id="failing").wait()
    assert not by_name(spans)["job failing"].status.is_ok


def test_logs_name_the_trace(spans: InMemorySpanExporter, tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(fetch, page=1)
    job.wait()
    [line] = [line for line in job.logs() if line.text == "fetched"]
    assert int(line.trace, 16) == by_name(spans)["submit fetch"].context.trace_id


def test_the_same_submission_in_another_trace_is_the_same_job() -> None:
    plain = submission_for("fetch", {"page": 1}, {"job_id": "j", "labels": {"a": "b"}}, str)
    other = traced(plain, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    assert other.labels[tracing.LABEL]
    assert digest(plain) == digest(other)
    assert digest(plain) != digest(submission_for("fetch", {"page": 1}, {"labels": {"a": "c"}}, str))


def test_where_nobody_collects_nothing_is_carried_and_nothing_imported(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(fetch, page=1)
    assert job.wait() == 1
    assert tracing.LABEL not in job.status().labels
    code = (
        "import sys; from tenure import Client, workflow, tracing; assert not any('opentel' in m for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p)})
    assert tracing.trace_id("nonsense") == ""
    assert logging.getLogger("tenure.workflow").level == logging.INFO
