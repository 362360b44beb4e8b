"""One job as the code that submitted it sees it: wait for it, look at it, ask why, cancel it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from tenure.clock import Clock
from tenure.errors import JobFailed, JobNotEndedError
from tenure.jobs.events import JobEnded
from tenure.jobs.gate_events import GateJobEnded, decode_any_event
from tenure.jobs.states import JobState
from tenure.jobs.why import Link, link
from tenure.nodes.client.bars import Bar
from tenure.nodes.messages.client import JobView
from tenure.nodes.messages.event import EventLine
from tenure.nodes.messages.job import LogLine
from tenure.work.registry import Workflow

if TYPE_CHECKING:
    from tenure.nodes.client.client import Client

LONG_POLL_S = 10.0
ENDED = frozenset({JobEnded.__name__, GateJobEnded.__name__})
"""The last word on a job: of a manager, or of a gate."""
LOOK_EVERY_S = 0.25
"""How often a progress bar moves."""

R = TypeVar("R")


class Job(Generic[R]):
    """A submitted job. `R` is what its workflow returns."""

    def __init__(self, client: Client, job_id: str, workflow: Workflow[..., Any] | None, clock: Clock) -> None:
        self._client, self.id, self._workflow, self._clock = client, job_id, workflow, clock

    def wait(self, timeout: float | None = None, *, progress: bool = False) -> R:
        """What the workflow returned, once it has; raises `JobFailed`, which says why, or `JobNotEndedError` after `timeout`.

        `progress` shows a bar on a terminal, and nothing elsewhere.
        """
        begun = self._clock.monotonic()
        with Bar(self.id if progress else "") as bar:
            step = LOOK_EVERY_S if bar.shown else LONG_POLL_S
            while True:
                left = step if timeout is None else begun + timeout - self._clock.monotonic()
                view = self._client.job(self.id, wait_s=max(0.0, min(left, step)))
                bar.show(view)
                if view.ended:
                    break
                if timeout is not None and self._clock.monotonic() - begun >= timeout:
                    raise JobNotEndedError(self.id, view.state, timeout)
        return cast("R", self._outcome(view))

    def result(self) -> R:
        """What it returned; raises `JobNotEndedError` at once while it runs."""
        return self.wait(0.0)

    def status(self) -> JobView:
        """How it stands now: state, progress, attempts, worker."""
        return self._client.job(self.id)

    @property
    def state(self) -> JobState:
        return self.status().state

    @property
    def attempts(self) -> int:
        """How often its workflows were tried so far."""
        return attempts_of(self.status())

    def why(self) -> str:
        """The chain of decisions that brought it to where it is, as text; `client.why(job.id).why` has it as data."""
        return self._client.why(self.id).text

    def events(self) -> Iterator[Link]:
        """Each decision about it, as it is made, from its submission to its end; through a change of leaders without a gap."""
        after, begun = "0", self.status().submitted_at
        while True:
            page = self._client.events(self.id, after, wait_s=LONG_POLL_S)
            if page.gap is not None:
                # What the journal has folded is told as `why` tells it; an archived job has nothing more to come.
                yield from self._client.why(self.id).why.links
                if self.status().ended:
                    return
            for line in page.events:
                yield link_of(line, begun)
                if line.event["type"] in ENDED:
                    return
            after = page.cursor

    def cancel(self, reason: str = "") -> None:
        """End it now. Queued work of it is never claimed, running work is stopped."""
        self._client.cancel(self.id, reason)

    def retry(self) -> Job[R]:
        """Run it once more, as a new job, after it has ended. Asked again, it is the same new job."""
        return cast("Job[R]", self._client.get(self._client.retry(self.id), self._workflow))

    def logs(self, *, follow: bool = False, attempt: int = 0, workflow: str = "") -> Iterator[LogLine]:
        """What it logged in one attempt, the newest by default; with `follow`, until that attempt can log no more."""
        offset = 0
        while True:
            page = self._client.logs(self.id, workflow=workflow, attempt=attempt, offset=offset)
            yield from page.lines
            attempt, offset = page.attempt, page.next
            if (page.ended and not page.more) or not (follow or page.more):
                return
            if not page.more:
                self._client.job(self.id, wait_s=LOOK_EVERY_S)

    def _outcome(self, view: JobView) -> Any:
        if view.state is not JobState.COMPLETED:
            raise JobFailed(self.id, view.state, view.reason, self.why())
        return result_of(view, self._workflow)

    def __repr__(self) -> str:
        return f"<Job {self.id}>"


def link_of(line: EventLine, begun: float) -> Link:
    """An event in the words of `why`."""
    return link(decode_any_event(msgspec.json.encode(line.event)), begun)


def attempts_of(view: JobView) -> int:
    """A workflow that waits for another has not been tried yet."""
    return sum(one.attempt for one in view.workflows if one.state != "waiting")


def result_of(view: JobView, workflow: Workflow[..., Any] | None) -> Any:
    """The result of a job of one workflow, as it is annotated; of several, a dictionary by name."""
    if len(view.workflows) != 1:
        return {one.name: one.result for one in view.workflows}
    value = view.workflows[0].result
    return workflow.decode_result(value) if workflow is not None else value
