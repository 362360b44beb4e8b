"""A standby takes over from the book that it has, and a term is renewed while a node reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.nodes.manager.harness import ManagerGroup, submission
from tests.nodes.manager.harness import run_group as run

from tenure.engines.aio import calls_for
from tenure.jobs.submission import SubmitJob
from tenure.nodes.journal_reading import SLICE_EVENTS
from tenure.nodes.manager.leader import JobLeadership
from tenure.nodes.manager.ledger import JOURNAL


class SlowReads:
    """Passes calls on. Each page of a journal takes so many seconds; `asked` counts the calls by name."""

    def __init__(self, group: ManagerGroup, seconds: float = 0.0) -> None:
        self._calls, self._clock, self.seconds = calls_for(group.engine), group.clock, seconds
        self.asked: list[str] = []

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        name = getattr(function, "__name__", "")
        self.asked.append(name)
        if name == "read":
            await self._clock.async_sleep(self.seconds)
        return await self._calls.run(function, *args, **options)


async def filled(group: ManagerGroup, jobs: int) -> None:
    node = group.manager("m-1")
    await group.until(lambda: node.leader)
    await node.commit_all([SubmitJob(submission=submission(f"j-{number}")) for number in range(jobs)])


def started(group: ManagerGroup, name: str, calls: SlowReads) -> JobLeadership:
    node = group.made(name, calls=calls).leadership
    group.tasks[name] = asyncio.create_task(node.run())
    return node


def test_a_standby_leads_from_its_warm_book() -> None:
    async def story(group: ManagerGroup) -> None:
        await filled(group, 20)
        calls = SlowReads(group)
        second = started(group, "m-2", calls)
        await group.until(lambda: len(second.ledger.book.jobs) == 20)
        warm = second.ledger.book
        calls.asked.clear()
        await group.kill("m-1")
        await group.until(lambda: second.leader, seconds=20)
        assert second.ledger.book is warm
        assert "latest_snapshot" not in calls.asked

    run(story)


def test_a_standby_that_missed_truncated_entries_loads_what_it_lacks() -> None:
    async def story(group: ManagerGroup) -> None:
        first = group.manager("m-1")
        second = group.made("m-2").leadership
        await group.until(lambda: first.leader)
        await second.time.refresh()
        await second.ledger.load()
        seen = second.ledger.seq
        for number in range(30):
            await first.commit(SubmitJob(submission=submission(f"j-{number}")))
        journal = group.engine.journal(JOURNAL)
        journal.snapshot(first.ledger.book.snapshot(), first.ledger.seq, epoch=first.epoch)
        journal.truncate(first.ledger.seq)
        assert seen < first.ledger.seq
        await second.ledger.catch_up()
        assert len(second.ledger.book.jobs) == 30

    run(story)


def test_a_standby_that_is_one_saving_late_reads_on_and_loads_nothing_anew() -> None:
    """The leader once truncated what it had just saved: each standby that was a moment late loaded everything, beside the book that it had."""

    async def story(group: ManagerGroup) -> None:
        first = group.manager("m-1", setup={"snapshot_every": 20, "raise_format": True})
        calls = SlowReads(group)
        second = group.made("m-2", calls=calls).leadership
        await group.until(lambda: first.leader)
        await second.time.refresh()
        saved = 0
        for number in range(200):
            await first.commit(SubmitJob(submission=submission(f"j-{number}")))
            if number == 100:
                await second.ledger.load()
                calls.asked.clear()
                saved = first.ledger.journal.latest_snapshot().seq
            if saved and first.ledger.journal.latest_snapshot().seq > saved:
                break
        else:
            raise AssertionError("the leader did not save")
        assert second.ledger.seq < first.ledger.journal.latest_snapshot().seq
        await second.ledger.catch_up()
        assert "latest_snapshot" not in calls.asked
        assert second.ledger.book.snapshot() == first.ledger.book.snapshot()

    run(story)


def test_the_term_is_renewed_while_what_was_missed_is_read() -> None:
    async def story(group: ManagerGroup) -> None:
        await filled(group, 20)
        calls = SlowReads(group)
        second = started(group, "m-2", calls)
        await group.until(lambda: len(second.ledger.book.jobs) == 20)
        calls.seconds = 35.0
        await group.kill("m-1")
        # The last page, which is empty, is a read too; a term has 10 s.
        await group.until(lambda: second.leader, seconds=120)
        assert second.epoch == 2
        assert second.ledger.book.epoch == 2

    run(story)


def test_a_node_reads_everything_before_it_campaigns() -> None:
    async def story(group: ManagerGroup) -> None:
        await filled(group, 20)
        await group.kill("m-1")
        calls = SlowReads(group, 30.0)
        late = started(group, "m-2", calls)
        election = group.engine.election("manager")
        await group.until(lambda: "read" in calls.asked)
        assert election.current() is None
        warm = group.manager("m-3")
        await group.until(lambda: warm.leader, seconds=20)
        await group.until(lambda: late.ledger.seq, seconds=120)
        assert warm.leader is not None
        assert late.leader is None

    run(story)


def test_a_long_fold_lets_other_tasks_run() -> None:
    async def story(group: ManagerGroup) -> None:
        await filled(group, 3 * SLICE_EVENTS)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        second = group.made("m-2").leadership
        task = asyncio.create_task(others())
        pages = len(group.engine.journal(JOURNAL).read(0)) // 1_000 + 1
        await second.ledger.load()
        task.cancel()
        assert turns > 3 + pages

    run(story)
