"""What the scenarios have in common: jobs for both datacenters, and waiting for what a world comes to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.demo.cluster import Cluster
from tests.patience import wait_until
from tests.process.gates.namespaces import NamespaceCluster

from tenure.control.messages.jobs import JobView
from tenure.jobs import JobState, JobSubmission, WorkflowSpec

FACTOR = 0.06
FALLBACK_S = 300 * FACTOR
STUCK_S = 6.0
"""Ten reports: a machine that is busy for a moment does not make a job that advances look stuck."""
AHEAD_S = 3_600.0
AHEAD = str(Path(__file__).parent / "an_hour_ahead")


class Skewed(Cluster):
    """In datacenter b all clocks on the wall are an hour ahead, whatever is played. Processes know where they are."""

    path = ""
    """Where Python finds things; set before it is started."""

    def command_prefix(self, place: str) -> list[str]:
        path = f"{AHEAD}{os.pathsep}{self.path}" if place == "b" else self.path
        return [*super().command_prefix(place), "env", f"PLACE={place}", f"PYTHONPATH={path}"]

    def restore(self) -> None:
        """Every link mended, every dead node started again."""
        for name in self.datacenters:
            self.mend(name)
        for number, node in enumerate(self.gates):
            if node.process.poll() is not None:
                self.gates[number] = self.gate(number)
        for name, nodes in self.managers.items():
            for number, node in enumerate(nodes):
                if node.process.poll() is not None:
                    nodes[number] = self.manager(name, number)


class SkewedNamespaces(Skewed, NamespaceCluster):
    """The same, in namespaces."""


def submission(
    job_id: str, function: str, timeout_s: float = 600.0, *, stuck_s: float = 0.0, **arguments: Any
) -> JobSubmission:
    spec = WorkflowSpec(name=function, arguments=arguments)
    return JobSubmission(
        job_id=job_id,
        workflows=(spec,),
        timeout_seconds=timeout_s,
        grace=0.0,
        stuck_threshold=stuck_s or timeout_s * 0.99,
        target_datacenters=("a", "b"),
    )


class Silence:
    """A job that advances until it is told to fall silent, in one datacenter or in both: time runs out there when the test says so."""

    def __init__(self, folder: Path, job_id: str) -> None:
        self._file = folder / job_id
        self.submission = submission(job_id, "falls_silent", stuck_s=STUCK_S, until=str(self._file))

    def falls(self, *places: str) -> None:
        for place in places:
            self._file.with_name(f"{self._file.name}.{place}").touch()


def leading(ask: Callable[[], int]) -> int:
    """Returns the number of the node that leads, once one does: on a busy machine a short term may just have been lost."""
    found = [-1]
    wait_until(lambda: found.append(ask()) or found[-1] != -1, "somebody leads")
    return found[-1]


def states(view: JobView) -> dict[str, JobState]:
    return {place.name: place.state for place in view.datacenters}


def everywhere(state: JobState) -> dict[str, JobState]:
    return {"a": state, "b": state}


def answering(client: Any, job_id: str) -> dict[str, bool]:
    """Of which datacenters the gate has an answer."""
    return {place.name: place.answers for place in client.job(job_id).datacenters}


def ended(client: Any, job_id: str) -> JobView:
    """The job once it has ended everywhere."""
    wait_until(lambda: client.job(job_id).ended, f"{job_id} ends everywhere")
    return client.job(job_id)


def runs_everywhere(client: Any, job_id: str) -> None:
    def running() -> bool:
        return sum(one.started_at > 0 for one in client.job(job_id).workflows) == 2

    wait_until(running, f"{job_id} runs in both datacenters")


def decisions(client: Any, job_id: str) -> list[Any]:
    """The links of `why` in which the gates decided."""
    return [link for link in client.why(job_id).why.links if link.kind == "GlobalDecisionMade"]
