"""What the scenarios have in common: jobs for both datacenters, and waiting for what a world comes to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.process.gates.namespaces import NamespaceCluster

from tenure.demo.cluster import Cluster
from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tenure.nodes.messages.client import JobView

FACTOR = 0.06
FALLBACK_S = 300 * FACTOR
AHEAD_S = 3_600.0
AHEAD = str(Path(__file__).parent / "an_hour_ahead")


class Skewed(Cluster):
    """In datacenter b all clocks on the wall are an hour ahead, whatever is played."""

    def _command(self, place: str) -> list[str]:
        before = super()._command(place)
        return [*before, "env", f"PYTHONPATH={AHEAD}:{self.path}"] if place == "b" else before

    path = ""
    """Where Python finds things; set before it is started."""


class SkewedNamespaces(Skewed, NamespaceCluster):
    """The same, in namespaces."""


def submission(
    job_id: str, function: str, timeout_s: float, *, stuck_s: float = 0.0, **arguments: Any
) -> JobSubmission:
    spec = WorkflowSpec(name=function, arguments=arguments)
    return JobSubmission(
        job_id=job_id,
        workflows=(spec,),
        timeout_seconds=timeout_s,
        stuck_threshold=stuck_s or timeout_s * 0.99,
        target_datacenters=("a", "b"),
    )


def until(true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """What each node said last is shown with every failure (tests/process/conftest.py)."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            pytest.fail(f"within {seconds:g} s it did not happen that {what}")
        time.sleep(0.1)


def states(view: JobView) -> dict[str, JobState]:
    return {place.name: place.state for place in view.datacenters}


def everywhere(state: JobState) -> dict[str, JobState]:
    return {"a": state, "b": state}


def ended(client: Any, job_id: str) -> JobView:
    """The job once it has ended everywhere."""
    until(lambda: client.job(job_id).ended, f"{job_id} ends everywhere", 90)
    return client.job(job_id)


def runs_everywhere(client: Any, job_id: str) -> None:
    def running() -> bool:
        return sum(one.started_at > 0 for one in client.job(job_id).workflows) == 2

    until(running, f"{job_id} runs in both datacenters")


def decisions(client: Any, job_id: str) -> list[Any]:
    """The links of `why` in which the gates decided."""
    return [link for link in client.why(job_id).why.links if link.kind == "GlobalDecisionMade"]
