"""The durable steps that a leader makes for one job, counted: one for its submission with its dispatch, one for its result with its acknowledgement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.nodes.manager.harness import ManagerGroup, run_group, submission

from tenure.engines.aio import Calls, calls_for
from tenure.errors import LimitError
from tenure.jobs.states import JobState
from tenure.jobs.submission import SubmitJob
from tenure.nodes.manager.ledger import RESULTS

JOBS = 10


class _CountedCalls:
    """Makes the calls, and keeps the names of those that change something for a job."""

    CHANGES = ("append", "append_with", "send_many", "send_across", "acknowledge_many", "acknowledge")

    def __init__(self, inner: Calls) -> None:
        self._inner = inner
        self.made: list[str] = []

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if function.__name__ in self.CHANGES:
            self.made.append(function.__name__)
        return await self._inner.run(function, *args, **options)


@pytest.mark.parametrize("in_one_step", [True, False], ids=["in one step", "in several steps"])
def test_a_job_alone_takes_one_step_for_its_submission_and_one_for_its_result(in_one_step: bool) -> None:
    """An engine that cannot append in one step takes five: entry, message, entry of the dispatch, entry of the result, acknowledgement."""

    async def story(group: ManagerGroup) -> None:
        group.engine.appends_in_one_step = in_one_step
        calls = _CountedCalls(calls_for(group.engine))
        node = group.made("m-1", calls=calls).leadership
        group.tasks["m-1"] = asyncio.create_task(node.run())
        await group.until(lambda: node.leader)
        await group.until(lambda: not node.ledger.writing and node.leader and node.leader.begun)
        for number in range(JOBS):
            calls.made.clear()
            await node.commit(SubmitJob(submission=submission(f"j-{number}")))
            await group.until(lambda: group.work.depth().ready == 1 and not node.ledger.writing)
            group.answer(group.claim(), number)
            await group.until(lambda number=number: node.ledger.book.job(f"j-{number}").state is JobState.COMPLETED)
            await group.until(lambda: group.engine.mailbox(RESULTS).approximate_count() == 0)
            await group.until(lambda: not node.ledger.writing)
            expected = (
                ["append_with"] * 2
                if in_one_step
                else ["append", "send_across", "append", "append", "acknowledge_many"]
            )
            assert calls.made == expected

    run_group(story)


def test_an_order_that_the_engine_refuses_with_the_append_refuses_no_submission() -> None:
    """The leader then sends it by itself, as an engine that appends in several steps has it."""

    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader and node.leader.begun)
        refused: list[int] = []

        def refuse(*args: Any, **options: Any) -> Any:
            refused.append(1)
            raise LimitError("body", "600,000 bytes", "at most 524,288 bytes")

        group.engine.append_with = refuse  # type: ignore[method-assign]
        await node.commit(SubmitJob(submission=submission("j-1")))
        await group.until(lambda: group.work.depth().ready == 1)
        assert refused
        assert (group.claim().key, node.leader is not None) == ("j-1/encode", True)

    run_group(story)


def test_orders_keep_their_order_behind_one_that_is_too_large_to_leave_with_an_append() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader and node.leader.begun)
        spec = submission().workflows[0]
        large = msgspec.structs.replace(spec, arguments={"n": "x" * 5_000})
        first = msgspec.structs.replace(submission("large"), workflows=(large,))
        await node.ledger.commit_all([SubmitJob(submission=one) for one in (first, submission("small"))])
        await group.until(lambda: group.work.depth().ready == 2)
        assert [message.key for message in group.work.receive(5, 60)] == ["large/encode", "small/encode"]

    run_group(story)
