"""Runs one workflow over many inputs: bounded in flight, results in the order of the inputs, failures collected."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tenure.client.job_results import LOOK_EVERY_S
from tenure.client.progress_bar import ProgressBar
from tenure.control.messages.jobs import MAX_LISTED
from tenure.errors import JobFailed, JobsFailed, LimitError, TenureError
from tenure.work.job_submission import Target, name_of, spread

if TYPE_CHECKING:
    from tenure.client.async_client import AsyncClient
    from tenure.client.async_job import AsyncJob


class AsyncJobMap:
    """One call of `map`: the inputs that wait, the jobs that are open, the results so far."""

    def __init__(self, client: AsyncClient, target: Target, inputs: Iterable[Any], options: dict[str, Any]) -> None:
        self._client, self._target, self._options = client, target, options
        self._waiting = list(enumerate(spread(target, inputs)))
        self._results: list[Any] = [None] * len(self._waiting)
        self._waiting.reverse()  # popped from the end, so the first input is submitted first
        self._open: dict[str, tuple[int, AsyncJob[Any]]] = {}
        self._failures: dict[int, JobFailed] = {}

    async def run(self, *, in_flight: int, progress: bool, return_failures: bool) -> list[Any]:
        """Returns the results, with failures in their places or raised together as `JobsFailed`."""
        if not 1 <= in_flight <= MAX_LISTED:
            raise LimitError("in_flight", in_flight, f"between 1 and {MAX_LISTED:,}")
        label = f"{name_of(self._target)}, {len(self._results)} jobs" if progress else ""
        try:
            with ProgressBar(label, total=max(1, len(self._results))) as bar:
                while self._waiting or self._open:
                    await self._submit(in_flight)
                    under_way = await self._harvest()
                    done = len(self._results) - len(self._waiting) - len(self._open)
                    bar.move(done + under_way, f"{len(self._failures)} failed" if self._failures else "")
        except BaseException:
            # Whoever interrupts a map does not want the rest of it.
            with suppress(TenureError):  # no node answers: the first error says more
                for job_id in self._open:
                    await self._client.cancel(job_id, "the map that submitted it was interrupted")
            raise
        if self._failures and not return_failures:
            raise JobsFailed(dict(sorted(self._failures.items())), self._results)
        for place, failure in self._failures.items():
            self._results[place] = failure
        return self._results

    async def _submit(self, in_flight: int) -> None:
        while self._waiting and len(self._open) < in_flight:
            place, arguments = self._waiting.pop()
            job = await self._client.submit(self._target, arguments, **self._options)
            self._open[job.id] = (place, job)

    async def _harvest(self) -> float:
        """Waits a little for the oldest job, takes every result that is there, and returns how much of the rest is done, in jobs."""
        await self._client.job(next(iter(self._open)), wait_s=LOOK_EVERY_S)
        # One question about all of them, rather than one about each.
        listed = (await self._client.jobs(limit=MAX_LISTED)).jobs
        rows = {row.job_id: row for row in listed if row.job_id in self._open}
        ended = [job_id for job_id in self._open if job_id not in rows or rows[job_id].state.terminal]
        for job_id in ended:
            place, job = self._open[job_id]
            if not (await job.status()).ended:
                continue
            del self._open[job_id]
            try:
                self._results[place] = await job.wait()
            except JobFailed as error:
                self._failures[place] = error
        return sum(rows[job_id].progress for job_id in self._open if job_id in rows)
