"""A workflow over many inputs: so many jobs open at once, results in the order of the inputs, failures collected."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tenure.errors import JobFailed, JobsFailed, LimitError, TenureError
from tenure.nodes.client.bars import Bar
from tenure.nodes.messages.client import MAX_LISTED
from tenure.work.submitting import Target, name_of, spread

if TYPE_CHECKING:
    from tenure.nodes.client.client import Client
    from tenure.nodes.client.handles import Job

LOOK_EVERY_S = 0.25


def map_jobs(
    client: Client,
    target: Target,
    inputs: Iterable[Any],
    *,
    in_flight: int,
    progress: bool,
    return_failures: bool,
    **options: Any,
) -> list[Any]:
    """See `Client.map`."""
    if not 1 <= in_flight <= MAX_LISTED:
        raise LimitError("in_flight", in_flight, f"between 1 and {MAX_LISTED:,}")
    waiting = list(enumerate(spread(target, inputs)))
    results: list[Any] = [None] * len(waiting)
    open_jobs: dict[str, tuple[int, Job[Any]]] = {}
    waiting.reverse()
    failures: dict[int, JobFailed] = {}
    label = f"{name_of(target)}, {len(results)} jobs" if progress else ""
    try:
        with Bar(label, total=max(1, len(results))) as bar:
            while waiting or open_jobs:
                while waiting and len(open_jobs) < in_flight:
                    place, arguments = waiting.pop()
                    job = client.submit(target, arguments, **options)
                    open_jobs[job.id] = (place, job)
                under_way = _harvest(client, open_jobs, results, failures)
                done = len(results) - len(waiting) - len(open_jobs)
                bar.move(done + under_way, f"{len(failures)} failed" if failures else "")
    except BaseException:
        # Whoever interrupts a map does not want the rest of it.
        with suppress(TenureError):  # nobody answers: the first error says more
            for job_id in open_jobs:
                client.cancel(job_id, "the map that submitted it was interrupted")
        raise
    if failures and not return_failures:
        raise JobsFailed(dict(sorted(failures.items())), results)
    for place, failure in failures.items():
        results[place] = failure
    return results


def _harvest(
    client: Client, open_jobs: dict[str, tuple[int, Job[Any]]], results: list[Any], failures: dict[int, JobFailed]
) -> float:
    """Wait a little for the oldest job, then take whatever has ended; how much of the rest is done, in jobs."""
    oldest = next(iter(open_jobs))
    client.job(oldest, wait_s=LOOK_EVERY_S)
    # One question about all of them, rather than one about each.
    rows = {row.job_id: row for row in client.jobs(limit=MAX_LISTED).jobs if row.job_id in open_jobs}
    ended = [job_id for job_id in open_jobs if job_id not in rows or rows[job_id].state.terminal]
    for job_id in ended:
        place, job = open_jobs[job_id]
        view = job.status()
        if not view.ended:
            continue
        del open_jobs[job_id]
        try:
            results[place] = job.wait()
        except JobFailed as error:
            failures[place] = error
    return sum(rows[job_id].progress for job_id in open_jobs if job_id in rows)
