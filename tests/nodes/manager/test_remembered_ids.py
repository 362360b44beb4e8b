"""A busy datacenter forgets archived ids before their time. What was submitted under them is known all the same, from the store (decision 0651)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run
from tests.soak import sized

from tenure.client.transactions import SUBMISSIONS
from tenure.control.messages.jobs import Cancel, Done, Submit, SubmitMany
from tenure.control.messages.wire import ProblemKind
from tenure.jobs import JobSubmission, Outcome
from tenure.nodes.manager.manager import Manager
from tenure.nodes.stored_values import ARCHIVE, KEYS, RECORDS_AT_ONCE, RememberedIds

KEPT = 3
"""The archived ids that the book remembers in these tests."""


class Counting:
    """Calls of an engine, with the number of keys that each asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.asked.append(len(args[0]))
        return function(*args, **options)


async def led(group: ManagerGroup, **settings: Any) -> Manager:
    manager, _ = group.open("m-1", setup={"engine_submissions": True}, archive_after=1.0, **settings)
    await group.until(lambda: manager.leads)
    return manager


async def ended(group: ManagerGroup, manager: Manager, *names: str) -> None:
    """Submits jobs, each with a key, and ends them. Returns when all are archived."""
    for name in names:
        await ask(manager, Submit(submission=submission(name, idempotency_key=f"key of {name}")))
        await ask(manager, Cancel(job_id=name))
    await group.until(lambda: not manager.ledger.book.jobs)


def test_a_key_and_an_id_that_the_book_has_forgotten_make_no_second_job() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group, max_remembered=KEPT)
        await ended(group, manager, *(f"j-{number}" for number in range(8)))
        book = manager.ledger.book
        assert (len(book.state.archive), book.state.forgotten_early) == (KEPT, 5)
        assert "key of j-0" not in book.keys
        by_key = await ask(manager, Submit(submission=submission("again", idempotency_key="key of j-0")))
        assert (by_key.job_id, by_key.outcome) == ("j-0", Outcome.ALREADY)
        by_id = await ask(manager, Submit(submission=submission("j-1", idempotency_key="key of j-1")))
        assert (by_id.job_id, by_id.outcome) == ("j-1", Outcome.ALREADY)
        other = submission("other", idempotency_key="key of j-2", name="something else")
        assert (await ask(manager, Submit(submission=other))).kind is ProblemKind.CONFLICT
        fresh = await ask(manager, Submit(submission=submission("fresh", idempotency_key="a new key")))
        assert isinstance(fresh, Done)
        assert fresh.outcome is Outcome.ACCEPTED
        many = tuple(submission(f"n-{number}", idempotency_key=f"key of j-{number % 2}") for number in range(4))
        answers = (await ask(manager, SubmitMany(submissions=many))).jobs
        assert [one.job_id for one in answers] == ["j-0", "j-1", "j-0", "j-1"]
        assert list(book.jobs) == ["fresh"]

    run(story)


def test_a_submission_through_the_engine_that_comes_again_after_all_that_makes_no_second_job() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group, max_remembered=KEPT)
        mailbox = group.engine.mailbox(SUBMISSIONS, JobSubmission)
        mailbox.send(submission("early"))
        await group.until(lambda: "early" in manager.ledger.book.jobs)
        await ask(manager, Cancel(job_id="early"))
        await ended(group, manager, *(f"j-{number}" for number in range(8)))
        assert manager.ledger.book.known_digest("early") is None
        mailbox.send(submission("early"))
        await group.until(lambda: mailbox.approximate_count() == 0)
        assert not manager.ledger.book.jobs
        assert [one.reason for one in mailbox.dead_letters.list()] == []

    run(story)


def test_what_the_store_has_that_nobody_can_read_refuses_no_other_submission() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group, max_remembered=KEPT)
        await ended(group, manager, *(f"j-{number}" for number in range(8)))
        group.engine.store(ARCHIVE).put("j-0", b"\xff")
        keys = group.engine.store(KEYS)
        for name in keys.list():
            keys.put(name, b"{")
        many = (submission("j-0"), submission("n-1", idempotency_key="key of j-1"))
        answers = (await ask(manager, SubmitMany(submissions=many))).jobs
        assert [one.outcome for one in answers] == [Outcome.ALREADY, Outcome.ACCEPTED]

    run(story)


def test_a_thousand_old_jobs_are_not_looked_up_at_once() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group, max_remembered=KEPT)
        await ended(group, manager, *(f"j-{number}" for number in range(8)))
        calls = Counting()
        many = [submission(f"j-{number % 8}") for number in range(200)]
        found = await RememberedIds(group.engine, calls).find(manager.ledger.book, many)
        assert set(found) == {f"j-{number}" for number in range(5)}
        assert sum(calls.asked) == 125
        assert max(calls.asked) <= RECORDS_AT_ONCE

    run(story)


def test_after_a_busy_day_memory_is_that_of_its_first_hours_and_the_keys_of_the_first_hour_are_known() -> None:
    an_hour = sized("completed jobs in each hour of a simulated day", short=5, long=2_000)

    async def story(group: ManagerGroup) -> None:
        manager = await led(group, max_remembered=2 * an_hour)
        held = []
        for hour in range(24):
            begun, epoch = group.clock.boottime(), manager.epoch
            for number in range(an_hour):
                name = f"{hour}-{number}"
                await ask(manager, Submit(submission=submission(name, idempotency_key=f"key of {name}")))
            for _ in range(an_hour):
                group.answer(await group.claimed())
            await group.until(lambda: not manager.ledger.book.jobs, seconds=3_600)
            group.clock.advance(max(60.0, begun + 3_600 - group.clock.boottime()))
            # The clock goes on by an hour at once, so the term runs out.
            await group.until(partial(lambda before: manager.leads and manager.epoch > before, epoch))
            book = manager.ledger.book
            held.append((len(book.jobs), len(book.state.archive), len(book.keys), len(book.ended)))
        assert held[3:] == [held[3]] * 21
        again = await ask(manager, Submit(submission=submission("again", idempotency_key="key of 0-0")))
        assert (again.job_id, again.outcome) == ("0-0", Outcome.ALREADY)

    run(story)
