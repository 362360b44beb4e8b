"""One job as the code that submitted it sees it: wait for it, look at it, ask why, cancel it.

`AsyncJobMap` runs one workflow over many inputs: bounded in flight, results in the order of the inputs, failures collected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tenure.client.job_messages import (
    ENDED,
    LONG_POLL_S,
    LOOK_EVERY_S,
    OUTPUT_WAIT_S,
    JobUpdate,
    ProgressBar,
    ResultDecoder,
    accepted,
    attempts_of,
    link_of,
    result_of,
    update_of_progress,
    update_of_view,
)
from tenure.clock import Clock
from tenure.control.messages.job_output import LogLine, OutputItem
from tenure.control.messages.jobs import MAX_LISTED, JobView
from tenure.errors import JobFailed, JobNotEndedError, JobsFailed, LimitError, TenureError
from tenure.jobs.states import JobState
from tenure.jobs.why_answer import Link
from tenure.work.job_submission import Target, name_of, spread

if TYPE_CHECKING:
    from tenure.client.async_client import AsyncClient


R = TypeVar("R")


class AsyncJob(Generic[R]):
    """A submitted job. `R` is the type that its workflow returns."""

    def __init__(self, client: AsyncClient, job_id: str, workflow: ResultDecoder | None, clock: Clock) -> None:
        self._client, self.id, self._workflow, self._clock = client, job_id, workflow, clock

    async def wait(self, timeout: float | None = None, *, progress: bool = False) -> R:
        """Returns what the workflow returned, once it has. Raises `JobFailed`, which says why, or `JobNotEndedError` after `timeout`.

        `progress` shows a bar on a terminal, and nothing elsewhere.
        """
        begun = self._clock.monotonic()
        with ProgressBar(self.id if progress else "") as bar:
            step = LOOK_EVERY_S if bar.shown else LONG_POLL_S
            while True:
                left = step if timeout is None else begun + timeout - self._clock.monotonic()
                view = await self._client.job(self.id, wait_s=max(0.0, min(left, step)))
                bar.show(view)
                if view.ended:
                    break
                if timeout is not None and self._clock.monotonic() - begun >= timeout:
                    raise JobNotEndedError(self.id, view.state, timeout)
        return await self.outcome(view)

    async def outcome(self, view: JobView) -> R:
        """Returns the result that is in the view of the ended job. Raises `JobFailed`, which says why."""
        if view.state is not JobState.COMPLETED:
            told = await self._client.why(self.id)
            raise JobFailed(self.id, view.state, view.reason, told.text, told.why.found)
        return cast("R", result_of(view, self._workflow))

    async def result(self) -> R:
        """Returns what the workflow returned; raises `JobNotEndedError` at once while it runs."""
        return await self.wait(0.0)

    async def status(self) -> JobView:
        """Returns how the job stands now: state, progress, attempts, worker."""
        return await self._client.job(self.id)

    # sync: @property
    async def state(self) -> JobState:
        return (await self.status()).state

    # sync: @property
    async def attempts(self) -> int:
        """Returns how often its workflows were tried so far."""
        return attempts_of(await self.status())

    async def why(self) -> str:
        """Returns the decisions that brought the job to where it is, as text; `client.why(job.id).why` has them as data."""
        return (await self._client.why(self.id)).text

    async def events(self) -> AsyncIterator[Link]:
        """Yields each decision about the job as it is made, from its submission to its end, without a gap when the leader changes."""
        after, begun = "0", (await self.status()).submitted_at
        while True:
            page = await self._client.events(self.id, after, wait_s=LONG_POLL_S)
            if page.gap is not None:
                # The journal has folded the older events: `why` still has them. Nothing more comes of an archived job.
                for told in (await self._client.why(self.id)).why.links:
                    yield told
                if (await self.status()).ended:
                    return
            for line in page.events:
                yield link_of(line, begun)
                if line.event["type"] in ENDED:
                    return
            after = page.cursor

    async def watch(self) -> AsyncIterator[JobUpdate]:
        """Yields how the job stands, from now on: its progress at most once a second, and each decision, to its end. The last one has `ended`.

        Through a gate, progress comes from a client with `datacenter=`.
        """
        view, after = await self.status(), None
        yield update_of_view(view)
        while not view.ended:
            page = await self._client.events(self.id, after, wait_s=LONG_POLL_S, progress=True)
            after = page.cursor
            for one in page.progress:
                yield update_of_progress(view, one)
            told = [link_of(line, view.submitted_at) for line in page.events]
            if told or page.gap is not None:
                view = await self.status()
            for link in told:
                yield update_of_view(view, link)
            if view.ended and not told:
                yield update_of_view(view)

    async def cancel(self, reason: str = "") -> None:
        """Ends the job now. Its queued work is never claimed, its running work is stopped."""
        await self._client.cancel(self.id, reason)

    async def signal(self, name: str, payload: Any = None, *, id: str = "") -> None:
        """Sends a signal to the job, once for each `id`; see `Client.signal`."""
        await self._client.signal(self.id, name, payload, id=id)

    async def pause(self, reason: str) -> None:
        """Pauses the job: what runs ends with its checkpoint, and none of its clocks runs until `resume`."""
        await self._client.pause(self.id, reason)

    async def resume(self, reason: str) -> None:
        """Lets the paused job go on from its checkpoints."""
        await self._client.resume(self.id, reason)

    async def extend(self, seconds: float, reason: str) -> None:
        """Moves the job's deadline by so many seconds."""
        await self._client.extend(self.id, seconds, reason)

    async def move(self, reason: str, *, workflow: str = "") -> None:
        """Has what runs go on from its checkpoint on another worker."""
        await self._client.move(self.id, reason, workflow=workflow)

    async def retry(self, *, whole: bool = False, from_step: str = "", timeout: float | None = None) -> AsyncJob[R]:
        """Runs an ended job once more, as a new job; see `AsyncClient.retry`. A repeated call returns the same new job."""
        again = await self._client.retry(self.id, whole=whole, from_step=from_step, timeout=timeout)
        return cast("AsyncJob[R]", self._client._handle(again, self._workflow))

    async def logs(self, *, follow: bool = False, attempt: int = 0, workflow: str = "") -> AsyncIterator[LogLine]:
        """Yields the lines that one attempt logged, the newest attempt by default; with `follow`, until it can log no more."""
        offset = 0
        while True:
            page = await self._client.logs(self.id, workflow=workflow, attempt=attempt, offset=offset)
            for line in page.lines:
                yield line
            attempt, offset = page.attempt, page.next
            if (page.ended and not page.more) or not (follow or page.more):
                return
            if not page.more:
                await self._client.job(self.id, wait_s=LOOK_EVERY_S)

    async def output(self, after: int = 0, *, follow: bool = False, workflow: str = "") -> AsyncIterator[OutputItem]:
        """Yields the items that a workflow has emitted, from an offset on; with `follow`, until it can emit no more."""
        while True:
            wait_s = OUTPUT_WAIT_S if follow else 0.0
            page = await self._client.output(self.id, after, workflow=workflow, wait_s=wait_s)
            for one in page.items:
                yield one
            after = page.next
            if not page.more and (page.ended or not follow):
                return

    def __repr__(self) -> str:
        return f"<AsyncJob {self.id}>"


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
                    under_way = await self._harvest(bar)
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
        """Submits as many as may be open, in few requests."""
        room = in_flight - len(self._open)
        taken = [self._waiting.pop() for _ in range(min(room, len(self._waiting)))]
        if not taken:
            return
        answers = await self._client.submit_each(self._target, [given for _, given in taken], **self._options)
        for (place, _), answer in zip(taken, answers, strict=False):
            if answer.problem is None:
                self._open[answer.job_id] = (place, self._client.get(answer.job_id, self._target))
        accepted(answers)  # raises for one that was refused; the others are known by now, and are cancelled

    async def _harvest(self, bar: ProgressBar) -> float:
        """Takes the results that are there, or waits a little for one. Returns how much of the rest is done, in jobs."""
        wait_s = LOOK_EVERY_S if bar.shown else LONG_POLL_S
        reply = await self._client.ended(list(self._open), wait_s=wait_s)
        for view in reply.jobs:
            await self._take(view.job_id, view)
        alone = reply.ask_alone if reply.jobs or reply.ask_alone else [next(iter(self._open))]
        for job_id in alone:  # a job that nobody knows any more says so here
            view = await self._client.job(job_id)
            if view.ended:
                await self._take(job_id, view)
        if not bar.shown or not self._open:
            return 0.0
        rows = {row.job_id: row for row in (await self._client.jobs(limit=MAX_LISTED)).jobs}
        return sum(rows[job_id].progress for job_id in self._open if job_id in rows)

    async def _take(self, job_id: str, view: JobView) -> None:
        place, job = self._open.pop(job_id)
        try:
            self._results[place] = await job.outcome(view)
        except JobFailed as error:
            self._failures[place] = error
