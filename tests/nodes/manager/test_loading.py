"""What a manager answers while it still reads its journal: the jobs that it has read, and of everything else how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run
from tests.nodes.manager.test_state_saving import PAGED, leading, saved_at, submit

from tenure.control.messages.jobs import AskWhy, GetJob, JobList, JobView, ListJobs, SubmitMany, WhyReply
from tenure.control.messages.wire import Problem, ProblemKind
from tenure.control.problems import head_of
from tenure.engines.aio import calls_for
from tenure.jobs.endings import CancelJob
from tenure.nodes import journal_reading, state_saving
from tenure.nodes.journal_reading import LoadProgress
from tenure.nodes.manager.manager import Manager


class SlowPages:
    """Passes calls on. Of the reads of pages, only so many come back as `let` says."""

    def __init__(self, group: ManagerGroup) -> None:
        self._calls, self.asked, self.let = calls_for(group.engine), 0, 0
        self.more = asyncio.Condition()

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if getattr(function, "__name__", "") == "get_many":
            self.asked += 1
            mine = self.asked
            async with self.more:
                await self.more.wait_for(lambda: mine <= self.let)
        return await self._calls.run(function, *args, **options)

    async def answer(self, count: int) -> None:
        async with self.more:
            self.let = count
            self.more.notify_all()


async def starting(group: ManagerGroup, monkeypatch: pytest.MonkeyPatch, pages: int) -> tuple[Manager, SlowPages]:
    """Returns the only manager of a datacenter with 200 jobs in four pages, of which it has read so many."""
    monkeypatch.setattr(state_saving, "READ_AT_ONCE", 1)
    first = await leading(group, "m-1")
    await submit(first, *range(200))
    await group.until(lambda: saved_at(group) >= first.ledger.seq - 4)
    await first.commit(CancelJob(job_id="j-1"))
    await group.kill("m-1")
    calls = SlowPages(group)
    manager, _ = group.open("m-2", setup=PAGED, calls=calls)
    await calls.answer(pages)
    await group.until(lambda: manager.ledger.loading is not None and manager.ledger.loading.read == pages)
    return manager, calls


def test_a_manager_that_still_reads_shows_the_jobs_that_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, calls = await starting(group, monkeypatch, 2)
        for job_id in ("j-0", "j-127"):
            view, why = await ask(manager, GetJob(job_id=job_id)), await ask(manager, AskWhy(job_id=job_id))
            assert isinstance(view, JobView)
            assert isinstance(why, WhyReply)
            assert (view.job_id, why.why.job_id) == (job_id, job_id)
        await calls.answer(1_000)
        await group.until(lambda: manager.leads)
        assert manager.ledger.loading is None
        view = await ask(manager, GetJob(job_id="j-1"))
        assert view.state == "cancelled"

    run(story)


def test_of_what_it_has_not_read_it_says_how_far_it_is_and_never_that_it_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, calls = await starting(group, monkeypatch, 3)
        told = "this node reads its journal: it has read 3 of 4 pages of the saved state"
        late = GetJob(job_id="j-199")
        asked = (
            late,
            GetJob(job_id="nobody"),
            AskWhy(job_id="j-199"),
            ListJobs(),
            SubmitMany(submissions=(submission("j-new"),)),
        )
        for request in asked:
            reply = await ask(manager, request)
            assert isinstance(reply, Problem)
            assert (reply.kind, reply.fact, reply.retryable) == (ProblemKind.UNAVAILABLE, told, True)
            assert head_of(reply, 0, "1", "http", "/")[1]["Retry-After"] == "1"
            assert reply.retry_after_s == 0.0, "a client that knows no better asks soon: most states are small"
        assert manager.unready == {"journal": told}
        await calls.answer(1_000)
        await group.until(lambda: manager.leads)
        assert manager.unready == {}
        assert isinstance(await ask(manager, late), JobView)
        page = await ask(manager, ListJobs())
        assert isinstance(page, JobList)
        assert page.known == 200, "the submission was refused, not kept for later"
        assert (await ask(manager, GetJob(job_id="nobody"))).kind is ProblemKind.UNKNOWN

    run(story)


def test_a_manager_that_lost_its_place_answers_from_the_book_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, calls = await starting(group, monkeypatch, 0)
        await calls.answer(4)
        await group.until(lambda: manager.leads)
        reading = asyncio.create_task(manager.ledger.load())
        await group.until(lambda: calls.asked > 4)
        assert manager.ledger.loading is None
        assert isinstance(await ask(manager, GetJob(job_id="j-199")), JobView)
        await calls.answer(1_000)
        await reading

    run(story)


def test_the_log_tells_how_far_a_large_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(journal_reading, "TOLD_AFTER_PAGES", 100)
    large, small = LoadProgress[Any](said.append), LoadProgress[Any](said.append)
    assert str(large) == "this node reads its journal"
    small.begin(object(), 99)
    small.added(99)
    assert said == []
    large.begin(object(), 250)
    for _ in range(5):
        large.added(50)
    reads = "this node reads its journal: it has read"
    assert said == [f"{reads} {count} of 250 pages of the saved state" for count in (0, 100, 200)]
    assert str(large) == f"{reads} all 250 pages of the saved state, and folds what came after it"
