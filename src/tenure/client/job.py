# Generated from async_job.py by tools/generate_sync.py: change that file, then run the tool.

"""One job as the code that submitted it sees it: wait for it, look at it, ask why, cancel it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tenure.client.job_results import ENDED, LONG_POLL_S, LOOK_EVERY_S, attempts_of, link_of, result_of
from tenure.client.progress_bar import ProgressBar
from tenure.clock import Clock
from tenure.control.messages.job_details import LogLine
from tenure.control.messages.jobs import JobView
from tenure.errors import JobFailed, JobNotEndedError
from tenure.jobs.states import JobState
from tenure.jobs.why import Link
from tenure.work.registry import Workflow

if TYPE_CHECKING:
    from tenure.client.client import Client

R = TypeVar("R")


class Job(Generic[R]):
    """A submitted job. `R` is the type that its workflow returns."""

    def __init__(self, client: Client, job_id: str, workflow: Workflow[..., Any] | None, clock: Clock) -> None:
        self._client, self.id, self._workflow, self._clock = client, job_id, workflow, clock

    def wait(self, timeout: float | None = None, *, progress: bool = False) -> R:
        """Returns what the workflow returned, once it has. Raises `JobFailed`, which says why, or `JobNotEndedError` after `timeout`.

        `progress` shows a bar on a terminal, and nothing elsewhere.
        """
        begun = self._clock.monotonic()
        with ProgressBar(self.id if progress else "") as bar:
            step = LOOK_EVERY_S if bar.shown else LONG_POLL_S
            while True:
                left = step if timeout is None else begun + timeout - self._clock.monotonic()
                view = self._client.job(self.id, wait_s=max(0.0, min(left, step)))
                bar.show(view)
                if view.ended:
                    break
                if timeout is not None and self._clock.monotonic() - begun >= timeout:
                    raise JobNotEndedError(self.id, view.state, timeout)
        if view.state is not JobState.COMPLETED:
            raise JobFailed(self.id, view.state, view.reason, self.why())
        return cast("R", result_of(view, self._workflow))

    def result(self) -> R:
        """Returns what the workflow returned; raises `JobNotEndedError` at once while it runs."""
        return self.wait(0.0)

    def status(self) -> JobView:
        """Returns how the job stands now: state, progress, attempts, worker."""
        return self._client.job(self.id)

    @property
    def state(self) -> JobState:
        return self.status().state

    @property
    def attempts(self) -> int:
        """How often its workflows were tried so far."""
        return attempts_of(self.status())

    def why(self) -> str:
        """Returns the decisions that brought the job to where it is, as text; `client.why(job.id).why` has them as data."""
        return self._client.why(self.id).text

    def events(self) -> Iterator[Link]:
        """Yields each decision about the job as it is made, from its submission to its end, without a gap when the leader changes."""
        after, begun = "0", self.status().submitted_at
        while True:
            page = self._client.events(self.id, after, wait_s=LONG_POLL_S)
            if page.gap is not None:
                # The journal has folded the older events: `why` still has them. Nothing more comes of an archived job.
                yield from self._client.why(self.id).why.links
                if self.status().ended:
                    return
            for line in page.events:
                yield link_of(line, begun)
                if line.event["type"] in ENDED:
                    return
            after = page.cursor

    def cancel(self, reason: str = "") -> None:
        """Ends the job now. Its queued work is never claimed, its running work is stopped."""
        self._client.cancel(self.id, reason)

    def retry(self) -> Job[R]:
        """Runs an ended job once more, as a new job. A repeated call returns the same new job."""
        return cast("Job[R]", self._client.get(self._client.retry(self.id), self._workflow))

    def logs(self, *, follow: bool = False, attempt: int = 0, workflow: str = "") -> Iterator[LogLine]:
        """Yields the lines that one attempt logged, the newest attempt by default; with `follow`, until it can log no more."""
        offset = 0
        while True:
            page = self._client.logs(self.id, workflow=workflow, attempt=attempt, offset=offset)
            yield from page.lines
            attempt, offset = page.attempt, page.next
            if (page.ended and not page.more) or not (follow or page.more):
                return
            if not page.more:
                self._client.job(self.id, wait_s=LOOK_EVERY_S)

    def __repr__(self) -> str:
        return f"<Job {self.id}>"
