"""The example of docs/clients.md: the progress of a job as server-sent events, with FastAPI. It needs fastapi, which is no dependency of ours."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenure import workflow
from tenure.client.job_messages import JobUpdate
from tenure.testing import TestDatacenter

DOCS = Path(__file__).resolve().parents[2] / "docs" / "clients.md"


@workflow(stall=60)
def counts(ctx: Any, items: int) -> int:
    for _ in ctx.track(range(items), total=items):
        ctx.sleep(1.0)
    return items


class WatchedJob:
    """A job whose updates were taken before: a test datacenter has a loop of its own, which cannot run inside of FastAPI's."""

    def __init__(self, updates: list[JobUpdate]) -> None:
        self._updates = updates

    def get(self, job_id: str) -> WatchedJob:
        return self

    async def watch(self) -> AsyncIterator[JobUpdate]:
        for update in self._updates:
            yield update


def test_the_example_streams_the_progress_of_a_job(tenure_dc: TestDatacenter) -> None:
    fastapi = pytest.importorskip("fastapi")
    from fastapi.responses import StreamingResponse
    from fastapi.testclient import TestClient

    (code,) = re.findall(r"```python\n(@app\.get.*?)```", DOCS.read_text(), re.DOTALL)
    app, job = fastapi.FastAPI(), tenure_dc.submit(counts, items=5)
    names = {"app": app, "tenure": WatchedJob(list(job.watch())), "StreamingResponse": StreamingResponse}
    exec(code, names)
    answer = TestClient(app).get(f"/jobs/{job.id}/progress")
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n") if line]
    assert lines[-1]["state"] == "completed"
    assert any(line["steps"] for line in lines)
