"""How soon a gate's word is everywhere: a global timeout within one check and a round trip, a cancel within a round trip.

Real processes: two gates, three datacenters, the document's own cadences (a check every 15 s, a report every 10 s); once beside each other, and once
with 150 ms each way between the gates and every datacenter. Times are those of the events in the journals; all engines are on this machine, so
their clocks agree.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.demo.cluster import Cluster

from bench.harness import Report
from tenure.jobs import JobSubmission, WorkflowSpec

PLACES = ("a", "b", "c")
JOBS, TIMEOUT_S = 10, 5.0
CHECK_S = 15.0
ONE_WAY_S = 0.15
BUSY_S = 1.0
"""What a machine that does other things may take beside: without it, a bar measures the machine."""


def run(report: Report) -> None:
    with world() as cluster, cluster.client() as client:
        for where, way_s in (("side by side", 0.0), (f"{2_000 * ONE_WAY_S:.0f} ms apart", ONE_WAY_S)):
            for name in PLACES:
                cluster.slow(name, way_s)
            # A word, its answer, and what the manager reads before it is written down: a round trip, when there is a connection.
            round_trip_s = 2 * way_s
            late, told = global_timeouts(cluster, client, f"timeout-{way_s:g}")
            report.value(f"{where}: declared after the deadline, slowest", max(late), "s", most=CHECK_S)
            report.value(f"{where}: from there to every datacenter, median", statistics.median(told), "s")
            report.value(
                f"{where}: from there to every datacenter, slowest", max(told), "s", most=round_trip_s + BUSY_S
            )
            reached = cancels(cluster, client, f"cancel-{way_s:g}")
            report.value(f"{where}: from a cancel to every datacenter, median", statistics.median(reached), "s")
            report.value(
                f"{where}: from a cancel to every datacenter, slowest", max(reached), "s", most=round_trip_s + BUSY_S
            )


@contextmanager
def world() -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder,
        Cluster(Path(folder), "examples.demo.world_app", datacenters=PLACES, slots=2) as cluster,
    ):
        yield cluster


def submit(client: Any, job_id: str, timeout_s: float) -> None:
    """Two of them run everywhere, the others wait: a deadline is for both."""
    client.submit_job(
        JobSubmission(
            job_id=job_id,
            workflows=(WorkflowSpec(name="endless"),),
            timeout_seconds=timeout_s,
            target_datacenters=PLACES,
        )
    )


def global_timeouts(cluster: Cluster, client: Any, prefix: str) -> tuple[list[float], list[float]]:
    """(how late each was declared, how long after that each datacenter had ended it)."""
    for number in range(JOBS):
        submit(client, f"{prefix}-{number}", TIMEOUT_S)
    late, told = list[float](), list[float]()
    for number in range(JOBS):
        view = ended(client, f"{prefix}-{number}")
        declared = at(client, view.job_id, "GlobalDecisionMade")
        late.append(declared - view.deadline)
        told += [one - declared for one in ends(cluster, view.job_id)]
    return late, told


def cancels(cluster: Cluster, client: Any, prefix: str) -> list[float]:
    """How long after it was asked for each datacenter had ended it."""
    found = []
    for number in range(JOBS):
        job_id = f"{prefix}-{number}"
        submit(client, job_id, 600.0)
        while not all(place.heard for place in client.job(job_id).datacenters):
            time.sleep(0.05)
        begun = time.time()
        client.cancel(job_id, "enough")
        ended(client, job_id)
        found += [one - begun for one in ends(cluster, job_id)]
    return found


def ended(client: Any, job_id: str) -> Any:
    while not (view := client.job(job_id)).ended:
        time.sleep(0.05)
    return view


def ends(cluster: Cluster, job_id: str) -> list[float]:
    """When it ended in each datacenter, by that one's journal."""
    found = []
    for name in PLACES:
        with cluster.client_in(name) as there:
            found.append(at(there, job_id, "JobEnded"))
    return found


def at(client: Any, job_id: str, kind: str) -> float:
    [link] = [link for link in client.why(job_id).why.links if link.kind == kind]
    return float(link.at)
