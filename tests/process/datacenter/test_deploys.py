"""A deploy with real workers: two versions of a workflow side by side, each job done by those who have its version."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node

from tenure.client.client import Client
from tenure.jobs import JobState, JobSubmission, WorkflowSpec

MODULE = """
from tenure import workflow

@workflow(version="{version}")
def greet(ctx, name: str) -> str:
    return "{greeting}, " + name
"""


def both_serve(client: Client) -> bool:
    return {one.served.version for one in client.catalogue("greet").workflows} == {"1", "2"}


@pytest.mark.slow
def test_two_versions_are_served_side_by_side(datacenter: Datacenter, tmp_path: Path) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    for version, greeting in (("1", "hello"), ("2", "good day")):
        module = tmp_path / f"app{version}.py"
        module.write_text(MODULE.format(version=version, greeting=greeting))
        arguments = ("worker", str(module), "--engine", datacenter.url, "--managed", "--slots", "1", "--name", version)
        datacenter.workers.append(Node(tmp_path, f"worker-{version}", *arguments))
    client = datacenter.client
    wait_until(lambda: both_serve(client), datacenter.said)
    for number in range(6):
        version = str(1 + number % 2)
        spec = WorkflowSpec(name="greet", arguments={"name": "Ada"}, version=version)
        client.submit_job(JobSubmission(job_id=f"j-{number}", workflows=(spec,)))
    for number in range(6):
        view = client.wait(f"j-{number}", 180)
        assert view.state is JobState.COMPLETED, client.why(view.job_id).text
        assert view.workflows[0].result == ("hello, Ada" if number % 2 == 0 else "good day, Ada")
        assert (view.workflows[0].worker, view.workflows[0].attempt) == (str(1 + number % 2), 1)
    newest = client.wait(client.submit("greet", {"name": "Bob"}).id, 180)
    assert newest.state is JobState.COMPLETED  # without a version, whoever is free
