"""A deadline counts against a watermark of results: it fires while results never stop coming, and not before those that were in time are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.nodes.manager.harness import ManagerGroup, passing, submission
from tests.nodes.manager.harness import run_group as run

from tenure.engines.aio import calls_for
from tenure.jobs.states import JobState
from tenure.jobs.submission import SubmitJob
from tenure.nodes.manager.leader import JobLeadership
from tenure.nodes.manager.ledger import RESULTS
from tenure.work.delivery import WorkItem, WorkResult


class BusyCalls:
    """Passes calls on. Before each look for results, one more has come that names no work of ours."""

    def __init__(self, group: ManagerGroup) -> None:
        self._calls = calls_for(group.engine)
        self._results = group.engine.mailbox(RESULTS, WorkResult, WorkItem)
        self.posted = 0

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if getattr(function, "__name__", "") != "receive" or function.__self__.name != RESULTS:  # type: ignore[attr-defined]
            return await self._calls.run(function, *args, **options)

        def receive() -> Any:
            self.posted += 1
            stray = WorkResult(job_id="", workflow_id="w", workflow="w", attempt=1, fence=(1, 1), worker="w")
            self._results.send(stray)
            return function(*args, **options)

        return await self._calls.run(receive)


def state(node: JobLeadership) -> JobState:
    return node.ledger.book.jobs["j-1"].state


def test_a_deadline_counts_while_results_never_stop_coming() -> None:
    async def story(group: ManagerGroup) -> None:
        calls = BusyCalls(group)
        _, node = group.open("m-1", calls=calls)
        await group.until(lambda: node.leader)
        await node.commit(SubmitJob(submission=submission("j-1", timeout_seconds=200.0)))
        await passing(group, 150)
        posted = calls.posted
        assert state(node) is JobState.PENDING
        await group.until(lambda: state(node) is JobState.TIMED_OUT, seconds=100)
        assert calls.posted > posted + 10

    run(story)
